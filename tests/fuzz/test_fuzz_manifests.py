"""Manifests of Lhotse's with anything in them are read, or refused in a sentence; nothing in them is run or fetched."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import soundfile
from guard import fuzzed, survives
from hostile import changed, damaged, lines_of
from hypothesis import given
from hypothesis import strategies as st
from lhotse import Recording
from tiny_language import speak

from priormatch.config import AudioSettings
from priormatch.data.corpus import Corpus, cut_texts, read_cuts
from priormatch.data.manifest import summary, utterance
from priormatch.data.pack import read_packed
from priormatch.data.recordings import previous_in_recording
from priormatch.prepare.lhotse_cuts import list_cuts
from priormatch.prepare.source import Intake
from priormatch.report.inspector import embed

pytestmark = pytest.mark.slow

HERE = "HERE"


def make_entry(rate: int) -> dict:
    """A cut of a recording at HERE."""
    recording = Recording.from_dict(
        {
            "id": "r",
            "sources": [{"type": "file", "channels": [0], "source": f"{HERE}/{rate}.wav"}],
            "sampling_rate": rate,
            "num_samples": rate // 5,
            "duration": 0.2,
        }
    )
    recording = recording if rate == 16_000 else recording.resample(16_000)
    cut = utterance("u", recording, "ten", "ann", part_of=("long", 1.5))
    entry = cut.to_dict()
    entry["supervisions"][0]["alignment"] = {"word": [["ten", 0.0, 0.2, 0.5]]}
    entry["supervisions"][0]["custom"] = {"alternative_texts": ["nine"]}
    return json.loads(json.dumps(entry))


ENTRIES = [make_entry(16_000), make_entry(8_000)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("manifests")
    for rate in (16_000, 8_000):
        soundfile.write(folder / f"{rate}.wav", speak("ten", rate), rate)
    return folder


def there(folder: Path, content: bytes) -> bytes:
    return content.replace(HERE.encode(), str(folder).encode())


cuts = st.one_of(*map(changed, ENTRIES))
content = lines_of(cuts, lambda: damaged(("\n".join(map(json.dumps, ENTRIES))).encode()))


def use_cuts(path: Path) -> None:
    """What verbs do with cuts."""
    found = read_cuts(path)
    summary(found)
    previous_in_recording(found)
    corpus = Corpus(found, AudioSettings(), str(path))
    for cut in corpus.cuts:
        cut_texts(cut)
        assert isinstance(read_packed(cut, 10**6), tuple | str)
        json.dumps(cut.to_dict(), ensure_ascii=False).encode()


@fuzzed
@given(content=content, zipped=st.sampled_from([None, None, "whole", "cut"]))
def test_cuts(folder: Path, content: bytes, zipped: str | None) -> None:
    content = there(folder, content)
    path = folder / ("cuts.jsonl.gz" if zipped else "cuts.jsonl")
    if zipped:
        content = gzip.compress(content, 1)
        content = content[: len(content) - 9] if zipped == "cut" else content
    path.write_bytes(content)
    survives(use_cuts, path)


@fuzzed
@given(item=cuts)
def test_embedded_sound(folder: Path, item: str) -> None:
    try:
        entry = json.loads(item.replace(HERE, str(folder)))
    except (ValueError, RecursionError):
        return
    sound = survives(embed, entry)
    assert sound is not None
    assert sound.uri or sound.note


recordings = st.one_of(*(changed(entry["recording"]) for entry in ENTRIES))
supervisions = st.one_of(*(changed(entry["supervisions"][0]) for entry in ENTRIES))
Write = Callable[[Path], None]


def prepare(folder: Path) -> None:
    """What `prepare audio` does with recordings and supervisions."""
    found = list_cuts(folder)
    list(found.utterances())
    out = folder / "out" / "made.jsonl.gz"
    found.write(out, Intake(), max_bad_share=1.0, overwrite=True)
    read_cuts(out)  # which must be able to read what was written


@fuzzed
@given(
    recorded=lines_of(recordings, lambda: damaged(json.dumps(ENTRIES[0]["recording"]).encode())),
    spoken=lines_of(supervisions, lambda: damaged(json.dumps(ENTRIES[0]["supervisions"][0]).encode())),
)
def test_recordings_and_supervisions(folder: Path, recorded: bytes, spoken: bytes) -> None:
    pair = folder / "pair"
    pair.mkdir(exist_ok=True)
    (pair / "x_recordings_y.jsonl").write_bytes(there(folder, recorded))
    (pair / "x_supervisions_y.jsonl").write_bytes(there(folder, spoken))
    survives(prepare, pair)
