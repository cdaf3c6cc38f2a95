"""Manifests that anybody may have written are read as data: nothing in them is acted upon before it is checked."""

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from lhotse import CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.serialization import deserialize_item
from lhotse.supervision import AlignmentItem
from lhotse.utils import fastcopy

from priormatch.data.audio import BadAudio
from priormatch.data.corpus import read_cuts
from priormatch.data.cuts import cut_of
from priormatch.data.manifest import join_manifests
from priormatch.data.waveforms import read_samples, read_with_lhotse, why_unreadable
from priormatch.errors import UserError
from priormatch.report.inspector import embed

Change = Callable[[dict], object]


@pytest.fixture
def entry(tiny_corpus: Callable[..., Path]) -> dict:
    with gzip.open(tiny_corpus(["monday at nine"]), "rt") as lines:
        return json.loads(next(lines))


def source(entry: dict) -> dict:
    return entry["recording"]["sources"][0]


def supervision(entry: dict) -> dict:
    return entry["supervisions"][0]


def transformed(name: str, **numbers: object) -> Change:
    return lambda entry: entry["recording"].update(transforms=[{"name": name, "kwargs": numbers}])


def reverberated(command: str) -> Change:
    """Lhotse would load the impulse response, by a command."""
    sources = [{"type": "command", "channels": [0], "source": command}]
    rir = {"id": "rir", "sources": sources, "sampling_rate": 16_000, "num_samples": 9, "duration": 9 / 16_000}
    return transformed("ReverbWithImpulseResponse", rir=rir)


REFUSED: list[tuple[Change, str]] = [
    (
        lambda entry: source(entry).update(type="command", source="touch PROOF"),
        "is a command, but must be a file",
    ),
    (lambda entry: source(entry).update(type="url"), "is a url, but must be a file"),
    (lambda entry: source(entry).update(source="s3://bucket/a.wav"), "at a URL"),
    (lambda entry: source(entry).update(type="shar"), "is a shar"),
    (
        lambda entry: source(entry).update(video={"fps": 25, "num_frames": 9, "height": 2, "width": 2}),
        "video",
    ),
    (reverberated("touch PROOF"), "ReverbWithImpulseResponse is not one of Resample, Speed, Volume"),
    (lambda entry: entry.update(type="MultiCut"), "is a MultiCut, not a MonoCut"),
    (lambda entry: entry.update(type="MixedCut", tracks=[]), "is a MixedCut, not a MonoCut"),
    (lambda entry: entry.update(type="PaddingCut"), "is a PaddingCut, not a MonoCut"),
    (lambda entry: entry["recording"].update(sampling_rate=44_101), "cannot be resampled"),
    (
        transformed("Resample", source_sampling_rate=44_101, target_sampling_rate=16_000),
        "44101 Hz cannot be resampled to 16000 Hz",
    ),
    (transformed("Speed", factor=1.00006), "a speed of 1.00006: 16001 Hz cannot be resampled"),
    (
        lambda entry: entry["recording"].update(
            transforms=[{"name": "Speed", "kwargs": {"factor": 0.1}}] * 5
        ),
        "its transforms change the speed by 1e-05, not by 0.1 to 10",
    ),
]

MALFORMED: list[tuple[Change, str]] = [
    (lambda entry: entry.update(id=None), "id is missing"),
    (lambda entry: entry.update(id=""), "id is ''"),
    (lambda entry: entry.update(id=7), "id is 7"),
    (lambda entry: entry.update(duration=float("nan")), "duration is nan"),
    (lambda entry: entry.update(duration=float("inf")), "duration is inf"),
    (lambda entry: entry.update(duration=-1), "duration is -1"),
    (lambda entry: entry.update(duration="1"), "duration is '1'"),
    (lambda entry: entry.update(duration=True), "duration is True"),
    (lambda entry: entry.update(start=10**400), "start is 1000"),
    (lambda entry: entry.pop("start"), "start is missing"),
    (lambda entry: entry.update(channel=[0]), "channel is a list"),
    (lambda entry: entry.update(supervisions={}), "supervisions is an object"),
    (lambda entry: entry.update(supervisions=[None]), "missing is not a supervision"),
    (lambda entry: entry.update(custom=[]), "custom is a list"),
    (lambda entry: entry.update(more=1), "unknown field 'more'"),
    (lambda entry: entry.update(type="Klingon"), "type is 'Klingon'"),
    (lambda entry: supervision(entry).update(text=12), "text is 12, not text"),
    (lambda entry: supervision(entry).update(speaker=["a"]), "speaker is a list"),
    (lambda entry: supervision(entry).update(custom={"alternative_texts": [3]}), "not a list of texts"),
    (lambda entry: supervision(entry).update(alignment={"word": [["a", "b", "c"]]}), "start is 'b'"),
    (lambda entry: entry["recording"].update(sampling_rate=0), "sampling_rate is 0"),
    (lambda entry: entry["recording"].update(sampling_rate=19_999_999), "sampling_rate is 19999999"),
    (lambda entry: entry["recording"].update(num_samples=1.5), "num_samples is 1.5"),
    (lambda entry: entry["recording"].update(sources=[]), "sources is a list, not a list of files"),
    (lambda entry: source(entry).update(source=None), "no path"),
    (lambda entry: source(entry).update(channels=[]), "channels is a list"),
    (lambda entry: source(entry).update(channels=["0"]), "not integers"),
    (transformed("Speed", factor=1e9), "factor is 1000000000.0"),
    (transformed("Speed", factor="1"), "factor is '1'"),
    (transformed("Resample", source_sampling_rate=8000.0, target_sampling_rate=16_000), "not an integer"),
    (transformed("Speed", factor=1, rir={}), "Speed must have factor"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED + MALFORMED)
def test_entries_that_are_not_used_are_named_with_their_lines(
    entry: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Change, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    good = json.dumps(entry)
    change(entry)
    path = tmp_path / "cuts.jsonl"
    path.write_text(f"{good}\n{json.dumps(entry)}\n")
    with pytest.raises(
        UserError, match=r"cuts\.jsonl is not a usable manifest of cuts.* line 2: "
    ) as refusal:
        read_cuts(path)
    assert reason in str(refusal.value)
    note = embed(entry).note
    assert reason in note
    with pytest.raises(UserError, match=r"line 2"):
        join_manifests([path], tmp_path / "joined.jsonl.gz")
    assert not (tmp_path / "PROOF").exists()
    assert not (tmp_path / "joined.jsonl.gz").exists()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "MonoCut", "custom": ' + '{"a": ' * 200 + "1" + "}" * 201, "nested too deeply"),
        ('{"type": "MonoCut", "id": "a\\u0000b"}', "NUL"),
        ('{"type": "MonoCut", "id": "a\\uD800b"}', "surrogates not allowed"),
        ('{"type": "MonoCut", "id": "a", "start": ' + "9" * 5000 + "}", "4300"),
        ("3", "not a JSON object"),
        ("{", "JSONDecodeError"),
    ],
)
def test_lines_that_are_no_objects_of_text_and_numbers(tmp_path: Path, line: str, reason: str) -> None:
    (tmp_path / "cuts.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(UserError, match=rf"line 2: .*{reason}"):
        read_cuts(tmp_path / "cuts.jsonl")


def test_only_json_lines_are_manifests(entry: dict, tmp_path: Path) -> None:
    (tmp_path / "cuts.json").write_text(json.dumps([entry]))
    with pytest.raises(UserError, match=r"cuts\.json is not a manifest of cuts: provide a \.jsonl"):
        read_cuts(tmp_path / "cuts.json")


def test_a_cut_is_what_lhotse_makes_of_it(tiny_corpus: Callable[..., Path]) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["at nine"], rate=8000))
    words = [AlignmentItem("at", 0.0, 0.1), AlignmentItem("nine", 0.1, 0.1, 0.5)]
    spoken = fastcopy(
        cut.supervisions[0],
        alignment={"word": words},
        custom={"alternative_texts": ["x"]},
        text="\N{GRINNING FACE}",
    )
    cut = fastcopy(cut, supervisions=[spoken], custom={"part_of": ["long", 3.5], "list": [[1], {"a": None}]})
    for each in (cut, cut.resample(16_000), cut.perturb_speed(1.1), cut.perturb_volume(0.5)):
        item = json.loads(json.dumps(each.to_dict()))
        kept = copy.deepcopy(item)
        assert cut_of(item) == deserialize_item(copy.deepcopy(item))
        assert item == kept


def test_features_are_dropped_and_custom_manifests_stay_data(entry: dict) -> None:
    array = {"storage_type": "numpy_files", "storage_path": "x", "storage_key": "y", "shape": [1]}
    entry["custom"] = {
        "codes": {"array": array, "temporal_dim": 0},
        "other": copy.deepcopy(entry["recording"]),
    }
    entry["features"] = {"type": "fbank", "storage_path": "http://127.0.0.1:9/"}
    cut = cut_of(entry)
    assert cut.features is None
    assert cut.custom == entry["custom"]
    assert all(type(each) is dict for each in cut.custom.values())


def test_cuts_made_in_python_run_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    audio = AudioSource("command", [0], "touch PROOF")
    cut = MonoCut(
        "u",
        0,
        1,
        0,
        [SupervisionSegment("u", "r", 0, 1)],
        recording=Recording("r", [audio], 16_000, 16_000, 1),
    )
    for each in (cut, cut.append(cut)):
        with pytest.raises(BadAudio, match="is a command") as refusal:
            read_samples(each)
        assert "its audio is a command" in why_unreadable(each, refusal.value)
    assert not (tmp_path / "PROOF").exists()


def test_impulse_responses_of_cuts_made_in_python_run_no_command(
    entry: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reverberated("touch PROOF")(entry)
    with pytest.raises(BadAudio, match="ReverbWithImpulseResponse"):
        read_with_lhotse(deserialize_item(entry))
    assert not (tmp_path / "PROOF").exists()
