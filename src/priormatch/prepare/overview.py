"""Amounts, letters and examples: of a user's speech and text as found, and of a prepared manifest."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from lhotse import MonoCut

from priormatch.config import AudioSettings
from priormatch.data.audio import BadAudio, Header, check_audio, read_header, why_not_resampled
from priormatch.data.corpus import cut_text
from priormatch.data.ffmpeg import playable
from priormatch.data.manifest import map_in_threads, summary
from priormatch.data.normalizer import ENGLISH, Normalizer, kind_for
from priormatch.data.text_files import find_text_files, read_sentences
from priormatch.errors import UserError
from priormatch.prepare.own import recognize
from priormatch.prepare.source import Utterance
from priormatch.progress import count_text, duration_text, track

MOST_DURATIONS = 1000  # files whose headers are read; the total is estimated from them
TOGETHER = 64  # headers read by a thread at a time: handing them over one by one takes longer than reading
MOST_SENTENCES = 200_000
EXAMPLES = 3
MOST_OF_TEXT, MOST_OF_A_NAME = 100, 24  # characters in an example
MOST_LETTERS = 12  # unusual ones shown
MOST_SHOWN = 120  # letters of a derived alphabet
RARE = 1e-4  # share of all letters below which a letter of a derived alphabet is worth a check


@dataclass(frozen=True)
class Speech:
    """Utterances found, the durations in seconds of those with a usable header, and the unusable files with reasons.

    `spoken` are the durations of those with a transcript. With `sampled`, only some of the headers were read.
    """

    utterances: list[Utterance]
    durations: list[float]
    spoken: list[float]
    bad: dict[Path, str] = field(default_factory=dict)
    files: int = 0
    sampled: bool = False

    @property
    def hours(self) -> float:
        """Hours of all usable utterances, estimated if only some headers were read."""
        return sum(self.durations) / self._share / 3600

    @property
    def transcribed_hours(self) -> float:
        """Hours of those with a transcript."""
        return sum(self.spoken) / self._share / 3600

    @property
    def _share(self) -> float:
        return len(self.durations) / len(self.utterances) if self.sampled and self.durations else 1.0

    @property
    def speakers(self) -> int:
        """Number of named speakers."""
        return len({each.speaker for each in self.utterances} - {None})

    @property
    def transcribed(self) -> int:
        """Number of utterances with a transcript."""
        return sum(each.transcript is not None for each in self.utterances)

    def __str__(self) -> str:
        counts = f"{count_text(len(self.utterances), 'utterance')}, {self.transcribed:,} of them transcribed"
        amount = f"{'about ' * self.sampled}{duration_text(3600 * self.hours)}"
        speakers = count_text(self.speakers, "speaker") if self.speakers else "speakers unknown"
        nobodys = sum(each.speaker is None for each in self.utterances) if self.speakers else 0
        without = f" ({count_text(nobodys, 'utterance')} without one)" if nobodys else ""
        return f"{counts}, {amount}, {speakers}{without}"

    def transcripts(self, most: int = MOST_SENTENCES) -> list[str]:
        """Return the original transcripts, including empty ones, of at most `most` utterances."""
        return [each.text() for each in spread(self.utterances, most) if each.transcript is not None]


def sample_speech(path: Path) -> Speech:
    """List the utterances at a path, in any known format; read at most some of their headers."""
    found = utterances_at(path)
    known = [(each, each.seconds) for each in found if each.seconds is not None]
    if len(known) == len(found):
        return Speech(found, *durations_of(known))
    some = spread(found, MOST_DURATIONS)
    return replace(read_headers(some), utterances=found, sampled=len(some) < len(found))


def survey_speech(path: Path) -> Speech:
    """List the utterances at a path, in any known format, and read the headers of all their files."""
    return read_headers(utterances_at(path), f"reading headers of {path}")


def utterances_at(path: Path) -> list[Utterance]:
    """List the utterances at a path, in any known format, without opening their audio."""
    _, read = recognize(path)
    return list(read(path).utterances())


def read_headers(utterances: Sequence[Utterance], description: str = "") -> Speech:
    """Read the headers of the utterances' files, in threads; show progress under a description."""
    known: dict[Path, Header | BadAudio] = {}

    def look(utterance: Utterance, folder: Path) -> Header | BadAudio:
        try:
            file = utterance.find_audio(folder)
            if file not in known:
                with playable(file) as playing:
                    known[file] = header_to_train_on(file, playing)
            return known[file]
        except BadAudio as bad:
            known[bad.path] = bad
            return bad

    def look_at(some: Sequence[Utterance]) -> list[Header | BadAudio]:
        with TemporaryDirectory() as folder:
            return [look(each, Path(folder)) for each in some]

    parts = [utterances[start : start + TOGETHER] for start in range(0, len(utterances), TOGETHER)]
    looked: Iterable[Header | BadAudio] = chain.from_iterable(map_in_threads(look_at, parts))
    if description:
        looked = track(looked, description, len(utterances))
    usable = [
        (utterance, header.seconds if utterance.seconds is None else utterance.seconds)
        for utterance, header in zip(utterances, looked, strict=True)
        if isinstance(header, Header)
    ]
    bad = {file: each.reason for file, each in known.items() if isinstance(each, BadAudio)}
    return Speech(list(utterances), *durations_of(usable), bad, len(known))


def header_to_train_on(path: Path, playing: Path) -> Header:
    """Read the header of a file; raise `BadAudio` also for a rate that training cannot change."""
    header = read_header(playing)
    if reason := why_not_resampled(header.rate):
        raise BadAudio(path, reason)
    return header


def durations_of(usable: Sequence[tuple[Utterance, float]]) -> tuple[list[float], list[float]]:
    """The durations of utterances, and of those with a transcript."""
    spoken = [seconds for utterance, seconds in usable if utterance.transcript is not None]
    return [seconds for _, seconds in usable], spoken


def decode_some(speech: Speech, most: int) -> tuple[int, list[tuple[Path, str]]]:
    """Decode some of the audio with usable headers, of at most `most` utterances; return (files, bad with reasons)."""
    checked: dict[Path, str | None] = {}
    with TemporaryDirectory() as folder:
        for each in spread(speech.utterances, most):
            try:
                file = each.find_audio(Path(folder))
                if file not in checked and file not in speech.bad:
                    with playable(file) as playing:
                        checked[file] = check_audio(playing)
            except BadAudio as bad:
                if bad.path not in speech.bad:
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
        raise UserError(f"{path} contains no sentence; provide files with text")
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
    name, text = (shortened(each, MOST_OF_TEXT) for each in (cut.id, cut_text(cut) or "no transcript"))
    return f"  {name}, {cut.duration:.1f} s, {speaker}: {text}"


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text on one line, the last an ellipsis if there are more."""
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
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
            f"is that English? if not, pass --normalizer {kind} (in a run language.normalizer={kind})"
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
