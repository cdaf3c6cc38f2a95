"""Tiny language models of Hugging Face, made on the spot."""

from pathlib import Path
from typing import Any

import torch
from tiny_language import sentences

SIZE = 300


def byte_tokenizer(**special: str) -> Any:
    """A byte-level BPE tokenizer of the tiny language, also with capitals and periods."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokens = [*dict.fromkeys(special.values())]
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=tokens, initial_alphabet=alphabet, show_progress=False
    )
    trained.train_from_iterator(sentences(50), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=trained, **special)


def tiny_gpt2(folder: Path, **changes: Any) -> Path:
    """A GPT-2 of 2 layers; its end-of-text token also begins a text."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": SIZE, "n_positions": 96}
    config = GPT2Config(**sizes | changes, bos_token_id=0, eos_token_id=0, initializer_range=0.5)
    return saved(GPT2LMHeadModel(config), byte_tokenizer(eos_token="<|end|>"), folder)


def tiny_llama(folder: Path, **changes: Any) -> Path:
    """A Llama of 2 layers with a begin and an end token."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(2)
    sizes: dict[str, Any] = {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "hidden_size": 16,
        "intermediate_size": 32,
        "vocab_size": SIZE,
        "max_position_embeddings": 96,
    }
    config = LlamaConfig(**sizes | changes, bos_token_id=0, eos_token_id=1, initializer_range=0.5)
    return saved(LlamaForCausalLM(config), byte_tokenizer(bos_token="<s>", eos_token="</s>"), folder)


def saved(network: Any, tokenizer: Any, folder: Path) -> Path:
    """A folder with a network and its tokenizer."""
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
