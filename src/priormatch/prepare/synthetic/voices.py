"""Speakers of the synthetic corpus: clean voices, other voices, and the voices of each part.

A voice is an espeak-ng accent and variant (the vocal tract); a speaker is a voice with its own rate and pitch. Labeled
speech is clean. Half the voices of unlab-clean are those of labeled, speaker by speaker, and half are new; the voices
of unlab-other are all new. No combination of accent and variant in a dev or test set occurs in training or in another
of these sets, and their variants do not occur in training at all. The five accents of other speech are the same in
training, dev and test, since espeak-ng has no more.
"""

import zlib
from dataclasses import dataclass

import numpy as np

VERSION = 1
"""Increases with every change of the voices and of how they are recorded, since each gives another corpus."""
SPEAKERS_PER_VOICE = 6


@dataclass(frozen=True)
class Manner:
    """The ranges from which speakers and recordings are drawn uniformly, and how far an utterance may deviate."""

    rate: tuple[int, int]
    """A speaker's words per minute."""
    rate_stray: int
    """Words per minute by which an utterance may be faster or slower than its speaker's rate."""
    pitch: tuple[int, int]
    """Pitch of a speaker from 0 to 99; 50 is the voice's default."""
    pitch_stray: int
    """Amount by which an utterance may be higher or lower than its speaker's pitch."""
    snr: tuple[float, float]
    """Signal-to-noise ratio of a recording in decibels."""


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

LABELED_VOICES = (
    "en-us+m3",
    "en-us+f2",
    "en+m7",
    "en+f5",
    "en-gb-x-rp+m1",
    "en-gb-x-rp+f4",
)
UNLABELED_VOICES = (
    "en-us+Mike",
    "en-us+f5",
    "en+max",
    "en+f2",
    "en-gb-x-rp+m4",
    "en-gb-x-rp+m6",
)
OTHER_VOICES = (
    "en-gb-scotland+m1",
    "en-029+f2",
    "en-gb-x-gbclan+m4",
    "en-gb-x-gbcwmd+f5",
    "en-us-nyc+m2",
    "en-gb-scotland+f5",
    "en-029+m5",
    "en-gb-x-gbclan+f4",
    "en-gb-x-gbcwmd+m6",
    "en-us-nyc+f2",
    "en-gb-scotland+Denis",
    "en-029+Alex",
    "en-gb-x-gbclan+victor",
    "en-gb-x-gbcwmd+Mike",
    "en-us-nyc+max",
)
CASTS = {
    "dev-clean": Cast(("en-us+rob", "en-us+linda", "en+Mario", "en-gb-x-rp+f3"), CLEAN),
    "dev-other": Cast(
        (
            "en-gb-scotland+rob",
            "en-029+linda",
            "en-gb-x-gbclan+Mario",
            "en-gb-x-gbcwmd+f3",
            "en-us-nyc+grandpa",
        ),
        OTHER,
    ),
    "test-clean": Cast(("en-us+robert", "en-us+Annie", "en+Gene", "en-gb-x-rp+f1"), CLEAN),
    "test-other": Cast(
        (
            "en-gb-scotland+f1",
            "en-029+robert",
            "en-gb-x-gbclan+Annie",
            "en-gb-x-gbcwmd+Gene",
            "en-us-nyc+grandma",
        ),
        OTHER,
    ),
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
