"""Local prior matching (Hsu, Lee, Synnaeve, Hannun, 2020), from a batch of unlabeled speech to its loss.

    propose   the proposal model r lists k hypotheses per utterance       BeamTargets
    filter    hypotheses of implausible length are dropped                LengthFilter
    score     the prior gives log p_y of each hypothesis                  BeamTargets
    weigh     the weights are renormalized inside the beam (eq. 4)        weigh
    learn     the online model q minimizes -sum_k w_k log q(y_k|x)        lpm_loss
    refresh   q replaces r when its validation CER is strictly lower      Proposal

Shapes: B utterances, k hypotheses, U tokens of the longest one. Lengths count the end of sentence.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from priormatch.config import FusionSettings
from priormatch.data.batches import Batch
from priormatch.decoding.beam import Beam, Hypotheses
from priormatch.errors import Refused, UserError
from priormatch.kernels.shapes import labels_on_grid
from priormatch.matching.diagnostics import Figures, diagnostics
from priormatch.matching.reference_lengths import batch_lengths
from priormatch.recognizers.protocols import (
    Fuses,
    Prior,
    Proposes,
    Recognizer,
    RecordsProposals,
    RecordsScores,
)
from priormatch.stopwatch import Stopwatch

SHORTEST = 2  # one token and the end of sentence


class Targets(NamedTuple):
    """Training targets of a batch: labels (B, k, U), lengths (B, k), weights (B, k); zero weights are ignored."""

    labels: Tensor
    lengths: Tensor
    weights: Tensor

    def to(self, device: torch.device) -> "Targets":
        """The targets on a device."""
        return Targets(*(each.to(device) for each in self))


TargetsOf = Callable[[Batch, Stopwatch], tuple[Targets, Figures]]


@dataclass(frozen=True)
class LengthFilter:
    """Keeps y iff floor(r_lb · L) <= len(y) <= ceil(r_ub · L) and y is not empty (section 2.5 of the paper).

    A reference length L of 0 means that there is none: nothing is kept.
    """

    lower: float = 0.95
    upper: float = 1.05

    def __call__(self, lengths: Tensor, reference: Tensor) -> Tensor:
        """Lengths (B, k) of the hypotheses, reference L (B,) -> keep (B, k)."""
        # In float64, 1.05 · 20 is 21 and not a hair more, which float32 would round up to 22.
        least = torch.floor((self.lower * reference.double()).round(decimals=9)).long()[:, None]
        most = torch.ceil((self.upper * reference.double()).round(decimals=9)).long()[:, None]
        inside = (lengths >= least) & (lengths <= most)
        return inside & (lengths >= SHORTEST) & (reference > 0)[:, None]


def keep_all(lengths: Tensor, reference: Tensor) -> Tensor:
    """No filter: keeps every hypothesis that exists, empty ones included."""
    return lengths > 0


def first_spellings(texts: Sequence[Sequence[str]], keep: Tensor) -> Tensor:
    """True at the first, hence likeliest, kept spelling of each text: (B, k), (B, k) -> (B, k)."""
    first = []
    for beam, kept in zip(texts, keep.tolist(), strict=True):
        ranks = [rank for rank in range(len(beam)) if kept[rank]]
        best = {beam[rank]: rank for rank in reversed(ranks)}
        first.append([best.get(text) == rank for rank, text in enumerate(beam)])
    return torch.tensor(first, device=keep.device)


def weigh(
    log_prior: Tensor | None,
    keep: Tensor,
    log_proposal: Tensor | None = None,
    exponents: tuple[float, float] = (1.0, 0.0),
) -> Tensor:
    """w_k = p_y(y_k)^a · r(y_k|x)^b / sum over the kept y' of p_y(y')^a · r(y'|x)^b, in float32 (eq. 4: a = 1, b = 0).

    log_prior, keep and log_proposal (B, k) -> weights (B, k): zero where not kept; each row sums to one, or to zero if
    nothing in it is kept. Distillation is a = 0, b = 1; a score whose exponent is 0 may be None.
    """
    total = torch.zeros(keep.shape, device=keep.device)
    for exponent, log_score in zip(exponents, (log_prior, log_proposal), strict=True):
        if exponent != 0 and log_score is not None:
            total = total + exponent * log_score.float().masked_fill(~keep, 0.0)
    weights = total.masked_fill(~keep, -math.inf).softmax(dim=-1)
    return torch.where(keep.any(dim=-1, keepdim=True), weights, 0.0)


def lpm_loss(losses: Tensor, weights: Tensor) -> Tensor:
    """L_lpm = -sum_k w_k log q(y_k|x) of each utterance: losses -log q (B, k), weights (B, k) -> (B,).

    The mean over a batch counts utterances without a kept hypothesis: their loss is zero.
    """
    return (weights.detach() * losses.masked_fill(weights == 0, 0.0)).sum(dim=-1)


def is_paired(update: int, paired: int, unpaired: int) -> bool:
    """Whether an alternating update takes labeled speech, with m_l : m_u = paired : unpaired.

    A pure function of the update's number, so that all processes agree. The rarer kind comes at even distances: 1:4
    gives UUUP UUUUP UUUUP, 1:1 PUPU, 4:1 PPPU PPPPU, as in the authors' code.
    """
    total, rarer = paired + unpaired, min(paired, unpaired)
    rare = (update + 2) * rarer // total > (update + 1) * rarer // total
    return rare if paired <= unpaired else not rare


def paired_share(paired: int, unpaired: int) -> float:
    """The share of labeled speech in a batch that has both kinds."""
    return paired / (paired + unpaired)


Policy = Literal["better", "always", "never", "on_policy"]


@dataclass(frozen=True)
class Refresh:
    """One decision of whether the online model replaces the proposal."""

    update: int
    online_cer: float
    proposal_cer: float
    taken: bool


class Proposal:
    """The proposal model r: a frozen copy of a recognizer, replaced by the online model under a policy.

    better (the paper): at a validation where the online model's mean CER is strictly lower than the proposal's;
    always: at every validation; never; on_policy: r is the online model at every update.
    """

    def __init__(self, model: Recognizer, cer: float, policy: Policy = "better") -> None:
        self.model = model.copy().eval().requires_grad_(False)
        self.cer, self.policy = cer, policy
        self.history: list[Refresh] = []

    @property
    def refreshes(self) -> int:
        """How often it was replaced."""
        return sum(each.taken for each in self.history)

    @torch.no_grad()
    def follow(self, online: Recognizer) -> None:
        """On policy, copy the online model's weights, before hypotheses are listed."""
        if self.policy == "on_policy":
            own: list[Tensor] = list(self.model.parameters())
            torch._foreach_copy_(own, list[Tensor](online.parameters()))

    def refresh(self, online: Recognizer, online_cer: float, update: int) -> bool:
        """Apply the policy at a validation; whether the online model replaced the proposal."""
        taken = self.policy in ("always", "on_policy") or (self.policy == "better" and online_cer < self.cer)
        self.history.append(Refresh(update, online_cer, self.cer, taken))
        if taken:
            self.model.load_state_dict(online.state_dict())
            self.cer = online_cer
        return taken

    def state(self) -> dict[str, Any]:
        """The state to checkpoint besides the weights."""
        return {"cer": self.cer, "history": [asdict(each) for each in self.history]}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.cer = state["cer"]
        self.history = [Refresh(**each) for each in state["history"]]


def require_fit(cer: float, most: float) -> None:
    """Refuse a proposal that is too weak for matching."""
    if not cer <= most:  # NaN is refused too
        raise Refused(
            f"the proposal model's validation CER is {cer:.1f} %, above matching.max_proposal_cer={most:g}: its"
            " hypotheses would be useless for training; train it for longer or on more speech, or raise the setting"
        )


@dataclass(frozen=True)
class Weighing:
    """Options for filtering and weighing a beam, shared by training, the inspector and the tables.

    `keep` is a LengthFilter or `keep_all`; `reference_lengths` has the estimated number of tokens of each utterance,
    without the end of sentence. `merge_spellings` gives a text one weight, however it is tokenized. `exponents` are a
    and b of `weigh`. `contexts` has text that the prior reads before an utterance. With `fusion` the beam comes from
    shallow fusion with the prior, and r is the fused score. With `length_normalization` x, log p_y is divided by the
    length to the power of x.
    """

    keep: Callable[[Tensor, Tensor], Tensor] = keep_all
    reference_lengths: Mapping[str, int] = field(default_factory=dict)
    merge_spellings: bool = False
    exponents: tuple[float, float] = (1.0, 0.0)
    contexts: Mapping[str, str] = field(default_factory=dict)
    fusion: FusionSettings | None = None
    length_normalization: float = 0.0

    def context(self, batch: Batch) -> list[str] | None:
        """The text before each utterance of a batch, "" for none and for rows that only pad it; None without any."""
        if not self.contexts:
            return None
        padding = len(batch.waveforms) - len(batch)
        return [*(self.contexts.get(each, "") for each in batch.ids), *[""] * padding]

    def weights(self, log_prior: Tensor | None, keep: Tensor, beam: Beam) -> Tensor:
        """The weights of a beam: log p_y (B, k), keep (B, k) -> (B, k); log p_y becomes log p_y / length^x."""
        if log_prior is not None and self.length_normalization != 0:
            log_prior = log_prior / beam.lengths.clamp(min=1) ** self.length_normalization
        return weigh(log_prior, keep, beam.scores, self.exponents)


def proposer_of(model: Recognizer, prior: Prior | None, fusion: FusionSettings | None) -> Proposes:
    """What lists the hypotheses: the recognizer, or with `fusion` its search with the prior."""
    if fusion is None:
        return model
    if prior is None or not isinstance(model, Fuses):
        raise UserError(
            f"search with a prior needs one, and a recognizer that supports it; this one is a {type(model).__name__}:"
            " search without it (matching.hypotheses=asr)"
        )
    return model.fused(prior, fusion)


class BeamTargets:
    """Targets of unlabeled speech: the proposal's beam of k hypotheses, filtered, scored and weighed.

    The prior may be missing where neither the weights nor the search use it.
    """

    def __init__(self, proposal: Proposal, prior: Prior | None, beam_size: int, weighing: Weighing) -> None:
        self.weighing, self.beam_size, self.tokenizer = weighing, beam_size, proposal.model.tokenizer
        proposer = proposer_of(proposal.model, prior, weighing.fusion)
        self.proposer = proposer.recorded() if isinstance(proposer, RecordsProposals) else proposer
        self.prior = prior.recorded() if isinstance(prior, RecordsScores) else prior

    @torch.no_grad()
    def __call__(self, batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
        """Targets of a batch and their diagnostics; rows that only pad the batch have zero weights."""
        reference = batch_lengths(batch, self.weighing.reference_lengths)
        beam = self.proposer.propose(batch, self.beam_size)
        labels = labels_on_grid(beam.classes, self.tokenizer.eos)
        hypotheses = Hypotheses(labels, beam.lengths, self.tokenizer)
        watch.lap("proposal")
        log_prior = None
        if self.prior is not None and self.weighing.exponents[0] != 0:
            log_prior = self.prior.score(hypotheses, self.weighing.context(batch)).to(labels.device)
        keep = self.weighing.keep(beam.lengths, reference)
        if self.weighing.merge_spellings:
            keep = first_spellings(hypotheses.texts, keep)
        weights = self.weighing.weights(log_prior, keep, beam)
        count = len(batch)
        weights[count:] = 0.0
        figures = diagnostics(weights[:count], keep[:count], beam.lengths[:count], reference[:count])
        watch.lap("prior")
        return Targets(labels, beam.lengths.clamp(min=1), weights), figures


def given_labels(batch: Batch, watch: Stopwatch) -> tuple[Targets, Figures]:
    """Targets of transcribed speech: its own text with weight one, or nothing where there is none."""
    weights = (batch.label_lengths > 0).float()[:, None]
    return Targets(batch.labels[:, None], batch.label_lengths.clamp(min=1)[:, None], weights), {}
