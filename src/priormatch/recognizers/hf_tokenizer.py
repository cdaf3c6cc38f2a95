"""The tokenizer of a Hugging Face model, with the interface of our own."""

import inspect
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from priormatch.data.normalizer import Normalizer
from priormatch.data.tokenizer import MARK, Tokenizer

SPACE = "\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}"  # how byte-level vocabularies write a space
WRITTEN = Normalizer("unicode")
"""The normalizer of models that come without one: any language."""


class HuggingFaceTokenizer(Tokenizer):
    """Encodes text as the tokens of a Hugging Face model; class i is its token i.

    `eos` is the end of sentence of a sequence-to-sequence model, and the blank of a CTC model. Special tokens are never
    encoded or decoded, and letters that the vocabulary lacks are left out (`unwritable` lists them). Text is mapped to
    upper case for a vocabulary without lower-case letters, and mapped to lower case after decoding it; the other way
    round, it is mapped to lower case when it is encoded. Text for any other vocabulary keeps its case. With `space`,
    text begins with a space, as Whisper writes it.
    """

    def __init__(
        self, own: Any, classes: int, eos: int, normalizer: Normalizer = WRITTEN, space: bool = False
    ) -> None:
        self.own, self.size, self.eos, self.normalizer, self.space = own, classes, eos, normalizer, space
        delimiter = getattr(own, "word_delimiter_token_id", None)
        self.special = frozenset({*own.all_special_ids, eos} - {delimiter})
        self.known = min(len(own), classes)
        """The number of classes that are tokens; a network may have a few more outputs."""
        self.pieces = pieces_of(own, classes)
        written = [piece for number, piece in enumerate(self.pieces) if number not in self.special]
        self.upper, self.lower = only_upper(written), only_lower(written)
        if self.upper:
            self.pieces = [
                piece if number in self.special else piece.lower() for number, piece in enumerate(self.pieces)
            ]
        self._single = all(len(piece) <= 1 for piece in written)
        grouping = "group_tokens" in inspect.signature(type(own)._decode).parameters
        self.options = {"group_tokens": False} if grouping else {}

    @property
    def classes(self) -> int:
        """The number of outputs of the model."""
        return self.size

    @property
    def of_text(self) -> Sequence[int]:
        """The classes that text is written with."""
        return [each for each in range(self.known) if each not in self.special]

    def __reduce__(self) -> tuple[Any, ...]:
        return HuggingFaceTokenizer, (self.own, self.size, self.eos, self.normalizer, self.space)

    def spellings(self, word: str) -> list[tuple[int, ...]]:
        """The tokens of a word: there is only one way to split it."""
        return [tuple(self.encode(word))]

    def encode(
        self, text: str, sampling: float = 0.0, random: np.random.Generator | None = None
    ) -> list[int]:
        """Encode a sentence without special tokens; `sampling` has no effect."""
        return [each for each in self._ids(text) if each not in self.special and each < self.size]

    def _ids(self, text: str) -> list[int]:
        words = " ".join(text.split())
        cased = words.upper() if self.upper else words.lower() if self.lower else words
        ids = self.own(" " + cased if self.space and cased else cased, add_special_tokens=False)["input_ids"]
        return [int(each) for each in ids]

    def decode(self, classes: Sequence[int]) -> str:
        """Decode tokens to text; the end of sentence, anything after it, and special tokens are ignored."""
        found = list(classes)
        if self.eos in found:
            found = found[: found.index(self.eos)]
        kept = [each for each in found if each not in self.special]
        text = self.own.decode(
            kept, skip_special_tokens=True, clean_up_tokenization_spaces=False, **self.options
        )
        return " ".join((text.lower() if self.upper else text).split())

    def unwritable(self, letters: Iterable[str]) -> list[str]:
        """The letters that are lost when text with them is encoded and decoded, sorted."""
        return sorted(
            each for each in set(letters) - {" "} if self.decode(self.encode(each)).lower() != each.lower()
        )

    def comparable(self, text: str) -> str:
        """The words of a text without case and punctuation, as error rates and our own priors take it."""
        return self.normalizer(text)

    def save(self, folder: Path) -> None:
        """Write the files of the tokenizer into a folder, and its normalizer."""
        folder.mkdir(parents=True, exist_ok=True)
        self.own.save_pretrained(folder)
        self.normalizer.save(folder)


def pieces_of(own: Any, classes: int) -> list[str]:
    """The text of each class, with our mark for the beginning of a word; "" for outputs without a token."""
    delimiter = getattr(own, "word_delimiter_token", None)
    tokens = [each or "" for each in own.convert_ids_to_tokens(range(min(len(own), classes)))]
    pieces = [MARK if each == delimiter else each for each in tokens]
    if any(each.startswith(SPACE) for each in pieces):
        pieces = [own.convert_tokens_to_string([each]).replace(" ", MARK) for each in pieces]
    return pieces + [""] * (classes - len(pieces))


def only_upper(pieces: Iterable[str]) -> bool:
    """Whether pieces have upper-case letters and no lower-case ones."""
    letters = set().union(*pieces)
    return any(map(str.isupper, letters)) and not any(map(str.islower, letters))


def only_lower(pieces: Iterable[str]) -> bool:
    """Whether pieces have lower-case letters and no upper-case ones."""
    return only_upper(piece.swapcase() for piece in pieces)
