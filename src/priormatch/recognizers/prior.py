"""The prior p_y: a language model that scores whole hypotheses."""

import copy
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from priormatch.config import ConvLMSettings
from priormatch.data.features import time_mask
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.models.conv_lm import ConvLM
from priormatch.recognizers.folder import read_model, require_finite, write_model
from priormatch.recognizers.hub import model_folder

ROWS = 4096  # rows of logits per logsumexp
NODES = 1024  # tree sizes on a GPU are multiples of this


class Prior(nn.Module):
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

    @torch.no_grad()
    def score(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> Tensor:
        """log p_y of the hypotheses in a beam, in float32: labels (B, k, U) that end with EOS, (B, k) -> (B, k).

        Shared prefixes of the hypotheses in a beam are computed once, and padding is not computed. Without beams:
        (N, U), (N,) -> (N,). With a context (B, V) from `contexts`: log p_y(y | context).
        """
        if labels.dim() == 2:
            return self.score(labels[:, None], lengths[:, None], context)[:, 0]
        tree = prefix_tree(labels, lengths, self.lm.eos, self.settings.kernel, context)
        count = int(tree.total)
        if count == 0:
            return torch.zeros_like(lengths, dtype=torch.float32)
        return self.score_tree(tree.inputs[:count], tree.before[:count], tree.nodes, labels, lengths)

    @torch.no_grad()
    def score_tree(
        self,
        inputs: Tensor,
        before: Tensor,
        nodes: Tensor,
        labels: Tensor,
        lengths: Tensor,
    ) -> Tensor:
        """log p_y of hypotheses from their tree (see `PrefixTree`): labels (B, k, U), lengths (B, k) -> (B, k)."""
        # The LPM weights need a precision of 0.1 nat in sums of hundreds: float16 has it, bfloat16 does not.
        with torch.autocast(labels.device.type, torch.float16, enabled=labels.is_cuda):
            logits = self.lm.next_logits(inputs, before)
        base = torch.cat([part.float().logsumexp(dim=-1) for part in logits.split(ROWS)])
        exists = time_mask(lengths.flatten(), labels.shape[-1]).view_as(labels)
        chosen = logits[nodes, labels].float() - base[nodes]
        return chosen.masked_fill(~exists, 0.0).sum(dim=-1)

    def in_half_precision(self) -> "Prior":
        """A copy with weights in float16, the precision of `score_tree` on a GPU."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer}).half()

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
        return self.score(labels.to(self.device), lengths.to(self.device), before)

    def require_tokenizer(self, tokenizer: Tokenizer, owner: str) -> None:
        """Refuse a prior whose tokenizer differs from that of `owner`."""
        if self.tokenizer != tokenizer:
            raise UserError(
                f"the prior's tokenizer ({self.tokenizer.classes} classes) differs from that of {owner}"
                f" ({tokenizer.classes} classes): train both with one tokenizer"
            )

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
    def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> "Prior":
        """Load a prior from its folder or from the Hub (`owner/name[@revision]`), ready to score."""
        found = model_folder(folder)
        prior = read_model(found, "prior", ConvLMSettings, Prior._built_for)
        prior.lm.fuse()
        end = torch.full((1, 1), prior.lm.eos)
        require_finite(prior.score(end, torch.ones(1, dtype=torch.long)), found)
        return prior.to(device)

    @staticmethod
    def _built_for(settings: ConvLMSettings, tokenizer: Tokenizer, names: Collection[str]) -> "Prior":
        prior = Prior(settings, tokenizer)
        if "lm.output.weight" in names:  # saved by a prior that had been loaded, and therefore fused
            prior.lm.fuse()
        return prior


class PrefixTree(NamedTuple):
    """The distinct prefixes of each beam, including the context: the first `total` of R = B·(V + k·U) rows.

    inputs (R,) the last class of each prefix; before (R, kernel) the row of each prefix and those of its shorter
    prefixes, itself last, -1 for none; nodes (B, k, U) the row of the prefix before each label.
    """

    inputs: Tensor
    before: Tensor
    nodes: Tensor
    total: Tensor

    def on_grid(self) -> int:
        """The number of rows, rounded up; the additional rows are valid, but no label uses them."""
        return min(-(-max(int(self.total), 1) // NODES) * NODES, len(self.inputs))


def prefix_tree(
    labels: Tensor, lengths: Tensor, eos: int, kernel: int, context: Tensor | None = None
) -> PrefixTree:
    """Find shared prefixes in each beam: labels (B, k, U), lengths (B, k), context (B, V) as in `Prior.score`."""
    if context is None:
        context = labels.new_empty(len(labels), 0)
    (beam, width), read = labels.shape[1:], context.shape[1]
    same = (labels[:, :, None] == labels[:, None]).cumprod(dim=-1)  # equal up to here, (B, k, k, U)
    same = functional.pad(same[..., :-1], (1, 0), value=1)  # equal before here
    same = same * (lengths > 0)[:, None, :, None]  # and to an existing hypothesis
    first = same.argmax(dim=2)  # first hypothesis with this prefix, (B, k, U)
    own = torch.arange(beam, device=labels.device)[:, None]
    new = (first == own) & time_mask(lengths.flatten(), width).view_as(labels)
    rows = torch.cat([context >= 0, new.flatten(1)], dim=1).flatten()  # which rows exist, (R,)
    numbers = (rows.cumsum(0) - 1).view(len(labels), -1)
    nodes = numbers[:, read:].view_as(labels).gather(1, first).clamp(min=0)
    order = (~rows).byte().argsort(stable=True)  # existing rows first
    begun = functional.pad(labels[..., :-1], (1, 0), value=eos)
    inputs = torch.cat([context.clamp(min=0), begun.flatten(1)], dim=1).flatten()
    shared = numbers[:, None, :read].masked_fill(context[:, None] < 0, -1).expand(-1, beam, -1)
    path = functional.pad(torch.cat([shared, nodes], dim=2), (kernel - 1, 0), value=-1).unfold(2, kernel, 1)
    before = torch.cat([path[:, 0, :read], path[:, :, read:].flatten(1, 2)], dim=1).flatten(0, 1)
    return PrefixTree(inputs[order], before[order], nodes, rows.sum())


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Stack sequences that end with EOS, padded with their last class: -> (N, U), (N,)."""
    lengths = torch.tensor([len(each) for each in sequences])
    width = int(lengths.max())
    rows = [[*each, *[each[-1]] * (width - len(each))] for each in sequences]
    return torch.tensor(rows), lengths
