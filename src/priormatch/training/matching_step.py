"""Training on labeled and unlabeled speech: toward transcripts and toward matching targets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from priormatch.config import BatchSettings, MatchingSettings, TrainingSettings
from priormatch.data.batches import Batch, BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus
from priormatch.decoding.beam import Hypotheses
from priormatch.device import mixed_precision
from priormatch.kernels.graphs import Graphed
from priormatch.kernels.shapes import on_grid
from priormatch.matching.baselines import AveragedProposal
from priormatch.matching.kept import KeptTargets
from priormatch.matching.lpm import Proposal, TargetsOf, given_labels, is_paired, lpm_loss, paired_share
from priormatch.recognizers.decode import fitting, mean_cer, validation_errors
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.stopwatch import Stopwatch
from priormatch.training.checkpoint import of_prefix, with_prefix
from priormatch.training.inspected import Inspector
from priormatch.training.supervised_step import can_record, labeled_stream, losses_of, noise_of, stream_of


def share_of(size: BatchSettings, share: float) -> BatchSettings:
    """The given share of a batch size."""
    return replace(
        size,
        seconds=size.seconds * share,
        utterances=max(round(size.utterances * share), 1) if size.utterances else 0,
    )


Kind = tuple[str, BatchStream, TargetsOf, float]
"""One kind of speech in an update: its name, its batches, their targets, and the weight of its loss."""


class Matching:
    """Trains the online model toward transcripts on labeled speech and toward targets on unlabeled speech.

    With `combine=alternate` each update is either paired or unpaired; with `sum` it has both, and the mixing sets
    their shares of the batch. Without labeled speech every update is unpaired. After each validation the proposal, if
    given, may be refreshed. New proposals are scored on `transcribed` utterances, whose transcripts are not trained on,
    and the inspector, if given, records their beams.
    """

    def __init__(
        self,
        online: Recognizer,
        labeled: Corpus | None,
        unlabeled: Corpus,
        validation: Mapping[str, Corpus],
        *,
        targets: TargetsOf,
        training: TrainingSettings,
        matching: MatchingSettings,
        proposal: Proposal | None = None,
        transcribed: Corpus | None = None,
        inspector: Inspector | None = None,
    ) -> None:
        self.model, self.validation, self.targets, self.proposal = online, validation, targets, proposal
        self.training, self.matching, self.transcribed = training, matching, transcribed
        self.inspector = inspector
        unlabeled = fitting(unlabeled, online)
        labeled = None if labeled is None else fitting(labeled, online, training.augment.speeds)
        if isinstance(online, SpeechRecognizer):
            heard = [each.longest for each in (labeled, unlabeled) if each is not None]
            online.longest_heard = max(online.longest_heard, *heard)
            first = proposal.model if proposal is not None and proposal.policy != "never" else None
            if isinstance(first, SpeechRecognizer):
                first.longest_heard = online.longest_heard
        size, paired_size = matching.batch, matching.batch
        self.streams: dict[str, BatchStream] = {}
        if labeled is not None:
            if matching.combine == "sum":
                share = paired_share(*matching.mixing)
                paired_size, size = share_of(size, share), share_of(size, 1 - share)
            self.streams["paired"] = labeled_stream(labeled, online, training, paired_size)
        reader = UtteranceReader(unlabeled, online.tokenizer, noise=noise_of(training))
        self.streams["unpaired"] = stream_of(reader, online, size, training.seed)
        self.ids: list[str] = []
        self.step = Graphed(self._step, online.parameters(), recorded=can_record(online, training))

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Add the gradient of Σ (paired losses + α · LPM losses) / number of utterances in the update."""
        if self.proposal is not None:
            self.proposal.follow(self.model)
        eos, device = self.model.tokenizer.eos, self.model.device
        unpaired: Kind = ("unpaired", self.streams["unpaired"], self.targets, self.matching.loss_weight)
        kinds = [unpaired]
        if "paired" in self.streams:
            paired: Kind = ("paired", self.streams["paired"], given_labels, 1.0)
            alone = paired if is_paired(update, *self.matching.mixing) else unpaired
            kinds = [paired, unpaired] if self.matching.combine == "sum" else [alone]
        taken = [stream.take() for _, stream, *_ in kinds]
        utterances = sum(stream.whole for _, stream, *_ in kinds)
        self.ids = [name for parts in taken for batch in parts for name in batch.ids]
        loss = torch.zeros((), device=device)
        figures: dict[str, Any] = {"audio_seconds": 0.0}
        for (name, _, targets_of, weight), parts in zip(kinds, taken, strict=True):
            figures[f"{name}_seconds"] = sum(batch.seconds for batch in parts)
            figures["audio_seconds"] += figures[f"{name}_seconds"]
            for batch in parts:
                batch = on_grid(batch.to(device), eos)
                watch.lap("data")
                targets, diagnosis = targets_of(batch, watch)
                share = torch.full((), weight / utterances, device=device)
                part, total = self.step(batch.waveforms, batch.samples, batch.noise, share, *targets)
                loss = loss + part
                watch.lap("gradient")
                figures |= {f"{name}_loss": total / len(batch), **diagnosis}
        return loss, figures

    def _step(
        self, waveforms: Tensor, samples: Tensor, noise: Tensor, share: Tensor, *targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        labels, lengths, weights = targets
        with mixed_precision(waveforms.device):
            hypotheses = Hypotheses(labels, lengths, self.model.tokenizer)
            each = losses_of(self.model, Batch.of_audio(waveforms, samples, noise), hypotheses, self.training)
        total = lpm_loss(each, weights).sum()
        loss = total * share
        loss.backward()
        return loss.detach(), total.detach()

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Return the mean validation CER; refresh the proposal by its policy, and score a new one."""
        errors = validation_errors(self.model, self.validation)
        cer = mean_cer(errors)
        figures: dict[str, Any] = {"validation": errors}
        if self.proposal is not None:
            refreshed = update > 0 and self.proposal.refresh(self.model, cer, update)
            figures |= {
                "proposal_refreshed": refreshed,
                "proposal_cer": self.proposal.cer,
                "refreshes": self.proposal.refreshes,
            }
            new = update == 0 or refreshed or isinstance(self.proposal, AveragedProposal)
            if new and self.transcribed is not None:
                heard = validation_errors(self.proposal.model, {"unlabeled": self.transcribed})
                figures["label_wer"] = heard["unlabeled"]["wer"]
            if new and self.inspector is not None:
                self.inspector(self.proposal.model, update)
        return cer, figures

    def close(self) -> None:
        """Stop processes that read ahead."""
        for stream in self.streams.values():
            stream.close()

    def save(self, folder: Path) -> None:
        """Save the online model in a folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The proposal, cached targets and positions of the batch streams."""
        tensors: dict[str, Tensor] = {}
        state: dict[str, Any] = {name: stream.position for name, stream in self.streams.items()}
        if self.proposal is not None:
            tensors |= with_prefix("proposal", self.proposal.model.state_dict())
            state["proposal"] = self.proposal.state()
        if isinstance(self.targets, KeptTargets):
            kept, state["targets"] = self.targets.state()
            tensors |= with_prefix("targets", kept)
        return tensors, state

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        for name, stream in self.streams.items():
            stream.position = state[name]
        if self.proposal is not None:
            self.proposal.model.load_state_dict(of_prefix("proposal", tensors))
            self.proposal.restore(state["proposal"])
        if isinstance(self.targets, KeptTargets):
            self.targets.restore(of_prefix("targets", tensors), state["targets"])
