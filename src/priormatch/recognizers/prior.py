"""The prior p_y: what a language model says of whole hypotheses."""

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

ROWS = 4096  # of logits that are summed at a time
NODES = 1024  # steps in the size of a tree on a GPU


class Prior(nn.Module):
    """p_y(y) = prod_u p(y_u | y_<u), the end of sentence included."""

    def __init__(self, settings: ConvLMSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer = settings, tokenizer
        self.lm = ConvLM(settings, tokenizer.classes)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return next(self.parameters()).device

    def token_log_probabilities(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """log p of each label, 0 beyond the lengths: (N, U), (N,) -> (N, U)."""
        chosen = self.lm(labels).float().log_softmax(dim=-1).gather(-1, labels[:, :, None])[:, :, 0]
        return chosen.masked_fill(~time_mask(lengths, labels.shape[1]), 0.0)

    @torch.no_grad()
    def score(self, labels: Tensor, lengths: Tensor, context: Tensor | None = None) -> Tensor:
        """log p_y of the hypotheses in a beam, in float32: labels (B, k, U) that end with EOS, (B, k) -> (B, k).

        What several hypotheses of a beam begin with is computed once, and padding not at all. Without beams:
        (N, U), (N,) -> (N,). With a context (B, V), as `contexts` gives it: log p_y(y | context).
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
        # The weights need a tenth of a nat in a sum of hundreds: half precision has that, bfloat16 has not.
        with torch.autocast(labels.device.type, torch.float16, enabled=labels.is_cuda):
            logits = self.lm.next_logits(inputs, before)
        base = torch.cat([part.float().logsumexp(dim=-1) for part in logits.split(ROWS)])
        exists = time_mask(lengths.flatten(), labels.shape[-1]).view_as(labels)
        chosen = logits[nodes, labels].float() - base[nodes]
        return chosen.masked_fill(~exists, 0.0).sum(dim=-1)

    def in_half_precision(self) -> "Prior":
        """A copy with weights in the precision that `score_tree` computes in on a GPU."""
        return copy.deepcopy(self, {id(self.tokenizer): self.tokenizer}).half()

    def contexts(self, texts: Sequence[str]) -> Tensor:
        """What is read before hypotheses that follow these texts: -> (N, reach - 1), -1 where there is nothing.

        A text is begun with EOS and stands at the right end, where the hypotheses begin; "" is none. What lies farther
        back than the model sees is cut off, which changes no score, and gives all contexts one width.
        """
        most = self.lm.reach - 1
        spelled = map(self.tokenizer.encode, texts)
        rows = [[self.lm.eos, *classes] if classes else [] for classes in spelled]
        return torch.tensor(
            [[-1] * (most - len(row)) + row[max(len(row) - most, 0) :] for row in rows], dtype=torch.long
        )

    @torch.no_grad()
    def score_texts(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> Tensor:
        """log p_y of sentences, or of sentences each of which follows a text: -> (N,)."""
        labels, lengths = pad([[*self.tokenizer.encode(text), self.tokenizer.eos] for text in texts])
        before = None if contexts is None else self.contexts(contexts).to(self.device)
        return self.score(labels.to(self.device), lengths.to(self.device), before)

    def require_tokenizer(self, tokenizer: Tokenizer, owner: str) -> None:
        """Refuse a prior whose pieces are not the recognizer's."""
        if self.tokenizer != tokenizer:
            raise UserError(
                f"the prior's tokenizer ({self.tokenizer.classes} classes) is not that of {owner}"
                f" ({tokenizer.classes} classes): train both with one tokenizer"
            )

    def require_context(self) -> None:
        """Refuse a prior that has only ever read sentences alone."""
        if not self.settings.context:
            raise UserError(
                "the prior has not learned to read a text before the sentence it judges: train it with"
                " prior.model.context=true, or match without (matching.context=false)"
            )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, settings and tokenizer into a folder."""
        write_model(Path(folder), "prior", self.state_dict(), self.settings, self.tokenizer)

    @staticmethod
    def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> "Prior":
        """Read a prior from its folder or from the Hub (`owner/name[@revision]`), ready to score."""
        found = model_folder(folder)
        prior = read_model(found, "prior", ConvLMSettings, Prior._built_for)
        prior.lm.fuse()
        end = torch.full((1, 1), prior.lm.eos)
        require_finite(prior.score(end, torch.ones(1, dtype=torch.long)), found)
        return prior.to(device)

    @staticmethod
    def _built_for(settings: ConvLMSettings, tokenizer: Tokenizer, names: Collection[str]) -> "Prior":
        prior = Prior(settings, tokenizer)
        if "lm.output.weight" in names:  # saved by a prior that had itself been loaded, and so fused
            prior.lm.fuse()
        return prior


class PrefixTree(NamedTuple):
    """The different beginnings of a context and of the hypotheses after it in each beam: the first `total` rows.

    Of R = B·(V + k·U) rows there are inputs (R,) the last class of each; before (R, kernel) the rows that end one
    class earlier, and so on, itself the last, -1 where there is none; nodes (B, k, U) which row each label follows.
    """

    inputs: Tensor
    before: Tensor
    nodes: Tensor
    total: Tensor

    def on_grid(self) -> int:
        """Their number rounded up: the rows behind them are there, and nothing follows them."""
        return min(-(-max(int(self.total), 1) // NODES) * NODES, len(self.inputs))


def prefix_tree(
    labels: Tensor, lengths: Tensor, eos: int, kernel: int, context: Tensor | None = None
) -> PrefixTree:
    """Find what hypotheses of a beam share: labels (B, k, U), lengths (B, k), context (B, V) as in `Prior.score`."""
    if context is None:
        context = labels.new_empty(len(labels), 0)
    (beam, width), read = labels.shape[1:], context.shape[1]
    same = (labels[:, :, None] == labels[:, None]).cumprod(dim=-1)  # up to here, (B, k, k, U)
    same = functional.pad(same[..., :-1], (1, 0), value=1)  # before here
    same = same * (lengths > 0)[:, None, :, None]  # and with one that exists
    first = same.argmax(dim=2)  # of the hypotheses that begin alike, (B, k, U)
    own = torch.arange(beam, device=labels.device)[:, None]
    new = (first == own) & time_mask(lengths.flatten(), width).view_as(labels)
    rows = torch.cat([context >= 0, new.flatten(1)], dim=1).flatten()  # that there are, (R,)
    numbers = (rows.cumsum(0) - 1).view(len(labels), -1)
    nodes = numbers[:, read:].view_as(labels).gather(1, first).clamp(min=0)
    order = (~rows).byte().argsort(stable=True)  # those that there are first
    begun = functional.pad(labels[..., :-1], (1, 0), value=eos)
    inputs = torch.cat([context.clamp(min=0), begun.flatten(1)], dim=1).flatten()
    shared = numbers[:, None, :read].masked_fill(context[:, None] < 0, -1).expand(-1, beam, -1)
    path = functional.pad(torch.cat([shared, nodes], dim=2), (kernel - 1, 0), value=-1).unfold(2, kernel, 1)
    before = torch.cat([path[:, 0, :read], path[:, :, read:].flatten(1, 2)], dim=1).flatten(0, 1)
    return PrefixTree(inputs[order], before[order], nodes, rows.sum())


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Stack sequences that end with EOS, filling up with their last class: -> (N, U), (N,)."""
    lengths = torch.tensor([len(each) for each in sequences])
    width = int(lengths.max())
    rows = [[*each, *[each[-1]] * (width - len(each))] for each in sequences]
    return torch.tensor(rows), lengths
