"""What local prior matching needs of a recognizer and of a prior, and the fast paths that they may offer."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn

from priormatch.config import FusionSettings, TrainingSettings
from priormatch.data.batches import Batch
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses


class Module(Protocol):
    """What is used of `torch.nn.Module`, of which every recognizer is a subclass."""

    training: bool

    def parameters(self) -> Iterator[nn.Parameter]:
        """The weights."""

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The weights with their names."""

    def state_dict(self) -> dict[str, Any]:
        """The weights by name."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Replace the weights."""

    def train(self, mode: bool = True) -> Self:
        """Choose between training and evaluation mode."""

    def eval(self) -> Self:
        """Choose evaluation mode."""

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Choose whether the weights have gradients."""

    def to(self, device: torch.device) -> Self:
        """Move the weights."""


class Proposes(Protocol):
    """Lists hypotheses."""

    def propose(self, batch: Batch, k: int) -> Beam:
        """The beam B(x): the k best hypotheses of each utterance with their scores; k = 1 is greedy search."""


class Recognizer(Proposes, Module, Protocol):
    """q(y|x); `propose` is called in evaluation mode, and its gradients are not used."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its labels."""

    @property
    def device(self) -> torch.device:
        """The device of its weights."""

    def log_prob(self, batch: Batch, hypotheses: Hypotheses) -> Tensor:
        """log q(y|x) of each hypothesis, with gradients: -> (B, k), anything where there is no hypothesis."""

    def copy(self) -> Self:
        """An independent copy."""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write it to a folder."""

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Read what `save` wrote, in evaluation mode."""
        raise TypeError(
            "Recognizer is a protocol: a model of this package is loaded with SpeechRecognizer.load"
        )


class Prior(Protocol):
    """p_y(y). It need not be normalized: a term that all hypotheses of a beam share cancels out in the weights."""

    def score(self, hypotheses: Hypotheses, context: Sequence[str] | None = None) -> Tensor:
        """log p_y of each hypothesis: -> (B, k) in float32 on any device, anything where there is no hypothesis.

        `hypotheses.labels` are classes on the recognizer's device, `hypotheses.texts` the same as text. `context` is
        the text before each utterance, "" for none.
        """


@runtime_checkable
class ScoresTexts(Protocol):
    """Optional: scores of texts without a recognizer, for perplexities."""

    def score_texts(self, texts: Sequence[str]) -> Tensor:
        """log p_y of sentences, including the end of sentence: -> (N,)."""


@runtime_checkable
class ScoresCentered(Protocol):
    """Optional: scores of hypotheses found without the prior, for `fusion.centered`."""

    def score_centered(self, hypotheses: Hypotheses) -> Tensor:
        """log p_y of each hypothesis, minus the expectation of log p of each of its tokens: -> (B, k)."""


@runtime_checkable
class RecordsProposals(Protocol):
    """Optional: proposals for a training loop, for example as CUDA graphs."""

    def recorded(self) -> Proposes:
        """The same proposals, faster."""


@runtime_checkable
class RecordsScores(Protocol):
    """Optional: scores for a training loop, for example as CUDA graphs."""

    def recorded(self) -> Prior:
        """The same scores, faster."""


@runtime_checkable
class Fuses(Protocol):
    """Optional: search with the prior (`matching.hypotheses=asr_lm`)."""

    def fused(self, prior: Prior, settings: FusionSettings) -> Proposes:
        """Proposals by shallow fusion with a prior; scores combine both."""


@runtime_checkable
class HasLosses(Protocol):
    """Optional: a regularized loss in place of -log q(y|x)."""

    def losses(
        self, batch: Batch, hypotheses: Hypotheses, settings: TrainingSettings, window: bool = False
    ) -> Tensor:
        """The loss of each hypothesis: -> (B, k); `window` is true for the first `window_updates` updates."""

    def can_record(self, settings: TrainingSettings) -> bool:
        """Whether a step with these losses can run as a CUDA graph."""
