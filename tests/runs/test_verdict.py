"""Verdicts worked out by hand from what a run records."""

import json
import math
from dataclasses import replace

from priormatch.runs.verdict import Comparison, Facts, Matched, Size, verdict

LARGE = Size(300, 900.0)
FELL = {0: 20.0, 10: 18.0, 20: 15.0, 30: 16.0}


def compared(
    gain: float, low: float, high: float, utterances: int = 400, p_value: float = 0.0001
) -> Comparison:
    """A test set on which 20 % of the words were wrong before."""
    return Comparison(utterances, 10 * utterances, 20.0, 20.0 - 0.2 * gain, gain, (low, high), p_value)


def facts(matched: Matched | None = None, validation: Size = LARGE, **tests: Comparison) -> Facts:
    return Facts(tests, matched or Matched(FELL, True, 0.1), validation)


def test_a_gain_is_told_with_its_size_and_certainty() -> None:
    found = verdict(facts(clean=compared(50.0, 45.0, 55.0)))
    assert found.outcome == "helped"
    assert list(found.lines()) == [
        "verdict: Local prior matching helped.",
        "  clean: WER 20.00 -> 10.00 %, 50.0 % fewer errors (95 % interval 45.0 to 55.0 %, p = 0.0001)",
        "  next: transcribe with its model, which is lpm/model in the run's folder",
    ]


def test_a_gain_that_still_grows_asks_for_more_updates() -> None:
    found = verdict(facts(Matched({0: 20.0, 10: 15.0, 20: 12.5}, True), clean=compared(50.0, 45.0, 55.0)))
    assert found.reasons == ("The last validation was the best (CER 12.50 %).",)
    assert found.next[1:] == ("continue training: raise matching.updates",)


def test_harm_and_a_mixed_outcome() -> None:
    worse = compared(-10.0, -15.0, -5.0, p_value=0.0312)
    assert verdict(facts(clean=worse)).outcome == "hurt"
    assert verdict(facts(clean=worse)).tests == (
        "clean: WER 20.00 -> 22.00 %, 10.0 % more errors (95 % interval 5.0 to 15.0 %, p = 0.0312)",
    )
    none = compared(1.0, -3.0, 4.0)
    assert verdict(facts(clean=worse, other=compared(9.0, 5.0, 12.0), third=none)).outcome == "mixed"
    assert verdict(facts(clean=none, other=compared(9.0, 5.0, 12.0))).outcome == "helped"


def test_no_gain_within_a_narrow_interval_is_known() -> None:
    found = verdict(facts(Matched(FELL, False, 0.62), clean=compared(1.0, -3.0, 4.0)))
    assert found.outcome == "no difference"
    assert found.tests == (
        "clean: WER 20.00 -> 19.80 %, no certain difference: between 3.0 % more and 4.0 % fewer errors are likely"
        " (95 %)",
    )
    assert [each.split(",")[0] for each in found.reasons] == [
        "The length filter removed every hypothesis of 62 % of the unlabeled utterances",
        "No proposal was ever replaced",
    ]
    assert len(found.next) == 2


def test_a_model_that_was_kept_unchanged_did_not_help_whatever_the_size_of_the_sets() -> None:
    """The run of the report: 44.62 -> 44.62 %, six validation utterances of 19 s."""
    same = Comparison(6, 60, 44.62, 44.62, 0.0, (0.0, 0.0), 1.0)
    matched = Matched({0: 20.0, 10: 20.0, 20: 23.5}, False, 0.0)
    found = verdict(facts(matched, Size(6, 19.0), own=same))
    assert found.outcome == "no difference"
    assert found.reasons == (
        "None of 2 validations was better than the initial model (CER 20.00 %, then 20.00 % at best, at update 10), so"
        " the supervised model was kept unchanged.",
        "No proposal was ever replaced, so the labels came from the supervised model to the end.",
        "The validation set (6 utterances, 19s) is too small to select the best model and the proposal.",
        "own (6 utterances, 60 words) is too small to compare systems on.",
    )
    assert len(found.next) == 4


def test_a_model_that_was_kept_unchanged_did_no_harm_where_longer_training_is_better() -> None:
    worse = compared(-10.0, -15.0, -5.0)
    assert verdict(facts(Matched({0: 20.0, 10: 23.5}), clean=worse)).outcome == "no difference"


def test_a_start_that_does_not_count_is_not_the_best() -> None:
    assert Matched({0: 10.0, 10: 20.0}, start_counts=False).best == 10
    assert not Matched({0: 10.0, 10: 20.0}, start_counts=False).unchanged
    assert not Matched({0: 10.0}).unchanged
    assert Matched().best is None


def test_a_small_test_set_decides_nothing() -> None:
    found = verdict(facts(clean=compared(50.0, 45.0, 55.0, utterances=29)))
    assert found.outcome == "unknown"
    assert found.reasons == ("clean (29 utterances, 290 words) is too small to compare systems on.",)
    assert found.tests == (
        "clean: WER 20.00 -> 10.00 %, too little speech to be certain (95 % interval of the gain 45.0 to 55.0 %)",
    )


def test_a_wide_interval_decides_nothing_and_tells_how_much_more_speech_is_needed() -> None:
    found = verdict(facts(clean=compared(9.0, -16.0, 34.0)))
    assert found.outcome == "unknown"
    assert found.reasons == (
        "The intervals are too wide to show whether there is a gain (up to 25 % to either side).",
    )
    assert found.next[0].startswith("test on about 7 times as much speech")  # (25 / 10)^2 = 6.25


def test_scores_on_the_validation_sets_are_called_so_even_where_they_are_good() -> None:
    found = verdict(replace(facts(clean=compared(50.0, 45.0, 55.0)), tests_selected=True))
    assert found.outcome == "helped"
    assert "The scores are on the validation sets" in found.reasons[0]


def test_a_refusal_is_the_reason() -> None:
    found = verdict(Facts(validation=LARGE, refusal="the proposal model's validation CER is 72.0 %"))
    assert (found.outcome, found.reasons) == ("refused", ("The proposal model's validation CER is 72.0 %.",))
    assert found.next


def test_nothing_known_is_no_verdict_and_no_crash() -> None:
    assert verdict(Facts()).outcome == "unknown"
    undefined = replace(compared(0.0, math.nan, math.nan), before=math.nan)
    found = verdict(facts(clean=undefined))
    assert (found.outcome, len(found.tests)) == ("unknown", 1)


def test_a_verdict_is_plain_json() -> None:
    found = verdict(facts(clean=compared(50.0, 45.0, 55.0))).as_json()
    assert json.loads(json.dumps(found)) == found
    assert found.keys() == {"outcome", "text", "tests", "reasons", "next"}
