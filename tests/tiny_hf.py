"""Tiny models of transformers with random weights, made on the spot: nothing is downloaded."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tiny_language import sentences

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
SECONDS = 2  # that the tiny Whisper takes
SIZES: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 16,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
}
WAVES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "conv_dim": (8,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_feature_length": 4,
}


def livelier(network: Any, seed: int, end: int = 0) -> Any:
    """Give a network larger random weights, so that its outputs depend on its inputs and some hypotheses end."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, each in network.named_parameters():
            if "embed_tokens" in name or "proj_out" in name:
                each.normal_(0, 0.3)
                each[end] *= 1.5
            elif "embed_pos" in name:
                each.normal_(0, 1.0)
            elif each.dim() > 1 and "conv" not in name:
                each.normal_(0, 0.5)
    return network


def whisper(folder: Path, multilingual: bool = True, **config: Any) -> Path:
    """A Whisper that takes `SECONDS` of audio."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import (
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperTokenizer,
    )

    torch.manual_seed(0)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        [" " + each for each in sentences(100)],
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet),
    )
    bpe.save(str(folder.with_suffix(".json")))
    model = json.loads(folder.with_suffix(".json").read_text())["model"]
    folder.with_suffix(".json").unlink()
    tokenizer = WhisperTokenizer(vocab=model["vocab"], merges=[tuple(each) for each in model["merges"]])
    languages = ["<|en|>", "<|de|>"] if multilingual else []
    tasks = ["<|transcribe|>", "<|translate|>"]
    more = ["<|endoftext|>", "<|startoftranscript|>", *languages, *tasks, "<|notimestamps|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": more})
    tokenizer.add_tokens([f"<|{each / 50:.2f}|>" for each in range(5)])
    ids = {each: tokenizer.get_vocab()[each] for each in more}
    end = ids["<|endoftext|>"]
    network = WhisperForConditionalGeneration(
        WhisperConfig(
            **SIZES,
            vocab_size=len(tokenizer),
            max_source_positions=50 * SECONDS,
            max_target_positions=40,
            pad_token_id=end,
            bos_token_id=end,
            eos_token_id=end,
            decoder_start_token_id=ids["<|startoftranscript|>"],
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **config,
        )
    )
    generation: Any = network.generation_config
    generation._from_model_config = False
    generation.suppress_tokens = [each for name, each in ids.items() if name != "<|endoftext|>"] + [5, 6]
    generation.suppress_tokens += list(range(ids["<|notimestamps|>"], len(tokenizer)))
    generation.begin_suppress_tokens = [220, end]
    generation.no_timestamps_token_id = ids["<|notimestamps|>"]
    generation.is_multilingual = multilingual
    generation.max_length = 40
    if multilingual:
        generation.lang_to_id = {each: ids[each] for each in languages}
        generation.task_to_id = {each.strip("<|>"): ids[each] for each in tasks}
    livelier(network, 3, end).save_pretrained(folder)
    WhisperFeatureExtractor(chunk_length=SECONDS).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def ctc(folder: Path, kind: str = "Wav2Vec2", norm: str = "layer", **config: Any) -> Path:
    """A CTC model over waveforms with upper-case letters: Wav2Vec2, Hubert or WavLM."""
    import transformers

    torch.manual_seed(0)
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *LETTERS.upper()]
    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({each: number for number, each in enumerate(tokens)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(vocabulary))
    network = getattr(transformers, f"{kind}ForCTC")(
        getattr(transformers, f"{kind}Config")(
            **WAVES,
            vocab_size=len(tokens),
            pad_token_id=0,
            feat_extract_norm=norm,
            do_stable_layer_norm=norm == "layer",
            **config,
        )
    )
    livelier(network, 1).save_pretrained(folder)
    transformers.Wav2Vec2FeatureExtractor(return_attention_mask=norm == "layer").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def word_tokenizer(folder: Path) -> int:
    """Write a tokenizer of characters with <s>, <pad>, </s> and <unk>; return the number of tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = ["<s>", "<pad>", "</s>", "<unk>", "▁", *LETTERS]
    unigram = Tokenizer(models.Unigram([(each, -1.0) for each in tokens], unk_id=3))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.decoder = decoders.Metaspace()
    special = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=unigram, **special).save_pretrained(folder)
    return len(tokens)


def speech_to_text(folder: Path) -> Path:
    """A Speech2Text with filter banks that are computed on the CPU."""
    from transformers import (
        Speech2TextConfig,
        Speech2TextFeatureExtractor,
        Speech2TextForConditionalGeneration,
    )

    torch.manual_seed(0)
    size = word_tokenizer(folder)
    network = Speech2TextForConditionalGeneration(
        Speech2TextConfig(
            **SIZES,
            vocab_size=size,
            conv_channels=16,
            max_source_positions=200,
            max_target_positions=40,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=2,
        )
    )
    network.generation_config.max_length = 40
    livelier(network, 0, 2).save_pretrained(folder)
    Speech2TextFeatureExtractor().save_pretrained(folder)
    return folder


def moonshine(folder: Path) -> Path:
    """A Moonshine, which reads waveforms."""
    from transformers import MoonshineConfig, MoonshineForConditionalGeneration, Wav2Vec2FeatureExtractor

    torch.manual_seed(0)
    size = word_tokenizer(folder)
    network = MoonshineForConditionalGeneration(
        MoonshineConfig(
            vocab_size=size,
            hidden_size=16,
            intermediate_size=32,
            encoder_num_hidden_layers=2,
            decoder_num_hidden_layers=2,
            encoder_num_attention_heads=2,
            decoder_num_attention_heads=2,
            max_position_embeddings=40,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=0,
        )
    )
    network.generation_config.max_length = 40
    livelier(network, 7, 2).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(do_normalize=False, return_attention_mask=True).save_pretrained(folder)
    return folder


def composed(folder: Path) -> Path:
    """A Wav2Vec2 as encoder with a Bart as decoder."""
    from transformers import (
        BartConfig,
        SpeechEncoderDecoderConfig,
        SpeechEncoderDecoderModel,
        Wav2Vec2Config,
        Wav2Vec2FeatureExtractor,
    )

    torch.manual_seed(0)
    size = word_tokenizer(folder)
    ids: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    decoder = {name: each for name, each in SIZES.items() if "encoder" not in name}
    config = SpeechEncoderDecoderConfig.from_encoder_decoder_configs(
        Wav2Vec2Config(**WAVES, do_stable_layer_norm=True, feat_extract_norm="layer"),
        BartConfig(**decoder, **ids, vocab_size=size, max_position_embeddings=42),
        **ids,
        decoder_start_token_id=0,
    )
    network = SpeechEncoderDecoderModel(config)
    network.generation_config.max_length = 40
    network.generation_config.forced_eos_token_id = None  # of Bart
    livelier(network, 0, 2).save_pretrained(folder)
    Wav2Vec2FeatureExtractor(return_attention_mask=True).save_pretrained(folder)
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "whisper": whisper,
    "moonshine": moonshine,
    "speech_to_text": speech_to_text,
    "composed": composed,
    "wav2vec2": ctc,
    "wav2vec2-group": partial(ctc, norm="group"),
    "hubert": partial(ctc, kind="Hubert"),
    "wavlm": partial(ctc, kind="WavLM", norm="group"),
}
"""How each tiny model is made in a folder."""
LANGUAGE = {"whisper": "en"}
