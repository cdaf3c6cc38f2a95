"""The n-gram prior: a word n-gram model that scores the text of whole hypotheses."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from priormatch.data.normalizer import ENGLISH, Normalizer, normalizer_in
from priormatch.decoding.beam import Hypotheses
from priormatch.errors import UserError
from priormatch.models.arpa import is_arpa, read_arpa, write_arpa
from priormatch.models.ngram import MOST_BACKOFF, MOST_LOG, MOST_ORDER, SPECIAL, NgramModel
from priormatch.recognizers.folder import (
    AGAIN,
    NGRAM,
    WEIGHTS,
    read_settings,
    read_weights,
    require_files,
    write_model,
)
from priormatch.recognizers.hub import model_folder
from priormatch.recognizers.text_scores import CachedScores, TextInContext, TextPrior, score_texts_of
from priormatch.tensor_files import Damaged, read_shapes

MOST_CACHED = 200_000  # scores
WORDS = "words"
"""The tensor with the vocabulary: UTF-8 text, a word on each line."""


@dataclass
class NgramSettings:
    """What `model.yaml` holds: the number of words of the longest n-grams."""

    order: int = 4


def check_order(settings: NgramSettings) -> None:
    """Raise an error for an order that no model has."""
    if not 1 <= settings.order <= MOST_ORDER:
        raise UserError(f"order={settings.order}: must be from 1 to {MOST_ORDER}")


class NgramPrior(TextPrior):
    """p_y(y) = prod_u p(w_u | the last N - 1 words before it), including the end of sentence.

    `normalizer` is the one of the training text; hypotheses and contexts are normalized with it.
    """

    def __init__(self, model: NgramModel, normalizer: Normalizer = ENGLISH) -> None:
        self.model, self.normalizer = model, normalizer
        self.scores = CachedScores(self._score, MOST_CACHED)
        self.centered = CachedScores(self._score_centered, MOST_CACHED)

    def score_centered(self, hypotheses: Hypotheses) -> Tensor:
        """The scores of `score`, minus Σ p log p at each word and the end of sentence: -> (B, k)."""
        return score_texts_of(hypotheses, None, self.centered)

    def _score(self, pairs: Sequence[TextInContext]) -> list[float]:
        return self.model.score(self._normalized(pairs)).tolist()

    def _score_centered(self, pairs: Sequence[TextInContext]) -> list[float]:
        return self.model.score(self._normalized(pairs), centered=True).tolist()

    def _normalized(self, pairs: Sequence[TextInContext]) -> list[TextInContext]:
        return [(self.normalizer(before), self.normalizer(text)) for before, text in pairs]

    def state_dict(self) -> dict[str, Tensor]:
        """The vocabulary and the n-grams as tensors by name."""
        model, order = self.model, self.model.order
        arrays = {WORDS: np.frombuffer("\n".join(model.words).encode(), np.uint8).copy()}
        arrays |= zip(_names("keys", 2, order), model.keys[1:], strict=True)
        arrays |= zip(_names("log_p", 1, order), model.log_p, strict=True)
        arrays |= zip(_names("backoff", 1, order - 1), model.backoff, strict=True)
        return {name: torch.from_numpy(each) for name, each in arrays.items()}

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the n-grams, the order and the normalizer to a folder."""
        write_model(Path(folder), NGRAM, self.state_dict(), NgramSettings(self.model.order), self.normalizer)

    @staticmethod
    def load(given: str | os.PathLike[str]) -> "NgramPrior":
        """Load a prior from its folder, from the Hub (`owner/name[@revision]`) or from an ARPA file, ready to score."""
        if is_arpa(Path(given)):
            return NgramPrior(read_arpa(Path(given)))
        folder = model_folder(given)
        require_files(folder, NGRAM)
        order = read_settings(folder, NGRAM, NgramSettings, check_order).order
        try:
            _require_shapes(read_shapes(folder / WEIGHTS), order)
            model = _model_of(read_weights(folder), order)
        except Damaged as error:
            raise UserError(f"{folder} cannot be read ({error}): {AGAIN}") from error
        return NgramPrior(model, normalizer_in(folder))


def export_arpa(given: str | os.PathLike[str], out: Path) -> Path:
    """Write the n-grams of a prior to `lm.arpa` in a folder, and return its path."""
    prior = NgramPrior.load(given)
    out.mkdir(parents=True, exist_ok=True)
    write_arpa(prior.model, out / "lm.arpa")
    return out / "lm.arpa"


def _require_shapes(shapes: Mapping[str, tuple[str, tuple[int, ...]]], order: int) -> None:
    """Refuse tensors that are not those of a model of this order; reads only their header."""
    missing = "", ()
    wanted = {WORDS: ("U8", shapes.get(WORDS, missing)[1])}
    for number in range(1, order + 1):
        size = shapes.get(f"log_p.{number}", missing)[1]
        wanted[f"log_p.{number}"] = "F32", size
        if number < order:
            wanted[f"backoff.{number}"] = "F32", size
        if number > 1:
            wanted[f"keys.{number}"] = "I64", size
    if shapes != wanted or any(len(shape) != 1 or not shape[0] for _, shape in wanted.values()):
        raise Damaged(f"{WEIGHTS} does not hold the n-grams of orders 1 to {order}")


def _names(column: str, first: int, last: int) -> list[str]:
    return [f"{column}.{order}" for order in range(first, last + 1)]


def _model_of(tensors: Mapping[str, Tensor], order: int) -> NgramModel:
    """The model in tensors of the right types and shapes, whose values are checked."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    log_p = [arrays[name] for name in _names("log_p", 1, order)]
    backoff = [arrays[name] for name in _names("backoff", 1, order - 1)]
    words = _words_of(arrays[WORDS])
    if len(words) != len(log_p[0]):
        raise Damaged(f"{WEIGHTS} holds {len(words):,} words and {len(log_p[0]):,} 1-grams")
    keys = [np.arange(len(words)), *(arrays[name] for name in _names("keys", 2, order))]
    for number, own in enumerate(keys[1:], 1):
        most = len(keys[number - 1]) * len(words)  # in whole numbers of any size
        if own[0] < 0 or int(own[-1]) >= most or (own[1:] <= own[:-1]).any():
            raise Damaged(
                f"the {number + 1}-grams in {WEIGHTS} are not sorted, or extend n-grams that do not exist"
            )
    if any((each > 0).any() or (each < -MOST_LOG).any() for each in log_p):
        raise Damaged(f"{WEIGHTS} holds a log10 p that is not from {-MOST_LOG:g} to 0")
    if any((each > MOST_BACKOFF).any() or (each < -MOST_LOG).any() for each in backoff):
        raise Damaged(f"{WEIGHTS} holds a backoff that is not from {-MOST_LOG:g} to {MOST_BACKOFF:g}")
    return NgramModel(words, keys, log_p, backoff)


def _words_of(spelled: np.ndarray) -> list[str]:
    """The vocabulary, which begins with the marks and has no word twice."""
    try:
        words = spelled.tobytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise Damaged(f"the vocabulary in {WEIGHTS} is not UTF-8 text") from error
    if tuple(words[: len(SPECIAL)]) != SPECIAL or len({*words}) < len(words):
        raise Damaged(
            f"the vocabulary in {WEIGHTS} does not begin with {', '.join(SPECIAL)}, or has a word twice"
        )
    return words
