"""A label cache (slimIPL) and an averaged proposal (TopIPL)."""

from dataclasses import replace

import pytest
import torch
from narrowing import of_type, present

from priormatch.data.batches import Batch
from priormatch.matching import baselines
from priormatch.matching.baselines import AveragedProposal, CachedTargets
from priormatch.matching.lpm import Targets
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
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
