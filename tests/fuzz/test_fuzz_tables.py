"""Tables, Kaldi folders and JSON lines with anything in them are prepared, or refused in a sentence."""

import json
from pathlib import Path

import pytest
import soundfile
from guard import fuzzed, survives
from hostile import VALUES, changed, damaged, lines_of
from hypothesis import given
from hypothesis import strategies as st
from tiny_language import speak

from priormatch.data.corpus import read_cuts
from priormatch.prepare.overview import decode_some, sample_speech
from priormatch.prepare.own import recognize
from priormatch.prepare.source import Intake

pytestmark = pytest.mark.slow

CSV = b'path,text,speaker,id,start,end\na.wav,ten,ann,u1,0,0.1\nb.wav,"nine, ten",bob,u2,0.1,\n'
ENTRY = {
    "audio_filepath": "a.wav",
    "duration": 0.1,
    "offset": 0.05,
    "text": "ten",
    "speaker": "ann",
    "id": "u",
}
SCP = b"r1 a.wav\nr2 sox b.wav -t wav - |\n"
SEGMENTS = b"u1 r1 0 0.1\nu2 r2 0.1 -1\n"
CELLS = [str(value) for value in VALUES if not isinstance(value, list | dict)]

cells = st.sampled_from(
    ["a.wav", "b.wav", "ten", "0.1", "1e5", "nan", "-1", '"', '""', "a;b", *CELLS]
) | st.text(max_size=8)
names = st.sampled_from(["path", "text", "speaker", "id", "start", "end", "", "PATH", "audio"])


@st.composite
def tables(draw: st.DrawFn) -> bytes:
    """A header and some rows, that need not fit it."""
    between = draw(st.sampled_from([",", ";", "\t"]))
    header = ["path", *draw(st.lists(names, max_size=5))]
    rows = draw(st.lists(st.lists(cells, min_size=len(header) - 1, max_size=len(header) + 1), max_size=4))
    return "\n".join(between.join(row) for row in [header, *rows]).encode("utf-8", "surrogatepass")


@st.composite
def lists(draw: st.DrawFn) -> bytes:
    """Lines of Kaldi's."""
    lines = draw(
        st.lists(st.lists(st.sampled_from(["r1", "r2", "u1", "u2"]) | cells, max_size=5), max_size=4)
    )
    return "\n".join(" ".join(line) for line in lines).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    for name in ("a", "b"):
        soundfile.write(folder / f"{name}.wav", speak("ten"), 16_000)
        (folder / "kaldi").mkdir(exist_ok=True)
        soundfile.write(folder / "kaldi" / f"{name}.wav", speak("ten"), 16_000)
    return folder


def prepare(path: Path, out: Path) -> None:
    """What `doctor` and `prepare audio` do with a list."""
    speech = sample_speech(path)
    str(speech)
    speech.transcripts()
    decode_some(speech, 3)
    _, read = recognize(path)
    read(path).write(out, Intake(), max_bad_share=1.0, overwrite=True)
    read_cuts(out)  # which must be able to read what was written


@fuzzed
@given(
    content=tables() | damaged(CSV, edges=40) | st.binary(max_size=200),
    suffix=st.sampled_from(["csv", "tsv"]),
)
def test_tables(folder: Path, content: bytes, suffix: str) -> None:
    path = folder / f"list.{suffix}"
    path.write_bytes(content)
    survives(prepare, path, folder / "out" / "made.jsonl.gz")


@fuzzed
@given(content=lines_of(changed(ENTRY), lambda: damaged(json.dumps(ENTRY).encode())))
def test_json_lines(folder: Path, content: bytes) -> None:
    path = folder / "list.jsonl"
    path.write_bytes(content)
    survives(prepare, path, folder / "out" / "made.jsonl.gz")


@fuzzed
@given(
    recordings=lists() | damaged(SCP) | damaged(SCP),
    segments=st.none() | lists() | damaged(SEGMENTS),
    text=st.none() | lists() | damaged(b"u1 ten\nu2 nine\n"),
    speakers=st.none() | lists() | damaged(b"u1 ann\nu2 bob\n"),
)
def test_kaldi(
    folder: Path, recordings: bytes, segments: bytes | None, text: bytes | None, speakers: bytes | None
) -> None:
    files = {"wav.scp": recordings, "segments": segments, "text": text, "utt2spk": speakers}
    for name, content in files.items():
        path = folder / "kaldi" / name
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    survives(prepare, folder / "kaldi", folder / "out" / "made.jsonl.gz")
