"""Formats that ffmpeg decodes: what it is asked, what it is never asked, and what is said when it fails."""

import errno
import shutil
import subprocess
from pathlib import Path

import pytest
import soundfile
from ffmpeg_stub import MP4, WEBM, stand_in
from tiny_language import speak

from priormatch.data import ffmpeg
from priormatch.data.audio import BadAudio
from priormatch.data.clips import open_file
from priormatch.data.ffmpeg import Decoded, arguments, decode, playable
from priormatch.data.pauses import Cutting

PLAYLISTS = [
    b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/passwd\n",
    b"ffconcat version 1.0\nfile /etc/passwd\n",
    b"[playlist]\nFile1=http://127.0.0.1/secret.mp3\n",
    b'<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"></MPD>',
    b"v=0\nc=IN IP4 127.0.0.1\nm=audio 5004 RTP/AVP 96\n",
]
needs_it = pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="needs ffmpeg")


def reason(path: Path) -> str:
    with pytest.raises(BadAudio) as caught:
        decode(path, path.with_suffix(".flac"))
    assert caught.value.path == path
    return caught.value.reason


@pytest.mark.parametrize(("suffix", "demuxer"), [(".m4a", "mov"), (".MP4", "mov"), (".webm", "matroska")])
def test_what_ffmpeg_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, demuxer: str
) -> None:
    called = stand_in(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    path, target = Path(f'-a $(touch pwned) "; | ü{suffix}'), Path("b c.flac")
    path.write_bytes(MP4 if demuxer == "mov" else WEBM)
    decode(path, target)
    whole = " ".join(called.read_text().splitlines())
    assert whole == (
        "-nostdin -hide_banner -loglevel error -xerror -y"
        f" -protocol_whitelist file,pipe -format_whitelist {demuxer} -f {demuxer}"
        f" -i file:{tmp_path / path} -map 0:a:0 -map_metadata -1"
        " -t 3600001 -ar 16000 -c:a flac -sample_fmt s16"
        f" -f flac file:{tmp_path / target}"
    )
    assert soundfile.info(target).channels == 2
    assert not Path("pwned").exists()


@pytest.mark.parametrize("content", PLAYLISTS)
@pytest.mark.parametrize("name", ["a.mp4", "a.m4a", "a.webm"])
def test_a_renamed_playlist_never_reaches_ffmpeg(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    called = stand_in(tmp_path, monkeypatch)
    (tmp_path / name).write_bytes(content)
    kind = "WebM" if name == "a.webm" else "MP4"
    assert reason(tmp_path / name) == f"is not {kind}, by its content: give the file its real suffix"
    assert not called.exists()


def test_files_that_are_not_there_or_hold_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = stand_in(tmp_path, monkeypatch)
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "folder.mp4").mkdir()
    assert reason(tmp_path / "empty.mp4") == "the file is empty"
    assert reason(tmp_path / "none.mp4") == "cannot be opened: No such file or directory"
    assert reason(tmp_path / "folder.mp4").startswith("cannot be opened: ")
    (tmp_path / "empty.mp4").rename(bad := tmp_path / "\udcff.mp4")
    assert reason(bad) == "the file's name is not valid UTF-8: rename it"
    assert not called.exists()


FAILURES = {
    "echo '[mov @ 0x5] [a/b @ 0x1] moov atom not found.' >&2; echo more >&2; exit 1": "(moov atom not found)",
    "echo '[in#0 @ 0x7] File ended prematurely' >&2": "(File ended prematurely)",
    "exit 3": "(it was stopped)",
    "echo \"Stream map '' matches no streams.\" >&2; exit 1": "contains no audio",
    "while :; do echo 'again and again and again' >&2; done": "(again and again and again)",
    "exec sleep 60": "(it was stopped)",
}


@pytest.mark.parametrize("script", FAILURES)
def test_failures_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    stand_in(tmp_path, monkeypatch, script)
    monkeypatch.setattr(ffmpeg, "LONGEST_RUN", 0.5)
    (tmp_path / "a.m4a").write_bytes(MP4)
    said = reason(tmp_path / "a.m4a")
    assert said.endswith(FAILURES[script])
    assert said.startswith("truncated or damaged: ffmpeg cannot") or said == "contains no audio"


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, "echo 'Error writing trailer: No space left on device' >&2; exit 228")
    (tmp_path / "a.m4a").write_bytes(MP4)
    with pytest.raises(OSError, match="No space left") as caught:
        decode(tmp_path / "a.m4a", tmp_path / "a.flac")
    assert caught.value.errno == errno.ENOSPC


def test_without_ffmpeg_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.webm").write_bytes(WEBM)
    said = reason(tmp_path / "a.webm")
    assert "ffmpeg, which is not on the PATH: install ffmpeg (`apt install ffmpeg`, `brew install" in said


def test_the_use_of_ffmpeg_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(tmp_path, monkeypatch)
    for name in ("a.m4a", "b.m4a"):
        (tmp_path / name).write_bytes(MP4)
        decode(tmp_path / name, tmp_path / "out.flac")
    assert capsys.readouterr().err.count(f"files are decoded with {tmp_path / 'bin' / 'ffmpeg'}") == 1


def test_a_recording_to_transcribe_is_on_disk_until_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, seconds=4.0)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "a.m4a").write_bytes(MP4)
    found = open_file(tmp_path / "a.m4a", Cutting(longest=1.0, shortest=0.3))
    assert found.seconds == pytest.approx(4.0)
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert len(list(found.clips)) == 4
    assert not list((tmp_path / "temporary").iterdir())


def test_a_fault_in_what_was_decoded_names_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, monkeypatch, 'for last; do :; done; head -c 900 "$FLAC" > "${last#file:}"')
    (tmp_path / "a.m4a").write_bytes(MP4)
    with pytest.raises(BadAudio) as caught:
        open_file(tmp_path / "a.m4a", Cutting())
    assert caught.value.path == tmp_path / "a.m4a"


def test_files_are_decoded_once_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = stand_in(tmp_path, monkeypatch)
    for name in ("a.m4a", "b.mp4"):
        (tmp_path / name).write_bytes(MP4)
    for decoded in (Decoded(tmp_path / "audio"), Decoded(tmp_path / "audio")):
        files = {decoded.readable(tmp_path / name) for name in ("a.m4a", "b.mp4")}
        assert [file.suffix for file in files] == [".flac"]
    assert called.read_text().count("-nostdin") == 1
    assert decoded.readable(Path("c.wav")) == Path("c.wav")


def test_audio_that_libsndfile_reads_is_left_to_it_whatever_its_suffix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = stand_in(tmp_path, monkeypatch)
    shutil.copy(tmp_path / "decoded.flac", tmp_path / "a.mp4")
    with playable(tmp_path / "a.mp4") as file:
        assert file == tmp_path / "a.mp4"
    assert Decoded(tmp_path / "audio").readable(tmp_path / "a.mp4") == tmp_path / "a.mp4"
    assert not called.exists()


def make(path: Path, *words: str) -> Path:
    """Encode a second of tones with ffmpeg."""
    soundfile.write(path.with_suffix(".wav"), speak("monday at ten with doctor"), 16_000)
    source = ["-i", str(path.with_suffix(".wav"))]
    subprocess.run(["ffmpeg", "-nostdin", "-loglevel", "error", *source, *words, str(path)], check=True)
    return path


@needs_it
@pytest.mark.parametrize(
    "words", [["a.m4a"], ["b.mp4", "-ar", "44100", "-ac", "2"], ["c.webm", "-c:a", "libopus"]]
)
def test_ffmpeg_decodes_what_it_encoded(tmp_path: Path, words: list[str]) -> None:
    name, *options = words
    with playable(make(tmp_path / name, *options)) as file:
        info = soundfile.info(file)
    assert info.duration == pytest.approx(1.0, abs=0.1)
    assert (info.samplerate, info.channels) == (16_000, 2 if "-ac" in options else 1)


@needs_it
@pytest.mark.parametrize("words", [["a.m4a", "-movflags", "+faststart"], ["c.webm", "-c:a", "libopus"]])
def test_ffmpeg_notices_truncated_files(tmp_path: Path, words: list[str]) -> None:
    path = make(tmp_path / words[0], *words[1:])
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    assert "truncated or damaged: ffmpeg cannot decode it completely" in reason(path)


@needs_it
@pytest.mark.parametrize("content", PLAYLISTS)
@pytest.mark.parametrize(("name", "demuxer"), [("a.mp4", "mov"), ("a.webm", "matroska")])
def test_ffmpeg_itself_refuses_a_renamed_playlist(
    tmp_path: Path, name: str, demuxer: str, content: bytes
) -> None:
    """Without our look at the first bytes."""
    (tmp_path / name).write_bytes(content)
    command = arguments("ffmpeg", tmp_path / name, tmp_path / "out.flac", demuxer)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "passwd" not in done.stderr
    assert not (tmp_path / "out.flac").exists()
