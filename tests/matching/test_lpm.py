"""Filter, weights, mixing and proposal of local prior matching: the paper's examples, and what must always hold."""

import json
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from narrowing import of_type

from priormatch.config import FusionSettings, load_settings
from priormatch.errors import UserError
from priormatch.matching.diagnostics import entropy
from priormatch.matching.lpm import (
    LengthFilter,
    Policy,
    Proposal,
    Weighing,
    first_spellings,
    is_paired,
    keep_all,
    paired_share,
    require_fit,
    weigh,
)
from priormatch.pipeline.match import weighing_of
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer


def kept_pieces(pieces: int, filter: LengthFilter) -> list[int]:
    """Which numbers of pieces pass beside a reference of `pieces`; the end of sentence counts one more."""
    lengths = torch.arange(0, 3 * pieces + 10)[None]
    keep = filter(lengths, torch.tensor([pieces + 1]))
    return (lengths[keep] - 1).tolist()


SHORT = [(pieces, [pieces - 1, pieces, pieces + 1]) for pieces in range(2, 20)]


@pytest.mark.parametrize(("pieces", "kept"), [(1, [1, 2]), *SHORT, (20, [18, 19, 20, 21, 22])])
def test_short_references_tolerate_one_piece_and_one_piece_never_becomes_none(
    pieces: int, kept: list[int]
) -> None:
    assert kept_pieces(pieces, LengthFilter()) == kept


@pytest.mark.parametrize(
    ("length", "least", "most"),
    [(20, 19, 21), (40, 38, 42), (60, 57, 63), (100, 95, 105), (2000, 1900, 2100)],
)
def test_products_that_are_whole_are_not_rounded_further(length: int, least: int, most: int) -> None:
    """1.05 · 20 is 21, and a hair more in binary arithmetic."""
    keep = LengthFilter()(torch.tensor([[least - 1, least, most, most + 1]]), torch.tensor([length]))
    assert keep.tolist() == [[False, True, True, False]]


@example(length=100, lower=29, upper=110, offsets=[-72, -71, -70, 10, 11])  # in binary, 0.29 · 100 < 29
@given(
    length=st.integers(2, 500),
    lower=st.integers(0, 100),
    upper=st.integers(100, 200),
    offsets=st.lists(st.integers(-30, 30), min_size=1, max_size=8),
)
def test_bounds_equal_exact_fractions(length: int, lower: int, upper: int, offsets: list[int]) -> None:
    least = math.floor(Fraction(lower, 100) * length)
    most = math.ceil(Fraction(upper, 100) * length)
    lengths = [max(0, length + each) for each in offsets]
    keep = LengthFilter(lower / 100, upper / 100)(torch.tensor([lengths]), torch.tensor([length]))
    assert keep.tolist() == [[max(2, least) <= each <= most for each in lengths]]


def test_no_reference_keeps_nothing_and_rows_are_their_own() -> None:
    keep = LengthFilter()(torch.tensor([[5, 6, 0], [5, 6, 2], [9, 9, 1]]), torch.tensor([5, 0, 9]))
    assert keep.tolist() == [[True, True, False], [False] * 3, [True, True, False]]


def test_without_a_filter_all_that_exists_is_kept() -> None:
    lengths = torch.tensor([[5, 1, 0]])
    assert keep_all(lengths, torch.tensor([0])).tolist() == [[True, True, False]]


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


def order(updates: int, paired: int, unpaired: int) -> str:
    return "".join("P" if is_paired(each, paired, unpaired) else "U" for each in range(updates))


@pytest.mark.parametrize(
    ("mixing", "expected"),
    [
        ((1, 4), "UUUP UUUUP UUUUP"),
        ((1600, 6400), "UUUP UUUUP UUUUP"),
        ((1, 1), "PUPUPUPU"),
        ((4, 1), "PPPU PPPPU PPPPU"),
        ((1, 9), "UUUUUUUUP UUUUUUUUUP"),
    ],
)
def test_the_authors_orders(mixing: tuple[int, int], expected: str) -> None:
    expected = expected.replace(" ", "")
    assert order(len(expected), *mixing) == expected


@given(paired=st.integers(1, 12), unpaired=st.integers(1, 12), updates=st.integers(1, 200))
def test_shares_are_kept_and_the_rarer_kind_comes_evenly(paired: int, unpaired: int, updates: int) -> None:
    found = order(updates, paired, unpaired)
    assert abs(found.count("P") - updates * paired / (paired + unpaired)) < 1
    rarer, other = ("P", "U") if paired <= unpaired else ("U", "P")
    gaps = {len(gap) for gap in found.split(rarer)[1:-1]}
    assert not gaps or max(gaps) - min(gaps) <= 1, f"{other} between {rarer}"


def test_the_share_of_a_batch() -> None:
    assert paired_share(1, 4) == 0.2
    assert paired_share(1, 1) == 0.5


def same_weights(one: Recognizer, other: Recognizer) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def train(model: SpeechRecognizer) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)


def test_it_is_a_frozen_copy_that_does_not_follow_the_online_model(tiny_recognizer: SpeechRecognizer) -> None:
    online = tiny_recognizer.train()
    proposal = Proposal(online, cer=20.0)
    assert same_weights(proposal.model, online)
    train(online)
    assert not same_weights(proposal.model, online)
    assert not any(module.training for module in of_type(SpeechRecognizer, proposal.model).modules())
    assert not any(each.requires_grad for each in proposal.model.parameters())
    assert online.training
    assert all(each.requires_grad for each in online.parameters())


@pytest.mark.parametrize(
    ("cer", "taken"), [(19.99, True), (20.0, False), (20.01, False), (float("nan"), False)]
)
def test_only_a_strictly_lower_error_is_better(
    tiny_recognizer: SpeechRecognizer, cer: float, taken: bool
) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    train(tiny_recognizer)
    assert proposal.refresh(tiny_recognizer, cer, update=7) is taken
    assert same_weights(proposal.model, tiny_recognizer) is taken
    assert proposal.cer == (cer if taken else 20.0)
    assert not proposal.model.training


def test_the_bar_only_falls(tiny_recognizer: SpeechRecognizer) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    taken = [
        proposal.refresh(tiny_recognizer, cer, update)
        for update, cer in enumerate([18, 19, 18, 17, 25, 16.5])
    ]
    assert taken == [True, False, False, True, False, True]
    assert [each.proposal_cer for each in proposal.history] == [20.0, 18, 18, 18, 17, 17]
    assert [each.update for each in proposal.history] == list(range(6))


@pytest.mark.parametrize(
    ("policy", "cers", "taken"),
    [("always", [30.0, 10.0], [True, True]), ("never", [30.0, 10.0], [False, False])],
)
def test_policies_that_do_not_look_at_the_error(
    tiny_recognizer: SpeechRecognizer, policy: Policy, cers: list[float], taken: list[bool]
) -> None:
    proposal = Proposal(tiny_recognizer, 20.0, policy)
    for cer, expected in zip(cers, taken, strict=True):
        train(tiny_recognizer)
        proposal.follow(tiny_recognizer)
        assert not same_weights(proposal.model, tiny_recognizer), "not before a validation"
        assert proposal.refresh(tiny_recognizer, cer, 1) is expected
        assert same_weights(proposal.model, tiny_recognizer) is expected


def test_on_policy_the_proposal_is_the_online_model_without_dropout(
    tiny_recognizer: SpeechRecognizer,
) -> None:
    proposal = Proposal(tiny_recognizer.train(), 20.0, "on_policy")
    train(tiny_recognizer)
    proposal.follow(tiny_recognizer)
    assert same_weights(proposal.model, tiny_recognizer)
    assert not proposal.model.training
    assert not any(each.requires_grad for each in proposal.model.parameters())


def test_its_state_survives_json(tiny_recognizer: SpeechRecognizer) -> None:
    proposal = Proposal(tiny_recognizer, cer=20.0)
    proposal.refresh(tiny_recognizer, 18.5, 10)
    proposal.refresh(tiny_recognizer, 19.0, 20)
    again = Proposal(tiny_recognizer, cer=99.0)
    again.restore(json.loads(json.dumps(proposal.state())))
    assert (again.cer, again.history) == (18.5, proposal.history)


@pytest.mark.parametrize(("cer", "shown"), [(89.8, "89.8"), (float("nan"), "nan")])
def test_a_proposal_that_is_hopeless_or_unknown_is_refused(cer: float, shown: str) -> None:
    require_fit(60.0, 60.0)
    with pytest.raises(UserError, match=rf"CER is {shown} %, above matching\.max_proposal_cer=60"):
        require_fit(cer, 60.0)
