"""A label cache (slimIPL), an averaged proposal (TopIPL), and a prior that knows the transcripts."""

from dataclasses import replace
from itertools import combinations
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from narrowing import of_type, present

from priormatch.data.batches import Batch
from priormatch.matching import baselines
from priormatch.matching.baselines import AveragedProposal, CachedTargets, OraclePrior, ranks_by_errors
from priormatch.matching.kept import TargetsOfProposal
from priormatch.matching.lpm import Targets, weigh
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.error_rates import word_errors
from priormatch.stopwatch import Stopwatch

WATCH = Stopwatch(torch.device("cpu"))
EOS = 9


class Counted:
    """Targets that tell how often they were made: the n-th time the label n, n labels long."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, dict[str, torch.Tensor]]:
        self.calls += 1
        rows = len(batch.waveforms)
        labels = torch.full((rows, 1, self.calls), self.calls)
        lengths = torch.full((rows, 1), self.calls)
        return Targets(labels, lengths, torch.ones(rows, 1)), {"survivors": torch.tensor(1.0)}


def batch_of(*ids: str, rows: int = 0) -> Batch:
    count = max(len(ids), rows)
    speech = Batch.of_audio(torch.zeros(count, 4), torch.full((count,), 4))
    return replace(speech, ids=[*ids], texts=[None] * len(ids))


def start_of(model: Recognizer) -> torch.Tensor:
    """The first state of a model's decoder, one of its weights."""
    return present(of_type(SpeechRecognizer, model).decoder).start


def labels_of(targets: Targets) -> list[list[int]]:
    return [row[0].tolist() for row in targets.labels]


def test_what_was_made_is_given_again_until_it_is_due() -> None:
    made = Counted()
    cached = CachedTargets(made, 0.0, EOS)
    cached(batch_of("a", "b"), WATCH)
    again, figures = cached(batch_of("b", "a"), WATCH)
    assert (made.calls, figures, labels_of(again)) == (1, {}, [[1], [1]])
    mixed, figures = cached(batch_of("a", "c"), WATCH)
    assert (made.calls, labels_of(mixed)) == (2, [[1, EOS], [2, 2]]), "only the new one is taken over"
    assert figures.keys() == {"survivors"}


def test_a_share_is_made_anew() -> None:
    made = Counted()
    cached = CachedTargets(made, 0.5, EOS)
    names = [str(number) for number in range(400)]
    cached(batch_of(*names), WATCH)
    torch.manual_seed(0)
    later, _ = cached(batch_of(*names), WATCH)
    renewed = (later.lengths == 2).float().mean()
    assert 0.4 < renewed < 0.6


def test_rows_that_fill_a_shape_up_teach_nothing() -> None:
    targets, _ = CachedTargets(Counted(), 0.5, EOS)(batch_of("a", rows=3), WATCH)
    assert targets.weights.tolist() == [[1.0], [0.0], [0.0]]


def test_targets_of_a_proposal_are_made_again_for_the_next() -> None:
    made, proposal = Counted(), Mock(refreshes=0)
    once = TargetsOfProposal(made, EOS, proposal)
    assert [once(batch_of("a"), WATCH)[0].labels.tolist() for _ in range(2)] == [[[[1]]]] * 2
    proposal.refreshes = 1
    resumed = TargetsOfProposal(made, EOS, proposal)
    resumed.restore(*once.state())
    for each in (once, resumed):
        each(batch_of("b"), WATCH)
        assert each.kept.keys() == {"b"}, "those of the proposal before are gone"
    resumed.restore(*once.state())
    assert resumed(batch_of("b"), WATCH)[0].lengths.tolist() == [[2]]
    assert made.calls == 3


def test_its_state_comes_back() -> None:
    cached = CachedTargets(Counted(), 0.0, EOS)
    cached(batch_of("a"), WATCH)
    cached(batch_of("b"), WATCH)
    made = Counted()
    other = CachedTargets(made, 0.0, EOS)
    other.restore(*cached.state())
    before, after = (each(batch_of("a", "b"), WATCH)[0] for each in (cached, other))
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))
    assert made.calls == 0
    empty = CachedTargets(Counted(), 0.0, EOS)
    empty.restore(*CachedTargets(Counted(), 0.0, EOS).state())
    assert empty.kept == {}


def test_an_average_moves_a_little_at_every_update(
    tiny_recognizer: SpeechRecognizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "DECAY", 0.75)
    proposal = AveragedProposal(tiny_recognizer, 20.0)
    before = start_of(proposal.model).clone()
    with torch.no_grad():
        start_of(tiny_recognizer).add_(0.1)
    for share in (0.25, 0.4375):
        proposal.follow(tiny_recognizer)
        torch.testing.assert_close(start_of(proposal.model), before + 0.1 * share)
    assert proposal.refresh(tiny_recognizer, 1.0, 1) is False, "validations leave it alone"
    assert [each.taken for each in proposal.history] == [False]


def test_an_oracle_gives_all_weight_to_the_fewest_errors() -> None:
    beams = [["a cat sat", "the bat sat", "the cat sit", "a bat"], ["no", "", "no", "not so"]]
    hypotheses = Mock(texts=beams)
    log_prior = OraclePrior().score(hypotheses, ["the cat sat", ""])
    # one word wrong in three of them: by 3, 1 and 1 characters; of equals the first; of an empty text, no insertion
    assert log_prior.tolist() == [[-2000.0, 0.0, -1000.0, -3000.0], [-1000.0, 0.0, -2000.0, -3000.0]]
    keep = torch.tensor([[True, False, True, True], [True, True, True, True]])
    assert weigh(log_prior, keep).tolist() == [[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]


@given(st.lists(st.text("ab ", max_size=6), min_size=1, max_size=8), st.text("ab ", max_size=6))
def test_ranks_by_errors_are_a_permutation_that_no_error_contradicts(
    texts: list[str], reference: str
) -> None:
    ranks = ranks_by_errors(reference, texts)
    assert sorted(ranks) == list(range(len(texts)))
    errors = word_errors([reference] * len(texts), texts).errors
    for (rank, mine), (other, its) in combinations(zip(ranks, errors, strict=True), 2):
        assert mine == its or (rank < other) == (mine < its)
