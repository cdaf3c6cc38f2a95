"""Two rounds of matching: the paper's, and one in which its model proposes with the prior's help and stays as it is."""

from dataclasses import replace

from priormatch.config import MatchingSettings, Settings

FIRST_ROUND, MATCHING = "lpm-first", "lpm"
"""What a run calls the stages of matching: the last one has the model, whether there is a first round or not."""


def rounds_of(settings: Settings) -> list[Settings]:
    """The settings of each round: as they are, or for a first and a second round, which share the updates."""
    matching = settings.matching
    if matching.second_round == 0:
        return [settings]
    first = replace(matching, second_round=0.0)
    second = replace(
        first,
        hypotheses="asr_lm",
        refresh="never",
        prior_exponent=0.0,
        proposal_exponent=1.0,
        context=False,  # which counts in the prior's weights alone
        start="",
        proposal="",
    )
    later = min(max(round(matching.updates * matching.second_round), 1), matching.updates - 1)
    return [
        replace(settings, matching=with_updates(each, updates))
        for each, updates in ((first, matching.updates - later), (second, later))
    ]


def with_updates(matching: MatchingSettings, updates: int) -> MatchingSettings:
    """The same with fewer updates: the rate rises over the same part of them, and is halved as often."""
    optimizer = matching.optimizer

    def shorter(count: int) -> int:
        return max(round(count * updates / matching.updates), 1) if count else 0

    return replace(
        matching,
        updates=updates,
        optimizer=replace(
            optimizer, decay_every=shorter(optimizer.decay_every), warm_up=shorter(optimizer.warm_up)
        ),
    )
