"""Tables in the paper's layout, with our figures next to the paper's."""

import re
import statistics
from collections.abc import Mapping, Sequence

from rich.table import Table as ScreenTable

from priormatch.experiments.table import MISSING, Cells, is_measured

Values = Mapping[str, float]
"""The figures of a row with one seed, by column."""

FIGURE = re.compile(r"-?\d+(\.\d+)?")

Grid = list[list[str]]
"""The header of a table and its rows."""


def side_by_side(rows: Sequence[Cells], found: Sequence[Sequence[Values]]) -> Grid:
    """The table with two columns for each figure: the paper's, and ours as the mean over seeds.

    If the paper has no figure in any row, there is only our column.
    """
    columns = list(rows[0])
    quoted = {column for column in columns if any(row[column] != MISSING for row in rows)}
    head = [name for column in columns for name in _heads(column, column in quoted)]
    body = []
    for row, seeds in zip(rows, found, strict=True):
        line = []
        for column in columns:
            measured = is_measured(column)
            if column in quoted or not measured:
                line.append("" if measured and row[column] == MISSING else row[column])
            if measured:
                line.append(ours([values.get(column) for values in seeds]))
        body.append(line)
    return [head, *body]


def _heads(column: str, quoted: bool) -> list[str]:
    name = column.replace("_", " ")
    if not is_measured(column):
        return [name]
    return [f"{name}, paper", "ours"] if quoted else [f"{name}, ours"]


def ours(values: Sequence[float | None]) -> str:
    """The mean over seeds and, if there are several, each seed, with a dash for a missing one."""
    done = [each for each in values if each is not None]
    if not done:
        return ""
    mean = f"{statistics.fmean(done):.2f}"
    of_seeds = ", ".join("-" if each is None else f"{each:.2f}" for each in values)
    return mean if len(values) == 1 else f"{mean} ({of_seeds})"


def markdown(grid: Grid) -> str:
    """A table in Markdown."""
    head, *body = grid
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def on_screen(title: str, grid: Grid) -> ScreenTable:
    """A table for the terminal."""
    head, *body = grid
    shown = ScreenTable(title=title, title_justify="left")
    for name in head:
        shown.add_column(name, overflow="fold")
    for line in body:
        shown.add_row(*line)
    return shown


def as_tsv(grid: Grid) -> str:
    """A table as TSV."""
    return "".join("\t".join(line) + "\n" for line in grid)


def as_records(grid: Grid) -> list[dict[str, str | float | None]]:
    """The rows of a table by column: figures as numbers, missing ones as None."""
    head, *body = grid
    return [dict(zip(head, map(_value, line), strict=True)) for line in body]


def _value(cell: str) -> str | float | None:
    if cell == MISSING:
        return None
    return float(cell) if FIGURE.fullmatch(cell) else cell


def every_seed(rows: Sequence[Cells], found: Sequence[Sequence[Values]], seeds: Sequence[int]) -> Grid:
    """The paper's columns, then ours, one for each figure and seed."""
    measured = [column for column in rows[0] if is_measured(column)]
    head = [*rows[0], *(f"ours_{column}_seed{seed}" for column in measured for seed in seeds)]
    body = [
        [*row.values(), *(_exact(values, column) for column in measured for values in each)]
        for row, each in zip(rows, found, strict=True)
    ]
    return [head, *body]


def _exact(values: Values, column: str) -> str:
    return f"{values[column]:.3f}" if column in values else MISSING
