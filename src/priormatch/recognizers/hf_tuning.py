"""Which weights of a Hugging Face recognizer are trained: all, those after the encoder, or low-rank adapters (LoRA)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from priormatch.config import PretrainedSettings
from priormatch.errors import UserError
from priormatch.recognizers.hf_folder import quietly

ADAPTER = "default"  # peft's own name for the only adapter
BASE = ".base_layer"  # peft's name for a layer inside its adapted one


def body_of(network: Any) -> nn.Module:
    """The encoder of a sequence-to-sequence model; everything but the output layer of a CTC model."""
    if not network.config.is_encoder_decoder and network.base_model is not network:
        return network.base_model
    return network.get_encoder()


def prepare(network: Any, settings: PretrainedSettings) -> None:
    """Freeze weights and add adapters as the settings say.

    Convolutions over waveforms are never trained, as in the examples of transformers.
    """

    if hasattr(network, "freeze_feature_encoder"):
        network.freeze_feature_encoder()
    if (
        network.config.model_type == "whisper"
    ):  # its sines, which transformers forgets to freeze when it loads them
        body_of(network).embed_positions.requires_grad_(False)
    if settings.train == "decoder":
        body_of(network).requires_grad_(False)
    if settings.train == "lora":
        add_adapters(network, settings.lora_rank)
    if settings.gradient_checkpointing:
        if not network.supports_gradient_checkpointing:
            raise UserError(
                f"{type(network).__name__} does not support pretrained.gradient_checkpointing: disable it, and lower"
                " the batch size instead"
            )
        with quietly():  # later versions have another name for it
            network.gradient_checkpointing_enable({"use_reentrant": False})


def add_adapters(network: Any, rank: int) -> None:
    """Freeze all weights, and add adapters to all linear layers of the stacks; a CTC output layer is still trained.

    The adapters are the same in all processes, and at first change nothing.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError(
            "pretrained.train=lora needs peft: install it with pip install 'priormatch[hf]'"
        ) from error
    targets = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and ".layers." in name
    ]
    if not targets:
        raise UserError(
            f"pretrained.train=lora: {type(network).__name__} has no stack of layers: set it to full or decoder"
        )
    body = body_of(network)
    inner = set(map(id, body.parameters()))
    for each in network.parameters():
        each.requires_grad_(
            not network.config.is_encoder_decoder and id(each) not in inner and each.requires_grad
        )
    head = [each for each in network.parameters() if each.requires_grad]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, lora_dropout=0.0)
        inject_adapter_in_model(config, network)
    for each in head:
        each.requires_grad_(True)


def adapted(network: nn.Module) -> Iterator[tuple[str, Any]]:
    """The layers that have adapters, with their names."""
    for name, module in network.named_modules():
        if hasattr(module, "lora_A"):
            yield name, module


def merged_weights(network: nn.Module) -> dict[str, Tensor]:
    """The weights of a network by name, with its adapters added to the weights that they adapt."""
    weights = network.state_dict()
    for name, layer in adapted(network):
        key = f"{name}{BASE}.weight"
        weights[key] = weights[key] + layer.get_delta_weight(ADAPTER)
    return {name.replace(BASE, ""): value for name, value in weights.items() if ".lora_" not in name}
