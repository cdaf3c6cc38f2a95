"""A model on disk: weights as safetensors, settings as YAML, the tokenizer's model; no pickles."""

import math
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
    folder: Path, kind: str, weights: dict[str, Tensor], settings: Any, tokenizer: Tokenizer, **known: float
) -> None:
    """Write a model folder; the weights go last and at once, so that a folder with weights is whole.

    Figures that are `known` of the model stand beside its settings.
    """
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    tree = OmegaConf.create(
        {"kind": kind, **known, "settings": OmegaConf.to_container(OmegaConf.structured(settings))}
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
    return _known(folder).get("kind")


def figure_of(folder: Path, name: str) -> float:
    """A figure that is known of the model in a folder, 0 where it is not."""
    value = _known(folder).get(name, 0.0)
    if isinstance(value, int | float) and 0 <= value < math.inf:
        return float(value)
    raise UserError(f"{folder / SETTINGS}: {name} is {value}, and must be a number: train or copy it again")


def _known(folder: Path) -> dict[str, Any]:
    import yaml

    try:
        tree = yaml.safe_load((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return tree if isinstance(tree, dict) else {}


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Give a model the weights of its folder."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise UserError(
            f"the weights in {folder} do not fit its {SETTINGS} and tokenizer: train or copy it again"
        ) from error
