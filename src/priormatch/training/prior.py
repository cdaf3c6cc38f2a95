"""Training of the prior on text, sentence by sentence, as matching will ask it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from priormatch.config import BatchSettings, PriorSettings
from priormatch.data.batches import plan_batches
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import mixed_precision
from priormatch.errors import UserError
from priormatch.matching.prior import Prior, pad
from priormatch.stopwatch import Stopwatch


class Sentences:
    """Tokenised sentences in one flat array, each ending with EOS."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        rows = [classes for text in texts if (classes := tokenizer.encode(text))]
        if not rows:
            raise UserError("no sentence of the text has a known piece: is it the tokenizer's language?")
        self.lengths = np.array([len(row) + 1 for row in rows])
        self.words = sum(len(text.split()) for text in texts)
        self.ends = np.cumsum(self.lengths)
        self.flat = np.fromiter((each for row in rows for each in (*row, tokenizer.eos)), dtype=np.int32)

    def batch(self, indices: np.ndarray) -> tuple[Tensor, Tensor]:
        """Sentences filled up with EOS: (N, U), (N,)."""
        return pad([self.flat[self.ends[i] - self.lengths[i] : self.ends[i]].tolist() for i in indices])


class PriorTraining:
    """Minimises the cross-entropy of sentences; scored by perplexity a piece on held-out ones."""

    def __init__(
        self, prior: Prior, text: Sentences, held_out: Sentences, settings: PriorSettings, seed: int
    ) -> None:
        self.model, self.text, self.held_out, self.seed = prior, text, held_out, seed
        self.size = BatchSettings(seconds=settings.batch_tokens)
        self.epoch, self.position = 0, 0
        self.plan: list[np.ndarray] = []

    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def backward(self, update: int, watch: Stopwatch) -> tuple[Tensor, Mapping[str, Tensor | float]]:
        """Add the gradient of the mean cross-entropy a piece of the next batch."""
        if not self.plan:
            self.plan = plan_batches(self.text.lengths, self.size, self.seed, self.epoch)
        labels, lengths = (each.to(self._device()) for each in self.text.batch(self.plan[self.position]))
        self.position += 1
        if self.position == len(self.plan):
            self.epoch, self.position, self.plan = self.epoch + 1, 0, []
        watch.lap("data")
        with mixed_precision(self._device()):
            log_p = self.model.token_log_probabilities(labels, lengths)
        loss = -log_p.sum() / lengths.sum()
        loss.backward()
        watch.lap("gradient")
        return loss.detach(), {"pieces": lengths.sum(), "epoch": float(self.epoch)}

    @torch.no_grad()
    def validate(self, update: int) -> tuple[float, dict[str, Any]]:
        """Perplexity of the held-out sentences, each begun anew."""
        total = 0.0
        for indices in plan_batches(self.held_out.lengths, self.size, self.seed, 0):
            labels, lengths = (each.to(self._device()) for each in self.held_out.batch(indices))
            with mixed_precision(self._device()):
                total -= float(self.model.token_log_probabilities(labels, lengths).sum())
        perplexity = math.exp(total / len(self.held_out.flat))
        by_word = math.exp(total / max(self.held_out.words, 1))
        return perplexity, {"perplexity": perplexity, "word_perplexity": by_word}

    def save(self, folder: Path) -> None:
        """Write the prior's folder."""
        self.model.save(folder)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Where the text stands."""
        return {}, {"epoch": self.epoch, "position": self.position}

    def restore(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go on from there."""
        self.epoch, self.position, self.plan = state["epoch"], state["position"], []
