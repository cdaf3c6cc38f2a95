"""Speakers and recordings of the synthetic corpus: a passage read in one voice, with pauses, in one kind of noise.

A voice is an espeak-ng accent and variant (the vocal tract); a speaker is a voice with its own rate and pitch. Labeled
speech is clean. Half the voices of unlab-clean are those of labeled, speaker by speaker, and half are new; the voices
of unlab-other are all new. No combination of accent and variant in a dev or test set occurs in training or in another
of these sets, and their variants do not occur in training at all. The five accents of other speech are the same in
training, dev and test, since espeak-ng has no more.
"""

import hashlib
import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt

from priormatch.data.waveforms import wav_header
from priormatch.files import replace_text, replacing, writing
from priormatch.json_text import parse_json
from priormatch.old_names import OLD_NAMES
from priormatch.prepare import spoken
from priormatch.progress import Meter

VERSION = 1
"""Increases with every change of the voices and of how they are recorded, since each gives another corpus."""
SPEAKERS_PER_VOICE = 6
LEVEL = (-29.0, -21.0)
"""Level of the speech of a recording, in decibels relative to full scale."""
MARGIN = (0.05, 0.2)
"""Seconds of an utterance before and after its speech."""
PAUSE = (0.3, 1.0)
"""Seconds between utterances, and before the first and after the last."""
CHARACTER_SECONDS = 9.0
"""Seconds per character at one word per minute; voices differ by a few percent."""
JOURNAL = "recordings.jsonl"
"""Lists the complete recordings until all are complete."""

Span = tuple[int, int]
"""Start and duration of an utterance in its recording, in hundredths of a second."""


@dataclass(frozen=True)
class Manner:
    """The ranges from which speakers and recordings are drawn uniformly, and how far an utterance may deviate."""

    rate: tuple[int, int]  # a speaker's words per minute
    rate_stray: int  # words per minute by which an utterance may be faster or slower than its speaker's rate
    pitch: tuple[int, int]  # of a speaker, from 0 to 99; 50 is the voice's default
    pitch_stray: int  # by which an utterance may be higher or lower than its speaker's pitch
    snr: tuple[float, float]  # signal-to-noise ratio of a recording in decibels


@dataclass(frozen=True)
class Speaker:
    """A voice with its own rate and pitch."""

    name: str
    voice: str
    rate: int
    pitch: int
    manner: Manner


@dataclass(frozen=True)
class Cast:
    """The voices of a part of the corpus and their `Manner`."""

    voices: tuple[str, ...]
    manner: Manner


CLEAN = Manner(rate=(155, 185), rate_stray=6, pitch=(40, 60), pitch_stray=3, snr=(20.0, 35.0))
OTHER = Manner(rate=(135, 210), rate_stray=12, pitch=(28, 72), pitch_stray=6, snr=(8.0, 22.0))

LABELED_VOICES = ("en-us+m3", "en-us+f2", "en+m7", "en+f5", "en-gb-x-rp+m1", "en-gb-x-rp+f4")
UNLABELED_VOICES = ("en-us+Mike", "en-us+f5", "en+max", "en+f2", "en-gb-x-rp+m4", "en-gb-x-rp+m6")
ACCENTS = ("en-gb-scotland", "en-029", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-us-nyc")
"""The accents of other speech."""


def other_voices(*variants: str) -> tuple[str, ...]:
    """Return one voice for each variant; the accents of other speech take turns."""
    return tuple(f"{accent}+{variant}" for accent, variant in zip(cycle(ACCENTS), variants, strict=False))


OTHER_VOICES = other_voices(
    *("m1", "f2", "m4", "f5", "m2", "f5", "m5", "f4"),
    *("m6", "f2", "Denis", "Alex", "victor", "Mike", "max"),
)
CASTS = {
    "dev-clean": Cast(("en-us+rob", "en-us+linda", "en+Mario", "en-gb-x-rp+f3"), CLEAN),
    "dev-other": Cast(other_voices("rob", "linda", "Mario", "f3", "grandpa"), OTHER),
    "test-clean": Cast(("en-us+robert", "en-us+Annie", "en+Gene", "en-gb-x-rp+f1"), CLEAN),
    "test-other": Cast(other_voices("f1", "robert", "Annie", "Gene", "grandma"), OTHER),
    "labeled": Cast(LABELED_VOICES, CLEAN),
    "unlab-clean": Cast(LABELED_VOICES + UNLABELED_VOICES, CLEAN),
    "unlab-other": Cast(OTHER_VOICES, OTHER),
}
"""The parts of the corpus, in the order in which passages are assigned to them."""


def speakers_of(cast: Cast, seed: int) -> list[Speaker]:
    """Return the speakers of a cast: the first of every voice, then the second of every voice, and so on."""
    by_voice = [_speakers_with(voice, cast.manner, seed) for voice in cast.voices]
    return [speaker for one_of_each in zip(*by_voice, strict=True) for speaker in one_of_each]


def _speakers_with(voice: str, manner: Manner, seed: int) -> list[Speaker]:
    rng = np.random.default_rng([seed, zlib.crc32(voice.encode())])
    rates = rng.integers(*manner.rate, SPEAKERS_PER_VOICE, endpoint=True).tolist()
    pitches = rng.integers(*manner.pitch, SPEAKERS_PER_VOICE, endpoint=True).tolist()
    return [
        Speaker(f"{voice}-{number}", voice, rate, pitch, manner)
        for number, (rate, pitch) in enumerate(zip(rates, pitches, strict=True), start=1)
    ]


@dataclass(frozen=True)
class Reading:
    """A recording to make: a speaker and the sentences to read."""

    name: str
    speaker: Speaker
    sentences: tuple[str, ...]
    seed: int

    @property
    def digest(self) -> str:
        """A hash of everything the recording depends on."""
        return hashlib.sha256(json.dumps([VERSION, asdict(self)]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Recorded:
    """A complete recording: its utterances and its length, in hundredths of a second."""

    spans: list[Span]
    length: int


def expected_seconds(characters: int, utterances: int, speaker: Speaker) -> float:
    """Estimate the duration of a speaker's utterances in seconds from their total number of characters."""
    return CHARACTER_SECONDS * characters / speaker.rate + sum(MARGIN) * utterances


def record(readings: Sequence[Reading], folder: Path, jobs: int) -> list[Recorded]:
    """Make the recordings NAME.wav in a folder, in parallel, except those that are already complete.

    `recordings.jsonl` lists the complete ones, one per line, until the caller removes it.
    """
    journal = folder / JOURNAL
    whole = _read_journal(readings, folder)
    lines = (_journal_line(each, whole[each.name]) for each in readings if each.name in whole)
    replace_text(journal, "".join(lines))
    todo = [each for each in readings if each.name not in whole]
    with (
        Meter("recordings", len(readings), len(whole)) as meter,
        writing(journal),
        journal.open("a", encoding="utf-8") as file,
        spoken.in_parallel(partial(_record_one, folder), todo, jobs, apart=True) as results,
    ):
        for reading, recorded in zip(todo, results, strict=True):
            whole[reading.name] = recorded
            file.write(_journal_line(reading, recorded))
            file.flush()
            meter.advance()
    return [whole[each.name] for each in readings]


def read_aloud(reading: Reading) -> tuple[npt.NDArray[np.int16], list[Span]]:
    """Synthesize sentences one after the other; return samples at 16 kHz, (N,) int16, and the span of each sentence."""
    part, _, number = reading.name.rpartition("-")
    stream = f"{OLD_NAMES.get(part, part)}-{number}"  # the old names keep the corpus the same
    rng = np.random.default_rng([reading.seed, zlib.crc32(stream.encode())])
    manner = reading.speaker.manner
    speeches = spoken.speak(_requests(reading, rng))
    pieces, spans, end = [], [], 0
    for speech in speeches:
        pause = round(100 * rng.uniform(*PAUSE))
        before, after = spoken.silence_around(speech, MARGIN, rng)
        pieces.append(np.pad(speech, (pause * spoken.FRAME + before, after)))
        spans.append((end + pause, (before + len(speech) + after) // spoken.FRAME))
        end = sum(spans[-1])
    pieces.append(np.zeros(round(100 * rng.uniform(*PAUSE)) * spoken.FRAME, np.float32))
    level = spoken.amplitude(rng.uniform(*LEVEL))
    clean = np.concatenate(pieces) * (level / spoken.rms(np.concatenate(speeches)))
    return spoken.in_noise(clean, level / spoken.amplitude(rng.uniform(*manner.snr)), rng), spans


def _requests(reading: Reading, rng: np.random.Generator) -> list[spoken.Request]:
    """Give each sentence a rate and a pitch near the speaker's."""
    speaker, manner, count = reading.speaker, reading.speaker.manner, len(reading.sentences)
    rates, pitches = (
        (mean + rng.integers(-stray, stray, count, endpoint=True)).tolist()
        for mean, stray in ((speaker.rate, manner.rate_stray), (speaker.pitch, manner.pitch_stray))
    )
    return [
        (sentence, speaker.voice, rate, pitch)
        for sentence, rate, pitch in zip(reading.sentences, rates, pitches, strict=True)
    ]


def _record_one(folder: Path, reading: Reading) -> Recorded:
    samples, spans = read_aloud(reading)
    with replacing(folder / f"{reading.name}.wav") as temporary:
        temporary.write_bytes(spoken.wav_bytes(samples))
    return Recorded(spans, len(samples) // spoken.FRAME)


def _journal_line(reading: Reading, recorded: Recorded) -> str:
    return json.dumps({"name": reading.name, "digest": reading.digest, **asdict(recorded)}) + "\n"


def _read_journal(readings: Sequence[Reading], folder: Path) -> dict[str, Recorded]:
    """Read the complete recordings by name; incomplete lines and lines of another corpus are ignored."""
    wanted = {reading.name: reading.digest for reading in readings}
    whole = {}
    with suppress(FileNotFoundError):
        for line in (folder / JOURNAL).read_text(encoding="utf-8").splitlines():
            with suppress(OSError, ValueError, KeyError, TypeError):
                fields = parse_json(line)
                name = fields["name"]
                recorded = Recorded([(a, b) for a, b in fields["spans"]], fields["length"])
                size = len(wav_header(0)) + 2 * spoken.FRAME * recorded.length
                if fields["digest"] == wanted[name] and (folder / f"{name}.wav").stat().st_size == size:
                    whole[name] = recorded
    return whole
