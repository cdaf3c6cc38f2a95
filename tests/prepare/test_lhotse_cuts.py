"""Lhotse's manifests, of cuts or of recordings and supervisions, are brought into shape."""

import gzip
import json
from pathlib import Path

import pytest
from ffmpeg_stub import MP4
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.utils import fastcopy
from own_files import read, reasons, texts, write_audio

from priormatch.errors import UserError
from priormatch.prepare.overview import survey_speech
from priormatch.prepare.own import prepare_own


@pytest.fixture
def recordings(tmp_path: Path) -> list[Recording]:
    paths = [write_audio(tmp_path / "audio" / name, 2, 8_000) for name in ("a.wav", "b.flac")]
    return [Recording.from_file(path, recording_id=path.stem) for path in paths]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl.gz"


def supervision(name: str, recording: str, start: float, duration: float, text: str) -> SupervisionSegment:
    return SupervisionSegment(name, recording, start, duration, text=text, speaker="ann")


def write_pair(folder: Path, recordings: list[Recording], supervisions: list[SupervisionSegment]) -> Path:
    folder.mkdir()
    RecordingSet.from_recordings(recordings).to_file(folder / "x_recordings_dev.jsonl.gz")
    SupervisionSet.from_segments(supervisions).to_file(folder / "x_supervisions_dev.jsonl.gz")
    return folder


def write_cuts(path: Path, recordings: list[Recording], **changes: object) -> Path:
    CutSet.from_cuts(fastcopy(each.to_cut(), **changes) for each in recordings).to_file(path)
    return path


@pytest.mark.parametrize("given", ["", "x_recordings_dev.jsonl.gz", "x_supervisions_dev.jsonl.gz"])
def test_recordings_and_supervisions(
    recordings: list[Recording], out: Path, tmp_path: Path, given: str
) -> None:
    spoken = [supervision("u1", "a", 0.5, 1, "Hello!"), supervision("u2", "a", 1.5, 0.5, "You")]
    folder = write_pair(tmp_path / "pair", recordings, spoken)
    prepare_own(folder / given, out)
    assert texts(out) == {"u1": "hello", "u2": "you"}
    assert [(cut.start, cut.duration) for cut in read(out).values()] == [(0.5, 1), (1.5, 0.5)]
    assert read(out)["u1"].supervisions[0].speaker == "ann"


def test_recordings_alone_are_utterances(recordings: list[Recording], out: Path, tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "pair", recordings, [supervision("u1", "a", 0, 1, "x")])
    (folder / "x_supervisions_dev.jsonl.gz").unlink()
    prepare_own(folder, out)
    assert list(texts(out).values()) == [None, None]


def test_plain_lines_with_a_byte_order_mark_and_line_ends_of_windows(
    recordings: list[Recording], out: Path, tmp_path: Path
) -> None:
    path = write_cuts(tmp_path / "cuts.jsonl.gz", recordings)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    plain = tmp_path / "cuts.jsonl"
    plain.write_bytes(("\ufeff" + "\r\n".join(lines) + "\r\n").encode())
    prepare_own(plain, out)
    assert len(read(out)) == 2


def test_relative_paths_become_absolute(
    recordings: list[Recording], out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recordings[0].sources[0].source = "audio/a.wav"
    path = write_cuts(tmp_path / "cuts.jsonl.gz", recordings)
    monkeypatch.chdir(tmp_path.parent)
    prepare_own(path, out)
    assert [cut.load_audio().shape for cut in read(out).values()] == [(1, 16_000)] * 2
    assert all(Path(cut.recording.sources[0].source).is_absolute() for cut in read(out).values())


def test_what_cannot_be_used_is_listed(recordings: list[Recording], out: Path, tmp_path: Path) -> None:
    whole = recordings[0].to_cut()
    commanded = Recording.from_dict(recordings[0].to_dict())
    commanded.sources[0].type, commanded.sources[0].source = "command", f"touch {tmp_path / 'PROOF'}"
    gone = Recording.from_dict(recordings[1].to_dict())
    gone.sources[0].source = str(tmp_path / "gone.wav")
    cuts = [
        fastcopy(whole, id="beyond", start=1.5, duration=1.0),
        fastcopy(whole, id="before", start=-0.5),
        fastcopy(whole, id="command", recording=commanded),
        fastcopy(whole, id="gone", recording=gone),
        fastcopy(whole, id="channel", channel=3),
        fastcopy(whole, id="silent", recording=None),
        whole.append(whole).with_id("mixed"),
        fastcopy(whole, id="good"),
    ]
    CutSet.from_cuts(cuts).to_file(tmp_path / "cuts.jsonl.gz")
    prepare_own(tmp_path / "cuts.jsonl.gz", out, max_bad_share=0.9)
    assert list(read(out)) == ["good"]
    assert not (tmp_path / "PROOF").exists()
    assert reasons(out) == [
        "lasts 2.00 s, but the cut beyond asks for 1.5 to 2.5",
        "lasts 2.00 s, but the cut before asks for -0.5 to 1.5",
        "its audio is a command, but must be a file",
        "cannot be opened: No such file or directory",
        "its recording has no channel 3",
        "the cut has no audio",
        "the cut is a MixedCut, not a MonoCut",
    ]


def test_a_file_for_ffmpeg_is_unusable_before_and_in_a_run(
    recordings: list[Recording], out: Path, tmp_path: Path
) -> None:
    """A manifest declares lengths and rates, which what ffmpeg decodes need not have."""
    (phone := tmp_path / "a.m4a").write_bytes(MP4)
    recordings[0].sources[0].source = str(phone)
    cuts = write_cuts(tmp_path / "cuts.jsonl.gz", recordings)
    prepare_own(cuts, out, max_bad_share=0.9)
    assert [*survey_speech(cuts).bad.items()] == [(phone, *reasons(out))]


def test_two_cuts_of_one_name(recordings: list[Recording], out: Path, tmp_path: Path) -> None:
    path = tmp_path / "cuts.jsonl"
    path.write_text(f"{json.dumps(recordings[0].to_cut().to_dict())}\n" * 2)
    with pytest.raises(UserError, match="two cuts have the id"):
        prepare_own(path, out)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": ', "line 2: not a Lhotse cut .JSONDecodeError"),
        ('{"id": "x", "type": "Klingon"}', "line 2: not a Lhotse cut .ValueError"),
        ('{"id": "x"}', "line 2: not a Lhotse cut"),
        ("[]", "line 2: not a Lhotse cut"),
    ],
)
def test_mistakes_name_the_line(
    recordings: list[Recording], out: Path, tmp_path: Path, line: str, message: str
) -> None:
    path = tmp_path / "cuts.jsonl"
    path.write_text(f"{json.dumps(recordings[0].to_cut().to_dict())}\n{line}\n")
    with pytest.raises(UserError, match=message):
        prepare_own(path, out)


def test_pairs_that_do_not_fit(recordings: list[Recording], out: Path, tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "pair", recordings, [supervision("u1", "z", 0, 1, "x")])
    with pytest.raises(UserError, match="u1 belongs to the recording z, which is not listed"):
        prepare_own(folder, out)
    RecordingSet.from_recordings(recordings).to_file(folder / "y_recordings.jsonl.gz")
    with pytest.raises(UserError, match="must contain one file of recordings"):
        prepare_own(folder, out)
    (folder / "x_recordings_dev.jsonl.gz").unlink()
    with pytest.raises(
        UserError, match=r"its recordings, x_recordings_dev\.jsonl\.gz, are missing next to it"
    ):
        prepare_own(folder / "x_supervisions_dev.jsonl.gz", out)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8bbroken", "{}".encode("utf-16")])
def test_files_that_cannot_be_read(out: Path, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / ("cuts.jsonl.gz" if content[:1] == b"\x1f" else "cuts.jsonl")
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"cuts\.jsonl"):
        prepare_own(path, out)
