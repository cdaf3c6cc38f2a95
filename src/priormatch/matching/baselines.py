"""What local prior matching is compared with: continuous pseudo-labeling as others do it, and a perfect prior."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.batches import HOST, Batch
from priormatch.decoding.beam import Hypotheses
from priormatch.matching.diagnostics import Figures
from priormatch.matching.lpm import Proposal, Refresh, Targets, TargetsOf
from priormatch.recognizers.protocols import Recognizer
from priormatch.scoring.error_rates import character_errors, word_errors
from priormatch.stopwatch import Stopwatch

RENEWED = 0.1  # share of visits at which slimIPL replaces a label: its authors' p
DECAY = 0.999  # what an averaged proposal keeps of itself at every update


class AveragedProposal(Proposal):
    """A proposal that averages the online model's weights: r <- d·r + (1 - d)·q at every update (as in TopIPL)."""

    @torch.no_grad()
    def follow(self, online: Recognizer) -> None:
        """Average in the online model of this update."""
        own: list[Tensor] = list(self.model.parameters())
        torch._foreach_lerp_(own, list[Tensor](online.parameters()), 1 - DECAY)

    def refresh(self, online: Recognizer, online_cer: float, update: int) -> bool:
        """Record a validation; the average is never replaced."""
        self.history.append(Refresh(update, online_cer, self.cer, taken=False))
        return False


class CachedTargets:
    """Targets in a cache, made anew at a random share of the visits (slimIPL, Likhomanenko et al., 2021).

    A batch in which no utterance is due needs no proposal; one in which any is due is proposed for as a whole.
    """

    def __init__(self, targets: TargetsOf, share: float, eos: int) -> None:
        self.targets, self.share, self.eos = targets, share, eos
        self.kept: dict[str, Targets] = {}
        """Of each utterance the labels (k, U), lengths (k,) and weights (k,), on the host."""

    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch, old and new ones together."""
        due = torch.rand(len(batch)) < self.share
        figures: Figures = {}
        if any(new or name not in self.kept for name, new in zip(batch.ids, due.tolist(), strict=True)):
            made, figures = self.targets(batch, watch)
            made = made.to(HOST)
            for row, (name, new) in enumerate(zip(batch.ids, due.tolist(), strict=True)):
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


class OraclePrior:
    """A prior that knows the transcripts: what no other prior can exceed, given the beams.

    All weight goes to the hypothesis with the fewest word errors; among equals to that with the fewest character
    errors, then to the likeliest.
    """

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """Scores (B, k) that fall by 1,000 with each rank; the context of an utterance is its transcript."""
        scores = [
            [-1000.0 * rank for rank in ranks_by_errors(reference, texts)]
            for texts, reference in zip(hypotheses.texts, context or [], strict=True)
        ]
        return torch.tensor(scores)


def ranks_by_errors(reference: str, texts: Sequence[str]) -> list[int]:
    """The rank of each hypothesis of an utterance by its errors, from 0."""
    references = [reference] * len(texts)
    words, characters = (count(references, texts).errors for count in (word_errors, character_errors))
    order = sorted(range(len(texts)), key=lambda number: (words[number], characters[number]))
    return sorted(range(len(texts)), key=order.__getitem__)
