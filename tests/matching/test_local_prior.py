"""The local prior: the paper's examples, and what renormalizing must keep."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from priormatch.matching.diagnostics import entropy
from priormatch.matching.lpm import first_spellings, weigh

TABLE_1 = {
    "supervised, first": ([-47.58, -38.54, -53.47, -83.85], [0.0001, 0.9999, 0.0, 0.0]),
    "supervised, second": ([-110.11, -107.55, -107.81, -107.10], [0.02, 0.29, 0.23, 0.46]),
    "matched, first": ([-32.24, -34.14, -33.10, -36.59], [0.63, 0.09, 0.27, 0.01]),
    "matched, second": ([-72.55, -71.35, -69.29, -85.62], [0.03, 0.11, 0.86, 0.0]),
}
"""The paper's Table 1: log p of the language model for the four hypotheses, and the weights they give."""

scores = st.lists(st.tuples(st.floats(-2000, 0), st.booleans()), min_size=1, max_size=8)


@pytest.mark.parametrize(("log_prior", "weights"), TABLE_1.values(), ids=TABLE_1)
def test_the_weights_of_table_1(log_prior: list[float], weights: list[float]) -> None:
    found = weigh(torch.tensor([log_prior]), torch.ones(1, 4, dtype=torch.bool))[0]
    assert [round(each, 4 if "0.0001" in str(weights) else 2) for each in found.tolist()] == weights


def rows(pairs: list[tuple[float, bool]]) -> tuple[torch.Tensor, torch.Tensor]:
    values, keep = zip(*pairs, strict=True)
    return torch.tensor([values], dtype=torch.float32), torch.tensor([keep])


@given(pairs=scores)
def test_weights_are_a_distribution_over_what_is_kept(pairs: list[tuple[float, bool]]) -> None:
    log_prior, keep = rows(pairs)
    weights = weigh(log_prior, keep)
    assert torch.all(weights >= 0)
    assert torch.all(weights[~keep] == 0)
    assert weights.sum().item() == pytest.approx(1.0 if keep.any() else 0.0, abs=1e-5)


@given(pairs=scores, shift=st.floats(-1000, 1000))
def test_only_differences_count(pairs: list[tuple[float, bool]], shift: float) -> None:
    log_prior, keep = rows(pairs)
    torch.testing.assert_close(weigh(log_prior + shift, keep), weigh(log_prior, keep), atol=2e-3, rtol=1e-3)


@given(pairs=scores)
def test_weights_are_in_the_ratio_of_the_probabilities(pairs: list[tuple[float, bool]]) -> None:
    log_prior, keep = rows(pairs)
    kept = [value for value, kept in zip(log_prior[0].tolist(), keep[0].tolist(), strict=True) if kept]
    total = sum(math.exp(value - max(kept)) for value in kept)
    expected = [math.exp(value - max(kept)) / total for value in kept]
    assert weigh(log_prior, keep)[keep].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("extreme", [-1e30, -math.inf])
def test_extreme_scores(extreme: float) -> None:
    keep = torch.tensor([[True, True, False], [False, False, True]])
    log_prior = torch.tensor([[extreme, -3.0, 5.0], [0.0, extreme, -1e4]])
    assert weigh(log_prior, keep).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def test_what_is_not_kept_may_be_anything() -> None:
    log_prior = torch.tensor([[math.nan, -1.0, math.inf]])
    assert weigh(log_prior, torch.tensor([[False, True, False]])).tolist() == [[0.0, 1.0, 0.0]]
    assert weigh(log_prior, torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[0.0, 0.0, 0.0]]


def test_half_precision_scores_are_weighed_in_full() -> None:
    found = weigh(torch.tensor([[-1.0, -2.0]], dtype=torch.bfloat16), torch.ones(1, 2, dtype=torch.bool))
    assert found.dtype == torch.float32


def test_entropy_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    expected = [math.log(2), 0.0, 0.0, -sum(w * math.log(w) for w in (0.2, 0.3, 0.5))]
    assert entropy(weights).tolist() == pytest.approx(expected)


def test_the_first_spelling_of_each_text_is_kept() -> None:
    texts = [["a b", "ab", "a b", ""], ["", "x", "", "x"]]
    everything = torch.ones(2, 4, dtype=torch.bool)
    assert first_spellings(texts, everything).tolist() == [
        [True, True, False, True],
        [True, True, False, False],
    ]
    some = torch.tensor([[False, True, True, False], [False, False, False, True]])
    assert first_spellings(texts, some).tolist() == some.tolist(), "what is dropped shadows nothing"
