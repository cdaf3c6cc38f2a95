"""Find recordings that training cannot use or should not learn from, by decoding them as training does."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from lhotse import MonoCut, Recording
from lhotse.audio import AudioSource
from lhotse.augmentation import Resample, Speed

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import BadAudio, Header, read_header
from priormatch.data.pauses import BURST, SILENCE, frame_levels, speech_runs
from priormatch.data.waveforms import MISSING_SECONDS, as_float, read_samples, why_unreadable

Kind = Literal["truncated", "undecodable", "mis-declared", "silent", "clipped"]

QUIET = -45.0  # dB; louder audio is not silent, even if nothing in it stands out as speech
PAUSE = 40  # frames
FULL = 0.99  # of full scale
HEADROOM = 2.0  # times full scale; a file of floats with louder samples clips nothing there
RUN = 3  # samples in a row at full scale that only clipping makes
CLIPPED_SHARE = 0.02
"""Share of the samples at full scale: synthetic speech reaches it when it is 5 to 10 dB too loud."""


class Fault(NamedTuple):
    """What is wrong with an utterance: its kind, and the details in words."""

    kind: Kind
    reason: str


def fault_of(cut: MonoCut) -> Fault | None:
    """Decode a cut as training does, and return what is wrong with it, or None."""
    try:
        if declared := why_misdeclared(cut):
            return Fault("mis-declared", declared)
        samples = as_float(read_samples(cut))
    except Exception as error:  # a damaged file raises whatever its decoder does
        reason = why_unreadable(cut, error)
        return Fault("truncated" if "truncated" in reason else "undecodable", reason)
    return why_silent(samples) or why_clipped(samples)


def why_misdeclared(cut: MonoCut) -> str | None:
    """Return how a cut's file differs from its manifest, or None; raise `BadAudio` if the file cannot be used.

    Training reads a file of another rate at the wrong speed, as long as it has enough samples.
    """
    recording = cut.recording
    if recording is None:
        raise BadAudio(Path(cut.id), "the cut has no audio")
    for source in recording.sources:
        if cut.channel in source.channels:
            found = read_header(Path(source.source))
            declared = declared_header(recording, source)
            if differs(found, declared):
                return f"{source.source} has {found}, but its manifest says {declared}"
    return None


def declared_header(recording: Recording, source: AudioSource) -> Header:
    """Return what a manifest says about a file, before the transforms that it lists are applied."""
    rate, seconds = recording.sampling_rate, recording.duration
    for transform in reversed(recording.transforms or []):
        if isinstance(transform, Resample):
            rate = transform.source_sampling_rate
        elif isinstance(transform, Speed):
            seconds *= transform.factor
    return Header(rate, len(source.channels), seconds)


def differs(found: Header, declared: Header) -> bool:
    """Return whether a file is not the one that was declared; the length of some MP3s is not known."""
    length = not found.exact or abs(found.seconds - declared.seconds) <= MISSING_SECONDS
    return not (length and (found.rate, found.channels) == (declared.rate, declared.channels))


def why_silent(samples: np.ndarray) -> Fault | None:
    """Return a fault if samples at 16 kHz (N,) in [-1, 1] are quiet and nothing in them stands out as speech."""
    levels = frame_levels(samples, SAMPLE_RATE)
    loudest = np.sort(levels)[-BURST:].min(initial=0.0) if len(levels) else SILENCE
    if loudest >= QUIET or speech_runs(levels, PAUSE):
        return None
    return Fault("silent", f"nothing in it is louder than {loudest:.0f} dB for {BURST / 100:g} s")


def why_clipped(samples: np.ndarray) -> Fault | None:
    """Return a fault if many samples (N,) in [-1, 1] are in runs at full scale."""
    levels = np.abs(samples)
    loud = levels >= FULL
    if loud.mean() <= CLIPPED_SHARE or levels.max(initial=0) > HEADROOM:
        return None
    runs = np.convolve(loud, np.ones(RUN), "valid") > RUN - 0.5
    share = np.convolve(runs, np.ones(RUN)).astype(bool).mean()
    if share <= CLIPPED_SHARE:
        return None
    return Fault("clipped", f"{100 * share:.1f} % of its samples are at full scale")
