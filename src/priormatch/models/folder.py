"""A model on disk: weights as safetensors, settings as YAML, the tokenizer's model; no pickles."""

from pathlib import Path
from typing import Any, TypeVar, cast

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing

WEIGHTS, SETTINGS = "model.safetensors", "model.yaml"
AnySettings = TypeVar("AnySettings")


def write_model(
    folder: Path, kind: str, weights: dict[str, Tensor], settings: Any, tokenizer: Tokenizer
) -> None:
    """Write a model folder; the weights go last and at once, so that a folder with weights is whole."""
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    tree = OmegaConf.create(
        {"kind": kind, "settings": OmegaConf.to_container(OmegaConf.structured(settings))}
    )
    replace_text(folder / SETTINGS, OmegaConf.to_yaml(tree))
    with replacing(folder / WEIGHTS) as temporary:
        save_file({name: value.detach().contiguous() for name, value in weights.items()}, temporary)


def read_model(
    folder: Path, kind: str, schema: type[AnySettings]
) -> tuple[AnySettings, Tokenizer, dict[str, Tensor]]:
    """Read settings, tokenizer and weights of a model folder of the given kind."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    for file in (folder / SETTINGS, folder / WEIGHTS):
        if not file.is_file():
            raise UserError(
                f"{folder} holds no {kind}: {file.name} is missing; give the folder of a trained model"
            )
    try:
        tree = cast(DictConfig, OmegaConf.load(folder / SETTINGS))
        if tree.get("kind") != kind:
            raise UserError(f"{folder} holds a {tree.get('kind')}, and a {kind} is wanted")
        settings = cast(
            AnySettings, OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(schema), tree.settings))
        )
        weights = load_file(folder / WEIGHTS)
    except (OmegaConfBaseException, YAMLError, SafetensorError, ValueError, TypeError) as error:
        raise UserError(
            f"{folder} cannot be read ({str(error).splitlines()[0]}): train or copy it again"
        ) from error
    return settings, Tokenizer.load(folder), weights


def kind_of(folder: Path) -> str | None:
    """What a model folder says it holds; None where it says nothing."""
    import yaml

    try:
        tree = yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None
    return tree.get("kind") if isinstance(tree, dict) else None


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Give a model the weights of its folder."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(
            f"the weights in {folder} do not fit its {SETTINGS} and tokenizer: train or copy it again"
        ) from error
