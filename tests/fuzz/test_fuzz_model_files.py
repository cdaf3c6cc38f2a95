"""Hostile and damaged model folders and checkpoints: each is refused in one sentence or read as it was written."""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from guard import fuzzed, survives
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from priormatch.config import ConvLMSettings, ModelSettings, all_keys, load_settings
from priormatch.data.normalizer import normalizer_in
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.tuning import read_tuned
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.report.run_folder import read_settings
from priormatch.training.checkpoint import DAMAGED, FILE, OLD, read_checkpoint, write_checkpoint

pytestmark = pytest.mark.slow
MODEL = ModelSettings(n_mels=8, channels=[2], blocks=[1], kernel=3, size=4, kind="hybrid", longest_output=5)
LM = ConvLMSettings(embedding=4, width=4, bottlenecks=[[2, 4, 1]], head=4, kernel=3)
DIGITS, DEEP, LAUGHS = "FIVE_THOUSAND_DIGITS", "A_DEEP_NEST", "MANY_ALIASES"
MANY_ALIASES = "[&a [x, x, x, x, x, x, x, x, x], " + "".join(
    f"&{name} [{', '.join([f'*{before}'] * 9)}], " for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
MANY_ALIASES += "]"

Edit = tuple[str, float, bytes]
edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "flip", "flip", "cut", "insert", "replace", "delete"]),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=6,
)
odd: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(
        [
            *(None, True, False, 0, -1, 1, 3, 7, 255, 256, 10**6, 2**31, 2**63, 10**30, -(10**400), 10**400),
            *(0.5, 1.0, -0.0, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
            *(
                "",
                "\0",
                "\ud800",
                "\u202e",
                "x" * 50_000,
                "???",
                "nan",
                "1e3",
                "0x10",
                "2020-13-99",
                "<<",
                "~",
            ),
            *("${oc.env:HOME}", "${size}", "${" * 500, "!!python/name:os.system", "../../etc/passwd"),
            *(
                [],
                [[]],
                [None],
                [1] * 500,
                [[1, 2, 3]] * 400,
                {},
                {"a": {"b": {}}},
                {1: 2},
                [[2**40, 2**40, 2**40]],
            ),
            *(DIGITS, DEEP, LAUGHS),
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(-5, 70_000), max_size=5),
)


def damaged(content: bytes, changes: list[Edit]) -> bytes:
    """Apply flips, cuts, insertions and the like, each at a share of the length."""
    for kind, share, data in changes:
        place = int(share * max(len(content), 1))
        before, after = content[:place], content[place:]
        if kind == "flip" and after:
            content = before + bytes([after[0] ^ (1 << data[0] % 8)]) + after[1:]
        elif kind == "cut":
            content = before
        elif kind == "insert":
            content = before + data + after
        elif kind == "replace":
            content = before + data + after[len(data) :]
        elif kind == "delete":
            content = before + after[len(data) :]
    return content


contents = st.one_of(edits, st.binary(max_size=300))


def changed(content: bytes, change: list[Edit] | bytes) -> bytes:
    return change if isinstance(change, bytes) else damaged(content, change)


@contextmanager
def holding(file: Path, content: bytes) -> Iterator[None]:
    """Give a file other content for a while."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    SpeechRecognizer(MODEL, tiny_tokenizer).save(folder)
    return folder


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer) -> dict[str, Path]:
    """Folders without hashes."""
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("recognizer", "prior")}
    SpeechRecognizer(MODEL, tiny_tokenizer).save(folders["recognizer"])
    ConvPrior(LM, tiny_tokenizer).save(folders["prior"])
    for folder in folders.values():
        save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    return folders


def as_yaml(tree: object) -> bytes:
    """YAML with what no dumper writes in the place of its marks."""
    text = yaml.safe_dump(tree)
    for mark, real in ((DIGITS, "9" * 5000), (DEEP, "[" * 30_000), (LAUGHS, MANY_ALIASES)):
        text = text.replace(mark, real)
    return text.encode()


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


names = st.sampled_from(
    [*ModelSettings.__dataclass_fields__, *ConvLMSettings.__dataclass_fields__, "surprise", "a.b", "", "\0"]
)


@given(
    st.sampled_from(["recognizer", "prior"]),
    st.dictionaries(names, odd, max_size=3),
    st.dictionaries(st.sampled_from(["kind", "settings", "longest_heard", "more"]), odd, max_size=1),
    st.one_of(st.just([]), contents),
)
@fuzzed
def test_settings(strangers: dict[str, Path], kind: Any, settings: Any, others: Any, change: Any) -> None:
    folder = strangers[kind]
    file = folder / "model.yaml"
    tree = yaml.safe_load(file.read_text())
    known = {name: value for name, value in settings.items() if name in tree["settings"]} or settings
    tree = {**tree, "settings": {**tree["settings"], **known}, **others}
    with holding(file, changed(as_yaml(tree), change)):
        model = survives((SpeechRecognizer if kind == "recognizer" else ConvPrior).load, folder)
        assert model is None or sum(each.numel() for each in model.parameters()) < 10_000


@given(
    st.dictionaries(
        st.sampled_from([*all_keys(), "base", "fusion", "normalizer", "alphabet", "x.y"]), odd, max_size=4
    ),
    st.one_of(st.just([]), contents),
)
@fuzzed
def test_other_yaml(tmp_path_factory: pytest.TempPathFactory, values: Any, change: Any) -> None:
    folder = tmp_path_factory.getbasetemp()
    file = folder / "language.yaml"
    tree: dict[str, object] = {}
    for key, value in values.items():
        *parents, name = key.split(".")
        place = tree
        for parent in parents:
            inner = place.get(parent)
            place[parent] = place = inner if isinstance(inner, dict) else {}
        place[name] = copy.deepcopy(value)  # it may be filled in by another key
    file.write_bytes(changed(as_yaml(tree), change))
    survives(load_settings, file)
    survives(read_tuned, file)
    survives(normalizer_in, folder)
    survives(read_settings, file)


@given(
    st.lists(
        st.tuples(st.sampled_from([*all_keys(), "x", ""]), st.one_of(odd, st.text(max_size=30))), max_size=3
    )
)
@fuzzed
def test_overrides(pairs: Any) -> None:
    marks = {DIGITS: "9" * 5000, DEEP: "[" * 30_000, LAUGHS: MANY_ALIASES}
    words = [
        f"{key}={marks.get(value, value) if isinstance(value, str) else as_text(value)}"
        for key, value in pairs
    ]
    survives(load_settings, None, words)


def as_text(value: object) -> str:
    return "9" * 400 if isinstance(value, int) and abs(value) > 10**300 else str(value)


@given(contents, st.booleans())
@fuzzed
def test_tokenizers(strangers: dict[str, Path], change: Any, several: Any) -> None:
    file = strangers["recognizer"] / "tokenizer.model"

    def use() -> str:
        tokenizer = Tokenizer.load(file)
        spelled = tokenizer.encode("monday at nine" * (1 + several))
        return tokenizer.decode(spelled) + str(tokenizer.spellings("ten")) if spelled else ""

    with holding(file, changed(file.read_bytes(), change)):
        survives(use)
        survives(SpeechRecognizer.load, file.parent)


@given(contents, st.booleans())
@fuzzed
def test_weights(sealed: Path, strangers: dict[str, Path], change: Any, hashed: Any) -> None:
    folder = sealed if hashed else strangers["recognizer"]
    file = folder / "model.safetensors"
    expected = load_file(file)
    with holding(file, changed(file.read_bytes(), change)):
        model = survives(SpeechRecognizer.load, folder)
    if model is not None:
        found = model.state_dict()
        assert all(value.isfinite().all() for value in found.values())
        assert not hashed or same(found, expected)


@given(
    st.sampled_from(["recognizer", "prior"]),
    st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "more"]), odd, max_size=2),
    st.one_of(st.none(), odd),
    st.one_of(st.none(), st.dictionaries(st.text(max_size=5), odd, max_size=2), odd),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)
@fuzzed
def test_headers_of_weights(
    strangers: dict[str, Path], kind: Any, fields: Any, entry: Any, metadata: Any, place: Any, length: Any
) -> None:
    folder = strangers[kind]
    file = folder / "model.safetensors"
    content = file.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = list(header)[place % len(header)]
    header[name] = {**header[name], **fields} if entry is None else entry
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header).replace(f'"{DIGITS}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 30_000).encode()
    new = (len(text) if length is None else length).to_bytes(8, "little") + text + content[8 + size :]
    with holding(file, new):
        survives((SpeechRecognizer if kind == "recognizer" else ConvPrior).load, folder)


@pytest.fixture(scope="module")
def generations(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """A folder with two checkpoints, and their content."""
    folder = tmp_path_factory.mktemp("checkpoints")
    for update in (1, 2):
        tensors = {"model/a": torch.arange(40.0) + update, "optimizer/a|step": torch.tensor(update)}
        write_checkpoint(folder, tensors, {"update": update, "best": 0.25, "task": {"paired": [update, 3]}})
    return folder, {name: (folder / name).read_bytes() for name in (FILE, OLD)}


@given(contents, st.one_of(st.none(), st.none(), contents))
@fuzzed
def test_checkpoints(generations: tuple[Path, dict[str, bytes]], change: Any, other: Any) -> None:
    folder, written = generations
    (folder / DAMAGED).unlink(missing_ok=True)
    (folder / FILE).write_bytes(changed(written[FILE], change))
    (folder / OLD).write_bytes(written[OLD] if other is None else changed(written[OLD], other))
    found = survives(read_checkpoint, folder)
    if found is None:
        assert other is not None, "the older one was whole"
        return
    tensors, state = found
    update = state["update"]
    assert update in (1, 2)
    assert state == {"update": update, "best": 0.25, "task": {"paired": [update, 3]}}
    expected = {"model/a": torch.arange(40.0) + update, "optimizer/a|step": torch.tensor(update)}
    assert same(tensors, expected)
