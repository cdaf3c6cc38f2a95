"""Alarms from the metrics of a run: signs of collapse, of matching without targets, and of broken gradients."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from priormatch.report.run_folder import Line, RunRecord, is_number, values

SHORT = 0.9  # length of the heaviest hypotheses over the reference length
FEW = 0.5  # share of utterances without a hypothesis after the filter
UNDECIDED = 0.9  # of the largest possible entropy
WORSE = 1.1  # times the best validation score
DIAGNOSTICS = ("length_ratio", "share_without_survivor", "local_prior_entropy")


def alarms(run: RunRecord) -> list[str]:
    """Return the alarms of a run as sentences, each with what to do."""
    return [*skipped_updates(run.metrics), *of_matching(run.matching, run.settings)]


def skipped_updates(metrics: Mapping[str, Sequence[Line]]) -> Iterator[str]:
    """Report stages with updates skipped because their gradients were not finite."""
    for stage, lines in metrics.items():
        bad = [update for update, share in values(lines, "skipped") if share > 0]
        if bad:
            yield (
                f"{stage}: updates were skipped before update {bad[0]:,.0f}, as their gradients were not finite:"
                " lower the learning rate, or look for damaged audio."
            )


def of_matching(lines: Sequence[Line], settings: Mapping[str, Any]) -> Iterator[str]:
    """Report problems of matching that show long before the error rate does."""
    searched = settings.get("matching.hypotheses") == "asr_lm"
    stays = settings.get("matching.refresh") == "never" or settings.get("matching.baseline") == "topipl"
    alone = "let the proposal search without the prior (matching.hypotheses=asr)"  # it may drift to the prior's words
    last = {name: found[-1][1] for name in DIAGNOSTICS if (found := values(lines, name))}
    if last.get("length_ratio", 1.0) < SHORT:
        yield (
            f"The heaviest hypotheses are {last['length_ratio']:.2f} times as long as the reference lengths: outputs"
            " are getting shorter; narrow matching.length_filter, or lower the learning rate."
        )
    if last.get("share_without_survivor", 0.0) > FEW:
        advice = alone if searched else "widen matching.length_filter"
        yield (
            f"{last['share_without_survivor']:.0%} of the unlabeled utterances have no hypothesis left after the"
            f" filter, and teach nothing: {advice}, or start from a better model."
        )
    most = largest_entropy(settings)
    if most and last.get("local_prior_entropy", 0.0) > UNDECIDED * most:
        yield (
            f"The prior weighs the hypotheses almost equally (entropy {last['local_prior_entropy']:.2f} of at most"
            f" {most:.2f} nats): it needs more text or updates, or text of this domain."
        )
    scores = values(lines, "validation_score")
    if scores and scores[-1][1] > WORSE * (best := min(score for _, score in scores)):
        advice = f"{alone}, or try" if searched else "try"
        yield (
            f"The online model ends at a validation CER of {scores[-1][1]:.1f} %, after {best:.1f} % at its best, which"
            f" was kept: {advice} fewer updates or a lower learning rate."
        )
    labels = values(lines, "label_wer")
    if labels and labels[-1][1] > labels[0][1]:
        yield (
            f"The labels got worse, from {labels[0][1]:.1f} to {labels[-1][1]:.1f} % WER: check in the beams below"
            " what the prior prefers."
        )
    decisions = [line for line in lines if line["update"] > 0 and "proposal_refreshed" in line]
    if decisions and not stays and not any(line["proposal_refreshed"] for line in decisions):
        yield (
            "No online model has replaced the proposal: matching still learns from the model it started from."
        )


def largest_entropy(settings: Mapping[str, Any]) -> float:
    """Return the largest entropy of weights over a beam in nats, log k; 0 if k is unknown."""
    beam = settings.get("matching.beam_size")
    return math.log(beam) if is_number(beam) and beam >= 1 else 0.0
