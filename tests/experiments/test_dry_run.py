"""What tables would take."""

from dataclasses import replace

import pytest

from priormatch.experiments import dry_run
from priormatch.experiments.scales import make_request


def test_all_rows_of_a_scale_are_listed_with_the_models_they_share_whether_or_not_their_speech_is_there() -> (
    None
):
    asked = ["7:13", "A4:5,10", "2:13", "X1:14"]
    request = make_request(asked, "paper", "0", None, 1, False)
    works = {each.name: each for each in dry_run.work_of(request)}
    large, settings = "model.channels=_10,14,18_-model.blocks=_2,3,6_", request.places(0).settings
    trained = {
        "shared: prior": settings.prior.updates,
        "shared: supervised": settings.training.updates,
        f"matched-light-{large}-longer": 3_200_000,
        "matched-clean": 1_600_000,
    }
    assert {name: works[name].times for name in trained} == trained
    assert works["shared: prior"].step == "prior"
    assert [each.settings.prior.model.context for each in works.values() if each.step == "prior"] == [
        False,
        True,
    ]
    assert any(
        each.settings.model.blocks == [2, 3, 6] for each in works.values() if each.step == "supervised"
    )


def test_validations_are_counted_by_the_size_of_the_model() -> None:
    works = {
        each.name: each
        for each in dry_run.work_of(make_request(["7:13", "2:13"], "paper", "0", None, 1, False))
    }
    small, large = works["validations with 9 blocks"], works["validations with 11 blocks"]
    supervised = 201  # 357,000 updates, every 1784
    assert (small.times, large.times) == (supervised + 1601, supervised + 3201)
    assert small.utterances == pytest.approx(2 * 2783 * 6.8 / 12.3)
    request = make_request(["7:13", "model.encoder=conformer"], "paper", "0", None, 1, False)
    assert "validations with 12 blocks" in {each.name for each in dry_run.work_of(request)}
    few = replace(small.settings, training=replace(small.settings.training, validate_on=200))
    assert dry_run.validated("small", few) == pytest.approx(2 * 200 * 4.2 / 12.3)
    assert dry_run.validated("librispeech", few) == pytest.approx(200 * 7.3 / 12.3), "one dev set"


@pytest.mark.parametrize("scale", ["librispeech", "common-voice"])
def test_the_table_of_real_speech_is_estimated_whole(scale: str) -> None:
    """Its first system is the supervised model itself, which needs no training of its own."""
    works = dry_run.work_of(make_request(["X4"], scale, "0", None, 1, False))
    names = [each.name for each in works]
    assert "start" not in names
    assert {"shared: supervised", "validations with 12 blocks"} <= set(names)
    assert all(each.times > 0 for each in works)
