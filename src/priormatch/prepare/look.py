"""A first look at a user's speech and text: counts, and samples where reading everything would take long."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import soundfile

from priormatch.data.audio import BadAudio, check_audio, check_header
from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.data.text_files import find_text_files, read_sentences
from priormatch.errors import UserError
from priormatch.prepare.own import recognize
from priormatch.prepare.source import Utterance
from priormatch.progress import count_text, duration_text

MOST_DURATIONS = 1000  # files whose headers are read; the total is estimated from them
MOST_SENTENCES = 200_000


@dataclass(frozen=True)
class Speech:
    """Utterances found, with the durations of a sample of them, in seconds."""

    utterances: list[Utterance]
    durations: list[float]

    @property
    def hours(self) -> float:
        """Hours of all utterances, estimated from the sample."""
        return sum(self.durations) / max(len(self.durations), 1) * len(self.utterances) / 3600

    @property
    def speakers(self) -> int:
        """Number of named speakers."""
        return len({each.speaker for each in self.utterances} - {None})

    @property
    def transcribed(self) -> int:
        """Number of utterances with a transcript."""
        return sum(each.transcript is not None for each in self.utterances)

    def __str__(self) -> str:
        about = "about " if len(self.utterances) > len(self.durations) else ""
        counts = f"{count_text(len(self.utterances), 'utterance')}, {self.transcribed:,} of them transcribed"
        speakers = count_text(self.speakers, "speaker") if self.speakers else "speakers unknown"
        return f"{counts}, {about}{duration_text(3600 * self.hours)}, {speakers}"

    def transcripts(self, most: int = MOST_SENTENCES) -> list[str]:
        """Return the original transcripts, including empty ones, of at most `most` utterances."""
        return [each.text() for each in spread(self.utterances, most) if each.transcript is not None]


def look_at_speech(path: Path) -> Speech:
    """List the utterances at a path, in any known format, without decoding them."""
    _, read = recognize(path)
    found = list(read(path).utterances())
    known = all(each.seconds is not None for each in found)
    durations = map(_duration, found if known else spread(found, MOST_DURATIONS))
    return Speech(found, [seconds for seconds in durations if seconds is not None])


def decode_some(speech: Speech, most: int) -> tuple[int, list[tuple[Path, str]]]:
    """Decode the audio of at most `most` utterances; return the number of files, and the unusable ones with reasons."""
    checked: dict[Path, str | None] = {}
    with TemporaryDirectory() as folder:
        for each in spread(speech.utterances, most):
            try:
                file = each.find_audio(Path(folder))
                checked[file] = check_audio(file) if file not in checked else checked[file]
            except BadAudio as bad:
                checked[bad.path] = bad.reason
    return len(checked), [(file, reason) for file, reason in checked.items() if reason is not None]


def look_at_text(path: Path, normalizer: Normalizer = ENGLISH, most: int = MOST_SENTENCES) -> list[str]:
    """Return the first lines of text, spread over its files, normalized."""
    files = find_text_files([path])
    each = -(-most // len(files))
    lines = (line for file in files for line in islice(read_sentences(file), each))
    usable = (words for line in lines if (words := normalizer(line)) and not normalizer.foreign(words))
    found = list(islice(usable, most))
    if not found:
        raise UserError(f"{path} holds no sentence; give files with text")
    return found


def letters(sentences: Sequence[str]) -> Counter[str]:
    """Count each letter, without spaces."""
    return Counter(letter for sentence in sentences for letter in sentence if letter != " ")


def spread(items: Sequence[Utterance], most: int) -> Sequence[Utterance]:
    """Return at most `most` items, evenly spread."""
    return items[:: max(-(-len(items) // most), 1)]


def _duration(utterance: Utterance) -> float | None:
    if utterance.seconds is not None:
        return utterance.seconds
    try:
        with TemporaryDirectory() as folder:
            audio = utterance.find_audio(Path(folder))
            check_header(audio)
            return float(soundfile.info(audio).duration)
    except (BadAudio, OSError, ValueError, soundfile.LibsndfileError):
        return None
