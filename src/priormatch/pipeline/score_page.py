"""Scores as Markdown, on the terminal or in a file, and as JSON."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.json_text import to_json
from priormatch.pipeline.score import Comparison, Score, Scoring
from priormatch.pipeline.show_hypotheses import STYLES
from priormatch.runs.results import difference_in_words, paired_entry
from priormatch.scoring.alignment import (
    KINDS,
    AlignedUtterance,
    AlignedWord,
    confusions,
    most_frequent,
    total,
)
from priormatch.scoring.bootstrap import SAMPLES

LETTERS = {"equal": "", "substitute": "S", "delete": "D", "insert": "I"}
PLACES = ("the first", "the second")
INDENT = "    "  # marks a code block in Markdown
WIDTH = 110


def show(scoring: Scoring, details: int | None) -> None:
    """Print the page on standard output, with colors on a terminal."""
    console = Console()
    width = console.width if console.is_terminal else WIDTH
    for line in page(scoring, details, width):
        console.print(line, soft_wrap=True)


def require_place(out: Path, overwrite: bool) -> None:
    """Refuse a file with another suffix than .md or .json, or one that already exists."""
    if out.suffix not in (".md", ".json"):
        raise UserError(f"--out {out}: provide a file name that ends in .md or .json")
    if out.is_dir() or (out.exists() and not overwrite):
        raise UserError(f"{out} already exists: choose another name, or use --overwrite")


def write(out: Path, scoring: Scoring, details: int | None) -> None:
    """Write the page as Markdown, or as JSON if the name ends in .json."""
    lines = [line.plain for line in page(scoring, details, WIDTH)]
    text = as_json(scoring, details) if out.suffix == ".json" else "\n".join(lines)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_text(out, f"{text}\n")
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another path") from error


def page(scoring: Scoring, details: int | None, width: int) -> Iterator[Text]:
    """The lines of the page; `details` is the number of errors and utterances to list for each score, 0 for all."""
    yield from rates_table(scoring.scores)
    unit = scoring.scores[0].resampled
    yield from (Text(), Text(f"95 %: confidence interval from {SAMPLES:,} bootstrap samples of {unit}."))
    yield from listed("Notes:", [*notes_once(scoring.scores), *scoring.notes])
    if scoring.compared:
        first, second = scoring.compared
        said = {note for each in scoring.scores for note in each.notes}
        yield from listed(
            f"The second, {second}, compared with the first, {first}:",
            (comparison_line(each, said) for each in scoring.comparisons),
        )
    if details is not None:
        for each in scoring.scores:
            yield from details_of(each, details or None, width)


def notes_once(scores: Sequence[Score]) -> Iterator[str]:
    """Each note once, after the files and normalizers that it applies to."""
    normalizers: dict[tuple[str, Path], list[str]] = {}
    for each in scores:
        for note in each.notes:
            normalizers.setdefault((note, each.transcripts), []).append(each.normalizer)
    files: dict[tuple[str, str], list[str]] = {}
    for (note, path), names in normalizers.items():
        files.setdefault((note, ", ".join(names)), []).append(str(path))
    total = len({each.transcripts for each in scores})
    for (note, named), paths in files.items():
        told = f"all {total} files" if len(paths) == total > 1 else ", ".join(paths)
        yield f"{told}, normalizer {named}: {note}"


def listed(title: str, lines: Iterable[str]) -> Iterator[Text]:
    """A title with a list of lines; nothing if there are no lines."""
    points = [Text(f"- {line}") for line in lines]
    if points:
        yield from (Text(), Text(title), Text(), *points)


def rates_table(scores: Sequence[Score]) -> Iterator[Text]:
    """A table of the error rates of every score, with its normalizer."""
    perplexity = ["perplexity", "of references"] if any(each.perplexities for each in scores) else []
    figures = ["WER %", "95 %", "CER %", "sub", "del", "ins", "words", "utterances", *perplexity]
    rows = []
    for each in scores:
        counts = confusions(each.misheard)
        rows.append(
            [
                number(each.wer),
                f"{number(each.interval[0])}-{number(each.interval[1])}",
                number(each.cer),
                *(f"{total(counts, kind):,}" for kind in KINDS),
                f"{each.words:,}",
                f"{each.utterances:,}",
                *map(number, each.perplexities or ()),
                each.normalizer,
                str(each.transcripts),
            ]
        )
    return table([*figures, "normalizer", "transcripts"], rows, right=len(figures))


def number(value: float) -> str:
    """Format a rate; n/a if it is NaN."""
    return "n/a" if math.isnan(value) else f"{value:.2f}"


def heading(score: Score) -> str:
    """The file and normalizer of a score."""
    return f"{score.transcripts}, normalizer {score.normalizer}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> Iterator[Text]:
    """A Markdown table with padded columns; the first `right` are aligned right."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(3, *map(cell_len, column)) for column in zip(*cells, strict=True)]
    rule = ["-" * (width - 1) + ":" if place < right else "-" * width for place, width in enumerate(widths)]
    for row in (cells[0], rule, *cells[1:]):
        filled = [
            padding(cell, width) + cell if place < right else cell + padding(cell, width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield Text(f"| {' | '.join(filled)} |")


def padding(cell: str, width: int) -> str:
    """The spaces that fill a cell."""
    return " " * (width - cell_len(cell))


def comparison_line(found: Comparison, said: Collection[str] = ()) -> str:
    """One line on how the second system compares with the first, with the test; notes already `said` are omitted."""
    test = found.test
    begin = f"{found.name}, normalizer {found.normalizer}: on the {found.utterances:,} common utterances"
    alone = [
        f"{count:,} only in {which}" for count, which in zip(found.left_out, PLACES, strict=True) if count
    ]
    left_out = f" (left out: {', '.join(alone)})" if alone else ""
    if math.isnan(test.difference):
        return f"{begin}{left_out} no reference has words, so there is nothing to compare"
    words = difference_in_words(test.difference, test.interval, test.p_value, "the first")
    told = test.difference != 0 and not math.isnan(test.relative_gain)
    relative = f", {abs(test.relative_gain):.1f} % relative" if told else ""
    drawn = f"paired bootstrap of {found.units:,} {found.resampled}"
    notes = [note for note in found.notes if note not in said]
    return "; ".join([f"{begin}{left_out} the second is {words}{relative}", drawn, *notes])


def details_of(score: Score, most: int | None, width: int) -> Iterator[Text]:
    """The most frequent errors and the worst utterances of a score."""
    yield from (Text(), Text(f"## {heading(score)}"), Text())
    if not score.misheard:
        yield Text("No errors.")
        return
    counts = confusions(score.misheard)
    columns = [[*shown_counts(most_frequent(counts, kind, most))] for kind in KINDS]
    rows = [[cell for pair in row for cell in pair] for row in zip_longest(*columns, fillvalue=("", ""))]
    yield from table(["count", "substituted", "count", "deleted", "count", "inserted"], rows, right=0)
    worst = score.misheard[:most]
    of_all = f"{len(worst):,} of the {len(score.misheard):,} utterances with errors, worst first"
    yield from (Text(), Text(f"{of_all} (S substituted, D deleted, I inserted):"))
    for each in worst:
        kinds = ", ".join(f"{count} {LETTERS[kind]}" for kind in KINDS if (count := each.count(kind)))
        yield from (Text(), Text(f"{each.id}: errors {each.errors} ({kinds}), words {each.length}"), Text())
        yield from alignment(each, width)


def shown_counts(found: Sequence[tuple[AlignedWord, int]]) -> Iterator[tuple[str, str]]:
    """Table cells of errors of one kind with their counts."""
    for word, count in found:
        both = word.kind == "substitute"
        yield (
            f"{count:,}",
            f"{word.reference} → {word.hypothesis}" if both else word.reference or word.hypothesis,
        )


def alignment(utterance: AlignedUtterance, width: int) -> Iterator[Text]:
    """The reference above the hypothesis, with a letter below each error: S, D or I; wrapped at `width`."""
    row: list[AlignedWord] = []
    used = start = len(INDENT) + len("REF")
    for word in utterance.words:
        if row and used + 1 + column_width(word) > width:
            yield from aligned_rows(row)
            row, used = [], start
        row.append(word)
        used += 1 + column_width(word)
    yield from aligned_rows(row)


def column_width(word: AlignedWord) -> int:
    """The width of an aligned word's column."""
    return max(cell_len(word.reference), cell_len(word.hypothesis))


def aligned_rows(words: Sequence[AlignedWord]) -> Iterator[Text]:
    """The rows of aligned words, with stars for missing words."""
    rows = {
        "REF": [word.reference or "*" * column_width(word) for word in words],
        "HYP": [word.hypothesis or "*" * column_width(word) for word in words],
        "": [LETTERS[word.kind] for word in words],
    }
    for name, cells in rows.items():
        line = Text(f"{INDENT}{name:3}")
        for cell, word in zip(cells, words, strict=True):
            line.append(" ").append(cell, style=STYLES[word.kind]).append(padding(cell, column_width(word)))
        line.rstrip()
        if line.plain:
            yield line


def as_json(scoring: Scoring, details: int | None) -> str:
    """All results as one JSON object; NaN becomes null."""
    found = {
        "scores": [score_entry(each, details) for each in scoring.scores],
        "comparisons": [comparison_entry(each) for each in scoring.comparisons],
        "notes": scoring.notes,
    }
    return to_json(found)


def score_entry(score: Score, details: int | None) -> dict[str, Any]:
    """A score for JSON."""
    counts, most = confusions(score.misheard), details or None
    entry: dict[str, Any] = {
        "transcripts": str(score.transcripts),
        "normalizer": score.normalizer,
        "utterances": score.utterances,
        "words": score.words,
        "substitutions": total(counts, "substitute"),
        "deletions": total(counts, "delete"),
        "insertions": total(counts, "insert"),
        "wer": score.wer,
        "wer_interval": list(score.interval),
        "resampled": score.resampled,
        "units": score.units,
        "cer": score.cer,
        "notes": score.notes,
    }
    if score.perplexities is not None:
        entry["perplexity"], entry["reference_perplexity"] = score.perplexities
    if details is not None:
        entry["confusions"] = [
            {**word_entry(word), "count": count}
            for kind in KINDS
            for word, count in most_frequent(counts, kind, most)
        ]
        entry["worst"] = [
            {
                "id": each.id,
                "errors": each.errors,
                "words": each.length,
                "alignment": [*map(word_entry, each.words)],
            }
            for each in score.misheard[:most]
        ]
    return entry


def word_entry(word: AlignedWord) -> dict[str, str]:
    """An aligned word for JSON."""
    return {"kind": word.kind, "reference": word.reference, "hypothesis": word.hypothesis}


def comparison_entry(found: Comparison) -> dict[str, Any]:
    """A comparison for JSON."""
    return {
        "name": found.name,
        "first": str(found.first),
        "second": str(found.second),
        "normalizer": found.normalizer,
        "utterances": found.utterances,
        "left_out": list(found.left_out),
        "resampled": found.resampled,
        "units": found.units,
        **paired_entry(found.test),
        "notes": found.notes,
    }
