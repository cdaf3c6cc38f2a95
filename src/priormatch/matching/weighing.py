"""How hypotheses are found, filtered and weighed: what makes targets, and the pages that show them, of one mind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from priormatch.config import FusionSettings, Settings
from priormatch.matching.length_filter import LengthFilter, keep_all
from priormatch.search.fusion import fusion_of_hypotheses


@dataclass(frozen=True)
class Weighing:
    """Weights in proportion to p_y(y)^a · r(y|x)^b over what `keep`, a LengthFilter or `keep_all`, leaves of a beam.

    `exponents` are a and b. Local prior matching is a = 1, b = 0; distillation with the proposal's own posterior is
    a = 0, b = 1; and with a = b = 0 all hypotheses weigh the same. `reference_lengths` gives for each utterance's id
    the estimated number of pieces, the end of sentence not counted. With `merge_spellings` a text has one weight,
    however it is spelt. `contexts` gives texts that the prior reads before utterances: p_y(y | text) takes p_y(y)'s
    place. With `fusion` the beam is the best of a search with the prior, and r the score of both.
    """

    keep: Callable[[Tensor, Tensor], Tensor] = keep_all
    reference_lengths: Mapping[str, int] = field(default_factory=dict)
    merge_spellings: bool = False
    exponents: tuple[float, float] = (1.0, 0.0)
    contexts: Mapping[str, str] = field(default_factory=dict)
    fusion: FusionSettings | None = None


def weighing_of(
    settings: Settings, reference_lengths: Mapping[str, int], contexts: Mapping[str, str]
) -> Weighing:
    """The weighing that settings ask for."""
    matching = settings.matching
    return Weighing(
        LengthFilter(*matching.length_filter) if matching.length_filter else keep_all,
        reference_lengths,
        matching.merge_spellings,
        (matching.prior_exponent, matching.proposal_exponent),
        contexts,
        fusion_of_hypotheses(settings),
    )
