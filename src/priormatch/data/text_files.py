"""Turn text files into sentences for the prior, one per line; books can be excluded by name."""

import gzip
import lzma
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from priormatch.data.normalizer import ENGLISH, Normalizer
from priormatch.data.overlap import NGRAM, TranscriptOverlap
from priormatch.data.text import STOPS, split_sentences
from priormatch.errors import UserError
from priormatch.files import open_regular, replacing
from priormatch.progress import track

MOST_BYTES = 1 << 24  # per line, so that a small compressed file cannot fill the memory
CHUNK_CHARACTERS = 1_000_000  # of running text in memory at once
SUFFIXES = (".txt", ".gz", ".xz")
MANIFEST = ".jsonl.gz"
CONVERT = "convert it with `iconv -f ENCODING -t utf-8`, where ENCODING is often latin1 or utf-16."
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class TextReport:
    """Statistics of a file of prior text, and its overlap with the transcripts.

    A transcript overlaps if a sentence equals it; `shared_ngrams` is the percentage of the transcripts'
    distinct 8-word runs that occur in the text. Both are counted before anything is dropped.
    """

    files: int
    excluded_books: int
    sentences: int
    words: int
    transcripts: int
    overlapping_sentences: int
    overlapping_transcripts: int
    shared_ngrams: float
    dropped_sentences: int
    foreign_sentences: int = 0

    def __str__(self) -> str:
        """Format the report in one to four lines."""
        excluded = f"; {self.excluded_books:,} excluded" if self.excluded_books else ""
        lines = [f"{self.sentences:,} sentences, {self.words:,} words (files read: {self.files:,}{excluded})"]
        if self.transcripts:
            lines.append(
                f"overlap: {self.overlapping_transcripts:,} of {self.transcripts:,} distinct transcripts "
                f"occur as a sentence ({self.overlapping_sentences:,} times in all), "
                f"{self.shared_ngrams:.2f} % of their {NGRAM}-word runs occur in the text"
            )
        if self.dropped_sentences:
            lines.append(f"overlapping sentences dropped: {self.dropped_sentences:,}")
        if self.foreign_sentences:
            lines.append(f"sentences with letters not in the alphabet left out: {self.foreign_sentences:,}")
        return "\n".join(lines)


def prepare_text(
    files: Sequence[Path],
    out: Path,
    exclude_books: Collection[str] = (),
    transcripts: Iterable[str] = (),
    *,
    drop_overlap: bool = False,
    lines_are_sentences: bool = False,
    overwrite: bool = False,
    normalizer: Normalizer = ENGLISH,
) -> TextReport:
    """Write the normalized sentences of text files (.txt, .gz, .xz, or folders of them) to `out`, one per line.

    Of a manifest of cuts (.jsonl.gz), the transcripts are taken; manifests in folders are ignored. A book is excluded
    if the name of its file or its folder is in `exclude_books`. With `drop_overlap`, sentences that equal a transcript
    or share eight words in a row with one are left out. Sentences with letters that are not in the normalizer's
    alphabet are always left out.
    """
    books = find_text_files(files)
    _check_out(out, books, overwrite)
    kept = [book for book in books if _names(book).isdisjoint(exclude_books)]
    overlap = TranscriptOverlap(transcripts, normalizer)
    read = (line for book in track(kept, "reading text") for line in _sentences(book, lines_are_sentences))
    found = filter(None, map(normalizer, read))
    sentences = words = foreign = 0
    _make_folder_of(out)
    with replacing(out) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for sentence in overlap.watch(found, drop_overlap):
            if normalizer.foreign(sentence):
                foreign += 1
                continue
            sentences += 1
            words += sentence.count(" ") + 1
            stream.write(sentence + "\n")
        if not sentences:
            raise UserError(_nothing_left(books, len(books) - len(kept), overlap.dropped_sentences, foreign))
    return TextReport(
        files=len(kept),
        excluded_books=len(books) - len(kept),
        sentences=sentences,
        words=words,
        transcripts=len(overlap.transcripts),
        overlapping_sentences=overlap.equal_sentences,
        overlapping_transcripts=len(overlap.seen_transcripts),
        shared_ngrams=overlap.shared_ngrams,
        dropped_sentences=overlap.dropped_sentences,
        foreign_sentences=foreign,
    )


def find_text_files(paths: Sequence[Path]) -> list[Path]:
    """List the given text files and all text files under the given folders, each once; a folder's are sorted."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(filter(_is_text, path.rglob("*")))
            if not inside:
                raise UserError(f"{path} contains no text: no file in it ends in {', '.join(SUFFIXES)}.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise UserError(f"there is no text file {path}; check the name.")
    return list(dict.fromkeys(found))


def read_lines(path: Path) -> Iterator[str]:
    """Yield the decoded lines of a file without surrounding whitespace; raise `UserError` if it cannot be read."""
    offset = 0
    try:
        with open_regular(path) as file, decompressed(path, file) as stream:
            while line := stream.readline(MOST_BYTES + 1):
                if len(line) > MOST_BYTES:
                    raise UserError(
                        f"{path} has a line of more than {MOST_BYTES >> 20} MiB; split it into shorter lines."
                    )
                if b"\0" in line:
                    raise UserError(f"{path} is not UTF-8 text (it looks like UTF-16); {CONVERT}")
                yield line.decode().removeprefix("\ufeff").strip()
                offset += len(line)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (byte {offset + error.start} is 0x{error.object[error.start]:02x}); {CONVERT}"
        ) from error
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read ({error}); replace it or remove it.") from error


def read_sentences(path: Path) -> Iterator[str]:
    """Yield the lines of a text file (.txt, .gz or .xz) that are not blank, without normalizing them."""
    return filter(None, read_lines(path))


@dataclass(frozen=True)
class SentenceFiles:
    """The sentences of text files, read anew whenever they are iterated."""

    paths: Sequence[Path]

    def __iter__(self) -> Iterator[str]:
        for path in self.paths:
            sentences = read_sentences(path)
            if (first := next(sentences, None)) is None:
                raise UserError(
                    f"{path} contains no sentences: provide a text file written by `priormatch prepare text`"
                )
            yield first
            yield from sentences


def read_book_ids(path: Path) -> frozenset[str]:
    """Read book ids from LibriSpeech's BOOKS.TXT (`id | title | ...`, `;` comments) or a plain list."""
    lines = (line for line in read_lines(path) if not line.startswith(";"))
    ids = frozenset(line.split("|")[0].strip() for line in lines) - {""}
    if not ids:
        raise UserError(
            f"{path} lists no book; provide LibriSpeech's BOOKS.TXT or a list with one id per line."
        )
    return ids


def decompressed(path: Path, file: IO[bytes]) -> IO[bytes]:
    """The content of an open file, decompressed if its name ends in .gz or .xz."""
    if path.suffix == ".gz":
        return gzip.open(file)  # type: ignore[return-value]
    return lzma.open(file) if path.suffix == ".xz" else file


def _is_text(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.name.endswith(MANIFEST) and path.is_file()


def _sentences(book: Path, lines_are_sentences: bool) -> Iterator[str]:
    if book.name.endswith(MANIFEST):
        from priormatch.data.corpus import cut_text, read_cuts  # imports lhotse, which is slow

        return filter(None, map(cut_text, read_cuts(book)))
    lines = read_sentences(book)
    return lines if lines_are_sentences else _running_text(lines)


def _running_text(lines: Iterator[str]) -> Iterator[str]:
    """Yield the sentences of wrapped lines, chunk by chunk; a chunk without any stop has one sentence per line."""
    unfinished = ""
    for chunk in _chunks(lines):
        text = " ".join(chunk)
        if STOPS.isdisjoint(text):
            yield from filter(None, [unfinished, *chunk])
            unfinished = ""
        else:
            *whole, unfinished = split_sentences(f"{unfinished} {text}")
            yield from whole
    yield unfinished


def _chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        if characters >= CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _names(book: Path) -> set[str]:
    """Return the names a book can be excluded by, its file's and its folder's: 84 for corpus/84/84.txt."""
    name = book.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".txt")
    return {name, book.absolute().parent.name}


def _check_out(out: Path, books: list[Path], overwrite: bool) -> None:
    if out.suffix in (".gz", ".xz"):
        raise UserError(f"sentences are written as plain text, so {out} should end in .txt.")
    if out.is_dir() or (out.exists() and not overwrite):
        raise UserError(f"{out} exists already; choose another name, or remove it first.")
    if out.exists() and any(out.samefile(book) for book in books):
        raise UserError(f"{out} is among the files to read; choose another place for the sentences.")


def _make_folder_of(out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder of {out} cannot be created ({error}); choose another one.") from error


def _nothing_left(books: list[Path], excluded: int, dropped: int, foreign: int) -> str:
    names = ", ".join(map(str, books[:3])) + (f" and {len(books) - 3} more" if len(books) > 3 else "")
    return (
        f"no sentence is left of {names or 'no files at all'} ({excluded} files excluded, {dropped} "
        f"overlapping sentences dropped, {foreign} with letters not in the alphabet); "
        "provide files with text, or exclude less."
    )
