"""Split a validation set from the training data, with different speakers."""

import random
from collections import defaultdict

from lhotse import CutSet, MonoCut

from priormatch.errors import UserError
from priormatch.progress import say


def split_by_speaker(cuts: CutSet, share: float, seed: int) -> tuple[CutSet, CutSet]:
    """Split into training and validation cuts that share no speaker; the same seed gives the same split.

    Validation gets about `share` of the duration: at least one speaker, never all. Utterances of unknown
    speakers stay in training. With fewer than two known speakers, single utterances are drawn, and a message
    is printed.
    """
    if not 0 < share < 1:
        raise UserError(f"the validation share must be between 0 and 1, not {share:g}.")
    utterances = list(cuts)
    if len(utterances) < 2:
        raise UserError(f"{len(utterances)} utterance(s) cannot be split for validation: give more data.")
    groups: list[str | None] = [_speaker(cut) for cut in utterances]
    if len(set(groups) - {None}) < 2:
        say(
            "fewer than two speakers are named: validation is drawn by utterance and shares speakers with training"
        )
        groups = [cut.id for cut in utterances]
    seconds: dict[str, float] = defaultdict(float)
    for group, cut in zip(groups, utterances, strict=True):
        if group is not None:
            seconds[group] += cut.duration
    chosen = _draw(seconds, share * sum(cut.duration for cut in utterances), seed)
    train = [cut for group, cut in zip(groups, utterances, strict=True) if group not in chosen]
    validation = [cut for group, cut in zip(groups, utterances, strict=True) if group in chosen]
    return CutSet.from_cuts(train), CutSet.from_cuts(validation)


def _speaker(cut: MonoCut) -> str | None:
    (supervision,) = cut.supervisions
    return supervision.speaker


def _draw(seconds: dict[str, float], target: float, seed: int) -> set[str]:
    """Draw groups in random order, adding each that brings the sum closer to the target, but never all."""
    groups = sorted(seconds)
    random.Random(seed).shuffle(groups)
    chosen: set[str] = set()
    total = 0.0
    for group in groups[:-1]:
        if total + seconds[group] / 2 <= target:
            chosen.add(group)
            total += seconds[group]
    return chosen or {min(groups, key=seconds.__getitem__)}
