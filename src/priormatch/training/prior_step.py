"""Training of the prior on single sentences, as matching uses it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from priormatch.config import BatchSettings, PriorSettings
from priormatch.data.features import time_mask
from priormatch.data.plan import plan_batches
from priormatch.data.sentences import Sentences
from priormatch.device import mixed_precision
from priormatch.distributed import from_all, rank, ranks
from priormatch.kernels.graphs import Graphed
from priormatch.kernels.shapes import sentences_on_grid
from priormatch.recognizers.prior import ConvPrior
from priormatch.stopwatch import Stopwatch

PRECEDED = 1  # third seed, after the seed and the epoch, of the draw of sentences with context


def exponential(value: float) -> float:
    """exp(value), or infinity on overflow, as for a model that has diverged."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


class PriorTraining:
    """Minimizes the cross-entropy of sentences; the score is the perplexity per piece of held-out sentences.

    A model with `context` reads half of the sentences after the previous sentence of the text: EOS, previous, EOS,
    sentence, EOS. That half is drawn again for each epoch. So the model learns to score sentences with and without
    context.
    """

    ids: Sequence[str] = ()  # text has no utterance ids

    def __init__(
        self, prior: ConvPrior, text: Sentences, held_out: Sentences, settings: PriorSettings, seed: int
    ) -> None:
        self.model, self.text, self.held_out, self.seed = prior, text, held_out, seed
        self.size = BatchSettings(seconds=settings.batch_tokens)
        self.epoch, self.position = 0, 0
        self.plan: list[np.ndarray] = []
        self.lengths = text.lengths
        self.step = Graphed(self._step, prior.parameters())

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Add the gradient of this process's share of the mean cross-entropy per piece of the next batch."""
        if not self.plan:
            self.lengths = self._lengths()
            self.plan = plan_batches(self.lengths, self.size, self.seed, self.epoch)
        device, eos = self.model.device, self.model.lm.eos
        batch = self.plan[self.position]
        pieces, mine = int(self.lengths[batch].sum()), batch[rank() :: ranks()]
        loss = torch.zeros((), device=device)
        if len(mine):
            labels, lengths = self.text.batch(mine, self.lengths)
            tokens = -(-int(self.size.seconds) // ranks())
            labels, lengths = sentences_on_grid(labels, lengths, eos, tokens, device)
            if device.type == "cuda":
                labels, lengths = labels.pin_memory(), lengths.pin_memory()  # the copy then waits for nothing
            labels, lengths = (each.to(device, non_blocking=True) for each in (labels, lengths))
            watch.lap("data")
            loss = self.step(labels, lengths, torch.full((), pieces, device=device))
            watch.lap("gradient")
        self.position += 1
        if self.position == len(self.plan):
            self.epoch, self.position, self.plan = self.epoch + 1, 0, []
        return loss, {"pieces": float(pieces), "epoch": float(self.epoch)}

    def _step(self, labels: Tensor, lengths: Tensor, pieces: Tensor) -> Tensor:
        with mixed_precision(labels.device):
            log_p = self.model.token_log_probabilities(labels, lengths)
        loss = -log_p.sum() / pieces
        loss.backward()
        return loss.detach()

    def _lengths(self) -> np.ndarray:
        """Lengths of the sentences in this epoch, including context: (S,)."""
        if not self.model.settings.context:
            return self.text.lengths
        random = np.random.default_rng([self.seed, self.epoch, PRECEDED])
        return self.text.lengths_after(random.random(len(self.text.lengths)) < 0.5)

    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Perplexity of the held-out sentences on their own; with `context`, also after the previous sentence."""
        held_out = self.held_out
        total = self._held_out_loss(held_out.lengths)
        perplexity = exponential(total / len(held_out.flat))
        figures = {"perplexity": perplexity, "word_perplexity": exponential(total / max(held_out.words, 1))}
        if self.model.settings.context:
            after = self._held_out_loss(held_out.lengths_after(np.ones(len(held_out.lengths), np.bool_)))
            figures["perplexity_in_context"] = exponential(after / len(held_out.flat))
        return perplexity, figures

    @torch.no_grad()
    def _held_out_loss(self, lengths: np.ndarray) -> float:
        """Sum of -log p_y of the held-out sentences, without that of their context; lengths (S,) include it."""
        total = 0.0
        for indices in plan_batches(lengths, self.size, self.seed, 0)[rank() :: ranks()]:
            labels, whole = (each.to(self.model.device) for each in self.held_out.batch(indices, lengths))
            own = torch.from_numpy(self.held_out.lengths[indices].astype(np.int64)).to(self.model.device)
            with mixed_precision(self.model.device):
                log_p = self.model.token_log_probabilities(labels, whole)
            total -= float(log_p.masked_fill(time_mask(whole - own, log_p.shape[1]), 0.0).sum())
        return sum(from_all(total))

    def close(self) -> None:
        """Do nothing: there are no processes that read ahead."""

    def save(self, folder: Path) -> None:
        """Save the prior in a folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The position in the text."""
        return {}, {"epoch": self.epoch, "position": self.position}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.epoch, self.position, self.plan = state["epoch"], state["position"], []
