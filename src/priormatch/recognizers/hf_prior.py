"""Causal language models of Hugging Face as priors: they read the hypotheses as text, in their own tokens."""

import copy
import inspect
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from priormatch.config import TextForm
from priormatch.data.tokenizer import Tokenizer
from priormatch.device import require_memory
from priormatch.errors import UserError
from priormatch.models.token_trees import Scored, TokenTree, common, trees_of
from priormatch.progress import say
from priormatch.recognizers.hf_folder import (
    Pretrained,
    load_network,
    load_tokenizer,
    opening,
    pretrained,
    stored_elements,
)
from priormatch.recognizers.text_scores import CachedScores, TextInContext, TextPrior

KEPT = 100_000  # scores
MOST_LACKING = 0.1  # share of the letters that a prior may lack
SHOWN = 10  # letters
UNLIMITED = 1 << 40  # tokens
MOST_TOKENS = 4096  # in a forward pass
MOST_LOGITS = (1 << 26, 1 << 29)  # elements of the output of a forward pass, on the CPU and on a GPU
MOST_NODES = 256  # in a tree; larger ones pad less, but each node attends to all others
ENDS = ".?!…"
PROBE = 24  # tokens
SAME = 1e-3  # nats; how far scores computed in another way may differ in float32
HALF = 0.1  # nats; how far scores in float16 may differ from those in float32
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
WINDOWS = ("sliding_window", "window_size", "attention_chunk_size")
"""Entries of `config.json` for the number of tokens that a network reads, and that attention sees at once."""
LM = "AutoModelForCausalLM", "a causal language model"


class HuggingFacePrior(TextPrior, nn.Module):
    """log p_y(y) = Σ log p(token | those before) under a causal language model, to its end-of-text token if it has one.

    The begin token, or the end token for models without one, and the context come first and are not scored. `form` is
    how a text is written for the model.
    """

    def __init__(
        self, network: nn.Module, tokenizer: Any, source: str, form: TextForm = "as_written"
    ) -> None:
        super().__init__()
        self.network: Any = network.requires_grad_(False).eval()
        self.reads, self.source, self.form = tokenizer, source, form
        tokenizer.model_max_length = UNLIMITED  # it would only warn: long texts are scored in parts
        self.begin, self.end = begin_and_end(tokenizer, source)
        self.longest, self.window = limits_of(network)
        accepted = inspect.signature(network.forward).parameters
        self.trims = "logits_to_keep" in accepted
        self.shares = "position_ids" in accepted and "attention_mask" in accepted
        self.scores = CachedScores(self.log_p, KEPT)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.network.parameters()).device

    def recorded(self) -> "HuggingFacePrior":
        """The same prior for a training loop: it remembers no scores, so that a resumed run computes the same ones.

        The last bits of a score depend on the texts that are computed with it.
        """
        fresh = copy.copy(self)
        fresh.scores = CachedScores(fresh.log_p, 0)
        return fresh

    def log_p(self, pairs: Sequence[TextInContext]) -> Tensor:
        """log p of each text given its context, in float32 on the CPU: -> (N,)."""
        parts = self.encode(pairs)
        owners = torch.tensor([number for number, each in enumerate(parts) for _ in each], dtype=torch.long)
        scores = self.log_p_of([part for each in parts for part in each])
        if not scores.isfinite().all():
            raise UserError(f"the prior {self.source} computes NaN or infinity: use another prior")
        return torch.zeros(len(parts)).index_add_(0, owners, scores)

    @torch.no_grad()
    def log_p_of(self, sequences: Sequence[Scored]) -> Tensor:
        """log p of the scored tokens of each sequence, in float32 on the CPU: -> (N,)."""
        found = torch.zeros(len(sequences))
        most = min(MOST_NODES, self.window) if self.shares else 0
        for batch in self._batches(trees_of(sequences, most)):
            numbers, scores = self._forward(batch, sequences)
            found.index_add_(0, numbers, scores)
        return found

    def encode(self, pairs: Sequence[TextInContext]) -> list[list[Scored]]:
        """The tokens of texts in their contexts, between the begin and the end token; long texts have several parts."""
        written = [tuple(write(each, self.form) for each in pair) for pair in pairs]
        joined = self._tokens([" ".join(filter(None, pair)) for pair in written])
        contexts = [*dict.fromkeys(context for context, _ in written if context)]
        before = dict(zip(contexts, self._tokens(contexts), strict=True))
        return [
            self._parts(tokens, common(tokens, before.get(context, ())))
            for (context, _), tokens in zip(written, joined, strict=True)
        ]

    def cannot_write(self, letters: Iterable[str]) -> list[str]:
        """The letters that its tokenizer drops or reads as unknown."""
        unknown = self.reads.unk_token_id
        letters = [*letters]
        form = "as_written" if self.form == "sentence" else self.form  # a period would hide a dropped letter
        found = zip(letters, self._tokens([write(each, form) for each in letters]), strict=True)
        return [letter for letter, tokens in found if not tokens or unknown in tokens]

    def require_letters(self, letters: Iterable[str]) -> None:
        """Refuse a recognizer that writes letters of which the tokenizer lacks many, and report a few."""
        letters = [*letters]
        lacking = self.cannot_write(letters)
        shown = f"{' '.join(lacking[:SHOWN])}{' ...' if len(lacking) > SHOWN else ''}"
        what = f"{len(lacking)} of the recognizer's {len(letters)} letters ({shown})"
        if len(lacking) > MOST_LACKING * len(letters):
            raise UserError(
                f"the prior {self.source} cannot write {what}: set prior.text_form=lower if it only has lower-case"
                " letters, or use another prior"
            )
        if lacking:
            say(
                f"the prior {self.source} cannot write {what}: it cannot distinguish hypotheses that differ in them"
            )

    @staticmethod
    def load(
        given: str | os.PathLike[str] | Pretrained,
        device: str | torch.device = "cpu",
        form: TextForm = "as_written",
    ) -> "HuggingFacePrior":
        """Load a model from a folder or from the Hub (`owner/name[@revision]`), ready to score.

        It is computed in float32; on a GPU in float16, if that changes no score of a test by more than `HALF`.
        """
        found = given if isinstance(given, Pretrained) else pretrained(given)
        device = torch.device(device)
        elements, what = stored_elements(found), f"the prior {found.source}"
        require_memory(4 * elements, torch.device("cpu"), what)
        if device.type == "cuda":
            require_memory(6 * elements, device, what)  # in float32, and for a moment in float16 too
        tokenizer = load_tokenizer(found)
        prior = HuggingFacePrior(load_network(found, *LM), tokenizer, title_of(found), form)
        with opening(found):
            prior.to(device)
            prior.probe()
        return prior

    def probe(self) -> None:
        """Refuse a network that is not causal or not finite; decide whether to share beginnings, and the precision."""
        self.encode([("", "one")])
        sequences = probes(self.begin, self._size())
        shares, self.shares = self.shares, False
        plain = self.log_p_of(sequences)
        shorter = self.log_p_of([Scored(each.tokens[:-1], each.start) for each in sequences])
        last = self.log_p_of([Scored(each.tokens, len(each.tokens) - 1) for each in sequences])
        if not plain.isfinite().all():
            raise UserError(f"{self.source} computes NaN or infinity: download or copy it again")
        if not torch.allclose(shorter + last, plain, rtol=0, atol=SAME):
            raise UserError(
                f"{self.source} is not a causal language model: its scores depend on later words; use another model"
            )
        self.shares = shares and self._same_in_trees(sequences, plain)
        if self.device.type == "cuda":
            self.halve(sequences, plain)

    def halve(self, sequences: Sequence[Scored], plain: Tensor) -> None:
        """Compute in float16, if scores of these sequences stay within `HALF` of the given ones."""
        full, self.network = self.network, copy.deepcopy(self.network).half()
        if not torch.allclose(self.log_p_of(sequences), plain, rtol=0, atol=HALF):
            self.network = full

    def _same_in_trees(self, sequences: Sequence[Scored], plain: Tensor) -> bool:
        """Whether the network gives the same scores for trees; models with positions of their own do not."""
        self.shares = True
        try:
            return torch.allclose(self.log_p_of(sequences), plain, rtol=0, atol=SAME)
        except Exception:  # whatever a model raises that has no such attention mask
            return False

    @property
    def _rows(self) -> int:
        """The number of tokens of the network, some of which the tokenizer may not use."""
        return self.network.get_input_embeddings().weight.shape[0]

    def _size(self) -> int:
        """The number of tokens that both the tokenizer and the network have."""
        size, rows = len(self.reads), self._rows
        if size > rows:
            raise UserError(
                f"{self.source}: the tokenizer has {size:,} tokens, the network {rows:,}: they do not belong together"
            )
        return size

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        return self.reads([*texts], add_special_tokens=False, split_special_tokens=True).input_ids

    def _parts(self, tokens: Sequence[int], context: int) -> list[Scored]:
        """The sequences to score for tokens that follow a context, each with as much of what is before as fits."""
        whole = [*tokens, *([] if self.end is None else [self.end])]
        step = len(whole) - context
        if step > self.longest:
            step = -(-self.longest // 2)
        parts = []
        for first in range(context, len(whole), max(step, 1)):
            last = min(first + step, len(whole))
            begin = max(last - self.longest, 0)
            parts.append(Scored((self.begin, *whole[begin:last]), 1 + first - begin))
        return parts

    def _batches(self, trees: Sequence[TokenTree]) -> Iterator[list[TokenTree]]:
        """Trees of similar size, in batches of a bounded number of tokens; all or none are longer than the window."""
        most = min(MOST_TOKENS, MOST_LOGITS[self.device.type == "cuda"] // self._rows)
        batch: list[TokenTree] = []
        for tree in sorted(trees, key=lambda each: len(each.tokens)):
            size = len(tree.tokens)
            longer = batch and size > self.window >= len(batch[0].tokens)
            if batch and (longer or (len(batch) + 1) * size > most):
                yield batch
                batch = []
            batch.append(tree)
        if batch:
            yield batch

    def _forward(self, trees: Sequence[TokenTree], sequences: Sequence[Scored]) -> tuple[Tensor, Tensor]:
        """The numbers of the sequences in the trees, and log p of their scored tokens, one entry for each token."""
        width = max(len(each.tokens) for each in trees)
        tokens = torch.full((len(trees), width), self.begin)
        for row, tree in enumerate(trees):
            tokens[row, : len(tree.tokens)] = torch.tensor(tree.tokens)
        cut = min(each.first for each in trees) if self.trims else 0
        options: dict[str, Any] = {"logits_to_keep": width - cut} if self.trims else {}
        if self.shares and width <= self.window:  # longer sequences have a row each
            options |= self._shape(trees, width)
        with torch.autocast(self.device.type, enabled=False):
            logits = self.network(input_ids=tokens.to(self.device), use_cache=False, **options).logits
        places = [
            (number, row, node - cut, token)
            for row, tree in enumerate(trees)
            for number, nodes in zip(tree.sequences, tree.nodes, strict=True)
            for node, token in zip(nodes, sequences[number].tokens[sequences[number].start :], strict=True)
        ]
        numbers, rows, nodes, targets = torch.tensor(places).unbind(dim=1)
        rows, nodes, targets = (each.to(self.device) for each in (rows, nodes, targets))
        chosen = logits[rows, nodes, targets].float() - log_sums(logits)[rows, nodes]
        return numbers, chosen.cpu()

    def _shape(self, trees: Sequence[TokenTree], width: int) -> dict[str, Tensor]:
        """What makes a row a tree: which nodes see which, (B, 1, L, L), and the depths as positions, (B, L)."""
        sees = torch.eye(width, dtype=torch.bool).repeat(len(trees), 1, 1)
        depths = torch.zeros(len(trees), width, dtype=torch.long)
        for row, tree in enumerate(trees):
            size = len(tree.tokens)
            sees[row, :size, :size] = tree.sees()
            depths[row, :size] = torch.tensor(tree.depths)
        dtype = self.network.dtype
        hidden = torch.zeros(sees.shape, dtype=dtype).masked_fill_(~sees, torch.finfo(dtype).min)
        return {"attention_mask": hidden[:, None].to(self.device), "position_ids": depths.to(self.device)}


def letters_of(tokenizer: Tokenizer) -> list[str]:
    """All letters that a recognizer can write."""
    texts = map(tokenizer.decode, ([each] for each in range(tokenizer.classes)))
    return sorted({letter for text in texts for letter in text if not letter.isspace()})


def title_of(found: Pretrained) -> str:
    """The name of a model, with its commit if it is from the Hub."""
    return found.source if found.commit is None else f"{found.source}@{found.commit}"


def log_sums(logits: Tensor) -> Tensor:
    """logsumexp in float32 of each position: (B, L, C) -> (B, L), row by row to save memory."""
    return torch.stack([row.float().logsumexp(dim=-1) for row in logits])


def write(text: str, form: TextForm) -> str:
    """A text in the form that a prior reads; `sentence` capitalizes the first letter and adds a final period."""
    match form:
        case "as_written":
            return text
        case "lower":
            return text.lower()
        case "sentence":
            text = text.lower() if text.isupper() else text
            ended = text if not text or text[-1] in ENDS else f"{text}."
            return ended[:1].upper() + ended[1:]


def begin_and_end(tokenizer: Any, source: str) -> tuple[int, int | None]:
    """The token before a text and the one after it: the tokenizer's own, or its end token for both."""
    begin, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    if begin is None:
        begin = end
    if begin is None:
        raise UserError(
            f"{source}: the tokenizer has neither a begin nor an end token: add bos_token or eos_token to"
            " tokenizer_config.json"
        )
    return begin, end


def limits_of(network: Any) -> tuple[int, int]:
    """The number of tokens that a network reads, and that all of its layers see; very many if it has no limit."""
    config = network.config.to_dict()
    limits = {name: value for name, value in config.items() if isinstance(value, int) and value > 0}
    longest = min((limits[name] for name in POSITIONS if name in limits), default=UNLIMITED)
    return longest, min((limits[name] for name in WINDOWS if name in limits), default=longest)


def probes(begin: int, size: int) -> list[Scored]:
    """Sequences of arbitrary tokens with shared beginnings and context, to compare ways to compute their scores."""
    drawn = torch.randint(size, (3, PROBE), generator=torch.Generator().manual_seed(0)).tolist()
    first, second, third = drawn
    half, most = PROBE // 2, math.ceil(PROBE * 0.75)
    tails = (first, [*first[:most], *second[most:]], [*first[:half], *third[half:]], third)
    return [Scored((begin, *tail), start) for tail, start in zip(tails, (4, 4, 1, 1), strict=True)]
