"""ARPA files of n-gram models: a reader, also of compressed files, and a writer."""

import os
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from priormatch.data.text_files import CONVERT, UNREADABLE, decompressed
from priormatch.errors import UserError
from priormatch.files import open_regular, replacing
from priormatch.models.ngram import (
    BEGIN,
    END,
    MOST_BACKOFF,
    MOST_LOG,
    MOST_ORDER,
    SPECIAL,
    UNKNOWN,
    NgramModel,
    find,
)
from priormatch.progress import Meter, count_text

SUFFIXES = (".arpa", ".arpa.gz", ".arpa.xz")
MOST_WORDS, MOST_NGRAMS = 1 << 24, 1 << 31  # of each order
MOST_BYTES = 1 << 16  # of a line
MOST_EXPANSION, SOME_BYTES = 100, 1 << 20  # of a compressed file; ARPA files shrink to a third or less
HEADER_LINES = 10_000  # comments and counts
AT_ONCE = 10_000  # lines
WITHOUT_UNKNOWN = -100.0  # log10 p of unknown words in a file that has none, as in KenLM
COUNT = re.compile(rb"ngram\s+(\d{1,2})\s*=\s*(\d{1,12})")
AGAIN = "make or copy the file again"

Row = tuple[int, list[bytes]]
"""The number of a line, and what it holds between spaces or tabs."""


def is_arpa(path: Path) -> bool:
    """Whether a path has the name of an ARPA file."""
    return path.name.lower().endswith(SUFFIXES)


def read_arpa(path: Path) -> NgramModel:
    """Read an ARPA file, which need not be trusted; raise `UserError` with the line of what cannot be used.

    Words that are all in capitals, as in LibriSpeech's models, are read in lower case. If the file has no `<unk>`,
    unknown words get the probability that KenLM gives them.
    """
    try:
        return _Reader(path).model()
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({error}): {AGAIN}") from error


class _Reader:
    """Reads an ARPA file from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, _rows(path)
        self.numbers = {b"<unk>": UNKNOWN, b"<UNK>": UNKNOWN, b"<s>": BEGIN, b"</s>": END}
        self.keys: list[np.ndarray] = []
        self.log_p: list[np.ndarray] = []
        self.backoff: list[np.ndarray] = []

    def model(self) -> NgramModel:
        """The model in the file."""
        totals = self.header()
        with Meter(f"reading {self.path.name}", sum(totals)) as meter:
            for order, total in enumerate(totals, 1):
                self.expect(b"\\%d-grams:" % order)
                self.section(order, total, meter)
        self.expect(b"\\end\\")
        return NgramModel(self.words(), self.keys, self.log_p, self.backoff[:-1])

    def bad(self, what: str, line: int | None = None) -> UserError:
        """An error that names the file and the line."""
        where = "" if line is None else f", line {line:,}"
        return UserError(f"{self.path}{where}: {what}; {AGAIN}")

    def header(self) -> list[int]:
        """How many n-grams of each order the file announces."""
        for _, fields in islice(self.rows, HEADER_LINES):
            if fields == [b"\\data\\"]:
                break
        else:
            raise self.bad("it has no line \\data\\, so it is not an ARPA file")
        totals: list[int] = []
        for line, fields in self.rows:
            found = COUNT.fullmatch(b" ".join(fields))
            if found is None:
                self.rows = chain([(line, fields)], self.rows)
                break
            totals.append(int(found[2]))
            most = MOST_NGRAMS if len(totals) > 1 else MOST_WORDS
            if int(found[1]) != len(totals) or not 0 < totals[-1] <= most or len(totals) > MOST_ORDER:
                raise self.bad(
                    f"{_shown(fields)} where a number of {len(totals)}-grams, from 1 to {most:,}, belongs; at most"
                    f" {MOST_ORDER} orders are read",
                    line,
                )
        if not totals:
            raise self.bad("it announces no n-grams after \\data\\")
        return totals

    def expect(self, title: bytes) -> None:
        """Read the line between two parts of the file."""
        line, fields = next(self.rows, (None, []))
        if fields != [title]:
            raise self.bad(
                f"{_shown(fields)} where {title.decode()} belongs, after as many n-grams as announced", line
            )

    def section(self, order: int, total: int, meter: Meter) -> None:
        """Read and sort the n-grams of one order."""
        parts: list[tuple[np.ndarray, ...]] = []
        for _ in range(0, total, AT_ONCE):
            wanted = min(total - AT_ONCE * len(parts), AT_ONCE)
            rows = [*islice(self.rows, wanted)]
            if len(rows) < wanted:
                raise self.bad(f"the file ends before the last of {total:,} {order}-grams")
            parts.append(self.part(order, rows))
            meter.advance(len(rows))
        keys, log_p, backoff, lines = map(np.concatenate, zip(*parts, strict=True))
        if order == 1:
            keys, log_p, backoff = self.with_unknown(keys, log_p, backoff)
        places = np.argsort(keys, kind="stable")
        keys = keys[places]
        if len(twice := np.flatnonzero(keys[1:] == keys[:-1])):
            raise self.bad("the n-gram is listed twice", int(lines[places[twice[0] + 1]]))
        self.keys.append(keys)
        self.log_p.append(log_p[places])
        self.backoff.append(backoff[places])

    def part(self, order: int, rows: list[Row]) -> tuple[np.ndarray, ...]:
        """The keys, log10 p, log10 backoff and lines of some n-grams of one order: (U,) each."""
        sizes = np.fromiter((len(fields) for _, fields in rows), np.int64)
        wrong = (sizes != order + 1) & (sizes != order + 2)
        self.refuse(
            wrong, f"this is not log10 p, {count_text(order, 'word')} and perhaps log10 backoff", rows
        )
        log_p = np.array([_number(fields[0]) for _, fields in rows])
        backoff = np.array([_number(fields[-1]) if len(fields) > order + 1 else 0.0 for _, fields in rows])
        for what, values, most in (("log10 p", log_p, 0.0), ("log10 backoff", backoff, MOST_BACKOFF)):
            wrong = ~((values >= -MOST_LOG) & (values <= most))
            self.refuse(wrong, f"{what} is not a number from {-MOST_LOG:g} to {most:g}", rows)
        lines = np.fromiter((line for line, _ in rows), np.int64)
        return self.keys_of(order, rows), log_p.astype(np.float32), backoff.astype(np.float32), lines

    def keys_of(self, order: int, rows: list[Row]) -> np.ndarray:
        """The keys of some n-grams; those of order 1 are new words."""
        if order == 1:
            numbers = [self.numbers.setdefault(fields[1], self.size) for _, fields in rows]
            return np.array(numbers, np.int64)
        words = np.array(
            [[self.numbers.get(word, -1) for word in fields[1 : order + 1]] for _, fields in rows]
        )
        self.refuse(words.min(axis=1) < 0, "a word is not among the 1-grams", rows)
        context = words[:, 0]
        for number, keys in enumerate(self.keys[1:], 1):
            context = find(keys, context * self.size + words[:, number])
        self.refuse(context < 0, f"its first words are not among the {order - 1}-grams", rows)
        return context * self.size + words[:, -1]

    @property
    def size(self) -> int:
        """The number of words so far."""
        return len(self.numbers) - 1  # of which `<unk>` is there twice

    def refuse(self, wrong: np.ndarray, what: str, rows: list[Row]) -> None:
        """Raise an error about the first wrong row, if there is one: wrong (U,)."""
        if len(places := np.flatnonzero(wrong)):
            line, fields = rows[places[0]]
            raise self.bad(f"{_shown(fields)}: {what}", line)

    def with_unknown(self, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        """The keys, log10 p and log10 backoff of single words, with `<unk>`; refuse them without the other marks."""
        if missing := [SPECIAL[mark] for mark in (BEGIN, END) if mark not in columns[0]]:
            raise self.bad(f"{missing[0]} is not among the 1-grams")
        if UNKNOWN in columns[0]:
            return columns
        more = (UNKNOWN, WITHOUT_UNKNOWN, 0.0)
        return tuple(
            np.append(each, value).astype(each.dtype) for each, value in zip(columns, more, strict=True)
        )

    def words(self) -> list[str]:
        """The words by their numbers, in lower case if all of them are in capitals."""
        spelled = [*islice(self.numbers, len(SPECIAL) + 1, None)]
        try:
            words = [word.decode() for word in spelled]
        except UnicodeDecodeError as error:
            raise UserError(f"{self.path} is not UTF-8 text ({error.object!r}); {CONVERT}") from error
        lower = [word.lower() for word in words]
        if all(word == word.upper() for word in words) and len({*lower}) == len(words):
            words = lower
        return [*SPECIAL, *words]


def _rows(path: Path) -> Iterator[Row]:
    """The lines of a file that are not blank."""
    with open_regular(path) as file, decompressed(path, file) as stream:
        number, left = 0, MOST_EXPANSION * os.fstat(file.fileno()).st_size + SOME_BYTES
        while line := stream.readline(MOST_BYTES + 1):
            number += 1
            left -= len(line)
            if len(line) > MOST_BYTES:
                raise UserError(f"{path}, line {number:,}: longer than {MOST_BYTES:,} bytes; {AGAIN}")
            if left < 0:
                raise UserError(f"{path} expands to more than {MOST_EXPANSION} times its size; {AGAIN}")
            if fields := line.split(None, MOST_ORDER + 2):
                yield number, fields


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _shown(fields: list[bytes]) -> str:
    """The beginning of a line, for an error message."""
    text = b" ".join(fields)[:80].decode(errors="replace")
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return f"'{shown}'" if fields else "the file ends"


def write_arpa(model: NgramModel, path: Path) -> None:
    """Write a model as an ARPA file, whose numbers are read as the same ones again."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\\data\\\n")
        file.writelines(f"ngram {order}={len(keys)}\n" for order, keys in enumerate(model.keys, 1))
        with Meter(f"writing {path.name}", model.ngrams) as meter:
            for order, keys in enumerate(model.keys, 1):
                file.write(f"\n\\{order}-grams:\n")
                for start in range(0, len(keys), AT_ONCE):
                    indices = np.arange(start, min(start + AT_ONCE, len(keys)))
                    file.writelines(_written(model, order, indices))
                    meter.advance(len(indices))
        file.write("\n\\end\\\n")


def _written(model: NgramModel, order: int, indices: np.ndarray) -> Iterator[str]:
    """The lines of n-grams of one order."""
    log_p = model.log_p[order - 1][indices].tolist()
    spelled, parents = list[list[int]](), indices
    for keys in reversed(model.keys[:order]):
        parents, last = np.divmod(keys[parents], len(model.words))
        spelled.insert(0, last.tolist())
    texts = (" ".join(map(model.words.__getitem__, row)) for row in zip(*spelled, strict=True))
    if order == model.order:
        return (f"{p:.9g}\t{text}\n" for p, text in zip(log_p, texts, strict=True))
    backoff = model.backoff[order - 1][indices].tolist()
    return (f"{p:.9g}\t{text}\t{b:.9g}\n" for p, text, b in zip(log_p, texts, backoff, strict=True))
