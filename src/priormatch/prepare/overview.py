"""What has been prepared, told to the user: three utterances, amounts, lengths, and letters that seem out of place."""

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
MOST_LETTERS = 12  # that seem out of place
MOST_SHOWN = 120  # of a derived alphabet
SELDOM = 1e-4  # the share of all letters below which one of a derived alphabet is worth a look


def overview(cuts: Iterable[MonoCut], normalizer: Normalizer, audio: AudioSettings) -> str:
    """Tell what a manifest holds, in a few lines."""
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
    """An utterance in one line: its id, seconds, speaker and text."""
    speaker = shortened(cut.supervisions[0].speaker or "speaker unknown", MOST_OF_A_NAME)
    return f"  {cut.id}, {cut.duration:.1f} s, {speaker}: {shortened(cut_text(cut) or 'no transcript', MOST_OF_TEXT)}"


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text, the last of them a sign that there are more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def lengths(cuts: Sequence[MonoCut], audio: AudioSettings) -> list[str]:
    """The shortest, median and longest utterance, how many training will skip, and how many are not cut though long."""
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
            f"not cut, though longer than {audio.segment:g} s: {count_text(whole, 'transcribed utterance')}, as nobody "
            "knows where the words fall; list stretches with start, end and text, or take the transcripts away"
        )
    return lines


def letters(texts: Sequence[str], normalizer: Normalizer) -> list[str]:
    """Letters that the alphabet lacks, with counts and an example; of a derived one, all of it and the seldom ones."""
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
        strange, what = [each for each in counts if counts[each] < SELDOM * total], "seldom"
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
    """A letter as it can be seen: a mark on a circle, an invisible one by its number."""
    if unicodedata.category(letter)[0] == "M":
        return f"\N{DOTTED CIRCLE}{letter}"
    return letter if letter.isprintable() else f"U+{ord(letter):04X}"


def _around(text: str, letter: str) -> str:
    """The word of a text that has the letter."""
    return next(word for word in text.split() if letter in word)
