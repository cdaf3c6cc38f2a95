"""Hugging Face model folders and Hub ids: checked before they are opened, without pickles or code from the folder."""

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from logging import CRITICAL
from pathlib import Path
from typing import Any

import torch

from priormatch.errors import UserError
from priormatch.json_text import parse_object
from priormatch.recognizers.hub import model_folder, origin_of, reason
from priormatch.tensor_files import not_finite, read_shapes

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
MOST_CONFIG, MOST_INDEX = 4 << 20, 64 << 20  # bytes
MOST_LAYERS = 1000
MOST_MORE = (
    1 << 26
)  # elements that a network may have beyond twice those of its file, for tables that are not stored
TOKENIZERS = ("tokenizer.json", "*.model", "vocab.*", "*-vocab.json")
SHARDS = "shard-*.safetensors"  # of a distributed checkpoint, which transformers would prefer
DROPPED = {
    "_attn_implementation",
    "_attn_implementation_internal",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_name_or_path",
    "attn_implementation",
    "auto_map",
    "experts_implementation",
    "fusion_config",
    "num_labels",
    "transformers_weights",
}
"""Entries of `config.json` that would choose code, kernels or files, or make a list of any length."""
OLD_TABLES = (".masked_bias", ".inv_freq", ".position_ids")
"""Constants that older versions of transformers stored with the weights."""
CONVERT = (
    "files such as pytorch_model.bin are pickles, which can run code when they are opened, and are never read; convert"
    " them in an environment without access to anything valuable: load the model there with transformers and call"
    " `model.save_pretrained(FOLDER, safe_serialization=True)`"
)


@dataclass(frozen=True)
class Pretrained:
    """A checked model folder: its name, the commit if it is from the Hub, and its configuration."""

    folder: Path
    source: str
    commit: str | None
    config: Mapping[str, Any]

    @property
    def model_type(self) -> str:
        """The architecture's name in transformers, such as llama or whisper."""
        return self.config["model_type"]

    @property
    def architectures(self) -> tuple[str, ...]:
        """The classes that the folder was saved from."""
        found = self.config.get("architectures")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def files(self) -> list[Path]:
        """Its weight files."""
        return weight_files(self.folder)


def is_pretrained(folder: Path) -> bool:
    """Whether a folder holds a Hugging Face model, and not one of this package."""
    return (folder / CONFIG).is_file() and not (folder / "model.yaml").is_file()


def pretrained(given: str | os.PathLike[str]) -> Pretrained:
    """Find and check a model: a local folder, without any network, or `owner/name[@revision]` from the Hub."""
    transformers = import_transformers(f"{given} is a Hugging Face model, which")
    folder = model_folder(given)
    config = read_config(folder)
    if (folder / ADAPTER).exists():
        raise UserError(
            f"{folder} holds an adapter ({ADAPTER}): merge it into its model with peft"
            " (`merge_and_unload`), and save that"
        )
    require_known(folder, config, transformers)
    weight_files(folder)
    folder = folder.absolute()
    name, commit = origin_of(folder) or (str(given), None)
    return Pretrained(folder, name, commit, config)


def read_config(folder: Path) -> dict[str, Any]:
    """Read `config.json`, without the entries in `DROPPED`."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {what}: provide the folder of a model or its name on the Hub (owner/name)")
    return _harmless(read_json(folder / CONFIG, MOST_CONFIG))


def read_json(file: Path, most: int) -> dict[str, Any]:
    """Read a JSON object of at most `most` bytes."""
    if not file.is_file():
        raise UserError(f"{file.parent} contains no Hugging Face model: {file.name} is missing")
    if file.stat().st_size > most:
        raise UserError(f"{file} is larger than {most >> 20} MiB: it is not that of a model")
    try:
        return parse_object(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read ({reason(error)}): download or copy it again") from error


def require_known(folder: Path, config: Mapping[str, Any], transformers: Any) -> None:
    """Refuse models that need code of their own, quantized ones, and implausible sizes."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise UserError(
            f"{folder / CONFIG}: model_type is {str(kind)[:80]}, which transformers {transformers.__version__} does not"
            " have: code in a model folder is never run, so provide a model that transformers has, or install a version"
            " that has this one"
        )
    if config.get("quantization_config") is not None:
        raise UserError(f"{folder} is quantized: provide the model in float32, float16 or bfloat16")
    for name, value in _numbers(config):
        if "layer" in name and isinstance(value, int) and value > MOST_LAYERS:
            raise UserError(f"{folder / CONFIG}: {name}={value} is above {MOST_LAYERS}: copy the file again")


def weight_files(folder: Path) -> list[Path]:
    """The weight files of a folder; refuse missing ones, and weights that are only there as pickles."""
    if [*folder.glob(SHARDS)]:
        raise UserError(f"{folder} holds a distributed checkpoint: save it again with `save_pretrained`")
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        raise UserError(f"{folder} has no weights in the format safetensors ({WEIGHTS}): {CONVERT}")
    shards = read_json(folder / INDEX, MOST_INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise UserError(f"{folder / INDEX} names no weights: download or copy it again")
    names = sorted(map(str, set(map(str, shards.values()))))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{folder / INDEX} names {name[:80]}, which is not a weights file")
        if not (folder / name).is_file():
            raise UserError(f"{folder} lacks {name}, which {INDEX} names: download or copy it again")
    return [folder / name for name in names]


def load_network(
    found: Pretrained,
    auto: str,
    what: str,
    may_lack: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Load the network with a class of transformers such as AutoModelForCausalLM, in evaluation mode.

    `what` names the kind of model that is expected, for messages. Sizes are checked before memory is allocated, and
    weights that are missing or left over are refused, except that those whose names end as in `may_lack` are zero.
    """
    transformers = import_transformers(f"{found.source} is a Hugging Face model, which")
    with opening(found):
        config = transformers.CONFIG_MAPPING[found.model_type].from_dict(deepcopy(dict(found.config)))
        factory = getattr(transformers, auto)
        if type(config) not in factory._model_mapping:
            kind = ", ".join((*found.architectures[:1], found.model_type))
            raise UserError(f"{found.source} is not {what} ({kind}): use another model")
        _require_plausible(found, factory, config)
        network, info = factory.from_pretrained(
            found.folder,
            config=config,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are refused below
            output_loading_info=True,
        )
    for problem, text in (
        ("missing_keys", "lacks weights"),
        ("mismatched_keys", "has weights of another shape"),
        ("unexpected_keys", "has weights that the architecture does not"),
    ):
        found_keys = (each if isinstance(each, str) else each[0] for each in info[problem])
        if wrong := sorted(key for key in found_keys if not key.endswith((*OLD_TABLES, *may_lack))):
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise UserError(f"{found.source} is not {what}: it {text} ({wrong[0]}{more})")
    weights = network.state_dict()
    for key in info["missing_keys"]:
        if key.endswith(may_lack):
            weights[key].zero_()
    if broken := not_finite(weights):
        raise UserError(f"{found.source}: the weights contain NaN or infinity ({broken[0]}): copy them again")
    return network.eval()


def load_tokenizer(found: Pretrained) -> Any:
    """Load the tokenizer; refuse a folder without one, for which transformers would make an empty one."""
    if not any(file for pattern in TOKENIZERS for file in found.folder.glob(pattern)):
        raise UserError(
            f"{found.source} has no tokenizer ({', '.join(TOKENIZERS)}): save it to the same folder with"
            " `save_pretrained`"
        )
    return load_part(found, "AutoTokenizer", "tokenizer")


def load_part(found: Pretrained, auto: str, what: str) -> Any:
    """Load something other than the network, with a class such as AutoTokenizer or AutoFeatureExtractor."""
    transformers = import_transformers(f"{found.source} is a Hugging Face model, which")
    with opening(found, what):
        config = transformers.CONFIG_MAPPING[found.model_type].from_dict(deepcopy(dict(found.config)))
        return getattr(transformers, auto).from_pretrained(
            found.folder, config=config, trust_remote_code=False, local_files_only=True
        )


@contextmanager
def opening(found: Pretrained, what: str = "model") -> Iterator[None]:
    """Keep transformers silent and off the network inside the context, and name the folder in its errors."""
    with quietly():
        try:
            yield
        except UserError:
            raise
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise UserError(f"{found.source} does not fit into memory: choose a smaller model") from error
        except Exception as error:  # whatever the classes of each model raise
            raise UserError(f"the {what} in {found.source} cannot be read ({reason(error)[:300]})") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Without messages, progress bars and connections of transformers inside the context."""
    from huggingface_hub import constants
    from transformers.utils import logging

    level, bars, offline = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        constants.HF_HUB_OFFLINE,
    )
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()
    constants.HF_HUB_OFFLINE = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        constants.HF_HUB_OFFLINE = offline
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def import_transformers(purpose: str) -> Any:
    """Import transformers, or raise an error that says how to install it."""
    try:
        import transformers
    except ImportError as error:
        raise UserError(
            f"{purpose} needs transformers: install it with pip install 'priormatch[hf]'"
        ) from error
    return transformers


def stored_elements(found: Pretrained) -> int:
    """The number of weights in the files, from their headers."""
    return sum(math.prod(shape) for file in found.files for _, shape in read_shapes(file).values())


def _require_plausible(found: Pretrained, factory: Any, config: Any) -> None:
    """Refuse a configuration whose network is much larger than its file, before memory is allocated for it."""
    with torch.device("meta"):
        network = factory.from_config(config, trust_remote_code=False)
    wanted = sum(each.numel() for each in (*network.parameters(), *network.buffers()))
    stored = stored_elements(found)
    if wanted > 2 * stored + MOST_MORE:
        raise UserError(
            f"{found.folder / CONFIG} describes {wanted:,} weights, but the files have {stored:,}: download or copy"
            " the folder again"
        )


def _harmless(value: Any) -> Any:
    """A JSON value without the entries in `DROPPED`."""
    if isinstance(value, list):
        return [_harmless(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _harmless(each) for name, each in value.items() if name not in DROPPED}


def _numbers(value: Any) -> Iterator[tuple[str, Any]]:
    """All entries of objects in a JSON value."""
    if isinstance(value, dict):
        yield from value.items()
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from _numbers(each)
