"""CTC prefix beam search (Hannun et al., 2014), batched over utterances and prefixes; the EOS class is the blank."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from priormatch.data.features import time_mask
from priormatch.decoding.beam import Beam, Step

MULTIPLIER = 0x2545F4914F6CDD1D
"""An odd number; prefixes are told apart by 64-bit hashes, h(y c) = mix(MULTIPLIER · h(y) + c + 1)."""

NO_PREFIX, NO_PARENT = -1, -2


@dataclass(frozen=True)
class PrefixFusion:
    """Shallow fusion: each new token adds lm_weight · log p(token | prefix) + token_bonus, the end lm_weight · log p.

    If `centered`, the mean over the classes, Σ p log p, is subtracted from log p.
    `step` and its first `cache` (B, 1, S) are those of a language model. Only the `token_limit` tokens with the highest
    log q of each frame extend prefixes; the search is exact up to its width if these are all.
    """

    step: Step
    cache: Tensor
    lm_weight: float
    token_bonus: float = 0.0
    token_limit: int = 32
    centered: bool = False


@dataclass(frozen=True)
class PrefixSettings:
    """Size of the search: `hypotheses` returned, `width` prefixes kept after each frame.

    Of successive frames with q(blank) > `blank_threshold` only the first is searched; 1 searches them all.
    """

    hypotheses: int = 4
    width: int = 16
    blank_threshold: float = 1.0


@torch.no_grad()
def prefix_search(
    log_q: Tensor, frames: Tensor, blank: int, settings: PrefixSettings, fusion: PrefixFusion | None = None
) -> Beam:
    """Find the most probable label sequences, each summed over the alignments that the search kept.

    log_q (B, T, C) log-probabilities, frames (B,). The scores are log q(y|x), a lower bound that `rescored` makes
    exact, or with fusion log q(y|x) + λ log p(y) + bonus · |y|. No hypothesis occurs twice.
    """
    search = PrefixSearch(log_q, frames, blank, settings, fusion)
    for _ in range(search.steps):
        search.advance()
    return search.found(settings.hypotheses)


@torch.no_grad()
def greedy_ctc(log_q: Tensor, frames: Tensor, blank: int) -> Beam:
    """The label sequence of the most probable path, with the path's log-probability as the score.

    log_q (B, T, C) log-probabilities, frames (B,) -> one hypothesis per utterance.
    """
    valid = time_mask(frames, log_q.shape[1])
    highest, path = log_q.max(dim=2)
    path = path.masked_fill(~valid, blank)
    starts = path != blank
    starts[:, 1:] &= path[:, 1:] != path[:, :-1]
    lengths = starts.sum(dim=1) + 1
    longest = int(lengths.max()) if len(lengths) > 0 else 1
    places = torch.where(starts, starts.cumsum(dim=1) - 1, longest)
    classes = path.new_full((len(path), longest + 1), blank).scatter(1, places, path)[:, :longest]
    classes[:, -1] = blank
    scores = highest.masked_fill(~valid, 0.0).sum(dim=1)
    return Beam(
        classes[:, None], lengths[:, None], scores[:, None], torch.ones_like(lengths, dtype=torch.bool)
    )


class _Prefixes(NamedTuple):
    """The kept prefixes of every utterance, best first, (B, W) each.

    A prefix is followed by a blank, with the log-probability `blank`, or ends in its last token, with `token`; `total`
    is the sum of both. `ids` and `parents` are the hashes of the prefix, and of the prefix without its last token.
    `nodes` are their places in the tree of all prefixes so far.
    """

    blank: Tensor
    token: Tensor
    total: Tensor
    last: Tensor
    lengths: Tensor
    ids: Tensor
    parents: Tensor
    nodes: Tensor


class PrefixSearch:
    """The state of a search, and how a frame changes it: in place, so that `advance` can be recorded as a CUDA graph.

    A frame keeps a prefix, by a blank or by its last token once more, or extends it by another token. An extension that
    is itself among the kept prefixes is merged into it, so all candidates are distinct. The candidates of an utterance
    are W kept prefixes, then an extension for each pair of a prefix and one of the frame's best tokens, then one that
    never wins.
    """

    def __init__(
        self, log_q: Tensor, frames: Tensor, blank: int, settings: PrefixSettings, fusion: PrefixFusion | None
    ) -> None:
        batch, _, classes = log_q.shape
        self.blank, self.width = blank, max(settings.width, settings.hypotheses)
        log_q, frames, certain = without_pauses(log_q, frames, blank, settings.blank_threshold)
        limit = min(self.width + 1 if fusion is None else fusion.token_limit, classes - 1)
        self.log_q = with_certain_blanks(log_q, frames, blank)
        self.token_q, self.tokens, self.ranks = best_tokens(self.log_q, blank, limit)
        pairs = extension_pairs(self.width, limit, pruned=fusion is None)
        self._place(torch.tensor(pairs, device=log_q.device).view(-1, 2), batch, limit)
        self.certain, self.steps = certain, len(self.log_q)
        self.t = frames.new_zeros(1)
        self.prefixes = self._first()
        self.tree = frames.new_zeros(2, 1 + self.steps * self.width, batch)  # parent and token of every node
        self.prior = None if fusion is None else _Prior(fusion, self.width, blank, classes)

    def restart(self) -> None:
        """Go back to the first frame."""
        self.t.zero_()
        copy_all(self.prefixes, self._first())
        if self.prior is not None:
            self.prior.restart()

    def _place(self, pairs: Tensor, batch: int, limit: int) -> None:
        """Tables of the candidates: the prefix and the token's rank of each, and the place of each such pair."""
        slots = torch.arange(self.width, device=pairs.device)
        rows, columns = pairs.unbind(1)
        self.slots, self.rows, self.columns = slots, rows.expand(batch, -1), columns.expand(batch, -1)
        self.sources, self.source_ranks = functional.pad(pairs, (0, 0, self.width, 1)).unbind(1)
        self.sources[: self.width] = slots
        never = self.width + len(pairs)
        self.places = pairs.new_full((self.width, limit + 1), never)
        self.places[rows, columns] = torch.arange(self.width, never, device=pairs.device)
        self.candidates = self.log_q.new_full((batch, never + 1), -math.inf)

    def _first(self) -> _Prefixes:
        """The empty prefix alone, with the log-probability `certain` (B,)."""
        nothing = self.log_q.new_full((len(self.certain), self.width), -math.inf)
        blank = nothing.index_copy(1, self.slots[:1], self.certain[:, None])
        zeros = torch.zeros_like(nothing, dtype=torch.long)
        ids = torch.full_like(zeros, NO_PREFIX).index_fill(1, self.slots[:1], 0)
        no_parents = torch.full_like(zeros, NO_PARENT)
        copies = blank.clone(), zeros + self.blank, zeros, ids, no_parents, zeros.clone()
        return _Prefixes(blank, nothing, *copies)

    def advance(self) -> None:
        """Replace the prefixes with the best candidates after the next frame."""
        p, log_q = self.prefixes, self._at(self.log_q)
        known, parent = (p.parents[:, :, None] == p.ids[:, None, :]).max(dim=2)
        enter = torch.where(
            p.last.gather(1, parent) == p.last, p.blank.gather(1, parent), p.total.gather(1, parent)
        )
        enter = enter.masked_fill(~known, -math.inf)
        blank = p.total + log_q[:, self.blank, None]
        token = torch.logaddexp(p.token, enter) + log_q.gather(1, p.last)

        self.candidates[:, : self.width] = torch.logaddexp(blank, token)
        tokens = self._at(self.tokens)
        self._extend(tokens)
        rank = self._at(self.ranks).gather(1, p.last).long()
        merged = self.places.take(parent * self.places.shape[1] + rank).masked_fill(
            ~known, self.candidates.shape[1] - 1
        )
        self.candidates.scatter_(1, merged, -math.inf)
        self._choose(tokens, blank, token)
        self.t += 1

    def _at(self, frames: Tensor) -> Tensor:
        """The next of the frames (T, ...)."""
        return frames.index_select(0, self.t)[0]

    def _extend(self, tokens: Tensor) -> None:
        """Write the scores of the extensions by the best tokens of the frame, (B, N)."""
        p, new = self.prefixes, tokens.gather(1, self.columns)
        doubled = p.last.gather(1, self.rows) == new  # the same token once more needs a blank before it
        before = torch.where(doubled, p.blank.gather(1, self.rows), p.total.gather(1, self.rows))
        log_q = self._at(self.token_q).gather(1, self.columns)
        torch.add(before, log_q, out=self.candidates[:, self.width : -1])

    def _choose(self, tokens: Tensor, blank: Tensor, token: Tensor) -> None:
        """Keep the best candidates; `blank` and `token` are the scores of the kept prefixes, (B, W)."""
        p = self.prefixes
        if self.prior is None:
            total, chosen = self.candidates.topk(self.width, dim=1)
        else:
            total, chosen = self.prior.choose(self.candidates, tokens, self.rows, self.columns)
        nothing = total == -math.inf
        extended = chosen >= self.width
        source = self.sources.take(chosen)
        added = tokens.gather(1, self.source_ranks.take(chosen))
        if self.prior is not None:
            self.prior.advance(source, extended & ~nothing, added)
        ids, nodes = p.ids.gather(1, source), p.nodes.gather(1, source)
        parents = torch.where(extended, ids, p.parents.gather(1, source))
        new = 1 + self.t * self.width + self.slots
        self.tree.index_copy_(1, new, torch.stack([nodes, added]).transpose(1, 2))
        after = _Prefixes(
            blank.gather(1, source).masked_fill(extended, -math.inf),
            torch.where(extended, total, token.gather(1, source)),
            total,
            torch.where(extended, added, p.last.gather(1, source)),
            p.lengths.gather(1, source) + extended,
            torch.where(extended, hash_of_extension(ids, added), ids).masked_fill(nothing, NO_PREFIX),
            parents.masked_fill(nothing, NO_PARENT),
            torch.where(extended, new, nodes),
        )
        copy_all(p, after)

    def found(self, count: int) -> Beam:
        """The best prefixes as hypotheses."""
        p = self.prefixes
        ends = p.total if self.prior is None else p.total + self.prior.ends()
        scores, order = ends.topk(count, dim=1)
        lengths = (p.lengths.gather(1, order) + 1).masked_fill(scores == -math.inf, 0)
        classes = self._read_out(p.nodes.gather(1, order), lengths)
        return Beam(classes, lengths, scores, torch.ones_like(lengths[:, 0], dtype=torch.bool))

    def _read_out(self, nodes: Tensor, lengths: Tensor) -> Tensor:
        """Trace hypotheses back from their last nodes (B, k) to the root: (B, k, longest length)."""
        parents, tokens = self.tree.transpose(1, 2)
        longest = max(int(lengths.max()), 1)
        classes = nodes.new_full((*nodes.shape, longest), self.blank)
        for position in reversed(range(longest - 1)):
            there = position < lengths - 1
            classes[:, :, position] = torch.where(there, tokens.gather(1, nodes), self.blank)
            nodes = torch.where(there, parents.gather(1, nodes), nodes)
        return classes


class _Prior:
    """Language model scores of the kept prefixes.

    `caches` (B, 2W + 1, S) and `added` (B, 2W + 1, C), what each next class adds, are tables in which every prefix has
    a row, `places` (B, W): a frame computes and writes the rows of new prefixes only, and moves none. Of 2W rows at
    least W are free for new prefixes; the last one takes what is not needed.
    """

    def __init__(self, fusion: PrefixFusion, width: int, blank: int, classes: int) -> None:
        self.fusion, self.width, self.blank = fusion, width, blank
        log_p, cache = fusion.step(fusion.cache, None)
        batch = len(cache)
        self.everywhere = cache.is_cuda  # to select the new prefixes would make the host wait
        self.bonus = log_p.new_full((classes,), fusion.token_bonus)
        self.bonus[blank : blank + 1].zero_()
        self.caches = cache.new_zeros(batch, 2 * width + 1, cache.shape[2])
        self.added = log_p.new_zeros(batch, 2 * width + 1, classes)
        self.first = cache, self._weighted(log_p)
        self.places = torch.zeros(batch, width, dtype=torch.long, device=cache.device)
        self.scores = log_p.new_zeros(batch, width)
        self.restart()

    def restart(self) -> None:
        """Go back to the empty prefix."""
        self.caches[:, :1], self.added[:, :1] = self.first
        self.places.zero_()
        self.scores.zero_()

    def _weighted(self, log_p: Tensor) -> Tensor:
        log_p = log_p[..., : len(self.bonus)]
        if self.fusion.centered:
            log_p = log_p - (log_p.exp() * log_p).sum(dim=-1, keepdim=True)
        return self.fusion.lm_weight * log_p + self.bonus

    def choose(
        self, candidates: Tensor, tokens: Tensor, rows: Tensor, columns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rank the candidates (B, N) by both models: log q of the W best, and their places, 2 x (B, W)."""
        cells = self.places.gather(1, rows) * self.added.shape[2] + tokens.gather(1, columns)
        extended = self.scores.gather(1, rows) + self.added.flatten(1).gather(1, cells)
        scores = functional.pad(torch.cat([self.scores, extended], dim=1), (0, 1))
        chosen = (candidates + scores).topk(self.width, dim=1).indices
        self.scores.copy_(scores.gather(1, chosen))
        return candidates.gather(1, chosen), chosen

    def advance(self, source: Tensor, extended: Tensor, tokens: Tensor) -> None:
        """Follow the prefixes to their new places in the beam, and evaluate the extended ones; all (B, W)."""
        before = self.places.gather(1, source)
        if not self.everywhere and not extended.any():
            self.places.copy_(before)
            return
        last = self.added.shape[1] - 1
        busy = torch.zeros_like(self.added[:, :, 0], dtype=torch.uint8)
        busy.scatter_(1, before.masked_fill(extended, last), 1)
        busy[:, last] = 1
        free = busy.topk(self.width, dim=1, largest=False).indices
        self.places.copy_(torch.where(extended, free, before))
        targets = torch.where(extended, free, last)
        rows = torch.arange(len(before), device=before.device)[:, None].expand_as(before)
        if not self.everywhere:
            rows, before, targets, tokens = (each[extended][None] for each in (rows, before, targets, tokens))
        log_p, cache = self.fusion.step(self.caches[rows, before], tokens)
        self.caches[rows, targets], self.added[rows, targets] = cache, self._weighted(log_p)

    def ends(self) -> Tensor:
        """λ log p + bonus of each prefix as a complete sentence: (B, W)."""
        cells = self.places * self.added.shape[2] + self.blank
        return self.scores + self.added.flatten(1).gather(1, cells)


def copy_all(to: Iterable[Tensor], from_: Iterable[Tensor]) -> None:
    """Overwrite tensors with others of the same shapes."""
    for old, new in zip(to, from_, strict=True):
        old.copy_(new)


def extension_pairs(width: int, limit: int, pruned: bool) -> list[tuple[int, int]]:
    """Pairs of a prefix and a token, both by their ranks, of which all the `width` best extensions are.

    An extension's score is the sum of a prefix's and a token's, apart from at most one token of each prefix, its last.
    So row r and column c are outdone by (r + 1) c - 1 others, and pruning drops those outdone by `width`.
    """
    return [
        (row, column)
        for row in range(width)
        for column in range(limit)
        if not pruned or (row + 1) * column <= width
    ]


def hash_of_extension(ids: Tensor, tokens: Tensor) -> Tensor:
    """The hashes of prefixes after one more token; products of 64 bits wrap around."""
    product = ids * MULTIPLIER + (tokens + 1)
    return product ^ (product >> 32)


def with_certain_blanks(log_q: Tensor, frames: Tensor, blank: int) -> Tensor:
    """Frames (T, B, C), with blanks of probability 1 after each utterance's end: they change no prefix."""
    valid = time_mask(frames, log_q.shape[1]).T[:, :, None]
    certain = log_q.new_full(log_q.shape[2:], -math.inf)
    certain[blank : blank + 1].zero_()
    return torch.where(valid, log_q.transpose(0, 1), certain)


def without_pauses(
    log_q: Tensor, frames: Tensor, blank: int, threshold: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Drop the frames with q(blank) > threshold that follow another such frame.

    log_q (B, T, C), frames (B,) -> log_q, frames, and the sum of log q(blank) over the dropped frames (B,).
    """
    log_blank = log_q[:, :, blank]
    if threshold >= 1:
        return log_q, frames, torch.zeros_like(frames, dtype=log_q.dtype)
    pauses = (log_blank > math.log(threshold)) & time_mask(frames, log_q.shape[1])
    dropped = functional.pad(pauses[:, 1:] & pauses[:, :-1], (1, 0))
    order = dropped.long().sort(dim=1, stable=True).indices
    frames = frames - dropped.sum(dim=1)
    order = order[:, : max(int(frames.max()), 0)]
    certain = log_blank.masked_fill(~dropped, 0.0).sum(dim=1)
    return log_q.gather(1, order[:, :, None].expand(-1, -1, log_q.shape[2])), frames, certain


def best_tokens(log_q: Tensor, blank: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """log q of the best tokens of each frame, the tokens, 2 x (T, B, N), and each class's rank or N, (T, B, C)."""
    without = log_q.clone()
    without[:, :, blank] = -math.inf
    highest, tokens = without.topk(count, dim=2)
    ranks = torch.full_like(log_q, count, dtype=torch.int16)
    places = torch.arange(count, device=log_q.device, dtype=torch.int16)
    return highest, tokens, ranks.scatter_(2, tokens, places.expand_as(tokens))
