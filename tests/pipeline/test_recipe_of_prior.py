"""Settings that the stage of the prior depends on, for each kind of prior."""

from pathlib import Path
from typing import Any

import pytest

from priormatch.config import load_settings
from priormatch.errors import UserError
from priormatch.pipeline.recipe import recipe_of_prior_stage
from priormatch.pipeline.run_data import RunData
from priormatch.pipeline.stages import Run
from priormatch.runs.stage import digest_of_recipe, plain


def recipe(*overrides: str) -> dict[str, Any]:
    return {
        name: plain(value) for name, value in recipe_of_prior_stage(load_settings(None, overrides)).items()
    }


def test_the_fingerprint_of_a_convolutional_prior_is_that_of_older_versions() -> None:
    assert digest_of_recipe(recipe()) == "ce71a3e6ab2b9663"
    assert recipe() == recipe("prior.order=3")


def test_n_grams_depend_on_their_order_and_language_alone() -> None:
    assert recipe("prior.kind=ngram") == {"prior": {"kind": "ngram", "order": 4}}
    assert recipe("prior.kind=ngram", "prior.updates=3", "training.seed=5") == recipe("prior.kind=ngram")
    assert recipe("prior.kind=ngram", "prior.order=3") != recipe("prior.kind=ngram")
    assert recipe("prior.kind=ngram", "language.normalizer=turkic") != recipe("prior.kind=ngram")


def test_only_a_prior_of_tokens_needs_a_tokenizer(tmp_path: Path) -> None:
    data = RunData(*4 * (tmp_path,), validation={}, test={})
    for kind, inputs in (("conv", {"text", "held_out", "tokenizer"}), ("ngram", {"text", "held_out"})):
        settings = load_settings(None, [f"prior.kind={kind}"])
        assert set(Run(tmp_path, settings, data).prior().inputs) == inputs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("prior.order=0", "must be from 1 to 10"),
        ("prior.order=11", "must be from 1 to 10"),
        ("prior.pieces=50", "has no effect on prior.kind=ngram"),
        ("prior.keep={early: {update: 5}}", "has no effect on prior.kind=ngram"),
    ],
)
def test_settings_without_effect_or_sense_are_refused(override: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_settings(None, ["prior.kind=ngram", override])


def test_n_grams_read_context_without_training_for_it() -> None:
    assert load_settings(None, ["prior.kind=ngram", "matching.context=true"]).matching.context
    with pytest.raises(UserError, match=r"prior\.kind=ngram"):
        load_settings(None, ["matching.context=true"])
