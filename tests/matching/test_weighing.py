"""The weighing that settings ask for."""

from priormatch.config import FusionSettings, load_settings
from priormatch.matching.lpm import LengthFilter, Weighing, keep_all
from priormatch.pipeline.match import weighing_of


def test_the_papers_weighing_is_the_default() -> None:
    lengths, contexts = {"u": 3}, {"u": "before"}
    assert weighing_of(load_settings(None, []), lengths, contexts) == Weighing(
        LengthFilter(0.95, 1.05), lengths, exponents=(1.0, 0.0), contexts=contexts
    )


def test_every_setting_has_its_say() -> None:
    given = ["length_filter=[]", "merge_spellings=true", "prior_exponent=0.5", "proposal_exponent=2"]
    given += ["hypotheses=asr_lm"]
    settings = load_settings(None, [*(f"matching.{each}" for each in given), "fusion.lm_weight=0.7"])
    searched = Weighing(keep_all, {}, True, (0.5, 2.0), {}, FusionSettings(lm_weight=0.7))
    assert weighing_of(settings, {}, {}) == searched
