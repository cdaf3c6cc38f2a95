"""Word pieces: a SentencePiece unigram model as the output classes of a recognizer."""

import io
import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
import sentencepiece

from priormatch.data.normalizer import ENGLISH, Normalizer, normalizer_in
from priormatch.errors import UserError, one_line
from priormatch.files import replacing

MODEL_FILE = "tokenizer.model"
CONTROL_PIECES = 3  # <unk>, <s> and </s> come first in SentencePiece's vocabulary and are not classes here
SPELLINGS = 10
MOST_BYTES, MOST_PIECES = 1 << 26, 1 << 20  # of a tokenizer file
MOST_SENTENCES = 100_000  # to train a tokenizer on
LEAST_COUNT = 5  # of a word in such a sample, for it to become a piece
MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark for the beginning of a word


class Tokenizer:
    """Encodes text as classes and decodes it; the last class is the end of sentence.

    Class i is piece i + 3 of the SentencePiece model, and `eos` follows the last piece: a vocabulary of 5,000
    gives 4,997 pieces and 4,998 classes, as in the paper. There is no unknown class: letters that the model has
    never seen are left out. `normalizer` is the one of its training text.
    """

    def __init__(self, model: bytes, normalizer: Normalizer = ENGLISH) -> None:
        self.model, self.normalizer = model, normalizer
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self.pieces = [
            self._processor.IdToPiece(i) for i in range(CONTROL_PIECES, self._processor.GetPieceSize())
        ]
        self.eos = len(self.pieces)
        self._single = all(len(piece) == 1 for piece in self.pieces)
        self._best = lru_cache(maxsize=200_000)(self._spell)

    @property
    def classes(self) -> int:
        """The number of classes: pieces and the end of sentence."""
        return self.eos + 1

    @property
    def of_text(self) -> Sequence[int]:
        """The classes that text is written with."""
        return range(self.eos)

    @property
    def unit(self) -> str:
        """The name of a class other than the end of sentence."""
        return "character" if self._single else "word piece"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.pieces == other.pieces

    def __hash__(self) -> int:
        return hash(tuple(self.pieces))

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes, Normalizer]]:
        return Tokenizer, (self.model, self.normalizer)  # to pickle it for a worker process

    def _spell(self, word: str) -> tuple[int, ...]:
        return self._classes(self._processor.EncodeAsIds(word))

    def _classes(self, ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(i - CONTROL_PIECES for i in ids if i >= CONTROL_PIECES)

    def spellings(self, word: str) -> list[tuple[int, ...]]:
        """Return the ten best segmentations of a word into pieces, best first; into characters there is one."""
        if self._single:
            return [self._best(word)]
        found = self._processor.NBestEncodeAsIds(word, SPELLINGS)
        return list(dict.fromkeys(self._classes(ids) for ids in found))

    def encode(
        self, text: str, sampling: float = 0.0, random: np.random.Generator | None = None
    ) -> list[int]:
        """Encode a sentence as classes, without the end of sentence.

        With probability `sampling`, a word gets one of its ten best segmentations, drawn uniformly.
        """
        words = text.split()
        drawn = random.random(len(words)) < sampling if random is not None and sampling > 0 else None
        classes: list[int] = []
        for position, word in enumerate(words):
            if random is not None and drawn is not None and drawn[position]:
                spellings = self.spellings(word)
                classes.extend(spellings[random.integers(len(spellings))] if spellings else ())
            else:
                classes.extend(self._best(word))
        return classes

    def decode(self, classes: Sequence[int]) -> str:
        """Decode a sequence of classes to text; the end of sentence and anything after it are ignored."""
        letters = []
        for each in classes:
            if each == self.eos:
                break
            letters.append(self.pieces[each])
        return " ".join("".join(letters).replace(MARK, " ").split())

    def comparable(self, text: str) -> str:
        """A text as error rates and our own priors take it: as it is, because it has only normalized words."""
        return text

    def pieces_per_word(self, sentences: Iterable[str]) -> float:
        """Mean number of pieces per word; well above 3 means that the model mostly uses single letters."""
        pieces = words = 0
        for sentence in sentences:
            pieces += len(self.encode(sentence))
            words += len(sentence.split())
        return pieces / max(words, 1)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.model` into the folder, and the normalizer unless it is the English one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.normalizer.save(folder)
        with replacing(folder / MODEL_FILE, len(self.model)) as temporary:
            temporary.write_bytes(self.model)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a tokenizer from its file or from its folder."""
        file = Path(path)
        file = file / MODEL_FILE if file.is_dir() else file
        if not file.is_file():
            raise UserError(f"no tokenizer at {file}: make one with `priormatch tokenizer`")
        if file.stat().st_size > MOST_BYTES:
            raise UserError(
                f"{file} is larger than {MOST_BYTES >> 20} MB, so it is not a tokenizer: make it again"
            )
        normalizer = normalizer_in(file.parent)
        try:
            tokenizer = Tokenizer(file.read_bytes(), normalizer)
        except (RuntimeError, ValueError) as error:  # ValueError: pieces that are not UTF-8
            raise UserError(
                f"{file} is not a SentencePiece model ({one_line(error)}): make it again"
            ) from error
        if not 0 < len(tokenizer.pieces) <= MOST_PIECES:
            raise UserError(
                f"{file} has {len(tokenizer.pieces):,} pieces; 1 to {MOST_PIECES:,} are allowed: make it again"
            )
        return tokenizer


def drawn(sentences: Iterable[str], total: int, wanted: int) -> list[str]:
    """Draw some of `total` sentences in one pass, the same ones each time."""
    numbers = random.Random(0).sample(range(total), wanted)
    among = set(numbers)
    found = {number: each for number, each in enumerate(sentences) if number in among}
    return [found[number] for number in numbers]


def train_tokenizer(
    sentences: Iterable[str],
    pieces: int,
    normalizer: Normalizer = ENGLISH,
    kind: Literal["unigram", "characters"] = "unigram",
) -> Tokenizer:
    """Train a unigram model with a vocabulary of `pieces`, control pieces included, on normalized sentences.

    Of characters there are as many as occur, and one that marks the beginning of a word.

    The sentences are iterated more than once. Of more than `MOST_SENTENCES`, a random sample of that size is used. Each
    word is added once more as a sentence of its own: except in version 0.2.2, SentencePiece makes a whole word a piece
    only if it sometimes ends a sentence. Of a sample, only words that occur `LEAST_COUNT` times are added: adding the
    many rarer ones would double their weight, and gives more pieces per word.
    """
    total = sum(1 for _ in sentences)
    sampled = total > MOST_SENTENCES
    sentences = drawn(sentences, total, MOST_SENTENCES) if sampled else [*sentences]
    counts = Counter(word for sentence in sentences for word in sentence.split())
    if not counts:
        raise UserError("the text for the tokenizer is empty: provide transcripts or sentences")
    words = [word for word, count in counts.items() if not sampled or count >= LEAST_COUNT]
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=chain(sentences, words),
            model_writer=model,
            model_type="unigram" if kind == "unigram" else "char",
            vocab_size=pieces if kind == "unigram" else len(set().union(*counts)) + 1 + CONTROL_PIECES,
            character_coverage=1.0,
            split_by_unicode_script=False,
            # SentencePiece's own rules, as in the paper, would split words at joiners and decompose Thai vowels.
            normalization_rule_name="nmt_nfkc" if normalizer.kind == "english" else "identity",
            num_threads=1,  # the order of additions, and so the model, must not depend on the machine
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = (
            str(error).splitlines()[0].rpartition("] ")[2]
        )  # after the position in SentencePiece's source
        # Every letter of the text needs a piece of its own.
        way_out = "higher" if "required_chars" in reason else "lower, or provide more text"
        raise UserError(
            f"no tokenizer of {pieces} pieces can be trained on {len(sentences)} sentences ({reason}):"
            f" set tokenizer.pieces (prior.pieces for the prior's own tokenizer) {way_out}"
        ) from error
    return Tokenizer(model.getvalue(), normalizer)
