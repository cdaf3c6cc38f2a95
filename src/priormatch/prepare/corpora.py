"""Prepare manifests of LibriSpeech and Libri-Light as released."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from lhotse import MonoCut

from priormatch.data.audio import BadAudio, open_recording
from priormatch.data.manifest import (
    SUFFIX,
    distinct_names,
    existing_folder,
    name_of,
    utterance,
    write_manifests,
)
from priormatch.errors import UserError
from priormatch.files import open_regular
from priormatch.json_text import parse_object


def prepare_librispeech(
    corpus: Path,
    out: Path,
    parts: Sequence[str] = (),
    *,
    verify: bool = False,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `out/SUBSET.jsonl.gz` for every subset in LibriSpeech's layout, or for those named in `parts`.

    The layout is SUBSET/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NNNN.flac with SPEAKER-CHAPTER.trans.txt. A subset may have
    any name, and `corpus` may be the folder of the subsets, its parent, or a subset. Transcripts are the official
    ones in lower case. Only the header and the end of each audio file are checked; with `verify`, all of it.
    """
    existing_folder(corpus)
    below = corpus / "LibriSpeech"
    subsets = _find_subsets(below if below.is_dir() else corpus, parts)

    def cuts_of(source: tuple[Path, str | None]) -> list[MonoCut]:
        path, text = source
        if not text:
            raise BadAudio(path, f"has {'no' if text is None else 'an empty'} line in the .trans.txt")
        recording, speaker = open_recording(path, path.stem, verify), path.parent.parent.name
        chapter = f"{speaker}-{path.parent.name}"
        # The start in the chapter is unknown; utterances with equal starts are ordered by name, which is correct.
        return [utterance(path.stem, recording, text.lower(), speaker, "English", part_of=(chapter, 0.0))]

    manifests = {name: out / f"{name}{SUFFIX}" for name in subsets}
    sources = {manifests[name]: _transcribed(folder) for name, folder in subsets.items()}
    write_manifests(sources, cuts_of, max_bad_share, overwrite)
    return manifests


def prepare_librilight(
    corpus: Path,
    out: Path,
    longest: float = 36.0,
    *,
    parts: Sequence[str] = (),
    verify: bool = False,
    max_bad_share: float = 0.05,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `out/SUBSET.jsonl.gz` for every subset (small, medium, large) of Libri-Light, cut at pauses.

    The layout is SUBSET/SPEAKER/BOOK/CHAPTER.flac with the voice activity in CHAPTER.json. Neighboring
    intervals of speech are joined while they span at most `longest` seconds (see `join_intervals`). The
    release's cut_by_vad also fills segments up to a length, but it drops the pauses and does not split a long
    interval. Here a segment is one window of the chapter, so no audio is written and pauses are kept.
    """
    if not 1 <= longest < math.inf:
        raise UserError(f"longest must be at least 1 second, not {longest:g}.")
    subsets = _find_subsets(existing_folder(corpus), parts)

    def cuts_of(source: tuple[Path, str]) -> list[MonoCut]:
        path, name = source
        recording = open_recording(path, name, verify)
        speaker, speech = _read_voice_activity(path)
        rate = recording.sampling_rate
        samples = [(max(0, round(a * rate)), min(round(b * rate), recording.num_samples)) for a, b in speech]
        segments = join_intervals(samples, int(longest * rate))
        if not segments:
            raise BadAudio(path, "contains no speech according to its .json")
        return [
            utterance(
                f"{name}-{i:04d}",
                recording,
                None,
                speaker,
                "English",
                start=a / rate,
                duration=(b - a) / rate,
            )
            for i, (a, b) in enumerate(segments)
        ]

    manifests = {name: out / f"{name}{SUFFIX}" for name in subsets}
    sources = {manifests[name]: _named(folder) for name, folder in subsets.items()}
    write_manifests(sources, cuts_of, max_bad_share, overwrite)
    return manifests


def join_intervals(intervals: Iterable[tuple[int, int]], longest: int) -> list[tuple[int, int]]:
    """Join neighboring (start, end) intervals into segments that span at most `longest`, pauses included.

    From left to right, an interval joins the previous segment if the result still fits; otherwise it starts a
    new one. An interval longer than `longest` is first split into the fewest equal parts that fit. Overlaps
    count once.
    """
    segments: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if segments:
            start = max(start, segments[-1][1])
        length = max(0, end - start)
        parts = -(-length // longest)
        for i in range(parts):
            left, right = start + length * i // parts, start + length * (i + 1) // parts
            if segments and right - segments[-1][0] <= longest:
                segments[-1] = (segments[-1][0], right)
            else:
                segments.append((left, right))
    return segments


def _find_subsets(corpus: Path, parts: Sequence[str]) -> dict[str, Path]:
    """Find the folders that contain SPEAKER/CHAPTER/*.flac: the corpus itself or its subfolders."""
    candidates = [corpus] if _has_audio(corpus) else sorted(filter(Path.is_dir, corpus.iterdir()))
    subsets = {folder.absolute().name: folder for folder in candidates if _has_audio(folder)}
    if not subsets:
        raise UserError(f"{corpus} contains no audio as SUBSET/SPEAKER/CHAPTER/*.flac: check the folder.")
    if unknown := [part for part in parts if part not in subsets]:
        raise UserError(f"{corpus} has no part {', '.join(unknown)}: there are {', '.join(subsets)}.")
    return {name: folder for name, folder in subsets.items() if not parts or name in parts}


def _has_audio(folder: Path) -> bool:
    return next(folder.glob("*/*/*.flac"), None) is not None


def _chapter_files(subset: Path, pattern: str) -> list[Path]:
    return sorted(path for path in subset.glob(f"*/*/{pattern}") if not path.name.startswith("."))


def _named(subset: Path) -> list[tuple[Path, str]]:
    """List the chapters of a Libri-Light subset with a name for each."""
    paths = _chapter_files(subset, "*.flac")
    names = distinct_names(name_of(path.relative_to(subset)) for path in paths)
    return list(zip(paths, names, strict=True))


def _transcribed(subset: Path) -> list[tuple[Path, str | None]]:
    """List the audio of a LibriSpeech subset with its transcripts, including audio or transcripts without the other."""
    found: dict[Path, str | None] = dict.fromkeys(_chapter_files(subset, "*.flac"))
    for transcripts in _chapter_files(subset, "*.trans.txt"):
        try:
            with open_regular(transcripts) as file:
                lines = file.read().decode().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read {transcripts}: {error}; unpack the corpus again.") from error
        for line in filter(str.strip, lines):
            name, _, text = line.strip().partition(" ")
            found[transcripts.parent / f"{name}.flac"] = text.strip()
    return sorted(found.items())


def _read_voice_activity(audio: Path) -> tuple[str, list[tuple[float, float]]]:
    """Read a chapter's speaker and its intervals of speech, in seconds."""
    path = audio.with_suffix(".json")
    try:
        with open_regular(path) as file:
            chapter = parse_object(file.read().decode())
        speech = [(float(start), float(end)) for start, end in chapter["voice_activity"]]
        speaker = str(chapter.get("speaker") or audio.parent.parent.name)
    except OSError as error:
        raise BadAudio(audio, f"cannot read {path.name} next to it: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BadAudio(audio, f"{path.name} has no voice_activity: [[start, end], ...]") from error
    return speaker, [(start, end) for start, end in speech if -math.inf < start < end < math.inf]
