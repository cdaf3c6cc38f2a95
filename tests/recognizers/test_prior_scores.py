"""The prior's scores: sums over tokens, blind to padding, in full precision."""

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from priormatch.decoding.beam import pad
from priormatch.models.prefix_tree import prefix_tree, score_tree
from priormatch.recognizers.prior import ConvPrior


@torch.no_grad()
def slow_score(prior: ConvPrior, classes: list[int]) -> float:
    """log p of one sequence and its end, a token at a time."""
    total, sequence = 0.0, [*classes, prior.tokenizer.eos]
    for position, each in enumerate(sequence):
        logits = prior.lm(torch.tensor([[*sequence[:position], 0]]))[0, position]
        total += float(logits.log_softmax(dim=-1)[each])
    return total


SEQUENCES = [[3, 1, 4, 1, 5], [9], [], [2, 7, 1, 8, 2, 8, 1, 8]]


def test_a_score_is_the_sum_over_tokens_and_the_first_end(tiny_prior: ConvPrior) -> None:
    labels, lengths = pad([[*each, tiny_prior.tokenizer.eos] for each in SEQUENCES])
    expected = [slow_score(tiny_prior, each) for each in SEQUENCES]
    assert tiny_prior.score_classes(labels, lengths).tolist() == pytest.approx(expected, abs=1e-4)
    tokens = tiny_prior.token_log_probabilities(labels, lengths)
    assert tokens.sum(dim=-1).tolist() == pytest.approx(expected, abs=1e-4)
    assert torch.all(tokens[1, 2:] == 0)


def test_scores_do_not_depend_on_padding_and_keep_the_beams_shape(tiny_prior: ConvPrior) -> None:
    eos = tiny_prior.tokenizer.eos
    labels, lengths = pad([[*each, eos] for each in SEQUENCES])
    wider = torch.cat([labels, torch.full((4, 7), eos)], dim=1)
    expected = tiny_prior.score_classes(labels, lengths)
    torch.testing.assert_close(tiny_prior.score_classes(wider, lengths), expected)
    beams = tiny_prior.score_classes(wider.view(2, 2, -1), lengths.view(2, 2))
    torch.testing.assert_close(beams, expected.view(2, 2))
    assert not beams.requires_grad


def test_what_does_not_exist_scores_zero_and_not_nan(tiny_prior: ConvPrior) -> None:
    assert tiny_prior.score_classes(torch.zeros(1, 1, 4, dtype=torch.long), torch.tensor([[0]])).tolist() == [
        [0.0]
    ]


BEAMS = [[[5, 6, 7], [5, 6, 8], [5]], [[5, 6, 7], [6, 6, 7], []]]


def beams_of(prior: ConvPrior) -> tuple[torch.Tensor, torch.Tensor]:
    labels, lengths = pad([[*each, prior.tokenizer.eos] for beam in BEAMS for each in beam])
    return labels.view(2, 3, -1), lengths.view(2, 3)


def test_what_hypotheses_of_a_beam_begin_with_is_read_once(tiny_prior: ConvPrior) -> None:
    eos = tiny_prior.tokenizer.eos
    labels, lengths = beams_of(tiny_prior)
    tree = prefix_tree(labels, lengths, eos, kernel=3)
    assert tree.total == 12
    inputs, before = tree.inputs[:12].tolist(), tree.before[:12].tolist()
    # The first beam begins with "", 5, 56, 567 and 568, the second with "", 5, 56, 567, 6, 66 and 667.
    assert sorted(inputs[:5]) == sorted([eos, 5, 6, 7, 8])
    assert sorted(inputs[5:]) == sorted([eos, 5, 6, 7, 6, 6, 7])
    chains = {tuple(inputs[node] for node in row if node >= 0) for row in before}
    assert chains == {(eos,), (eos, 5), (eos, 5, 6), (5, 6, 7), (5, 6, 8), (eos, 6), (eos, 6, 6), (6, 6, 7)}
    assert tree.nodes[0, 0, 1] == tree.nodes[0, 1, 1] == tree.nodes[0, 2, 1]
    assert tree.nodes[0, 0, 0] != tree.nodes[1, 0, 0], "beams share nothing with each other"


def test_sharing_and_round_sizes_change_no_score(
    tiny_prior: ConvPrior, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, lengths = beams_of(tiny_prior)
    expected = [[slow_score(tiny_prior, each) for each in beam] for beam in BEAMS]
    for row, wanted in zip(tiny_prior.score_classes(labels, lengths).tolist(), expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-4)
    tree = prefix_tree(labels, lengths, tiny_prior.tokenizer.eos, tiny_prior.settings.kernel)
    monkeypatch.setattr("priormatch.models.prefix_tree.NODES", 7)
    size = tree.on_grid()
    assert size == 14
    found = score_tree(tiny_prior.lm, tree.inputs[:size], tree.before[:size], tree.nodes, labels, lengths)
    for row, wanted in zip(found.tolist(), expected, strict=True):
        assert row == pytest.approx(wanted, abs=1e-4)


def test_a_hypothesis_that_is_missing_shares_nothing(tiny_prior: ConvPrior) -> None:
    labels, lengths = beams_of(tiny_prior)
    expected = tiny_prior.score_classes(labels, lengths)
    lengths[1, 0] = 0
    found = tiny_prior.score_classes(labels, lengths)
    assert found[1, 0] == 0
    torch.testing.assert_close(found[1, 1:], expected[1, 1:])
    torch.testing.assert_close(found[0], expected[0])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_scores_of_random_beams(tiny_prior: ConvPrior, data: st.DataObject) -> None:
    hypothesis = st.lists(st.integers(0, 3), max_size=6)
    beams = data.draw(st.lists(st.lists(hypothesis, min_size=3, max_size=3), min_size=1, max_size=3))
    labels, lengths = pad([[*each, tiny_prior.tokenizer.eos] for beam in beams for each in beam])
    expected = tiny_prior.token_log_probabilities(labels, lengths).sum(dim=-1)
    found = tiny_prior.score_classes(labels.view(len(beams), 3, -1), lengths.view(len(beams), 3))
    torch.testing.assert_close(found.flatten(), expected, rtol=1e-4, atol=1e-4)


def test_probabilities_of_all_continuations_sum_to_one(tiny_prior: ConvPrior) -> None:
    classes = tiny_prior.tokenizer.classes
    labels = torch.tensor([[4, 2, each] for each in range(classes)])
    last = tiny_prior.token_log_probabilities(labels, torch.full((classes,), 3))[:, 2]
    assert last.exp().sum().item() == pytest.approx(1.0, abs=1e-5)


def test_texts_are_spelled_and_ended(tiny_prior: ConvPrior) -> None:
    texts = ["monday at nine", "", "ten with doctor at ten"]
    expected = [slow_score(tiny_prior, tiny_prior.tokenizer.encode(text)) for text in texts]
    assert tiny_prior.score_texts(texts).tolist() == pytest.approx(expected, abs=1e-4)


def test_half_precision_training_does_not_touch_the_scores(tiny_prior: ConvPrior) -> None:
    """Differences of one in sums of a hundred decide the weights."""
    labels, lengths = pad([[*each, tiny_prior.tokenizer.eos] for each in SEQUENCES])
    expected = tiny_prior.score_classes(labels, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = tiny_prior.score_classes(labels, lengths)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_an_untrained_prior_is_near_uniform(tiny_prior: ConvPrior) -> None:
    score = tiny_prior.score_classes(torch.tensor([[0, 1, 2, tiny_prior.tokenizer.eos]]), torch.tensor([4]))
    assert score.item() == pytest.approx(-4 * math.log(tiny_prior.tokenizer.classes), rel=0.2)


def test_padding_repeats_the_end() -> None:
    labels, lengths = pad([[1, 2, 9], [9]])
    assert labels.tolist() == [[1, 2, 9], [9, 9, 9]]
    assert lengths.tolist() == [3, 1]
