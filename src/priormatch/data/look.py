"""A first look at speech and text as users have them: counted, and sampled where all of it would take long."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import soundfile
from lhotse import MonoCut
from lhotse.cut import Cut

from priormatch.data.audio import check_audio
from priormatch.data.batches import cut_text, read_cuts
from priormatch.data.own_audio import AUDIO_SUFFIXES, read_rows
from priormatch.data.text import normalise_sentence
from priormatch.data.text_files import find_text_files, read_sentences
from priormatch.errors import UserError
from priormatch.progress import duration_text

MOST_DURATIONS = 1000  # files whose headers are read; the rest is reckoned from them
MOST_SENTENCES = 200_000


@dataclass(frozen=True)
class Utterance:
    """What is known of an utterance before its audio is opened.

    `file` is None where the audio is not a file, `transcript` may be a file still to be read, and `seconds` is None
    where only the audio can tell.
    """

    file: Path | None
    transcript: str | Path | None
    speaker: str | None
    seconds: float | None

    def text(self) -> str:
        """The transcript as it was written, or "" where there is none or none that can be read."""
        if not isinstance(self.transcript, Path):
            return self.transcript or ""
        try:
            return self.transcript.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError):
            return ""


@dataclass(frozen=True)
class Speech:
    """Utterances found, with the durations of a sample of them, in seconds."""

    utterances: list[Utterance]
    durations: list[float]

    @property
    def hours(self) -> float:
        """Of all utterances, reckoned from the sample."""
        return sum(self.durations) / max(len(self.durations), 1) * len(self.utterances) / 3600

    @property
    def speakers(self) -> int:
        """How many are named."""
        return len({each.speaker for each in self.utterances} - {None})

    @property
    def transcribed(self) -> int:
        """How many have a transcript."""
        return sum(each.transcript is not None for each in self.utterances)

    def __str__(self) -> str:
        about = "about " if len(self.utterances) > len(self.durations) else ""
        counts = f"{len(self.utterances):,} utterances, {self.transcribed:,} of them transcribed"
        return f"{counts}, {about}{duration_text(3600 * self.hours)}, {self.speakers or 'unnamed'} speakers"

    def transcripts(self, most: int = MOST_SENTENCES) -> list[str]:
        """Transcripts as they were written, empty ones too, of at most so many utterances."""
        return [each.text() for each in spread(self.utterances, most) if each.transcript is not None]


def look_at_speech(path: Path) -> Speech:
    """Utterances of a folder, a table or a manifest; no audio is decoded."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file or folder; check the path")
    if path.is_dir():
        found = list(_in_folder(path))
    elif path.suffix in (".csv", ".tsv"):
        found = list(_in_table(path))
    else:
        found = [_of_cut(cut) for cut in read_cuts(path)]
    if not found:
        raise UserError(f"{path} holds no audio ({' '.join(AUDIO_SUFFIXES)}); check the folder")
    known = all(each.seconds is not None for each in found)
    durations = map(_duration, found if known else spread(found, MOST_DURATIONS))
    return Speech(found, [seconds for seconds in durations if seconds is not None])


def decode_some(speech: Speech, most: int) -> tuple[int, list[tuple[Path, str]]]:
    """Decode the audio files of at most so many utterances: how many, and those that cannot be used, with reasons."""
    files = dict.fromkeys(each.file for each in spread(speech.utterances, most) if each.file is not None)
    return len(files), [(file, reason) for file in files if (reason := check_audio(file)) is not None]


def look_at_text(path: Path, most: int = MOST_SENTENCES) -> list[str]:
    """The first normalised lines of text, spread over its files."""
    files = find_text_files([path])
    each = -(-most // len(files))
    lines = (line for file in files for line in islice(read_sentences(file), each))
    found = list(islice(filter(None, map(normalise_sentence, lines)), most))
    if not found:
        raise UserError(f"{path} holds no sentence; give files with text in them")
    return found


def letters(sentences: Sequence[str]) -> Counter[str]:
    """How often each letter occurs, spaces aside."""
    return Counter(letter for sentence in sentences for letter in sentence if letter != " ")


def spread(items: Sequence[Utterance], most: int) -> Sequence[Utterance]:
    """At most so many items, evenly spread."""
    return items[:: max(-(-len(items) // most), 1)]


def _in_folder(folder: Path) -> Iterator[Utterance]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in AUDIO_SUFFIXES and not path.name.startswith(".") and path.is_file():
            *above, _ = path.relative_to(folder).parts
            beside = path.with_suffix(".txt")
            yield Utterance(path, beside if beside.is_file() else None, above[0] if above else None, None)


def _in_table(table: Path) -> Iterator[Utterance]:
    for row in read_rows(table):
        seconds = None if row.end is None else row.end - row.start
        yield Utterance(table.parent / row.path, row.text or None, row.speaker or None, seconds)


def _of_cut(cut: Cut) -> Utterance:
    sources = cut.recording.sources if cut.has_recording and isinstance(cut, MonoCut) else []
    file = next((Path(each.source) for each in sources if each.type == "file"), None)
    speaker = next((each.speaker for each in cut.supervisions), None)
    return Utterance(file, cut_text(cut), speaker, cut.duration)


def _duration(utterance: Utterance) -> float | None:
    if utterance.seconds is not None or utterance.file is None:
        return utterance.seconds
    try:
        return float(soundfile.info(utterance.file).duration)
    except (OSError, soundfile.LibsndfileError):
        return None
