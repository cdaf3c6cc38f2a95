"""Summarize a prepared manifest: amounts, lengths, unusual letters and three examples."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from lhotse import MonoCut

from priormatch.config import AudioSettings
from priormatch.data.batches import cut_text
from priormatch.data.manifest import summary
from priormatch.data.normalizer import Normalizer, kind_for
from priormatch.progress import count_text

SAMPLES = 3
MOST_OF_TEXT, MOST_OF_A_NAME = 100, 24  # characters in a sample
MOST_LETTERS = 12  # unusual ones shown
MOST_SHOWN = 120  # letters of a derived alphabet
SELDOM = 1e-4  # share of all letters below which a letter of a derived alphabet is worth a check


def overview(cuts: Iterable[MonoCut], normalizer: Normalizer, audio: AudioSettings) -> str:
    """Summarize a manifest in a few lines."""
    cuts = list(cuts)
    every = max(len(cuts) // SAMPLES, 1)
    lines = [
        str(summary(cuts)),
        *lengths(cuts, audio),
        *letters([text for cut in cuts if (text := cut_text(cut))], normalizer),
        "for example:",
        *map(sample, cuts[: every * SAMPLES : every]),
    ]
    return "\n".join(lines)


def sample(cut: MonoCut) -> str:
    """Format an utterance in one line: id, seconds, speaker and text."""
    speaker = shortened(cut.supervisions[0].speaker or "speaker unknown", MOST_OF_A_NAME)
    return f"  {cut.id}, {cut.duration:.1f} s, {speaker}: {shortened(cut_text(cut) or 'no transcript', MOST_OF_TEXT)}"


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text, the last an ellipsis if there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def lengths(cuts: Sequence[MonoCut], audio: AudioSettings) -> list[str]:
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


def letters(texts: Sequence[str], normalizer: Normalizer) -> list[str]:
    """Report letters not in the alphabet, with counts and examples; for a derived alphabet, all and the rare ones."""
    counts, example = Counter[str](), dict[str, str]()
    for text in texts:
        counts.update(text)
        for letter in set(text):
            example.setdefault(letter, text)
    del counts[" "]
    if not counts:
        return []
    known, total = normalizer.letters, counts.total()
    if known:
        strange, lines = [each for each in counts if each not in known], []
        what = f"not in the alphabet ({normalizer.name})"
    else:
        strange, what = [each for each in counts if counts[each] < SELDOM * total], "rare"
        lines = [
            f"letters ({normalizer.name}, {len(counts)}): {' '.join(map(shown, sorted(counts)[:MOST_SHOWN]))}"
        ]
    if strange:
        strange.sort(key=lambda letter: (-counts[letter], letter))
        told = ", ".join(
            f"{shown(each)} {counts[each]:,} ({_around(example[each], each)})"
            for each in strange[:MOST_LETTERS]
        )
        more = f" and {len(strange) - MOST_LETTERS} more" if len(strange) > MOST_LETTERS else ""
        lines.append(f"{what}: {told}{more}")
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


def _around(text: str, letter: str) -> str:
    """Return the first word of a text that has the letter."""
    return next(word for word in text.split() if letter in word)
