"""What the command line asks of a table."""

from dataclasses import dataclass
from pathlib import Path

from priormatch.config import recipe_path
from priormatch.errors import UserError
from priormatch.tables.paper import Row
from priormatch.tables.study import Study, open_study
from priormatch.tables.systems import System, rows_of

SCALES = ("demo", "small", "paper")


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    table: str
    scale: str
    seeds: tuple[int, ...] = (0,)
    rows: tuple[int, ...] = ()  # numbers of rows, from 1; none means all
    data: Path | None = None
    jobs: int = 1
    overrides: tuple[str, ...] = ()

    @property
    def recipe(self) -> Path:
        """The settings of the scale."""
        if self.scale not in SCALES:
            raise UserError(f"there is no scale {self.scale}: choose one of {', '.join(SCALES)}")
        return recipe_path(f"table-{self.scale}")

    def study(self, seed: int) -> Study:
        """The study of one seed."""
        return open_study(self.scale, self.recipe, seed, self.data, list(self.overrides))

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        words = [
            f"priormatch table {self.table} --scale {self.scale} --seeds {','.join(map(str, self.seeds))}"
        ]
        words += [f"--rows {','.join(map(str, self.rows))}"] if self.rows else []
        words += [f"--data {self.data}"] if self.data else []
        return " ".join([*words, *self.overrides])

    def chosen(self) -> list[tuple[Row, System | None]]:
        """The rows asked for; those of others' papers and empty ones are shown and not run."""
        rows = rows_of(self.table)
        if bad := [number for number in self.rows if not 1 <= number <= len(rows)]:
            raise UserError(f"{self.table} has {len(rows)} rows, and no row {bad[0]}")
        return [each for number, each in enumerate(rows, 1) if not self.rows or number in self.rows]


def numbers(option: str, given: str) -> tuple[int, ...]:
    """Numbers separated by commas."""
    try:
        found = tuple(int(each) for each in given.split(",")) if given else ()
    except ValueError as error:
        raise UserError(f"{option} {given}: give numbers separated by commas, such as 0,1,2") from error
    if len(set(found)) < len(found):
        raise UserError(f"{option} {given}: give each number once")
    return found
