"""`priormatch transcribe`: write a transcript for each recording in files and folders, and a record of its making."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from priormatch.config import PretrainedSettings
from priormatch.data.audio import BadAudio, recordings_in
from priormatch.data.clips import file_seconds, open_file
from priormatch.data.ffmpeg import needs_ffmpeg
from priormatch.data.pauses import Cutting
from priormatch.device import find_device, use_threads
from priormatch.errors import UserError
from priormatch.files import replace_text, writing
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.progress import Meter, duration_text, say
from priormatch.recognizers.decode import Search, note_rescoring
from priormatch.recognizers.formats import FORMATS, Origin
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.protocols import Prior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import Transcription, transcribe_all
from priormatch.runs.stage import differences, plain

RECORD = "transcribed.jsonl"
"""The record of the models and settings that made the transcripts in a folder."""

Put = Callable[[Path, Transcription], None]
"""Receives the transcription of a recording."""

OriginOf = Callable[[Path], Origin]
"""Returns the origin of the transcription of a recording."""


class Transcribed:
    """The record `transcribed.jsonl` of a folder: for each transcript its recording, models and settings.

    Lines that cannot be read, such as one cut off when the process was killed, are ignored.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any]) -> None:
        self.file = folder / RECORD
        self.made_with = {name: plain(value) for name, value in made_with.items()}
        self.known: dict[str, dict[str, Any]] = {}
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.is_file() else []
        self.cut_off = bool(lines) and not lines[-1].endswith(b"\n")
        for line in lines:
            try:
                entry = with_names(parse_json(line), NEW_NAMES)
                self.known[entry.pop("file")] = entry
            except (ValueError, LookupError, TypeError, AttributeError):
                continue

    def require_same(self, transcript: Path, recording: Path) -> None:
        """Refuse an existing transcript that was made from another recording or with other models or settings."""
        known = self.known.get(self._name(transcript))
        if known is None:
            raise UserError(
                f"{transcript} exists, and {self.file} does not record how it was made: choose another --out, or"
                " replace it with --overwrite"
            )
        if changed := differences(known, self._origin(recording)):
            raise UserError(
                f"{transcript} was made with another {' and '.join(changed)}: choose another --out, or replace it with"
                " --overwrite"
            )

    def note(self, transcript: Path, recording: Path) -> None:
        """Record how a transcript is made; call this before it is written, while the file does not exist."""
        entry = {"file": self._name(transcript), **self._origin(recording)}
        with writing(self.file), self.file.open("a", encoding="utf-8") as record:
            record.write("\n" * self.cut_off + json.dumps(entry) + "\n")
        self.cut_off = False

    def _name(self, transcript: Path) -> str:
        return os.path.relpath(transcript, self.file.parent)

    def _origin(self, recording: Path) -> dict[str, Any]:
        return {"recording": os.path.realpath(recording), **self.made_with}


def load_models(
    model: Path, prior: Path | None, device: str, threads: int = 0, language: str = ""
) -> tuple[SpeechRecognizer, Prior | None]:
    """Load a recognizer and, if given, a prior; a multilingual Whisper is told its language."""
    use_threads(threads)
    place = find_device(device)
    recognizer = load_recognizer(model, place, PretrainedSettings(language=language))
    if prior is None:
        return recognizer, None
    judge = load_prior(prior, place)
    note_rescoring(recognizer, judge)
    return recognizer, judge


def find_recordings(given: Sequence[Path]) -> list[Path]:
    """The given files and all recordings in the given folders and their subfolders, without duplicates."""
    found: dict[Path, None] = {}
    for path in given:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
        found |= dict.fromkeys(recordings_in(path) if path.is_dir() else [path])
    return list({os.path.realpath(path): path for path in found}.values())


def places_in(out: Path, recordings: Sequence[Path], given: Sequence[Path]) -> dict[Path, Path]:
    """The path of each recording's transcript, without its suffix; all paths differ.

    Folders below `out` are those below the common parent of the given paths. A recording's own suffix is kept if
    another recording would have the same path, as in talk.wav.txt and talk.mp3.txt.
    """
    roots = [os.path.abspath(path if path.is_dir() else path.parent) for path in given]
    common = os.path.commonpath(roots)  # needs absolute paths: it does not resolve `..`
    whole = {path: out / os.path.relpath(path, common) for path in recordings}
    taken = Counter([*whole.values(), *(place.with_suffix("") for place in whole.values())])
    return {
        path: short if taken[short := place.with_suffix("")] == 1 else place for path, place in whole.items()
    }


def missing_files(
    places: Mapping[Path, Path], formats: Iterable[str], transcribed: Transcribed, overwrite: bool
) -> dict[Path, dict[str, Path]]:
    """The files to write for each recording, by format: the missing ones, or all with `overwrite`.

    Existing files made with other models or settings are refused.
    """
    wanted = {
        path: {each: place.with_name(f"{place.name}.{each}") for each in formats}
        for path, place in places.items()
    }
    if overwrite:
        return wanted
    left = {
        path: {name: file for name, file in files.items() if not file.exists()}
        for path, files in wanted.items()
    }
    for path, files in wanted.items():
        for name in files.keys() - left[path].keys():
            transcribed.require_same(files[name], path)
    if done := sum(not files for files in left.values()):
        say(
            f"{done} of {len(places)} recordings already have transcripts: skipped (use --overwrite to make them again)"
        )
    return {path: files for path, files in left.items() if files}


def write_files(
    files: Mapping[Path, Mapping[str, Path]], transcribed: Transcribed, origin_of: OriginOf
) -> Put:
    """Create the folders, and return a function that writes each transcription in its formats."""

    @contextmanager
    def writing(file: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"cannot write {file}: {error.strerror}; choose another --out") from error

    def put(path: Path, found: Transcription) -> None:
        for name, file in files[path].items():
            with writing(file):
                file.unlink(missing_ok=True)  # so that the record is correct at every moment
                transcribed.note(file, path)
                replace_text(file, FORMATS[name](origin_of(path), found))

    for file in (file for wanted in files.values() for file in wanted.values()):
        with writing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
    return put


def transcribe(
    model: SpeechRecognizer,
    recordings: Sequence[Path],
    search: Search,
    cutting: Cutting,
    seconds: float | None,
    put: Put,
) -> list[BadAudio]:
    """Transcribe files, pass each transcription to `put` as soon as it is ready, and return the unreadable files."""
    bad: list[BadAudio] = []
    silent, heard = 0, 0.0
    unknown = any(map(needs_ffmpeg, recordings))  # how long they are
    total = None if unknown else round(sum(map(_seconds, recordings)))
    with Meter("transcribing, seconds of audio", total) as meter:
        sources = (partial(open_file, path, cutting) for path in recordings)
        outcomes = transcribe_all(model, sources, search, seconds, _in_whole_seconds(meter))
        for path, outcome in zip(recordings, outcomes, strict=True):
            if isinstance(outcome, BadAudio):
                bad.append(outcome)
            else:
                silent += not outcome.segments
                heard += outcome.duration
                put(path, outcome)
    if good := len(recordings) - len(bad):
        without = f", {silent} of them without speech" if silent else ""
        say(f"{_count(good)} transcribed{without} ({duration_text(heard)} of audio)")
    if bad:
        say(f"{_count(len(bad))} could not be read:")
        for each in bad:
            say(f"  {each}".encode(errors="backslashreplace").decode())  # a file name may not be valid UTF-8
    return bad


def _count(recordings: int) -> str:
    return f"{recordings} recording{'' if recordings == 1 else 's'}"


def _seconds(path: Path) -> float:
    """The duration of a recording by its header; 0 if the header cannot be trusted."""
    try:
        return file_seconds(path)
    except BadAudio:
        return 0.0


def _in_whole_seconds(meter: Meter) -> Callable[[float], None]:
    """Let a meter in whole seconds advance by fractions of a second."""
    exact = 0.0

    def advance(seconds: float) -> None:
        nonlocal exact
        exact += seconds
        meter.advance(round(exact) - meter.done)

    return advance
