"""A corpus like LibriSpeech generated from text: passages of books, read by espeak-ng in clean and other voices."""

import json
import os
import random
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
from lhotse import MonoCut

from priormatch.data.audio import recording_at
from priormatch.data.manifest import SUFFIX, summary, utterance
from priormatch.data.text import normalize_sentence
from priormatch.data.text_files import read_sentences
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing
from priormatch.prepare.spoken import FRAME, check_installed, without_text, write_cuts
from priormatch.prepare.synthetic_speech import (
    CASTS,
    JOURNAL,
    VERSION,
    Reading,
    Recorded,
    Speaker,
    expected_seconds,
    record,
    speakers_of,
)
from priormatch.progress import Meter

UNLABELED = ("unlab-clean", "unlab-other")
TEXT, TEXT_VALIDATION = "text.txt", "text-validation.txt"
DESCRIPTION = "synthetic.json"
SENTENCES_A_REPORT = 10_000
PASSAGE = (5, 20)
"""Fewest and most sentences in a recording."""
SPEAKABLE = re.compile(r"[a-z']{1,30}( [a-z']{1,30})*")

Characters = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class SyntheticOptions:
    """Options of a synthetic corpus."""

    labeled: float = 9.0  # hours of labeled speech
    unlab_clean: float = 18.0  # hours of unlabeled speech in clean voices
    unlab_other: float = 18.0  # hours of unlabeled speech in other voices
    dev: float = 0.75  # hours of dev-clean, and of dev-other
    test: float = 0.75  # hours of test-clean, and of test-other
    text_validation: int = 2000  # approximate number of validation sentences for the prior
    shortest: int = 3  # fewest words in a spoken sentence
    longest: int = 35  # most words in a spoken sentence
    seed: int = 0  # of the passages, the speakers and the noise

    def hours(self) -> dict[str, float]:
        """Return the hours of speech of every part."""
        return {
            "dev-clean": self.dev,
            "dev-other": self.dev,
            "test-clean": self.test,
            "test-other": self.test,
            "labeled": self.labeled,
            "unlab-clean": self.unlab_clean,
            "unlab-other": self.unlab_other,
        }

    def __post_init__(self) -> None:
        """Raise `UserError` for invalid options."""
        for name, hours in self.hours().items():
            if not 0 < hours < 1e6:
                raise UserError(f"{name}: {hours:g} hours of speech are not possible: use a number above 0.")
        if not 1 <= self.shortest <= self.longest:
            raise UserError(
                f"sentences of {self.shortest} to {self.longest} words are not possible: "
                "shortest must be at least 1, and longest at least shortest."
            )
        if self.text_validation < 1:
            raise UserError(f"text_validation is {self.text_validation}: use at least 1 sentence.")
        if self.seed < 0:
            raise UserError(f"The seed of the corpus is {self.seed}: use a whole number, at least 0.")


DEFAULT_OPTIONS = SyntheticOptions()


@dataclass(frozen=True)
class Turn:
    """A passage, as the numbers of its sentences, assigned to a speaker in a part of the corpus."""

    part: str
    name: str
    speaker: Speaker
    passage: range


def prepare_synthetic(
    files: Sequence[Path], out: Path, options: SyntheticOptions = DEFAULT_OPTIONS, jobs: int | None = None
) -> dict[str, Path]:
    """Generate a corpus in the folder `out` from text files with one sentence per line; return its manifests' paths.

    - labeled, unlab-clean and unlab-other (without transcripts), unlab-clean-transcribed and unlab-other-transcribed
      (the same with transcripts), dev-clean, dev-other, test-clean and test-other, each `.jsonl.gz`; audio/*.wav. A
      recording has 5 to 20 consecutive sentences of the text, read by one speaker; its cuts are in order and name it.
    - text.txt and text-validation.txt: the sentences that are not spoken anywhere, in order, for the prior.
    - synthetic.json: the version, the options, and the contents of every part, with its speakers.

    `synthetic_speech.py` defines the voices of each part. The same text and options give the same corpus, whatever the
    number of jobs (by default one per core); with more unlabeled speech, the other parts stay the same. An interrupted
    call resumes: complete recordings are kept.
    """
    check_installed()
    characters = survey(_read(files, "finding passages"), options.shortest, options.longest)
    turns, validation = deal(characters, options)
    out = out.resolve()
    try:
        (out / "audio").mkdir(parents=True, exist_ok=True)
        spoken = _share_out(files, out, len(characters), turns, validation)
        return _make(turns, spoken, options, out, jobs or os.cpu_count() or 1)
    except OSError as error:
        what = f"cannot write to {out}: {error}"
        raise UserError(f"{what}; free some space or choose another folder.") from error


def survey(sentences: Iterable[str], shortest: int, longest: int) -> Characters:
    """Count the characters of every sentence that may be spoken, 0 for the others: (N,).

    A sentence may be spoken if it has `shortest` to `longest` words of plain letters and apostrophes and occurs only
    once. So no sentence is spoken twice, and no spoken sentence is in the rest of the text.
    """
    hashes, characters = array("q"), array("I")
    for sentence in sentences:
        fits = shortest <= sentence.count(" ") + 1 <= longest and SPEAKABLE.fullmatch(sentence)
        hashes.append(hash(sentence))  # 64 bits hardly ever collide
        characters.append(len(sentence) if fits else 0)
    return np.where(_occurs_once(np.array(hashes)), np.array(characters), 0).astype(np.uint32)


def _occurs_once(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Mark the values that occur only once: (N,) -> (N,)."""
    _, first, counts = np.unique(values, return_index=True, return_counts=True)
    once = np.zeros(len(values), np.bool_)
    once[first[counts == 1]] = True
    return once


def cut_passages(characters: Characters, rng: random.Random) -> list[range]:
    """Cut every run of sentences that may be spoken into passages of 5 to 20; return all, in random order.

    The end of a run is left out if it is too short for a passage.
    """
    inside = np.concatenate([[0], characters > 0, [0]])
    fewest, most = PASSAGE
    found = []
    for begin, end in np.flatnonzero(np.diff(inside)).reshape(-1, 2).tolist():
        while end - begin >= fewest:
            after = min(begin + rng.randint(fewest, most), end)
            found.append(range(begin, after))
            begin = after
    rng.shuffle(found)
    return found


def deal(characters: Characters, options: SyntheticOptions) -> tuple[list[Turn], list[range]]:
    """Assign the passages of a text to the prior's validation set and to the speakers of every part in turn.

    `characters` is the result of `survey`: (N,) for N sentences.
    """
    passages = cut_passages(characters, random.Random(f"passages {options.seed}"))
    validation: list[range] = []
    turns: list[Turn] = []
    sentences, in_all = 0, 0.0
    while passages and sentences < options.text_validation:
        validation.append(passages.pop())
        sentences += len(validation[-1])
    for part, hours in options.hours().items():
        speakers = speakers_of(CASTS[part], options.seed)
        seconds, number = 0.0, 0
        while passages and seconds < 3600 * hours:
            passage, speaker = passages.pop(), speakers[number % len(speakers)]
            turns.append(Turn(part, f"{part}-{number:05d}", speaker, passage))
            spelled = int(characters[passage.start : passage.stop].sum())
            seconds += expected_seconds(spelled, len(passage), speaker)
            number += 1
        in_all += seconds
    if not passages:
        raise UserError(
            f"The text gives {in_all / 3600:.2g} hours of speech besides {options.text_validation:,} sentences for "
            f"validation, but {sum(options.hours().values()):g} hours are needed: of its {len(characters):,} "
            f"sentences, {np.count_nonzero(characters):,} can be spoken ({options.shortest} to {options.longest} "
            "words in plain letters, occurring only once); provide more text or set fewer hours."
        )
    return turns, validation


def _read(files: Sequence[Path], description: str) -> Iterator[str]:
    """Yield the normalized sentences of files with one per line, and show their number."""
    with Meter(description, None) as meter:
        lines = chain.from_iterable(map(read_sentences, files))
        for number, sentence in enumerate(filter(None, map(normalize_sentence, lines)), start=1):
            yield sentence
            if number % SENTENCES_A_REPORT == 0:
                meter.advance(SENTENCES_A_REPORT)


def _share_out(
    files: Sequence[Path], out: Path, count: int, turns: Sequence[Turn], validation: Sequence[range]
) -> dict[int, str]:
    """Write the sentences not spoken to the prior's two texts; return the spoken ones by number."""
    for_text, for_validation, for_speech = range(3)
    place = np.full(count, for_text, np.uint8)
    for passage in validation:
        place[passage.start : passage.stop] = for_validation
    for turn in turns:
        place[turn.passage.start : turn.passage.stop] = for_speech
    spoken = {}
    with (
        replacing(out / TEXT) as one,
        replacing(out / TEXT_VALIDATION) as two,
        one.open("w", encoding="utf-8", newline="\n") as training_text,
        two.open("w", encoding="utf-8", newline="\n") as validation_text,
    ):
        texts = (training_text, validation_text)
        sentences = _read(files, "writing the prior's text")
        for number, (where, sentence) in enumerate(zip(place.tolist(), sentences, strict=True)):
            if where == for_speech:
                spoken[number] = sentence
            else:
                texts[where].write(f"{sentence}\n")
    return spoken


def _make(
    turns: Sequence[Turn], spoken: Mapping[int, str], options: SyntheticOptions, out: Path, jobs: int
) -> dict[str, Path]:
    """Write the missing recordings, the manifests and the description."""
    readings = [
        Reading(turn.name, turn.speaker, tuple(spoken[each] for each in turn.passage), options.seed)
        for turn in turns
    ]
    parts: dict[str, list[MonoCut]] = defaultdict(list)
    for turn, reading, recorded in zip(turns, readings, record(readings, out / "audio", jobs), strict=True):
        parts[turn.part] += _cuts(reading, recorded, out / "audio")
    description = _describe(turns, parts, options)
    for name in UNLABELED:
        parts[f"{name}-transcribed"] = parts[name]
        parts[name] = [without_text(cut) for cut in parts[name]]
    manifests = {name: out / f"{name}{SUFFIX}" for name in sorted(parts)}
    for name, path in manifests.items():
        with replacing(path) as temporary:
            write_cuts(temporary, parts[name])
    replace_text(out / DESCRIPTION, json.dumps(description, indent=2) + "\n")
    (out / "audio" / JOURNAL).unlink()
    return manifests


def _cuts(reading: Reading, recorded: Recorded, folder: Path) -> list[MonoCut]:
    """Return the utterances of a recording; their names sort in order of time."""
    recording = recording_at(folder / f"{reading.name}.wav", recorded.length * FRAME)
    sentences, speaker = zip(reading.sentences, recorded.spans, strict=True), reading.speaker.name
    return [
        utterance(
            f"{reading.name}-{number:02d}",
            recording,
            text,
            speaker,
            "en",
            start=start / 100,
            duration=length / 100,
        )
        for number, (text, (start, length)) in enumerate(sentences)
    ]


def _describe(
    turns: Sequence[Turn], parts: Mapping[str, Sequence[MonoCut]], options: SyntheticOptions
) -> dict[str, object]:
    """Return the contents of `synthetic.json`."""
    speakers = {turn.speaker.name: turn.speaker for turn in turns}
    names = {part: sorted({turn.speaker.name for turn in turns if turn.part == part}) for part in parts}
    counts = {part: summary(cuts) for part, cuts in parts.items()}
    return {
        "version": VERSION,
        "options": asdict(options),
        "parts": {
            part: {
                "hours": round(count.hours, 4),
                "utterances": count.utterances,
                "recordings": sum(turn.part == part for turn in turns),
                "speakers": names[part],
            }
            for part, count in counts.items()
        },
        "speakers": {
            name: {"voice": each.voice, "rate": each.rate, "pitch": each.pitch}
            for name, each in sorted(speakers.items())
        },
    }
