"""Models on disk: weights as safetensors, settings as YAML, and the tokenizer's model; no pickles."""

import hashlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from priormatch.config import ConvLMSettings, ModelSettings
from priormatch.config.checks import check_model
from priormatch.data.normalizer import LANGUAGE_FILE, Normalizer
from priormatch.data.tokenizer import MODEL_FILE, Tokenizer
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing
from priormatch.tensor_files import Damaged, not_finite, read_shapes, read_tensors, save_tensors, size_of
from priormatch.yaml_files import read_yaml

WEIGHTS, SETTINGS = "model.safetensors", "model.yaml"
BESIDE = (SETTINGS, MODEL_FILE, LANGUAGE_FILE)
"""All other files of a model; their hashes are stored with the weights."""
FLOATS = ("F16", "BF16", "F32")  # types that fit into float32, so that no value overflows to infinity
MATCHED = "lpm"
"""The folder of a run that holds its result, which is proposed first when the run's own folder is given."""
MOST_PROPOSED = 5
MOST_SECONDS = 1e6  # maximum length of an utterance: eleven days
AGAIN = "copy it again, or remove it and train it again"
NGRAM = "ngram"
PRIORS = ("prior", NGRAM)
"""The kinds of priors in `model.yaml`: the convolutional one, and n-grams."""
AnySettings = TypeVar("AnySettings")
NetworkSettings = TypeVar("NetworkSettings", ModelSettings, ConvLMSettings)
Model = TypeVar("Model", bound=nn.Module)


def write_model(
    folder: Path,
    kind: str,
    weights: dict[str, Tensor],
    settings: Any,
    text: Tokenizer | Normalizer,
    **known: float,
) -> None:
    """Write a model folder; the weights are written last and atomically, so a folder with weights is complete.

    `text` is the model's tokenizer, or the normalizer of a model that has none. `known` values of the model are stored
    next to its settings. Weights that are not finite are refused.
    """
    from omegaconf import OmegaConf

    if wrong := not_finite(weights):
        raise UserError(
            f"the model was not written to {folder} because {wrong[0]} contains NaN or infinity:"
            " lower the learning rate"
        )
    folder.mkdir(parents=True, exist_ok=True)
    text.save(folder)
    tree = OmegaConf.create(
        {"kind": kind, **known, "settings": OmegaConf.to_container(OmegaConf.structured(settings))}
    )
    replace_text(folder / SETTINGS, OmegaConf.to_yaml(tree))
    with replacing(folder / WEIGHTS, size_of(weights)) as temporary:
        save_tensors(temporary, weights, {"sha256": hashes_beside(folder)})


def hashes_beside(folder: Path) -> dict[str, str]:
    """SHA-256 of a model's files other than the weights; the card is excluded because users edit it."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in BESIDE
        if (folder / name).is_file()
    }


def read_model(
    folder: Path,
    kind: str,
    schema: type[NetworkSettings],
    build: Callable[[NetworkSettings, Tokenizer, Collection[str]], Model],
) -> Model:
    """Read a model of the given kind; `build` makes it from settings, tokenizer and the names of the weights.

    The folder need not be trusted: everything is checked, and the weights compared to the settings, before memory is
    allocated.
    """
    require_files(folder, kind)
    settings = read_settings(folder, kind, schema, check_model)
    tokenizer = Tokenizer.load(folder)
    file = folder / WEIGHTS
    try:
        shapes = read_shapes(file)
        with torch.device("meta"):
            require_fit(folder, build(settings, tokenizer, shapes.keys()), shapes)
        weights = read_weights(folder)
    except Damaged as error:
        raise UserError(f"{folder} cannot be read ({error}): {AGAIN}") from error
    model = build(settings, tokenizer, shapes.keys())
    model.load_state_dict(weights)
    return model


def require_files(folder: Path, kind: str) -> None:
    """Refuse a path that is not a model folder, and propose a model of this kind below it."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}: provide the folder of a trained {kind}")
    for file in (folder / SETTINGS, folder / WEIGHTS):
        if not file.is_file():
            what = "is not a regular file" if os.path.lexists(file) else "is missing"
            raise UserError(f"{folder} contains no {kind}: {file.name} {what}; {_proposal(folder, kind)}")


def _proposal(folder: Path, kind: str) -> str:
    below = models_below(folder, kind)
    if not below:
        return f"provide the folder of a trained {kind}"
    others = ", ".join(map(str, below[1 : 1 + MOST_PROPOSED]))
    return f"give {below[0]}" + (f", or one of the others in it: {others}" if others else "")


def models_below(folder: Path, kind: str) -> list[Path]:
    """The models of a kind at most three levels below a folder, or priors of any kind; those of matching first."""
    wanted = PRIORS if kind in PRIORS else (kind,)
    found = {file.parent for depth in (1, 2, 3) for file in folder.glob("*/" * depth + WEIGHTS)}
    return sorted(
        (each for each in found if kind_of(each) in wanted),
        key=lambda each: (MATCHED not in each.parts, each),
    )


def read_settings(
    folder: Path, kind: str, schema: type[AnySettings], check: Callable[[AnySettings], None]
) -> AnySettings:
    """Read the settings in a model folder of the given kind, and check that the model can be built."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        tree = read_yaml(folder / SETTINGS)
        if not isinstance(tree, dict):
            raise UserError(f"{SETTINGS} is not a mapping")
    except UserError as error:
        raise UserError(f"{folder} cannot be read ({error}): {AGAIN}") from error
    if tree.get("kind") != kind:
        raise UserError(
            f"{folder} holds a {str(tree.get('kind'))[:80]}, not a {kind}: use another folder, or {AGAIN}"
        )
    try:
        if not isinstance(tree.get("settings"), dict):
            raise UserError("it has no settings")
        merged = OmegaConf.merge(OmegaConf.structured(schema), with_kind(tree["settings"]))
        settings = cast(AnySettings, OmegaConf.to_object(merged))
        check(settings)
    except (OmegaConfBaseException, UserError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UserError(f"{folder / SETTINGS} cannot be used ({reason}): {AGAIN}") from error
    return settings


def with_kind(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a recognizer in which older versions wrote `ctc` for what is now a kind."""
    if not isinstance(settings.get("ctc"), bool):
        return settings
    kind = {"kind": "hybrid"} if settings["ctc"] else {}
    return {**kind, **{name: value for name, value in settings.items() if name != "ctc"}}


def require_fit(folder: Path, model: nn.Module, shapes: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """Refuse weights that do not fit a model, which may be on the meta device; reads only their header."""
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if wanted != {name: shape for name, (_, shape) in shapes.items()}:
        raise UserError(f"the weights in {folder} do not fit its {SETTINGS} and tokenizer: {AGAIN}")
    if wrong := [name for name, (kind, _) in shapes.items() if kind not in FLOATS]:
        kind = shapes[wrong[0]][0]
        raise UserError(
            f"the weights in {folder} are of type {kind} ({wrong[0]}), not floating point: {AGAIN}"
        )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights in a model folder; raise `Damaged` if they are not finite or a file of the model changed."""
    weights, about, unsealed = read_tensors(folder / WEIGHTS)
    if about is None and not unsealed.keys() <= {"format"}:  # metadata that other tools write
        raise Damaged(f"{folder / WEIGHTS} does not have the metadata of a model")
    if about is not None:
        found, expected = hashes_beside(folder), about.get("sha256") if isinstance(about, dict) else None
        if not isinstance(expected, dict):
            raise Damaged(f"{folder / WEIGHTS} does not have the metadata of a model")
        if wrong := [name for name in BESIDE if found.get(name) != expected.get(name)]:
            raise Damaged(
                f"{wrong[0]} is not the one that was written with {WEIGHTS}:"
                f" SHA-256 {_short(found.get(wrong[0]))}, expected {_short(expected.get(wrong[0]))}"
            )
    if wrong := not_finite(weights):
        raise Damaged(f"{folder / WEIGHTS} contains NaN or infinity in {wrong[0]}")
    return weights


def require_finite(values: Tensor, folder: Path) -> None:
    """Refuse a model that computes NaN or infinity, for example because of huge weights."""
    if not values.isfinite().all():
        raise UserError(f"the model in {folder} computes NaN or infinity: {AGAIN}")


def _short(digest: object) -> str:
    return "none (no such file)" if digest is None else f"{str(digest)[:12]}..."


def kind_of(folder: Path) -> str | None:
    """The kind of model in a folder, from its settings file; None if there is none."""
    return _known(folder).get("kind")


def figure_of(folder: Path, name: str) -> float:
    """A `known` value of the model in a folder; 0 if it is not stored."""
    value = _known(folder).get(name, 0.0)
    if isinstance(value, int | float) and 0 <= value <= MOST_SECONDS:
        return float(value)
    shown = str(value)[:80] if isinstance(value, str | float) else type(value).__name__
    raise UserError(f"{folder / SETTINGS}: {name} is {shown}, but must be a number: {AGAIN}")


def _known(folder: Path) -> dict[str, Any]:
    try:
        tree = read_yaml(folder / SETTINGS)
    except (OSError, UserError):
        return {}
    return tree if isinstance(tree, dict) else {}
