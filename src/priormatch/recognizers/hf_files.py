"""Folders of Hugging Face recognizers: reading the parts of a model, and writing what transformers loads again."""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from priormatch.config import PretrainedSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.normalizer import LANGUAGE_FILE, normalizer_in
from priormatch.errors import UserError
from priormatch.files import replace_text, sync, writing
from priormatch.recognizers.folder import AGAIN, SETTINGS, WEIGHTS, figure_of
from priormatch.recognizers.hf_folder import (
    CONFIG,
    Pretrained,
    import_transformers,
    load_network,
    load_part,
    load_tokenizer,
    pretrained,
    quietly,
    read_json,
)
from priormatch.recognizers.hf_tokenizer import WRITTEN, HuggingFaceTokenizer
from priormatch.tensor_files import not_finite, size_of
from priormatch.yaml_files import read_yaml

CTC, DECODER = "AutoModelForCTC", "AutoModelForSpeechSeq2Seq"
SAVING = ".tmp-model"
"""The folder inside a model's folder in which it is written."""
WHOLE = "1000GB"  # of one weight file
ENGLISH_WHISPER = 51_864  # tokens of a Whisper that only knows English; others have more
MAY_LACK = (".masked_spec_embed",)
"""Weights that only augmentation uses; they are zero where a folder lacks them."""
FEATURES = ("preprocessor_config.json", "processor_config.json")
MOST_FEATURES = 1 << 20  # bytes of these files
LARGEST = 1 << 20  # number in them: windows, filters, and samples of 65 s


@dataclass(frozen=True)
class Origin:
    """Where a network came from: a folder, or a name on the Hub with the commit there."""

    source: str
    commit: str | None = None


@dataclass(frozen=True)
class Parts:
    """The parts of a recognizer: network, feature extractor and tokenizer, and what its decoder reads first."""

    network: Any
    extractor: Any
    tokenizer: HuggingFaceTokenizer
    prompt: list[int]
    origin: Origin
    longest_heard: float = 0.0


def read_parts(given: str | os.PathLike[str], settings: PretrainedSettings) -> Parts:
    """Load the parts of a model from its folder or from the Hub; the folder need not be trusted."""
    found = pretrained(given)
    known = written_by_us(found.folder)
    require_small_features(found.folder)
    ctc = is_ctc(found)
    network = load_network(found, CTC if ctc else DECODER, "a speech recognizer", MAY_LACK)
    extractor = load_part(found, "AutoFeatureExtractor", "feature extractor")
    require_fitting(found, network, extractor)
    own = load_tokenizer(found)
    source, commit = known.get("source") or found.source, known.get("commit") or found.commit
    prompt = [] if ctc else prompt_of(found, network, settings)
    if ctc and settings.language:
        raise no_language(found, settings)
    normalizer = normalizer_in(found.folder) if (found.folder / LANGUAGE_FILE).is_file() else WRITTEN
    classes, eos = classes_of(network), end_of(network, ctc)
    if not all(0 <= each < classes for each in (eos, *prompt)):
        raise UserError(
            f"{found.source}: the tokens {[eos, *prompt]} are not among the {classes} of the network:"
            " copy its configuration again"
        )
    space = found.model_type == "whisper"
    tokenizer = HuggingFaceTokenizer(own, classes, eos, normalizer, space)
    longest = figure_of(found.folder, "longest_heard")
    return Parts(network, extractor, tokenizer, prompt, Origin(str(source), commit), longest)


def is_ctc(found: Pretrained) -> bool:
    """Whether a folder holds a CTC model, by its type."""
    transformers = import_transformers(f"{found.source} is a Hugging Face model, which")
    kind = transformers.CONFIG_MAPPING[found.model_type]
    return kind in transformers.AutoModelForCTC._model_mapping.keys()  # noqa: SIM118


def classes_of(network: Any) -> int:
    """The number of outputs of a network."""
    return int(network.config.get_text_config(decoder=True).vocab_size)


def end_of(network: Any, ctc: bool) -> int:
    """The blank of a CTC model, which transformers calls padding, or the end of sentence; -1 if there is none."""
    if ctc:
        found = network.config.pad_token_id
    else:
        text = network.config.get_text_config(decoder=True)
        found = network.generation_config.eos_token_id
        found = text.eos_token_id if found is None else found
    first = found[0] if isinstance(found, list) and found else found
    return first if isinstance(first, int) else -1


def prompt_of(found: Pretrained, network: Any, settings: PretrainedSettings) -> list[int]:
    """What the decoder reads first: its start, and for Whisper the language, the task, and that there are no times.

    A language that is given becomes part of the model's own configuration for decoding.
    """
    if not network.config.is_encoder_decoder:
        raise UserError(
            f"{found.source} ({type(network).__name__}) is a language model that reads audio, not an encoder with a"
            " decoder: provide a model such as Whisper, or one with CTC"
        )
    generation, text = network.generation_config, network.config.get_text_config(decoder=True)
    start = generation.decoder_start_token_id
    start = text.decoder_start_token_id if start is None else start
    languages = getattr(generation, "lang_to_id", None)
    if languages:
        asked = language_token(found, languages, settings.language or getattr(generation, "language", None))
        tasks = getattr(generation, "task_to_id", None) or {}
        if settings.task not in tasks:
            raise UserError(f"{found.source} has no task {settings.task}: provide one of {', '.join(tasks)}")
        generation.language, generation.task = asked, settings.task
        generation.forced_decoder_ids = None  # old models have other ones here
        more = [languages[asked], tasks[settings.task]]
    elif found.model_type == "whisper" and text.vocab_size > ENGLISH_WHISPER:
        raise UserError(
            f"{found.source} knows several languages, but its generation_config.json does not list them: copy that of"
            " the model it was trained from"
        )
    elif settings.language:
        raise no_language(found, settings)
    else:
        forced = getattr(generation, "forced_bos_token_id", None)
        more = [] if forced is None else [forced]
    times = getattr(generation, "no_timestamps_token_id", None)
    prompt = [start, *more, *([] if times is None else [times])]
    if not all(isinstance(each, int) for each in prompt):
        raise UserError(
            f"{found.source} does not specify how its decoder begins: copy generation_config.json too"
        )
    return prompt


def language_token(found: Pretrained, languages: Mapping[str, int], asked: str | None) -> str:
    """The token of a language that is given as a name, a code or a token: `<|en|>` for english or en."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    if not asked:
        raise UserError(
            f"{found.source} knows {len(languages)} languages: set pretrained.language, for example to en"
            " (--language en, for commands that have this option)"
        )
    code = asked.lower().removeprefix("<|").removesuffix("|>")
    token = f"<|{TO_LANGUAGE_CODE.get(code, code)}|>"
    if token not in languages:
        known = ", ".join(sorted(each.strip("<|>") for each in languages))
        raise UserError(f"{found.source} does not know the language {asked}: provide one of {known}")
    return token


def no_language(found: Pretrained, settings: PretrainedSettings) -> UserError:
    """The error for a language that is given to a model that does not take one."""
    return UserError(f"{found.source} does not take a language: omit pretrained.language={settings.language}")


def require_small_features(folder: Path) -> None:
    """Refuse a feature extractor of absurd size before anything is allocated for it."""
    for name in FEATURES:
        if not (folder / name).is_file():
            continue
        for key, value in numbers_in(read_json(folder / name, MOST_FEATURES)):
            if abs(value) > LARGEST:
                raise UserError(f"{folder / name}: {key}={value:g} is too large: copy the file again")


def numbers_in(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """All numbers in a JSON value, with their names."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from numbers_in(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from numbers_in(each, key)
    elif isinstance(value, int | float):
        yield key, value


def require_fitting(found: Pretrained, network: Any, extractor: Any) -> None:
    """Refuse features that do not fit the network, before any are computed."""
    if getattr(extractor, "sampling_rate", None) != SAMPLE_RATE:
        raise UserError(
            f"{found.source} takes audio at {getattr(extractor, 'sampling_rate', 'an unknown rate')} Hz, not at"
            f" {SAMPLE_RATE}: use another model"
        )
    if found.model_type == "whisper":
        frames = 2 * network.config.max_source_positions
        sizes = extractor.nb_max_frames, extractor.feature_size
        if sizes != (frames, network.config.num_mel_bins):
            raise UserError(
                f"{found.source}: its features have the sizes {sizes}, but its network takes"
                f" {(frames, network.config.num_mel_bins)}: copy preprocessor_config.json again"
            )


def write_parts(folder: Path, parts: Parts, weights: dict[str, Tensor]) -> None:
    """Write a folder that transformers can load; its weights are replaced last.

    `model.yaml` has the hashes of all other files, so that a folder of which only a part was replaced is refused.
    """
    if wrong := not_finite(weights):
        raise UserError(
            f"the model was not written to {folder} because {wrong[0]} contains NaN or infinity:"
            " lower the learning rate"
        )
    new = folder / SAVING
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        with writing(folder / WEIGHTS, size_of(weights)), quietly():
            parts.network.save_pretrained(new, state_dict=weights, max_shard_size=WHOLE)
            parts.extractor.save_pretrained(new)
            parts.tokenizer.save(new)
        write_about(new, parts)
        for file in sorted(new.iterdir(), key=lambda file: file.name == WEIGHTS):
            sync(file)
            os.replace(file, folder / file.name)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_about(folder: Path, parts: Parts) -> None:
    """Write `model.yaml`: where the network came from, and the hashes of all files."""
    import yaml

    origin = parts.origin
    known = {"longest_heard": round(parts.longest_heard, 2)} if parts.longest_heard else {}
    about = {
        "kind": "recognizer",
        **known,
        "huggingface": {"source": origin.source, "commit": origin.commit},
        "sha256": {file.name: sha256_of(file) for file in sorted(folder.iterdir())},
    }
    replace_text(folder / SETTINGS, yaml.safe_dump(about, sort_keys=False, allow_unicode=True))


def written_by_us(folder: Path) -> Mapping[str, Any]:
    """Where the network in a folder came from, if this package wrote the folder; refuse one that changed since."""
    if not (folder / SETTINGS).is_file():
        return {}
    tree = read_yaml(folder / SETTINGS)
    about = tree.get("huggingface") if isinstance(tree, dict) else None
    hashes = tree.get("sha256") if isinstance(tree, dict) else None
    if not isinstance(about, dict) or not isinstance(hashes, dict) or WEIGHTS not in hashes:
        raise UserError(f"{folder / SETTINGS} is not that of a Hugging Face model: {AGAIN}")
    for name, expected in hashes.items():
        file = folder / str(name)
        if file.parent != folder or not file.is_file() or sha256_of(file) != expected:
            raise UserError(f"{folder}: {str(name)[:80]} is not the one that was written there: {AGAIN}")
    return {name: about.get(name) for name in ("source", "commit") if isinstance(about.get(name), str)}


def files_written(folder: Path) -> list[str]:
    """The files of a model that this package wrote, apart from `model.yaml` and its card."""
    if not (folder / SETTINGS).is_file():
        raise UserError(
            f"{folder} was not written by this package: provide the folder of a model that it trained"
        )
    return sorted(map(str, read_yaml(folder / SETTINGS)["sha256"]))


def sha256_of(file: Path) -> str:
    """The SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def is_huggingface(folder: Path) -> bool:
    """Whether a folder holds a model of transformers, as downloaded or as this package writes it."""
    return (folder / CONFIG).is_file()
