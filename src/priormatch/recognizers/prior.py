"""The prior p_y: a language model that scores whole hypotheses."""

import copy
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from priormatch.config import ConvLMSettings
from priormatch.data.features import time_mask
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Hypotheses, pad
from priormatch.device import has_kernels
from priormatch.errors import UserError
from priormatch.kernels.recorded import RecordedScores
from priormatch.models.conv_lm import ConvLM
from priormatch.models.prefix_tree import prefix_tree, score_tree
from priormatch.recognizers.folder import read_model, require_finite, write_model
from priormatch.recognizers.hub import model_folder


class ConvPrior(nn.Module):
    """p_y(y) = prod_u p(y_u | y_<u), including the end of sentence."""

    def __init__(self, settings: ConvLMSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer = settings, tokenizer
        self.lm = ConvLM(settings, tokenizer.classes)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    def token_log_probabilities(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """log p of each label, 0 in the padding: (N, U), (N,) -> (N, U)."""
        chosen = self.lm(labels).float().log_softmax(dim=-1).gather(-1, labels[:, :, None])[:, :, 0]
        return chosen.masked_fill(~time_mask(lengths, labels.shape[1]), 0.0)

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """log p_y of the hypotheses in float32, given the text before each utterance, "" for none: -> (B, k).

        Hypotheses in this prior's own classes stay on the device; those of another tokenizer are read as text.
        """
        return self.scores_of(hypotheses, context, self.score_classes)

    def score_centered(self, hypotheses: Hypotheses) -> Tensor:
        """The scores of `score`, minus Σ p log p at each of this prior's tokens: -> (B, k)."""
        return self.scores_of(hypotheses, None, partial(self.score_classes, centered=True))

    def scores_of(
        self,
        hypotheses: Hypotheses,
        context: Sequence[str] | None,
        score_classes: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    ) -> Tensor:
        """Score hypotheses with a function of labels (B, k, U), lengths (B, k) and an encoded context (B, V)."""
        own, device = hypotheses, hypotheses.labels.device
        comparable = hypotheses.tokenizer.comparable
        if hypotheses.tokenizer != self.tokenizer:
            texts = [[comparable(text) for text in beam] for beam in hypotheses.texts]
            own = Hypotheses.of_texts(texts, self.tokenizer)
            own = replace(own, lengths=own.lengths.masked_fill(hypotheses.lengths.cpu() == 0, 0))
        before = None
        if context is not None:
            encoded = self.contexts([*map(comparable, context)])
            before = (encoded.pin_memory() if device.type == "cuda" else encoded).to(
                device, non_blocking=True
            )
        return score_classes(own.labels.to(device), own.lengths.to(device), before)

    def recorded(self) -> "ConvPrior | RecordedPrior":
        """A prior with the same scores for a training loop: on a GPU with kernels, its steps are recorded."""
        plain = type(self).score is ConvPrior.score  # not of a subclass
        return RecordedPrior(self.in_half_precision()) if plain and has_kernels(self.device) else self

    @torch.no_grad()
    def score_classes(
        self, labels: Tensor, lengths: Tensor, context: Tensor | None = None, centered: bool = False
    ) -> Tensor:
        """log p_y of the hypotheses in a beam, in float32: labels (B, k, U) that end with EOS, (B, k) -> (B, k).

        Shared prefixes of the hypotheses in a beam are computed once, and padding is not computed. Without beams:
        (N, U), (N,) -> (N,). With a context (B, V) from `contexts`: log p_y(y | context).
        `centered` as in `score_tree`.
        """
        if labels.dim() == 2:
            return self.score_classes(labels[:, None], lengths[:, None], context, centered)[:, 0]
        tree = prefix_tree(labels, lengths, self.lm.eos, self.settings.kernel, context)
        count = int(tree.total)
        if count == 0:
            return torch.zeros_like(lengths, dtype=torch.float32)
        nodes = tree.inputs[:count], tree.before[:count], tree.nodes
        return score_tree(self.lm, *nodes, labels, lengths, centered=centered)

    def in_half_precision(self) -> "ConvPrior":
        """A copy with weights in float16, the precision of `score_tree` on a GPU."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer}).half()

    def for_search(self) -> ConvLM:
        """The language model for shallow fusion, in the precision of its device."""
        return (self.in_half_precision() if self.device.type == "cuda" else self).lm

    def contexts(self, texts: Sequence[str]) -> Tensor:
        """Encode the texts that precede hypotheses as contexts: -> (N, reach - 1), -1 for padding.

        A text starts with EOS and is right-aligned, so that the hypotheses follow it; "" means no context. Classes
        beyond the model's receptive field are cut off; this changes no score and gives all contexts the same width.
        """
        most = self.lm.reach - 1
        spelled = map(self.tokenizer.encode, texts)
        rows = [[self.lm.eos, *classes] if classes else [] for classes in spelled]
        return torch.tensor(
            [[-1] * (most - len(row)) + row[max(len(row) - most, 0) :] for row in rows], dtype=torch.long
        )

    @torch.no_grad()
    def score_texts(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> Tensor:
        """log p_y of sentences, each optionally given the text before it: -> (N,)."""
        labels, lengths = pad([[*self.tokenizer.encode(text), self.tokenizer.eos] for text in texts])
        before = None if contexts is None else self.contexts(contexts).to(self.device)
        return self.score_classes(labels.to(self.device), lengths.to(self.device), before)

    def require_context(self) -> None:
        """Refuse a prior that was trained without context."""
        if not self.settings.context:
            raise UserError(
                "the prior was trained without context: train it with prior.model.context=true, or match without"
                " context (matching.context=false)"
            )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, settings and tokenizer to a folder."""
        write_model(Path(folder), "prior", self.state_dict(), self.settings, self.tokenizer)

    @staticmethod
    def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> "ConvPrior":
        """Load a prior from its folder or from the Hub (`owner/name[@revision]`), ready to score."""
        found = model_folder(folder)
        prior = read_model(found, "prior", ConvLMSettings, ConvPrior._built_for)
        prior.lm.fuse()
        end = torch.full((1, 1), prior.lm.eos)
        require_finite(prior.score_classes(end, torch.ones(1, dtype=torch.long)), found)
        return prior.to(device)

    @staticmethod
    def _built_for(settings: ConvLMSettings, tokenizer: Tokenizer, names: Collection[str]) -> "ConvPrior":
        prior = ConvPrior(settings, tokenizer)
        if "lm.output.weight" in names:  # saved by a prior that had been loaded, and therefore fused
            prior.lm.fuse()
        return prior


class RecordedPrior:
    """A prior whose scores run as CUDA graphs on a GPU."""

    def __init__(self, prior: ConvPrior) -> None:
        self.prior, self.scores = prior, RecordedScores(prior.lm, prior.settings.kernel)

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """log p_y of the hypotheses, as `ConvPrior.score`: -> (B, k)."""
        return self.prior.scores_of(hypotheses, context, self.scores)
