"""Two rounds of matching: the paper's, and one in which its model proposes with the prior's help and stays as it is."""

from dataclasses import replace

from priormatch.config import MatchingSettings, Settings


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
        start="",
        proposal="",
    )
    later = max(round(matching.updates * matching.second_round), 1)
    counts = max(matching.updates - later, 1), later
    return [
        replace(settings, matching=with_updates(each, updates))
        for each, updates in zip((first, second), counts, strict=True)
    ]


def with_updates(matching: MatchingSettings, updates: int) -> MatchingSettings:
    """The same with fewer updates, and the rate halved as often."""
    optimizer = matching.optimizer
    decay_every = round(optimizer.decay_every * updates / matching.updates)
    return replace(matching, updates=updates, optimizer=replace(optimizer, decay_every=decay_every))
