"""`priormatch label`: turn decoded files into labels for training."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from lhotse import CutSet, SupervisionSegment
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from priormatch.data.corpus import ALTERNATIVES, read_cuts
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.matching.label_filters import LabelFilter
from priormatch.progress import say
from priormatch.scoring.transcripts import read_transcripts

ALL = LabelFilter(most_repeats=0, keep_unended=True)
"""Drops only empty hypotheses."""


def label_cuts(cuts: Path, transcripts: Sequence[Path], out: Path, keep: LabelFilter) -> None:
    """Write cuts with the transcripts that the filter keeps as their text, and report what it drops.

    If several models transcribed an utterance, all their texts are kept, and training draws one of them at each visit.
    Utterances without a text are left out.
    """
    speech = read_cuts(cuts)
    ids = {cut.id for cut in speech}
    kept = [kept_labels(path, ids, cuts, keep) for path in transcripts]
    texts = {each: [labels[each] for labels in kept if each in labels] for each in ids}
    labeled = [with_texts(cut, texts[cut.id]) for cut in speech if texts[cut.id]]
    if not labeled:
        raise UserError(f"no labels are left for {out}: relax the filter, or train a better model first")
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary:
        CutSet.from_cuts(labeled).to_file(temporary)
    several = sum(len(each) > 1 for each in texts.values())
    more = f", {several:,} of them by several models" if len(transcripts) > 1 else ""
    say(f"{out}: {len(labeled):,} of {len(speech):,} utterances labeled{more}")


def kept_labels(path: Path, ids: Collection[str], cuts: Path, keep: LabelFilter) -> dict[str, str]:
    """The hypotheses that the filter keeps, by utterance, among those of a file with the given ids."""
    found = {each.id: each for each in read_transcripts(path) if each.id in ids}
    if not found:
        raise UserError(f"{path} and {cuts} have no utterance in common: provide transcripts of that speech")
    transcripts = list(found.values())
    scores = [math.nan if each.score is None else each.score for each in transcripts]
    if keep.keep_best < 1 and any(map(math.isnan, scores)):
        raise UserError(f"{path} has no scores, which --keep-best needs: decode again")
    reasons = keep(
        [each.hypothesis for each in transcripts],
        [each.pieces for each in transcripts],
        scores,
        [each.ended for each in transcripts],
    )
    dropped = {reason: count for reason, count in Counter(reasons).most_common() if reason is not None}
    if missing := len(ids) - len(found):
        dropped["not transcribed"] = missing
    counts = ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())
    say(f"{path}: {reasons.count(None):,} of {len(ids):,} kept{f'; {counts}' if counts else ''}")
    return {
        each.id: each.hypothesis for each, reason in zip(transcripts, reasons, strict=True) if reason is None
    }


def with_texts(cut: Cut, texts: Sequence[str]) -> Cut:
    """The cut with the first text as its transcript; if the texts differ, the others are its alternatives."""
    first = next(iter(cut.supervisions), SupervisionSegment(cut.id, cut.id, 0.0, cut.duration))
    custom = {name: value for name, value in (first.custom or {}).items() if name != ALTERNATIVES}
    if len(set(texts)) > 1:
        custom[ALTERNATIVES] = list(texts[1:])
    supervision = fastcopy(first, start=0.0, duration=cut.duration, text=texts[0], custom=custom or None)
    return fastcopy(cut, supervisions=[supervision])
