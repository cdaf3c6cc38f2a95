"""Targets that are kept between the visits of an utterance."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.batches import HOST, Batch
from priormatch.matching.diagnostics import Figures
from priormatch.matching.lpm import Proposal, Targets, TargetsOf
from priormatch.stopwatch import Stopwatch


class KeptTargets:
    """Targets that are made at the first visit of an utterance and kept until they are due.

    A batch in which no utterance is due needs no proposal; one in which any is due is proposed for as a whole.
    """

    def __init__(self, targets: TargetsOf, eos: int) -> None:
        self.targets, self.eos = targets, eos
        self.kept: dict[str, Targets] = {}
        """Of each utterance the labels (k, U), lengths (k,) and weights (k,), on the host."""

    def due(self, batch: Batch) -> list[bool]:
        """Which utterances get new targets although they have some."""
        return [False] * len(batch)

    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch, old and new ones together."""
        due = self.due(batch)
        figures: Figures = {}
        if any(new or name not in self.kept for name, new in zip(batch.ids, due, strict=True)):
            made, figures = self.targets(batch, watch)
            made = made.to(HOST)
            for row, (name, new) in enumerate(zip(batch.ids, due, strict=True)):
                if new or name not in self.kept:
                    self.kept[name] = Targets(*(each[row].clone() for each in made))
        rows = [self.kept[name] for name in batch.ids]
        more = len(batch.waveforms) - len(rows)  # rows that only make its shape round
        nothing = Targets(rows[0].labels, rows[0].lengths, torch.zeros_like(rows[0].weights))
        return self._stack([*rows, *[nothing] * more]).to(batch.waveforms.device), figures

    def _stack(self, rows: list[Targets]) -> Targets:
        """Rows of different widths as one batch, filled up with the end of sentence."""
        width = max(row.labels.shape[1] for row in rows)
        labels = [
            functional.pad(row.labels, (0, width - row.labels.shape[1]), value=self.eos) for row in rows
        ]
        return Targets(
            torch.stack(labels),
            torch.stack([row.lengths for row in rows]),
            torch.stack([row.weights for row in rows]),
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state to checkpoint: all cached targets, padded to the widest, with their utterance ids."""
        if not self.kept:
            return {}, {"ids": [], "widths": []}
        widths = [each.labels.shape[1] for each in self.kept.values()]
        return self._stack(list(self.kept.values()))._asdict(), {"ids": list(self.kept), "widths": widths}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.kept = {}
        for row, (name, width) in enumerate(zip(state["ids"], state["widths"], strict=True)):
            labels, lengths, weights = (tensors[each][row] for each in Targets._fields)
            self.kept[name] = Targets(labels[:, :width].clone(), lengths.clone(), weights.clone())


class TargetsOfProposal(KeptTargets):
    """Targets that are made once for each proposal: those of the one before are dropped when it is replaced."""

    def __init__(self, targets: TargetsOf, eos: int, proposal: Proposal) -> None:
        super().__init__(targets, eos)
        self.proposal, self.made_by = proposal, proposal.refreshes

    def due(self, batch: Batch) -> list[bool]:
        """None; drops all targets if they are of an earlier proposal."""
        if self.made_by != self.proposal.refreshes:
            self.kept.clear()
            self.made_by = self.proposal.refreshes
        return super().due(batch)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The state to checkpoint, with the number of the proposal that made the targets."""
        tensors, state = super().state()
        return tensors, state | {"made_by": self.made_by}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().restore(tensors, state)
        self.made_by = state["made_by"]
