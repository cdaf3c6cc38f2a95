"""The request of a `priormatch table` command."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from priormatch.config import recipe_path
from priormatch.errors import UserError
from priormatch.experiments.paper import BEAMS, read_table, table_name
from priormatch.experiments.rows import Line, lines_of
from priormatch.experiments.scales import is_of_scale, make_plan, open_study, places_of
from priormatch.experiments.study import Places, Plan, Study

SCALES = ("demo", "small", "paper")


@dataclass(frozen=True)
class Request:
    """The arguments of a `priormatch table` command."""

    tables: tuple[str, ...]
    scale: str
    seeds: tuple[int, ...] = (0,)
    rows: Mapping[str, str] = field(default_factory=dict)  # by table, as given; without an entry, all rows
    data: Path | None = None
    jobs: int = 1
    so_far: bool = False  # show existing measurements and train nothing
    overrides: tuple[str, ...] = ()

    @property
    def recipe(self) -> Path:
        """The recipe of the scale."""
        if self.scale not in SCALES:
            raise UserError(f"there is no scale {self.scale}: choose from {', '.join(SCALES)}")
        return recipe_path(f"table-{self.scale}")

    def plan(self, seed: int) -> Plan:
        """The settings of one seed."""
        return make_plan(self.scale, self.recipe, seed, self.overrides)

    def places(self, seed: int) -> Places:
        """The folders of the study of one seed."""
        return places_of(self.scale, self.recipe, seed, self.overrides)

    def study(self, seed: int) -> Study:
        """The study of one seed, with its data."""
        return open_study(self.scale, self.recipe, seed, self.data, self.overrides)

    def command(self, table: str) -> str:
        """The command that runs one of the tables, with FOLDER as the data folder if none was given."""
        name = f"{table}:{self.rows[table]}" if table in self.rows else table
        seeds = ",".join(map(str, self.seeds))
        words = ["priormatch", "table", name, "--scale", self.scale, "--seeds", seeds]
        words += ["--data", str(self.data or "FOLDER")] if self.data or self.scale != "demo" else []
        words += ["--jobs", str(self.jobs)] if self.jobs > 1 else []
        return shlex.join([*words, *self.overrides])

    def lines(self, table: str) -> list[Line]:
        """The requested rows of a table; rows quoted from other papers and empty rows are shown but not run.

        If a scale lacks the speech or model of a row, only the paper's figures are shown; rows of ours are left out.
        """
        if table == BEAMS and table in self.rows:
            raise UserError(f"{table} shows beams and has no rows to select: name it without rows")
        lines = lines_of(table)
        rows = numbers(f"{table}:", self.rows[table]) if table in self.rows else range(1, len(lines) + 1)
        if bad := [number for number in rows if not 1 <= number <= len(lines)]:
            raise UserError(f"{table} has no row {bad[0]}: choose from 1 to {len(lines)}")
        found = []
        for line in (each for each in lines if each.number in rows):
            if line.system is None or is_of_scale(line.system, self.scale):
                found.append(line)
            elif line.number <= len(read_table(table)):
                found.append(line._replace(system=None))
        if not found:
            raise UserError(f"none of these rows can run at {self.scale} scale: choose others")
        return found


def make_request(
    words: list[str], scale: str, seeds: str, data: Path | None, jobs: int, so_far: bool
) -> Request:
    """Parse the arguments: tables, with optional rows, followed by settings."""
    named = [word.partition(":") for word in words if "=" not in word]
    if not named:
        raise UserError("no table given: give its number or name, such as 2 or A1")
    tables = tuple(table_name(name) for name, _, _ in named)
    if len(set(tables)) < len(tables):
        raise UserError("a table is given twice: give each once, with all its rows, such as 2:1-5,11")
    rows = {table: rows for table, (_, colon, rows) in zip(tables, named, strict=True) if colon}
    overrides = tuple(word for word in words if "=" in word)
    return Request(tables, scale, numbers("--seeds ", seeds), rows, data, jobs, so_far, overrides)


def numbers(what: str, given: str) -> tuple[int, ...]:
    """Parse numbers and ranges separated by commas: 1-3,7."""
    found: list[int] = []
    for each in given.split(","):
        first, dash, last = each.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UserError(f"{what}{given}: give numbers separated by commas, such as 0,2 or 1-3,7")
        found += range(int(first), int(last if dash else first) + 1)
    if not found or len(set(found)) < len(found):
        raise UserError(f"{what}{given}: give each number once, and the lower end of a range first")
    return tuple(found)


def as_ranges(rising: Sequence[int]) -> str:
    """Format increasing numbers for the command line: 1-3,7."""
    runs: list[list[int]] = []
    for each in rising:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
