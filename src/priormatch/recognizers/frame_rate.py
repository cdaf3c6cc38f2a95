"""The frame rate of an encoder, which bounds what CTC can emit: at most one token per frame."""

from collections.abc import Sequence
from itertools import pairwise

from priormatch.config import ModelSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.features import STRIDE

FINEST = 4  # model.conformer.subsampling with the most frames


def frame_seconds_of(settings: ModelSettings) -> float:
    """The time between two frames of the encoder."""
    conformer = settings.encoder == "conformer"
    factor = settings.conformer.subsampling if conformer else 2 ** len(settings.channels)
    return factor * STRIDE / SAMPLE_RATE


def frames_needed(classes: Sequence[int]) -> int:
    """The fewest frames in which CTC can emit tokens: one for each, and a blank between equal ones."""
    return len(classes) + sum(one == other for one, other in pairwise(classes))


def way_to_fit(settings: ModelSettings, unit: str) -> str:
    """What to change if CTC has too few frames for its tokens, in words."""
    ways = ["check that the transcripts belong to their audio"]
    if frame_seconds_of(settings) > FINEST * STRIDE / SAMPLE_RATE:
        ways.insert(0, f"use more frames (model.encoder=conformer model.conformer.subsampling={FINEST})")
    if unit == "character":
        ways.insert(0, "use longer tokens (tokenizer.kind=unigram)")
    return ", or ".join(ways)
