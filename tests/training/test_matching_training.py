"""Labeled and unlabeled speech together: the loss by hand, proposals, batches that teach nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from narrowing import of_type, present

from priormatch.config import (
    AudioSettings,
    BatchSettings,
    MatchingSettings,
    OptimizerSettings,
    TrainingSettings,
)
from priormatch.data.batches import Batch, BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus, cut_text
from priormatch.matching.baselines import AveragedProposal
from priormatch.matching.lpm import Policy, Proposal, Targets, given_labels, is_paired
from priormatch.models.objective import sequence_loss
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training import matching_step as module
from priormatch.training.loop import Schedule, fit
from priormatch.training.matching_step import Matching, share_of

WATCH = Stopwatch(torch.device("cpu"))


QUIET = TrainingSettings(label_smoothing=0.0, input_sampling=0.0, piece_sampling=0.0)


@pytest.fixture
def corpora(tiny_corpus: Callable[..., Path]) -> tuple[Corpus, Corpus]:
    audio = AudioSettings(workers=0)
    labeled, unlabeled = tiny_corpus(6, "labeled"), tiny_corpus(9, "unlabeled", transcribed=False)
    return Corpus.load(labeled, audio), Corpus.load(unlabeled, audio)


@pytest.fixture
def make(
    corpora: tuple[Corpus, Corpus], tiny_recognizer: SpeechRecognizer
) -> Callable[..., tuple[Matching, list[Any], list[Any]]]:
    """A task whose targets are given, and the batches that it takes."""

    def make(
        targets: Callable[..., Any] | Callable[..., tuple[Targets, dict[str, torch.Tensor]]],
        training: TrainingSettings = QUIET,
        proposal: AveragedProposal | Proposal | None = None,
        transcribed: Corpus | None = None,
        **settings: Any,
    ) -> tuple[Matching, list[Any], list[Any]]:
        task = Matching(
            tiny_recognizer,
            *corpora,
            {"dev": corpora[0]},
            targets=targets,
            training=training,
            matching=MatchingSettings(**{"batch": BatchSettings(utterances=6), "mixing": [1, 2], **settings}),
            proposal=proposal,
            transcribed=transcribed,
        )
        return task, record(task.streams["paired"]), record(task.streams["unpaired"])

    return make


def record(stream: BatchStream) -> list[Any]:
    taken: list[Batch] = []
    take = stream.take

    def recording() -> list[Batch]:
        parts = take()
        taken.extend(parts)
        return parts

    stream.take = recording  # type: ignore[method-assign]
    return taken


def two_hypotheses(batch: Batch, watch: Stopwatch | None = None) -> tuple[Targets, dict[str, torch.Tensor]]:
    """Fixed hypotheses with uneven weights; nothing at all for the first utterance."""
    size = len(batch)
    labels = torch.tensor([[1, 2, 28, 28], [3, 4, 5, 28]]).expand(size, 2, 4)
    weights = torch.tensor([0.25, 0.75]).repeat(size, 1)
    weights[0] = 0.0
    return Targets(labels, torch.tensor([3, 4]).repeat(size, 1), weights), {"survivors": torch.tensor(1.5)}


def nothing(batch: Batch, watch: Stopwatch) -> tuple[Targets, dict[str, torch.Tensor]]:
    found, _ = two_hypotheses(batch, watch)
    return Targets(found.labels, found.lengths, torch.zeros_like(found.weights)), {
        "length_ratio": torch.tensor(torch.nan)
    }


def own(task: Matching | Proposal) -> SpeechRecognizer:
    """The model of a task or the proposal, which is one of ours."""
    return of_type(SpeechRecognizer, task.model)


def negative_log_q(
    model: SpeechRecognizer, batch: Batch, labels: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    encoded, frames = model.encode(batch.waveforms, batch.samples)
    decoder = present(model.decoder)
    logits = decoder(decoder.memory(encoded, frames), labels)
    return sequence_loss(logits, labels, lengths)


def paired_sum(model: SpeechRecognizer, batch: Batch) -> torch.Tensor:
    return negative_log_q(model, batch, batch.labels[:, None], batch.label_lengths[:, None]).sum()


def unpaired_sum(model: SpeechRecognizer, batch: Batch) -> torch.Tensor:
    targets, _ = two_hypotheses(batch)
    losses = negative_log_q(model, batch, targets.labels, targets.lengths)
    return (0.25 * losses[1:, 0] + 0.75 * losses[1:, 1]).sum()


def gradients(model: SpeechRecognizer, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return left_gradients(model)


def left_gradients(model: SpeechRecognizer) -> dict[str, torch.Tensor]:
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def test_the_longest_utterance_of_either_kind_is_remembered(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
    corpora: tuple[Corpus, Corpus],
    tiny_recognizer: SpeechRecognizer,
) -> None:
    longest = max(float(each.durations.max()) for each in corpora)
    fixed, better = (Proposal(tiny_recognizer, 50.0, policy) for policy in ("never", "better"))
    make(two_hypotheses, proposal=fixed)
    assert (tiny_recognizer.longest_heard, own(fixed).longest_heard) == (longest, 0.0)
    tiny_recognizer.longest_heard = 30.0
    make(two_hypotheses, proposal=better)
    assert (tiny_recognizer.longest_heard, own(better).longest_heard) == (30.0, 30.0)


def test_sum_adds_both_losses_over_the_utterances_of_both(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    task, paired, unpaired = make(two_hypotheses, combine="sum", loss_weight=0.3)
    loss, figures = task.backward(0, WATCH)
    assert (len(paired[0]), len(unpaired[0])) == (2, 4)
    by_hand = (paired_sum(own(task), paired[0]) + 0.3 * unpaired_sum(own(task), unpaired[0])) / 6
    torch.testing.assert_close(loss, by_hand)
    assert figures["survivors"] == 1.5
    assert float(figures["paired_loss"]) == pytest.approx(
        paired_sum(own(task), paired[0]).item() / 2, rel=1e-5
    )
    assert float(figures["unpaired_loss"]) == pytest.approx(
        unpaired_sum(own(task), unpaired[0]).item() / 4, rel=1e-5
    )


def test_alternate_divides_each_loss_by_its_own_batch(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    task, paired, unpaired = make(two_hypotheses, combine="alternate", loss_weight=0.3)
    kinds = []
    for update in range(6):
        before = len(paired)
        loss, figures = task.backward(update, WATCH)
        kinds.append(len(paired) > before)
        if kinds[-1]:
            by_hand = paired_sum(own(task), paired[-1]) / len(paired[-1])
            assert "unpaired_loss" not in figures
        else:
            by_hand = 0.3 * unpaired_sum(own(task), unpaired[-1]) / len(unpaired[-1])
            assert "paired_loss" not in figures
        torch.testing.assert_close(loss, by_hand)
    assert kinds == [is_paired(update, 1, 2) for update in range(6)]
    assert sum(kinds) == 2
    assert {len(each) for each in paired + unpaired} <= {6, 3}  # whole batches, and what is left at an end


def test_an_unpaired_batch_without_a_survivor_has_no_gradient(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    task, _, unpaired = make(nothing, combine="alternate")
    unpaired_update = next(update for update in range(9) if not is_paired(update, 1, 2))
    loss, _ = task.backward(unpaired_update, WATCH)
    assert loss.item() == 0.0
    assert len(unpaired) == 1
    found = left_gradients(own(task))
    assert found
    assert all((each == 0).all() for each in found.values())


def test_a_sum_without_a_survivor_teaches_the_paired_part_alone(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    task, paired, _ = make(nothing, combine="sum", loss_weight=100.0)
    task.backward(0, WATCH)
    found = left_gradients(own(task))
    expected = gradients(own(task), paired_sum(own(task), paired[0]) / 6)
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each)


def test_training_without_any_survivor_stays_finite(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]], tmp_path: Path
) -> None:
    task, _, _ = make(nothing, combine="sum")
    optimizer = OptimizerSettings("adamw", 0.01, clip=1.0)
    fit(task, Schedule(3, optimizer, 0, 3, report_every=1), tmp_path, tmp_path)
    assert all(each.isfinite().all() for each in task.model.parameters())
    reports = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [each["unpaired_loss"] for each in reports if "loss" in each] == [0.0, 0.0, 0.0]


def test_hypotheses_that_do_not_count_give_no_gradient_whatever_they_are(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    """A weight of zero hides even a hypothesis of probability zero."""
    task, _, _ = make(two_hypotheses, combine="alternate")
    with torch.no_grad():
        present(own(task).decoder).output.bias[7] = -torch.inf

    def impossible(batch: Batch, watch: Stopwatch) -> tuple[Targets, dict[Any, Any]]:
        found, _ = two_hypotheses(batch)
        labels = found.labels.clone()
        labels[:, 0, 0] = 7
        weights = found.weights.clone()
        weights[:, 0], weights[:, 1] = 0.0, 1.0
        return Targets(labels, found.lengths, weights), {}

    task.targets = impossible
    loss, _ = task.backward(0, WATCH)
    found = left_gradients(own(task))
    assert loss.isfinite()
    assert all(each.isfinite().all() for each in found.values())


def test_pseudo_labels_are_the_supervised_loss(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]], corpora: tuple[Corpus, Corpus]
) -> None:
    task, _, _ = make(given_labels, combine="alternate", loss_weight=1.0)
    task.streams["unpaired"] = BatchStream(
        UtteranceReader(corpora[0], task.model.tokenizer), BatchSettings(utterances=6), 0
    )
    loss, _ = task.backward(0, WATCH)
    task.streams["unpaired"].position, task.streams["unpaired"]._batches = 0, None
    batch = task.streams["unpaired"].take()[0]
    torch.testing.assert_close(loss, paired_sum(own(task), batch) / len(batch))


def test_a_transcript_without_a_known_piece_still_counts(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
) -> None:
    task, paired, _ = make(two_hypotheses, combine="sum", loss_weight=0.0)
    take = task.streams["paired"].take

    def emptied() -> list[Batch]:
        (batch,) = take()
        lengths = batch.label_lengths.clone()
        lengths[0] = 1
        return [replace(batch, label_lengths=lengths)]

    task.streams["paired"].take = emptied  # type: ignore[method-assign]
    loss, _ = task.backward(0, WATCH)
    batch = replace(paired[0], label_lengths=torch.tensor([1, *paired[0].label_lengths[1:]]))
    torch.testing.assert_close(loss, (paired_sum(own(task), batch) / 6).detach())


def test_the_encoder_runs_once_for_all_hypotheses(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _, _ = make(two_hypotheses, combine="alternate")
    calls: list[int] = []
    encode = own(task).encode

    def counted(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        calls.append(1)
        return encode(*given)

    monkeypatch.setattr(task.model, "encode", counted)
    task.backward(0, WATCH)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("size", "share", "expected"),
    [
        (BatchSettings(utterances=16), 0.2, BatchSettings(utterances=3)),
        (BatchSettings(utterances=2), 0.1, BatchSettings(utterances=1)),
        (BatchSettings(seconds=40.0, buckets=5), 0.25, BatchSettings(seconds=10.0, buckets=5)),
        (BatchSettings(utterances=16), 1.0, BatchSettings(utterances=16)),
    ],
)
def test_shares_of_a_batch(size: BatchSettings, share: float, expected: BatchSettings) -> None:
    assert share_of(size, share) == expected


def test_the_proposal_is_refreshed_only_by_a_better_online_model(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
    monkeypatch: pytest.MonkeyPatch,
    tiny_recognizer: SpeechRecognizer,
) -> None:
    proposal = Proposal(tiny_recognizer, cer=40.0)
    task, _, _ = make(two_hypotheses, proposal=proposal)
    cers = iter([40.0, 40.0, 39.0, 39.0])
    monkeypatch.setattr(module, "validation_errors", lambda *_: {"dev": {"cer": next(cers), "wer": 0.0}})

    def weight() -> float:
        return present(own(proposal).decoder).start[0].item()

    def validate(update: int, value: float) -> tuple[float, dict[str, Any]]:
        with torch.no_grad():
            present(own(task).decoder).start[0] = value
        return task.validate(update)

    first = weight()
    score, figures = validate(0, 5.0)
    assert (score, figures["proposal_cer"], weight()) == (40.0, 40.0, first), (
        "nothing is decided at the start"
    )
    score, figures = validate(10, 6.0)
    assert (score, figures["proposal_refreshed"], figures["refreshes"], weight()) == (40.0, False, 0, first)
    _, figures = validate(20, 7.0)
    assert (figures["proposal_refreshed"], figures["proposal_cer"], weight()) == (True, 39.0, 7.0)
    _, figures = validate(30, 8.0)
    assert (figures["proposal_refreshed"], figures["refreshes"], weight()) == (False, 1, 7.0)
    assert [each.update for each in proposal.history] == [10, 20, 30]


def test_the_proposal_does_not_follow_the_online_model(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]], tiny_recognizer: SpeechRecognizer
) -> None:
    proposal = Proposal(tiny_recognizer, cer=40.0)
    with torch.no_grad():
        start = present(tiny_recognizer.decoder).start.add_(1.0)
    assert not torch.equal(present(own(proposal).decoder).start, start)
    assert not any(each.requires_grad for each in proposal.model.parameters())
    assert all(each.requires_grad for each in tiny_recognizer.parameters())
    tiny_recognizer.train()
    assert not proposal.model.training


@pytest.mark.parametrize(
    ("policy", "scored"),
    [
        ("better", [0, 20]),
        ("always", [0, 10, 20, 30]),
        ("on_policy", [0, 10, 20, 30]),
        ("topipl", [0, 10, 20, 30]),
        ("never", [0]),
    ],
)
def test_a_proposal_that_is_new_is_scored_where_transcripts_are_known(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
    corpora: tuple[Corpus, Corpus],
    monkeypatch: pytest.MonkeyPatch,
    tiny_recognizer: SpeechRecognizer,
    policy: Policy | Literal["topipl"],
    scored: list[int],
) -> None:
    if policy == "topipl":
        proposal: Proposal = AveragedProposal(tiny_recognizer, 40.0)
    else:
        proposal = Proposal(tiny_recognizer, 40.0, policy)
    task, _, _ = make(two_hypotheses, proposal=proposal, transcribed=corpora[0])
    cers = iter([40.0, 40.0, 39.0, 39.5])

    def errors(model: SpeechRecognizer, sets: dict[str, Corpus]) -> dict[str, dict[str, float]]:
        if model is proposal.model:
            return {name: {"wer": float(len(each)), "cer": 0.0} for name, each in sets.items()}
        return {"dev": {"wer": 0.0, "cer": next(cers)}}

    monkeypatch.setattr(module, "validation_errors", errors)
    figures = {update: task.validate(update)[1] for update in (0, 10, 20, 30)}
    assert {update: each["label_wer"] for update, each in figures.items() if "label_wer" in each} == (
        dict.fromkeys(scored, 6.0)
    )


def test_the_labels_scored_are_those_of_the_proposal(
    make: Callable[..., tuple[Matching, list[Any], list[Any]]],
    corpora: tuple[Corpus, Corpus],
    tiny_recognizer: SpeechRecognizer,
) -> None:
    """It hears one word over and over in whatever is said, once with the loop cut, and the online model nothing."""
    proposal, tokenizer = Proposal(tiny_recognizer, cer=0.0), tiny_recognizer.tokenizer
    with torch.no_grad():
        present(own(proposal).decoder).output.bias[tokenizer.encode("nine")] = 1e4
        present(tiny_recognizer.decoder).output.bias[tokenizer.eos] = 1e4
    task, _, _ = make(two_hypotheses, proposal=proposal, transcribed=corpora[0])
    _, figures = task.validate(0)
    assert figures["validation"]["dev"]["wer"] == 100.0
    said = [present(cut_text(cut)).split() for cut in corpora[0].cuts]
    errors = sum(len(words) - ("nine" in words) for words in said)
    assert figures["label_wer"] == pytest.approx(100 * errors / sum(map(len, said)))


def test_without_labeled_speech_the_whole_batch_is_unpaired(
    corpora: tuple[Corpus, Corpus], tiny_recognizer: SpeechRecognizer
) -> None:
    for combine in ("sum", "alternate"):
        size = BatchSettings(utterances=6)
        task = Matching(
            tiny_recognizer,
            None,
            corpora[1],
            {"dev": corpora[0]},
            targets=two_hypotheses,
            training=QUIET,
            matching=MatchingSettings(batch=size, mixing=[1, 2], combine=combine),
        )
        taken = record(task.streams["unpaired"])
        for update in range(3):
            _, figures = task.backward(update, WATCH)
            assert "paired_loss" not in figures
        assert max(len(batch) for batch in taken) == 6
        tensors, state = task.state()
        assert state == {"unpaired": 3}
        task.restore(tensors, state)
