"""The prior's scores: sums over tokens, blind to padding, in full precision; a context is read and not scored."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from priormatch.decoding.beam import Hypotheses, pad
from priormatch.errors import UserError
from priormatch.kernels.recorded import RecordedScores
from priormatch.models.prefix_tree import prefix_tree, score_tree
from priormatch.recognizers import prior as prior_module
from priormatch.recognizers.prior import ConvPrior, RecordedPrior


@torch.no_grad()
def slow_score(prior: ConvPrior, context: list[int], classes: list[int]) -> float:
    """log p of a sequence and its end that follow another sequence and its end, a token at a time."""
    eos = prior.tokenizer.eos
    before = [*context, eos] if context else []
    total, sequence = 0.0, [*before, *classes, eos]
    for position in range(len(before), len(sequence)):
        logits = prior.lm(torch.tensor([[*sequence[:position], 0]]))[0, position]
        total += float(logits.log_softmax(dim=-1)[sequence[position]])
    return total


def as_context(prior: ConvPrior, rows: list[list[int]]) -> torch.Tensor:
    """Contexts (B, V) of pieces, begun with EOS and as wide as the longest."""
    begun = [[prior.tokenizer.eos, *row] if row else [] for row in rows]
    width = max(map(len, begun))
    return torch.tensor([[-1] * (width - len(row)) + row for row in begun], dtype=torch.long)


def beams_of(prior: ConvPrior, beams: list[list[list[int]]]) -> tuple[torch.Tensor, torch.Tensor]:
    labels, lengths = pad([[*each, prior.tokenizer.eos] for beam in beams for each in beam])
    return labels.view(len(beams), len(beams[0]), -1), lengths.view(len(beams), -1)


BEAMS = [[[5, 6, 7], [5, 6, 8], [5]], [[5, 6, 7], [6, 6, 7], []], [[5], [6], []]]
CONTEXTS = [[3, 4], [], [9, 8, 7, 6, 5]]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_scores_are_those_of_one_long_sequence(tiny_prior: ConvPrior, data: st.DataObject) -> None:
    pieces = st.lists(st.integers(0, 3), max_size=6)
    count = data.draw(st.integers(1, 3))
    beams = data.draw(st.lists(st.lists(pieces, min_size=2, max_size=2), min_size=count, max_size=count))
    contexts = data.draw(st.lists(pieces, min_size=count, max_size=count))
    found = tiny_prior.score_classes(*beams_of(tiny_prior, beams), as_context(tiny_prior, contexts))
    expected = [
        [slow_score(tiny_prior, context, each) for each in beam]
        for context, beam in zip(contexts, beams, strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_a_context_matters_and_its_absence_changes_no_bit(tiny_prior: ConvPrior) -> None:
    labels, lengths = beams_of(tiny_prior, BEAMS)
    alone = tiny_prior.score_classes(labels, lengths)
    found = tiny_prior.score_classes(labels, lengths, as_context(tiny_prior, CONTEXTS))
    assert not torch.isclose(found[0], alone[0]).any()
    assert torch.equal(tiny_prior.score_classes(labels, lengths, torch.full((3, 8), -1)), alone)
    plain = prefix_tree(labels, lengths, tiny_prior.lm.eos, 3)
    padded = prefix_tree(labels, lengths, tiny_prior.lm.eos, 3, torch.full((3, 8), -1))
    count = int(plain.total)
    assert padded.total == count
    assert torch.equal(padded.inputs[:count], plain.inputs[:count])
    assert torch.equal(padded.before[:count], plain.before[:count])
    assert torch.equal(padded.nodes, plain.nodes)


def test_a_beam_reads_its_context_once(tiny_prior: ConvPrior) -> None:
    eos = tiny_prior.tokenizer.eos
    labels, lengths = beams_of(tiny_prior, BEAMS)
    alone = prefix_tree(labels, lengths, eos, kernel=3)
    tree = prefix_tree(labels, lengths, eos, 3, as_context(tiny_prior, CONTEXTS))
    assert tree.total == alone.total + 3 + 6
    inputs, before = tree.inputs.tolist(), tree.before.tolist()
    chains = [tuple(inputs[node] for node in row if node >= 0) for row in before[: int(tree.total)]]
    # The first beam: its context, the end that begins its hypotheses, and what those begin with.
    assert chains[:4] == [(eos,), (eos, 3), (eos, 3, 4), (3, 4, eos)]
    assert sorted(chains[4:8]) == sorted([(4, eos, 5), (eos, 5, 6), (5, 6, 7), (5, 6, 8)])
    assert chains[8] == (eos,)  # the second has no context, and sees nothing of the first


def test_what_the_model_cannot_see_is_cut_off(tiny_prior: ConvPrior) -> None:
    assert tiny_prior.lm.reach == 9  # four convolutions over three inputs
    eos, encode = tiny_prior.tokenizer.eos, tiny_prior.tokenizer.encode
    text = "monday at nine with doctor tuesday evening"
    found = tiny_prior.contexts([text, "", "at"])
    assert found.shape == (3, 8)
    assert found[0].tolist() == [eos, *encode(text)][-8:]
    assert found[1].tolist() == [-1] * 8
    assert found[2].tolist() == [-1] * (7 - len(encode("at"))) + [eos, *encode("at")]
    expected = [slow_score(tiny_prior, encode(before), encode("ten at ten")) for before in (text, "", "at")]
    scores = tiny_prior.score_texts(["ten at ten"] * 3, [text, "", "at"])
    assert scores.tolist() == pytest.approx(expected, abs=1e-4)


def test_the_tree_looks_at_no_value_from_the_host() -> None:
    """A recording for a GPU could not; tensors without values tell."""
    labels, lengths = torch.empty(2, 3, 8, dtype=torch.long, device="meta"), torch.empty(2, 3, device="meta")
    tree = prefix_tree(labels, lengths, 9, 5, torch.empty(2, 16, dtype=torch.long, device="meta"))
    assert tree.inputs.shape == (2 * (16 + 3 * 8),)
    assert tree.before.shape == (2 * (16 + 3 * 8), 5)


def test_round_sizes_as_on_a_gpu_change_no_score(tiny_prior: ConvPrior) -> None:
    labels, lengths = beams_of(tiny_prior, BEAMS)
    context = as_context(tiny_prior, CONTEXTS)
    recorded = RecordedScores(tiny_prior.lm, tiny_prior.settings.kernel)
    torch.testing.assert_close(
        recorded(labels, lengths, context), tiny_prior.score_classes(labels, lengths, context)
    )
    torch.testing.assert_close(recorded(labels, lengths), tiny_prior.score_classes(labels, lengths))


def test_a_score_of_ones_own_is_called_on_a_gpu_too(
    tiny_prior: ConvPrior, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(ConvPrior):
        def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> torch.Tensor:
            return -hypotheses.lengths.float()

    own = Own(tiny_prior.settings, tiny_prior.tokenizer)
    assert tiny_prior.recorded() is tiny_prior
    monkeypatch.setattr(prior_module, "has_kernels", lambda device: True)
    assert isinstance(tiny_prior.recorded(), RecordedPrior)
    assert own.recorded() is own


def test_a_prior_that_read_sentences_alone_is_refused(tiny_prior: ConvPrior) -> None:
    with pytest.raises(UserError, match=r"train it with prior\.model\.context=true"):
        tiny_prior.require_context()
    tiny_prior.settings.context = True
    tiny_prior.require_context()


SEQUENCES = [[3, 1, 4, 1, 5], [9], [], [2, 7, 1, 8, 2, 8, 1, 8]]


def test_a_score_is_the_sum_over_tokens_and_the_first_end(tiny_prior: ConvPrior) -> None:
    labels, lengths = pad([[*each, tiny_prior.tokenizer.eos] for each in SEQUENCES])
    expected = [slow_score(tiny_prior, [], each) for each in SEQUENCES]
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


def test_what_hypotheses_of_a_beam_begin_with_is_read_once(tiny_prior: ConvPrior) -> None:
    eos = tiny_prior.tokenizer.eos
    labels, lengths = beams_of(tiny_prior, BEAMS[:2])
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
    labels, lengths = beams_of(tiny_prior, BEAMS[:2])
    expected = [[slow_score(tiny_prior, [], each) for each in beam] for beam in BEAMS[:2]]
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
    labels, lengths = beams_of(tiny_prior, BEAMS[:2])
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
    expected = [slow_score(tiny_prior, [], tiny_prior.tokenizer.encode(text)) for text in texts]
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
