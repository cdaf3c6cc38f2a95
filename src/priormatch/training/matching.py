"""Training on labelled and unlabelled speech together, towards transcripts and towards targets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from priormatch.config import BatchSettings, MatchingSettings, TrainingSettings
from priormatch.data.batches import Batch, BatchStream, Corpus, UtteranceReader
from priormatch.device import mixed_precision
from priormatch.evaluation.decoding import mean_cer, validation_errors
from priormatch.matching.mixing import is_paired, paired_share
from priormatch.matching.objective import lpm_loss
from priormatch.matching.proposal import Proposal
from priormatch.matching.targets import Targets
from priormatch.models.recognizer import Recognizer
from priormatch.training.supervised import label_losses, labelled_stream, transcript_losses

TargetsOf = Callable[[Batch], tuple[Targets, dict[str, float]]]


def share_of(size: BatchSettings, share: float) -> BatchSettings:
    """A part of a batch."""
    return BatchSettings(
        seconds=size.seconds * share,
        utterances=max(round(size.utterances * share), 1) if size.utterances else 0,
    )


class Matching:
    """Pulls the online model towards transcripts on labelled speech and towards targets on unlabelled speech.

    With `combine = alternate` an update is of one kind or the other; with `sum` it holds both, and the mixing
    sets their shares of the batch. A proposal, where there is one, is refreshed after each validation.
    """

    def __init__(
        self,
        online: Recognizer,
        labelled: Corpus,
        unlabelled: Corpus,
        validation: Mapping[str, Corpus],
        targets: TargetsOf,
        proposal: Proposal | None,
        training: TrainingSettings,
        matching: MatchingSettings,
    ) -> None:
        self.model, self.validation, self.targets, self.proposal = online, validation, targets, proposal
        self.training, self.matching = training, matching
        share = paired_share(*matching.mixing) if matching.combine == "sum" else 1.0
        self.paired = labelled_stream(
            labelled, online, training, share_of(matching.batch, share), labelled.audio
        )
        reader = UtteranceReader(unlabelled, online.tokenizer)
        size = share_of(matching.batch, 1 - share) if matching.combine == "sum" else matching.batch
        self.unpaired = BatchStream(reader, size, training.seed, workers=unlabelled.audio.workers)

    def loss(self, update: int) -> tuple[Tensor, dict[str, float]]:
        """(sum of the paired losses + α · sum of the LPM losses) / utterances of the update's batch."""
        both = self.matching.combine == "sum"
        total: Tensor | float = 0.0
        utterances = 0
        figures: dict[str, float] = {}
        if both or is_paired(update, *self.matching.mixing):
            batch = self.paired.take().to(self.model.device)
            with mixed_precision(self.model.device):
                losses = transcript_losses(self.model, batch, self.training)
            total, utterances = losses.sum(), len(batch)
            figures |= {"paired_loss": float(losses.detach().mean()), "paired_seconds": batch.seconds}
        if both or not is_paired(update, *self.matching.mixing):
            batch = self.unpaired.take().to(self.model.device)
            with mixed_precision(self.model.device):
                targets, diagnosis = self.targets(batch)
                each = label_losses(self.model, batch, targets.labels, targets.lengths, self.training)
                losses = lpm_loss(each, targets.weights)
            total, utterances = total + self.matching.loss_weight * losses.sum(), utterances + len(batch)
            figures |= {"unpaired_loss": float(losses.detach().mean()), "unpaired_seconds": batch.seconds}
            figures |= diagnosis
        assert isinstance(total, Tensor)
        return total / utterances, figures

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Mean validation CER; refreshes the proposal with the online model when that is better."""
        if self.proposal is not None and update == 0:
            return self.proposal.cer, {"proposal_cer": self.proposal.cer}  # they are one model still
        errors = validation_errors(self.model, self.validation)
        cer = mean_cer(errors)
        figures: dict[str, Any] = {"validation": errors}
        if self.proposal is not None:
            taken = self.proposal.refresh(self.model, cer, update)
            refreshes = sum(each.taken for each in self.proposal.history)
            figures |= {
                "proposal_refreshed": taken,
                "proposal_cer": self.proposal.cer,
                "refreshes": refreshes,
            }
        return cer, figures

    def save(self, folder: Path) -> None:
        """Write the online model's folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The proposal, and where the streams stand."""
        state: dict[str, Any] = {"paired": self.paired.position, "unpaired": self.unpaired.position}
        if self.proposal is None:
            return {}, state
        return self.proposal.model.state_dict(), {**state, "proposal": self.proposal.state()}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go on from there."""
        self.paired.position, self.unpaired.position = state["paired"], state["unpaired"]
        if self.proposal is not None:
            self.proposal.model.load_state_dict(tensors)
            self.proposal.restore(state["proposal"])
