"""Amounts, letters and examples: of a user's speech and text as found, and of a prepared manifest."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import soundfile
from lhotse import MonoCut

from priormatch.config import AudioSettings
from priormatch.data.audio import BadAudio, check_audio, check_header
from priormatch.data.corpus import cut_text
from priormatch.data.manifest import summary
from priormatch.data.normalizer import ENGLISH, Normalizer, kind_for
from priormatch.data.text_files import find_text_files, read_sentences
from priormatch.errors import UserError
from priormatch.prepare.own import recognize
from priormatch.prepare.source import Utterance
from priormatch.progress import count_text, duration_text

MOST_DURATIONS = 1000  # files whose headers are read; the total is estimated from them
MOST_SENTENCES = 200_000
EXAMPLES = 3
MOST_OF_TEXT, MOST_OF_A_NAME = 100, 24  # characters in an example
MOST_LETTERS = 12  # unusual ones shown
MOST_SHOWN = 120  # letters of a derived alphabet
RARE = 1e-4  # share of all letters below which a letter of a derived alphabet is worth a check


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


def sample_speech(path: Path) -> Speech:
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


def sample_text(path: Path, normalizer: Normalizer = ENGLISH, most: int = MOST_SENTENCES) -> list[str]:
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
    counts = Counter[str]()
    for sentence in sentences:
        counts.update(sentence)
    del counts[" "]
    return counts


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


def overview(cuts: Iterable[MonoCut], normalizer: Normalizer, audio: AudioSettings) -> str:
    """Summarize a manifest in a few lines."""
    cuts = list(cuts)
    every = max(len(cuts) // EXAMPLES, 1)
    lines = [
        str(summary(cuts)),
        *length_lines(cuts, audio),
        *letter_lines([text for cut in cuts if (text := cut_text(cut))], normalizer),
        "for example:",
        *map(example_line, cuts[: every * EXAMPLES : every]),
    ]
    return "\n".join(lines)


def example_line(cut: MonoCut) -> str:
    """Format an utterance in one line: id, seconds, speaker and text."""
    speaker = shortened(cut.supervisions[0].speaker or "speaker unknown", MOST_OF_A_NAME)
    return f"  {cut.id}, {cut.duration:.1f} s, {speaker}: {shortened(cut_text(cut) or 'no transcript', MOST_OF_TEXT)}"


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text, the last an ellipsis if there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def length_lines(cuts: Sequence[MonoCut], audio: AudioSettings) -> list[str]:
    """Report shortest, median and longest utterance, how many training will skip, and how many long ones stay uncut."""
    seconds = [cut.duration for cut in cuts]
    lines = [
        f"lengths: shortest {min(seconds):.2f} s, median {median(seconds):.2f} s, longest {max(seconds):.2f} s"
    ]
    short = sum(each < audio.shortest for each in seconds)
    long = sum(each > audio.longest for each in seconds)
    if short or long:
        lines.append(
            f"training will skip {short:,} shorter than {audio.shortest:g} s (audio.shortest)"
            f" and {long:,} longer than {audio.longest:g} s (audio.longest)"
        )
    whole = sum(each.duration > audio.segment and cut_text(each) is not None for each in cuts)
    if audio.segment and whole:
        lines.append(
            f"not cut, though longer than {audio.segment:g} s: {count_text(whole, 'transcribed utterance')}, as the "
            "times of the words are unknown; list segments with start, end and text, or remove the transcripts"
        )
    return lines


def letter_lines(texts: Sequence[str], normalizer: Normalizer) -> list[str]:
    """Report letters not in the alphabet, with counts and examples; for a derived alphabet, all and the rare ones."""
    counts = letters(texts)
    if not counts:
        return []
    if normalizer.letters:
        unusual, lines = [each for each in counts if each not in normalizer.letters], []
        what = f"not in the alphabet ({normalizer.name})"
    else:
        unusual, what = [each for each in counts if counts[each] < RARE * counts.total()], "rare"
        alphabet = " ".join(map(shown, sorted(counts)[:MOST_SHOWN]))
        lines = [f"letters ({normalizer.name}, {len(counts)}): {alphabet}"]
    if unusual:
        unusual.sort(key=lambda letter: (-counts[letter], letter))
        first = (
            f"{shown(each)} {counts[each]:,} ({_word_with(each, texts)})" for each in unusual[:MOST_LETTERS]
        )
        more = f" and {len(unusual) - MOST_LETTERS} more" if len(unusual) > MOST_LETTERS else ""
        lines.append(f"{what}: {', '.join(first)}{more}")
    if normalizer.kind == "english" and (kind := kind_for(counts)) != "english":
        lines.append(
            f"is that English? if not, give --normalizer {kind} (in a run language.normalizer={kind})"
        )
    return lines


def shown(letter: str) -> str:
    """Make a letter visible: a mark on a dotted circle, an invisible letter as its code point."""
    if unicodedata.category(letter)[0] == "M":
        return f"\N{DOTTED CIRCLE}{letter}"
    return letter if letter.isprintable() else f"U+{ord(letter):04X}"


def _word_with(letter: str, texts: Sequence[str]) -> str:
    """Return the first word that has the letter."""
    return next(word for text in texts for word in text.split() if letter in word)
