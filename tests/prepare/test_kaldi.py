"""A Kaldi folder becomes a manifest, and nothing in it is run."""

from pathlib import Path

import pytest
from lhotse import Recording
from own_files import read, reasons, texts, truncate, write_audio

from priormatch.data import audio
from priormatch.errors import UserError
from priormatch.prepare import source
from priormatch.prepare.own import prepare_own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two recordings of two seconds, and nothing else."""
    write_audio(tmp_path / "kaldi/wav/r1.wav", 2)
    write_audio(tmp_path / "kaldi/wav/r2.flac", 2)
    return write(tmp_path / "kaldi", "wav.scp", "r1 wav/r1.wav", "r2  wav/r2.flac")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "made.jsonl.gz"


def write(folder: Path, name: str, *lines: str, end: str = "\n") -> Path:
    (folder / name).write_bytes("".join(f"{line}{end}" for line in lines).encode())
    return folder


def test_recordings_without_segments_are_utterances(folder: Path, out: Path) -> None:
    write(folder, "text", "r2 Hello, you!", "r1")
    write(folder, "utt2spk", "r2 ann")
    prepare_own(folder, out)
    assert texts(out) == {"r1": None, "r2": "hello you"}
    assert [cut.supervisions[0].speaker for cut in read(out).values()] == [None, "ann"]


def test_segments(folder: Path, out: Path, capsys: pytest.CaptureFixture) -> None:
    write(folder, "segments", "u1 r1 0.25 1.5", "u2 r1 1.5 -1", "u3 r2 0 2.005 1", "u4 r2 1 2.5", "u5 r2 3 4")
    write(folder, "text", "u1 one", "u3 three", "u9 nowhere")
    prepare_own(folder, out, max_bad_share=0.5)
    assert texts(out) == {"u1": "one", "u2": None, "u3": "three"}
    assert [(cut.start, cut.duration) for cut in read(out).values()] == [(0.25, 1.25), (1.5, 0.5), (0, 2)]
    assert read(out)["u1"].load_audio().shape == (1, 20_000)
    assert reasons(out) == [
        "lasts 2.00 s, but line 4 asks for 1 to 2.5",
        "lasts 2.00 s, but line 5 asks for 3 to 4",
    ]
    printed = capsys.readouterr().err
    assert "text: no audio for 1 utterance, the first is u9" in printed
    assert "2 of 5 skipped (not within the audio: 2)" in printed


def test_paths_from_the_working_directory(folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "wav.scp", "r1 kaldi/wav/r1.wav", "r2 wav/r2.flac")
    monkeypatch.chdir(folder.parent)
    prepare_own(Path("kaldi"), out)
    assert list(read(out)) == ["r1", "r2"]
    assert Path(read(out)["r1"].recording.sources[0].source).is_absolute()


def test_line_ends_of_windows_and_a_byte_order_mark(folder: Path, out: Path) -> None:
    write(folder, "wav.scp", "\ufeffr1 wav/r1.wav", "", "r2 wav/r2.flac", end="\r\n")
    write(folder, "text", "\ufeffr1 hello", end="\r\n")
    prepare_own(folder, out)
    assert texts(out) == {"r1": "hello", "r2": None}


def test_a_recording_of_many_utterances_is_decoded_once(
    folder: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_recording(path: Path, recording_id: str, decode: bool) -> Recording:
        opened.append(path)
        return audio.open_recording(path, recording_id, decode)

    monkeypatch.setattr(source, "open_recording", open_recording)
    write(folder, "segments", *(f"u{number:02d} r1 {number / 40} 2" for number in range(40)))
    prepare_own(folder, out)
    assert len(read(out)) == 40
    assert opened == [folder / "wav/r1.wav"]


def test_missing_and_broken_audio_is_listed(folder: Path, out: Path) -> None:
    truncate(folder / "wav/r1.wav")
    write(folder, "wav.scp", "r1 wav/r1.wav", "r2 wav/r2.flac", "r3 wav/r3.wav")
    write(folder, "segments", "a r1 0 1", "b r1 1 2", "c r2 0 1", "d r3 0 1")
    prepare_own(folder, out, max_bad_share=0.9)
    assert list(read(out)) == ["c"]
    assert reasons(out) == [
        "truncated: 20 bytes are missing at the end",
        "truncated: 20 bytes are missing at the end",
        "cannot be opened: No such file or directory",
    ]


@pytest.mark.parametrize(
    "command",
    [
        "flac -c -d -s wav/r1.wav |",
        "flac -dc   wav/r1.wav|",
        "sox wav/r1.wav -t wav - |",
        "sox -t flac wav/r1.wav -t wav - |",
        "ffmpeg -nostdin -v error -i wav/r1.wav -f wav pipe:1 |",
    ],
)
def test_of_a_command_that_decodes_a_file_the_file_is_taken(folder: Path, out: Path, command: str) -> None:
    write(folder, "wav.scp", f"r1 {command}")
    prepare_own(folder, out)
    assert read(out)["r1"].recording.sources[0].source == str(folder / "wav/r1.wav")


@pytest.mark.parametrize(
    "command",
    [
        "touch PROOF; cat wav/r1.wav |",
        "| touch PROOF",
        "touch PROOF|",
        "flac -c -d -s $(touch PROOF) |",
        "flac -c -d wav/r1.wav; touch PROOF |",
        "flac -c -d wav/r1.wav | touch PROOF |",
        "flac -c -d --skip=100 wav/r1.wav |",
        "flac -c -d wav/*.wav |",
        "sox wav/r1.wav -t wav - rate 8k |",
        "sox wav/r1.wav wav/r2.flac -t wav - |",
        "sox wav/r1.wav -t wav -c 1 - |",
        "ffmpeg -ss 1 -i wav/r1.wav -f wav - |",
        "ffmpeg -i wav/r1.wav -f wav PROOF |",
    ],
)
def test_commands_are_refused_and_never_run(
    folder: Path, out: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    write(folder, "wav.scp", "r2 wav/r2.flac", f"r1 {command}")
    with pytest.raises(
        UserError,
        match=r"wav\.scp, line 2: .* is a command that does more than decode a file, and commands are never run",
    ):
        prepare_own(folder, out)
    assert not (folder / "PROOF").exists()
    assert not out.exists()


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("wav.scp", [], r"wav\.scp lists no utterance"),
        ("wav.scp", ["r1 a.wav", "r1 b.wav"], r"wav\.scp, line 2: 'r1' is already on line 1"),
        ("wav.scp", ["r1"], r"wav\.scp, line 1: the path '' names no file"),
        ("wav.scp", ["r1 -"], r"line 1: the path '-' names no file"),
        ("wav.scp", ["r1 raw.ark:90"], r"line 1: 'raw.ark:90' is in an archive"),
        ("text", ["r1 a", "r2 b", "r1 c"], r"text, line 3: 'r1' is already on line 1"),
        ("utt2spk", ["r1 a", "r1 a"], r"utt2spk, line 2: 'r1' is already on line 1"),
        ("segments", ["u r1 0 1", "u r2 0 1"], r"segments, line 2: 'u' is already on line 1"),
        ("segments", ["u r9 0 1"], r"segments, line 1: wav\.scp has no recording 'r9'"),
        ("segments", ["u r1 -0.5 1"], r"segments, line 1: start must be a number of seconds, not '-0\.5'"),
        ("segments", ["u r1 0 soon"], r"line 1: end must be a number of seconds, not 'soon'"),
        ("segments", ["u r1 1 0.5"], r"line 1: the end 0\.5 must come after the start 1"),
        ("segments", ["u r1 1"], r"line 1: 3 fields; write utterance, recording, start and end"),
    ],
)
def test_mistakes_name_file_and_line(
    folder: Path, out: Path, name: str, lines: list[str], message: str
) -> None:
    write(folder, name, *lines)
    with pytest.raises(UserError, match=message):
        prepare_own(folder, out)
    assert not out.exists()


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le"])
def test_other_encodings_are_named(folder: Path, out: Path, encoding: str) -> None:
    (folder / "text").write_bytes("r1 Grüße\n".encode(encoding))
    with pytest.raises(UserError, match=r"text is not UTF-8 text .*iconv"):
        prepare_own(folder, out)


def test_an_empty_file_of_segments_is_no_leave_to_take_whole_recordings(folder: Path, out: Path) -> None:
    write(folder, "segments")
    with pytest.raises(UserError, match="segments lists no utterance"):
        prepare_own(folder, out)
