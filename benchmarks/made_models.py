"""Small models of transformers, trained from random weights with PyTorch alone: a Whisper, a wav2vec 2.0, a GPT-2.

They stand in for pretrained models where none can be downloaded; each ends as an ordinary folder of transformers. What
a few hours of speech do not teach by themselves is taught in steps. Whisper's encoder first learns with a CTC output,
which its decoder then has beside it, and which is thrown away. wav2vec 2.0's convolutions first learn to compute
log-mel features.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from priormatch.config import AudioSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.corpus import Corpus, cut_text
from priormatch.data.features import time_mask
from priormatch.data.waveforms import read_samples, to_int16
from priormatch.device import mixed_precision
from priormatch.progress import say, track
from priormatch.recognizers.hf_folder import quietly
from priormatch.recognizers.hf_inputs import inputs_of

LETTERS = "abcdefghijklmnopqrstuvwxyz'"
WRITTEN = f" {LETTERS}"
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "|")
END, START, PLAIN = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
IGNORED = -100  # the label that the losses of transformers leave out
STRIDE = 320  # samples between two frames of either encoder
CTC_BESIDE = 0.3  # weight of CTC while Whisper's decoder is trained
MELS, WINDOW, QUIET = 80, 400, 1e-5  # of the features that convolutions learn
SENTENCES_FOR_PIECES = 200_000
AT_ONCE = 20_000  # sentences that are split into pieces
REPORTS = 10  # of the loss in a training


class Sizes(NamedTuple):
    """The sizes of the three models: 11, 10 and 13 M parameters as they are here."""

    width: int = 256
    layers: int = 8
    decoder_layers: int = 4
    heads: int = 4
    channels: int = 256  # of wav2vec 2.0's convolutions
    pieces: int = 1000  # of Whisper's tokenizer
    seconds: int = 20  # that Whisper takes
    lm_width: int = 384
    lm_layers: int = 6
    lm_heads: int = 6
    lm_pieces: int = 4096
    lm_longest: int = 256  # tokens


TINY = Sizes(16, 2, 1, 2, 8, 300, 4, 16, 1, 2, 300, 64)


class Training(NamedTuple):
    """How long to train on what: seconds of audio or tokens in a batch."""

    updates: int
    learning_rate: float
    batch: int
    seed: int


@dataclass(frozen=True)
class Speech:
    """Transcribed utterances of at most `longest` seconds, their samples one after the other on a device."""

    samples: Tensor
    starts: list[int]
    texts: list[str]

    @staticmethod
    def read(cuts: Path, longest: float, device: torch.device) -> "Speech":
        """Read the utterances of a manifest of cuts."""
        corpus = Corpus.load(cuts, AudioSettings(longest=longest), transcribed=True)
        with ThreadPoolExecutor() as pool:
            found = [
                to_int16(each)[0]
                for each in track(pool.map(read_samples, corpus.cuts), "reading speech", len(corpus))
            ]
        starts = np.cumsum([0, *map(len, found)]).tolist()
        texts = [" ".join(str(cut_text(cut)).lower().split()) for cut in corpus.cuts]
        return Speech(torch.from_numpy(np.concatenate(found)).to(device), starts, texts)

    def batches(self, seconds: float, seed: int) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
        """Batches of similar length, for ever: waveforms (B, N), samples (B,), texts."""
        random, lengths = np.random.default_rng(seed), np.diff(self.starts)
        while True:
            order = np.argsort(lengths * random.uniform(0.9, 1.1, len(lengths)))
            for part in shuffled(in_batches(order, lengths, seconds * SAMPLE_RATE), random):
                counts = torch.from_numpy(lengths[part])
                waveforms = torch.zeros(len(part), int(counts.max()), device=self.samples.device)
                for row, each in zip(waveforms, part, strict=True):
                    row[: lengths[each]] = self.samples[self.starts[each] : self.starts[each + 1]]
                yield waveforms / 2**15, counts.to(waveforms.device), [self.texts[each] for each in part]


def in_batches(order: Sequence[int], lengths: Sequence[int], most: float) -> list[list[int]]:
    """Split an order into batches whose padded size is at most `most`, or that hold one element."""
    batches: list[list[int]] = []
    longest = 0
    for each in order:
        longest = max(longest, lengths[each])
        if not batches or (len(batches[-1]) + 1) * longest > most:
            batches.append([])
            longest = lengths[each]
        batches[-1].append(int(each))
    return batches


def shuffled(batches: list[list[int]], random: np.random.Generator) -> list[list[int]]:
    """The batches in random order."""
    return [batches[place] for place in random.permutation(len(batches))]


def train(modules: Sequence[nn.Module], loss_of: Callable[[], Tensor], wanted: Training, name: str) -> None:
    """Minimize a loss with AdamW: linear warm-up over a tenth of the updates, then a cosine to zero."""
    parameters = [each for module in modules for each in module.parameters() if each.requires_grad]
    device = parameters[0].device
    optimizer = torch.optim.AdamW(parameters, wanted.learning_rate, (0.9, 0.98), fused=True)
    warm_up = max(wanted.updates // 10, 1)
    for update in track(range(wanted.updates), name):
        rest = (update - warm_up) / max(wanted.updates - warm_up, 1)
        share = (update + 1) / warm_up if update < warm_up else 0.5 * (1 + np.cos(np.pi * rest))
        optimizer.param_groups[0]["lr"] = wanted.learning_rate * share
        optimizer.zero_grad(set_to_none=True)
        with mixed_precision(device):
            loss = loss_of()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (update + 1) % max(wanted.updates // REPORTS, 1) == 0:
            say(f"{name}: loss {float(loss.detach()):.3f} after {update + 1} updates")


def saved(folder: Path, *parts: Any) -> Path:
    """Write a folder of transformers, which appears when it is complete."""
    new = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(new, ignore_errors=True)
    with quietly():
        for each in parts:
            each.save_pretrained(new)
    return new.replace(folder)


def letters(texts: Sequence[str], device: torch.device) -> tuple[Tensor, Tensor]:
    """Texts as letters for CTC, whose blank is 0: (B, U), (B,)."""
    rows = [torch.tensor([1 + WRITTEN.index(each) for each in text if each in WRITTEN]) for text in texts]
    lengths = torch.tensor([len(each) for each in rows])
    return nn.utils.rnn.pad_sequence(rows, batch_first=True).to(device), lengths.to(device)


def ctc_loss(logits: Tensor, frames: Tensor, texts: Sequence[str]) -> Tensor:
    """The mean over the letters of -log q: logits (B, T, C), frames (B,)."""
    labels, lengths = letters(texts, logits.device)
    log_q = logits.float().log_softmax(dim=-1).transpose(0, 1)
    return functional.ctc_loss(log_q, labels, frames, lengths, zero_infinity=True)


def byte_pieces(sentences: Sequence[str], size: int, special: Sequence[str]) -> Any:
    """A byte-level BPE of sentences."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[*special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator([f" {each}" for each in sentences[:SENTENCES_FOR_PIECES]], trainer)
    return trained


def whisper_tokenizer(texts: Sequence[str], size: int) -> Any:
    """A tokenizer of an English Whisper."""
    from transformers import WhisperTokenizer

    model = json.loads(byte_pieces(texts, size, ()).to_str())["model"]
    merges = [tuple(each) for each in model["merges"]]
    tokenizer = WhisperTokenizer(vocab=model["vocab"], merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": [END, START, PLAIN]})
    return tokenizer


def new_whisper(tokenizer: Any, sizes: Sizes) -> Any:
    """A Whisper with random weights, with the SpecAugment of transformers."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    end, start, plain = tokenizer.convert_tokens_to_ids([END, START, PLAIN])
    network: Any = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=len(tokenizer),
            d_model=sizes.width,
            encoder_layers=sizes.layers,
            decoder_layers=sizes.decoder_layers,
            encoder_attention_heads=sizes.heads,
            decoder_attention_heads=sizes.heads,
            encoder_ffn_dim=4 * sizes.width,
            decoder_ffn_dim=4 * sizes.width,
            dropout=0.1,
            max_source_positions=sizes.seconds * SAMPLE_RATE // STRIDE,
            max_target_positions=256,
            pad_token_id=end,
            bos_token_id=end,
            eos_token_id=end,
            decoder_start_token_id=start,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            apply_spec_augment=True,
            mask_time_prob=0.05,
            mask_feature_prob=0.05,
            mask_feature_length=16 if sizes.width > 16 else 4,
        )
    )
    generation = network.generation_config
    generation._from_model_config = False
    generation.suppress_tokens, generation.begin_suppress_tokens = [start, plain], [end]
    generation.no_timestamps_token_id, generation.is_multilingual = plain, False
    generation.max_length = 250
    return network


def make_whisper(
    folder: Path, speech: Speech, sizes: Sizes, wanted: tuple[Training, Training], device: torch.device
) -> Path:
    """Train a Whisper: its encoder with CTC, then all of it, with CTC beside."""
    from transformers import WhisperFeatureExtractor

    torch.manual_seed(wanted[0].seed)
    extractor = WhisperFeatureExtractor(chunk_length=sizes.seconds)
    tokenizer = whisper_tokenizer(speech.texts, sizes.pieces)
    network = new_whisper(tokenizer, sizes).to(device).train()
    inputs, head = inputs_of(extractor).to(device), nn.Linear(sizes.width, 1 + len(WRITTEN)).to(device)
    end, _, plain = tokenizer.convert_tokens_to_ids([END, START, PLAIN])
    batches = speech.batches(wanted[0].batch, wanted[0].seed)

    def encoder_loss() -> Tensor:
        waveforms, samples, texts = next(batches)
        features = network.model._mask_input_features(inputs(waveforms, samples).values)
        frames = network.get_encoder()(features).last_hidden_state
        return ctc_loss(head(frames), samples // STRIDE, texts)

    def loss() -> Tensor:
        waveforms, samples, texts = next(batches)
        rows = [
            torch.tensor([plain, *tokenizer(f" {each}", add_special_tokens=False).input_ids, end])
            for each in texts
        ]
        labels = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=IGNORED).to(device)
        found = network(inputs(waveforms, samples).values, labels=labels)
        beside = ctc_loss(head(found.encoder_last_hidden_state), samples // STRIDE, texts)
        return found.loss + CTC_BESIDE * beside

    train([network.get_encoder(), head], encoder_loss, wanted[0], "Whisper's encoder")
    train([network, head], loss, wanted[1], "Whisper")
    return saved(folder, network, extractor, tokenizer)


def make_wav2vec2(
    folder: Path, speech: Speech, sizes: Sizes, wanted: tuple[Training, Training], device: torch.device
) -> Path:
    """Train a wav2vec 2.0 with CTC: its convolutions to compute log-mel features, then all of it."""
    from transformers import (
        Wav2Vec2Config,
        Wav2Vec2CTCTokenizer,
        Wav2Vec2FeatureExtractor,
        Wav2Vec2ForCTC,
    )

    torch.manual_seed(wanted[0].seed)
    vocabulary = folder.with_name(f"{folder.name}-vocab.json")
    known = [*SPECIAL, *LETTERS.upper()]
    vocabulary.parent.mkdir(parents=True, exist_ok=True)
    vocabulary.write_text(json.dumps({each: number for number, each in enumerate(known)}))
    tokenizer = Wav2Vec2CTCTokenizer(str(vocabulary))
    vocabulary.unlink()
    extractor = Wav2Vec2FeatureExtractor(return_attention_mask=True)
    network: Any = Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=len(known),
            pad_token_id=0,
            hidden_size=sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=4 * sizes.width,
            conv_dim=(sizes.channels,) * 7,
            num_conv_pos_embeddings=64 if sizes.width > 16 else 16,
            num_conv_pos_embedding_groups=sizes.heads,
            feat_extract_norm="layer",
            do_stable_layer_norm=True,
            conv_bias=True,
            ctc_loss_reduction="mean",
            ctc_zero_infinity=True,
            layerdrop=0.05,
            mask_feature_prob=0.02,
            mask_feature_length=16 if sizes.width > 16 else 4,
        )
    )
    network.to(device).train()
    inputs, mels = inputs_of(extractor).to(device), nn.Linear(sizes.channels, MELS).to(device)
    batches = speech.batches(wanted[0].batch, wanted[0].seed)
    filters = mel_filters().to(device)

    def mel_loss() -> Tensor:
        waveforms, samples, _ = next(batches)
        values = inputs(waveforms, samples).values
        found = mels(network.wav2vec2.feature_extractor(values).transpose(1, 2))
        errors = (found.float() - log_mels(values, filters)).square().mean(dim=2)
        heard = time_mask((samples - WINDOW) // STRIDE + 1, found.shape[1])
        return errors[heard].mean()

    def loss() -> Tensor:
        waveforms, samples, texts = next(batches)
        given = inputs(waveforms, samples)
        ids = [torch.tensor(tokenizer(each.upper()).input_ids) for each in texts]
        labels = nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=IGNORED).to(device)
        found: Tensor = network(given.values, attention_mask=given.mask, labels=labels).loss
        return found

    train([network.wav2vec2.feature_extractor, mels], mel_loss, wanted[0], "wav2vec 2.0's convolutions")
    train([network], loss, wanted[1], "wav2vec 2.0")
    return saved(folder, network, extractor, tokenizer)


def mel_filters() -> Tensor:
    """Whisper's mel filters: (MELS, 201)."""
    from transformers import WhisperFeatureExtractor

    return torch.from_numpy(WhisperFeatureExtractor(MELS).mel_filters).float().T.contiguous()


def log_mels(waveforms: Tensor, filters: Tensor) -> Tensor:
    """Log-mel features of the windows of wav2vec 2.0's frames: (B, N) -> (B, T, MELS)."""
    with torch.autocast(waveforms.device.type, enabled=False):
        window = torch.hann_window(WINDOW, device=waveforms.device)
        spectrum = torch.stft(waveforms, WINDOW, STRIDE, window=window, center=False, return_complex=True)
        levels = (filters @ spectrum.abs().square()).clamp(min=QUIET).log10()
        return ((levels - math.log10(QUIET)) / 3 - 1).transpose(1, 2)  # between -1 and 1, as a rule


def make_gpt2(
    folder: Path, sentences: Sequence[str], sizes: Sizes, wanted: Training, device: torch.device
) -> Path:
    """Train a GPT-2 on sentences, each between two end-of-text tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    torch.manual_seed(wanted.seed)
    own = byte_pieces(sentences, sizes.lm_pieces, [END])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, eos_token=END)
    rows = [
        each.ids[: sizes.lm_longest - 2]
        for start in range(0, len(sentences), AT_ONCE)
        for each in own.encode_batch([*sentences[start : start + AT_ONCE]])
    ]
    end = tokenizer.eos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=sizes.lm_longest,
        n_embd=sizes.lm_width,
        n_layer=sizes.lm_layers,
        n_head=sizes.lm_heads,
        bos_token_id=end,
        eos_token_id=end,
    )
    network: Any = GPT2LMHeadModel(config).to(device).train()
    random, lengths = np.random.default_rng(wanted.seed), [len(each) + 2 for each in rows]

    def batches() -> Iterator[Tensor]:
        while True:
            order = np.argsort(np.array(lengths) * random.uniform(0.9, 1.1, len(lengths)))
            for part in shuffled(in_batches(order, lengths, wanted.batch), random):
                tokens = [torch.tensor([end, *rows[each], end]) for each in part]
                yield nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=IGNORED)

    taken = batches()

    def loss() -> Tensor:
        labels = next(taken).to(device)
        found: Tensor = network(labels.clamp(min=0), labels=labels).loss
        return found

    train([network], loss, wanted, "GPT-2")
    return saved(folder, network, tokenizer)
