"""Tokenized text for training a prior: one flat array of pieces, in memory or on disk."""

import hashlib
import json
import shutil
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from priormatch.data.text_files import SentenceFiles, find_text_files
from priormatch.data.tokenizer import Tokenizer
from priormatch.distributed import from_main, is_main
from priormatch.errors import UserError
from priormatch.files import replace_text, sync, writing
from priormatch.json_text import parse_json
from priormatch.progress import Meter

SENTENCES_AT_ONCE = 50_000  # so that the indices of their pieces stay small
PIECES, LENGTHS, RECORD = "pieces.bin", "lengths.bin", "text.json"


class Sentences:
    """Tokenized sentences in one flat array, each with a final EOS.

    flat (P,): the pieces of all sentences; lengths (S,): the pieces of each; words: how many the text has.
    """

    def __init__(self, flat: np.ndarray, lengths: np.ndarray, words: int) -> None:
        if not len(lengths):
            raise UserError(
                "no sentence of the text has a known piece: check that the tokenizer is for this language"
            )
        self.flat, self.lengths, self.words = flat, lengths, words
        self.ends = np.cumsum(lengths, dtype=np.int64)

    @staticmethod
    def of(texts: Iterable[str], tokenizer: Tokenizer) -> "Sentences":
        """Tokenize sentences into memory."""
        nothing = np.zeros(0, np.int32), np.zeros(0, np.int32), 0
        flat, lengths, words = zip(nothing, *tokenized(texts, tokenizer), strict=True)
        return Sentences(np.concatenate(flat), np.concatenate(lengths), sum(words))

    @staticmethod
    def of_file(text: Path, tokenizer: Tokenizer, folder: Path) -> "Sentences":
        """Tokenize the sentences of a text file into a folder, unless it has them, and map them into memory."""
        if is_main():
            (text,) = find_text_files([text])  # which refuses a missing one
            its = text.stat()
            source = [its.st_size, its.st_mtime_ns, hashlib.sha256(tokenizer.model).hexdigest()]
            if not (folder / RECORD).is_file() or _record(folder)["source"] != source:
                _tokenize_into(folder, text, tokenizer, source)
        from_main(None)  # the others wait for the files
        kind, words = np.dtype(_kind(tokenizer)), _record(folder)["words"]
        flat, lengths = (_mapped(folder / name, each) for name, each in ((PIECES, kind), (LENGTHS, np.int32)))
        return Sentences(flat, lengths, words)

    def lengths_after(self, preceded: np.ndarray) -> np.ndarray:
        """Lengths if sentences with preceded (S,) true include the previous sentence of the text: -> (S,)."""
        before = np.concatenate([[0], self.lengths[:-1]])
        return self.lengths + np.where(preceded, before, 0)

    def batch(self, indices: np.ndarray, lengths: np.ndarray | None = None) -> tuple[Tensor, Tensor]:
        """Sentences padded with EOS: indices (N,) -> (N, U), (N,); `lengths` (S,) may extend them to the left."""
        chosen = (self.lengths if lengths is None else lengths)[indices].astype(np.int64)
        last, columns = self.ends[indices] - 1, np.arange(chosen.max())
        places = np.minimum((last - chosen + 1)[:, None] + columns, last[:, None])  # a row ends with its EOS
        return torch.from_numpy(self.flat[places].astype(np.int64)), torch.from_numpy(chosen)


def tokenized(texts: Iterable[str], tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield the pieces, the lengths and the number of words of many sentences at a time.

    A sentence without a known piece is left out. Each word is encoded once: sentences are rows of numbers of words.
    """
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    end = numbers[""]  # no word is empty, so this stands for EOS
    spelled = array("i", [tokenizer.eos])  # the pieces of word 0, then of word 1, and so on
    sizes = array("i", [1])
    texts = iter(texts)
    while some := [*islice(texts, SENTENCES_AT_ONCE)]:
        words = np.fromiter((numbers[word] for text in some for word in (*text.split(), "")), np.int32)
        for word in islice(numbers, len(sizes), None):
            classes = tokenizer.encode(word)
            spelled.extend(classes)
            sizes.append(len(classes))
        many = np.array(sizes)
        ends = np.flatnonzero(words == end)
        lengths = np.diff(np.cumsum(many[words])[ends], prepend=0)
        known = lengths > 1
        kept = words[np.repeat(known, np.diff(ends, prepend=-1))]
        yield _joined(kept, np.array(spelled), many), lengths[known].astype(np.int32), len(words) - len(some)


def _joined(words: np.ndarray, pieces: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The pieces of words (N,), in a row; `pieces` are those of word 0, then of word 1, and so on, `sizes` of each."""
    many = sizes[words]
    shifts = (np.cumsum(sizes) - sizes)[words] - np.cumsum(many) + many
    return pieces[np.repeat(shifts, many) + np.arange(many.sum())]


def _kind(tokenizer: Tokenizer) -> type[np.generic]:
    """The smallest type for the classes of a tokenizer."""
    return np.uint16 if tokenizer.classes <= 1 << 16 else np.int32


def _tokenize_into(folder: Path, text: Path, tokenizer: Tokenizer, source: Sequence[Any]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # of another text, or unfinished
    folder.mkdir(parents=True)
    words, kind = 0, _kind(tokenizer)
    with (
        writing(folder),
        (folder / PIECES).open("wb") as pieces,
        (folder / LENGTHS).open("wb") as lengths,
        Meter("tokenizing sentences", None) as meter,
    ):
        for some, its, many in tokenized(SentenceFiles([text]), tokenizer):
            pieces.write(some.astype(kind).tobytes())
            lengths.write(its.tobytes())
            words += many
            meter.advance(len(its))
    for name in (PIECES, LENGTHS):
        sync(folder / name)
    replace_text(folder / RECORD, json.dumps({"source": source, "words": words}) + "\n")


def _record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = parse_json((folder / RECORD).read_bytes())
    return found


def _mapped(file: Path, kind: Any) -> np.ndarray:
    """The content of a file, mapped into memory; mapping an empty file is an error."""
    return np.memmap(file, kind, "r") if file.stat().st_size else np.zeros(0, kind)
