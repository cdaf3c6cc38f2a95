"""The prior p_y: what a language model says of whole hypotheses."""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from priormatch.config import ConvLMSettings
from priormatch.data.features import time_mask
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.models.conv_lm import ConvLM
from priormatch.models.folder import load_weights, read_model, write_model


class Prior(nn.Module):
    """p_y(y) = prod_u p(y_u | y_<u), the end of sentence included."""

    def __init__(self, settings: ConvLMSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.settings, self.tokenizer = settings, tokenizer
        self.lm = ConvLM(settings, tokenizer.classes)

    def token_log_probabilities(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """log p of each label, 0 beyond the lengths: (N, U), (N,) -> (N, U)."""
        chosen = self.lm(labels).float().log_softmax(dim=-1).gather(-1, labels[:, :, None])[:, :, 0]
        return chosen.masked_fill(~time_mask(lengths, labels.shape[1]), 0.0)

    @torch.no_grad()
    def score(self, labels: Tensor, lengths: Tensor) -> Tensor:
        """log p_y of hypotheses, in float32: labels (..., U) that end with EOS, lengths (...) -> (...)."""
        # One nat in a sum of a hundred decides the weights, and bfloat16 would lose it.
        with torch.autocast(labels.device.type, enabled=False):
            flat = self.token_log_probabilities(labels.flatten(0, -2), lengths.flatten())
        return flat.sum(dim=-1).view_as(lengths)

    @torch.no_grad()
    def score_texts(self, texts: Sequence[str]) -> Tensor:
        """log p_y of sentences: -> (N,)."""
        labels, lengths = pad([[*self.tokenizer.encode(text), self.tokenizer.eos] for text in texts])
        device = next(self.parameters()).device
        return self.score(labels.to(device), lengths.to(device))

    def require_tokenizer(self, tokenizer: Tokenizer, owner: str) -> None:
        """Refuse a prior whose pieces are not the recogniser's."""
        if self.tokenizer != tokenizer:
            raise UserError(
                f"the prior's tokenizer ({self.tokenizer.classes} classes) is not that of {owner}"
                f" ({tokenizer.classes} classes): train both with one tokenizer"
            )

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, settings and tokenizer into a folder."""
        write_model(Path(folder), "prior", self.state_dict(), self.settings, self.tokenizer)

    @staticmethod
    def load(folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> "Prior":
        """Read a prior from its folder, ready to score."""
        settings, tokenizer, weights = read_model(Path(folder), "prior", ConvLMSettings)
        prior = Prior(settings, tokenizer)
        if "lm.output.weight" in weights:  # saved by a prior that had itself been loaded, and so fused
            prior.lm.fuse()
        load_weights(prior, weights, Path(folder))
        prior.lm.fuse()
        return prior.to(device)


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Stack sequences that end with EOS, filling up with their last class: -> (N, U), (N,)."""
    lengths = torch.tensor([len(each) for each in sequences])
    width = int(lengths.max())
    rows = [[*each, *[each[-1]] * (width - len(each))] for each in sequences]
    return torch.tensor(rows), lengths
