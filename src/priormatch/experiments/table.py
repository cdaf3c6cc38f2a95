"""The tables as data: rows with their systems, and claims, read from `tables/*.yaml`."""

import re
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from typing import Literal, cast

import yaml

from priormatch.errors import UserError

FOLDER = Path(__file__).parent / "tables"
MISSING = "NA"
NONE = "none"
ALPHA = 0.2  # the paper's loss weight in all tables but A1
BEAMS = "tab1_hypotheses"
"""This table shows beams and has no figures."""

TRAINED_BY = "2df2819"
"""A commit that can train the variants whose figures are only recorded."""

RATE = re.compile(r"(?P<set>(?P<part>dev|test)(_(clean|other))?)_(?P<rate>wer|cer)")
RECOVERED = re.compile(r"(?P<wer>test(_(clean|other))?_wer)r(_(?P<top>\d+))?_pct")
LABEL_ERRORS = re.compile(r"train_(?P<kind>clean|other)_\d+_wer")
PERPLEXITY = re.compile(r"lm_ppl_(?P<set>dev_(clean|other))")
STRENGTH = re.compile("lm_token_ppl")
"""Columns of figures: error rates, recovered rates, errors of labels, perplexities of transcripts, and of the prior."""

Kind = Literal["start", "supervised", "topline", "matched", "pseudo_labels"]
Labels = Literal["asr", "asr_lm"]
Unlabeled = Literal["clean", "all", "light"]
"""The paper's 360 hours, its 860, and the 60,000 of Libri-Light."""

Cells = dict[str, str]
"""The values of a row by column, as the paper prints them; NA if it does not give one."""


@dataclass(frozen=True)
class System:
    """One trained recognizer: the method, the unlabeled speech, and the settings that differ from the scale's.

    `start` is the supervised model that others start from; `supervised` is trained further for as many updates as
    matching; `topline` has the transcripts of the unlabeled
    speech; `pseudo_labels` learns from fixed labels of the best supervised model, of a kept copy, or of an ensemble:
    several supervised models, the label of one of which is drawn at each visit of an utterance.
    """

    kind: Kind
    unlabeled: Unlabeled = "clean"
    settings: tuple[str, ...] = ()
    _: KW_ONLY
    labels: Labels | None = None
    labeler: str = ""
    ensemble: bool = False
    filtered: bool = True  # whether labels are filtered as in Kahn et al.
    loss_scale: float = 1.0  # factor of the scale's loss weight, which corresponds to the paper's 0.2
    main: bool = False  # part of the main results, which the paper trains longer
    recorded: str = ""  # the folder of a removed variant: its figures are shown, but it is not trained


@dataclass(frozen=True)
class Row:
    """A row: its number from 1, its name, its values, the name of the row that it is compared with, and its system.

    Without a system, the row is quoted from another paper or empty: it is shown but not run.
    """

    number: int
    name: str
    cells: Cells
    minus: str | None = None
    system: System | None = None

    @property
    def description(self) -> str:
        """The values of the row that are not figures."""
        described = (value for column, value in self.cells.items() if not is_measured(column))
        return ", ".join(value for value in described if value != MISSING)

    @property
    def is_papers(self) -> bool:
        """Whether the paper has figures for this row."""
        return any(is_measured(column) and value != MISSING for column, value in self.cells.items())

    @property
    def recorded(self) -> bool:
        """Whether the variant was removed, so that the row has only recorded figures."""
        return self.system is not None and self.system.recorded != ""


@dataclass(frozen=True)
class Claim:
    """The row named `better` has lower figures than the row named `than`."""

    says: str
    better: str
    than: str


@dataclass(frozen=True)
class Misprint:
    """A figure of the paper that does not agree with its word error rates, and the one that follows from them."""

    row: str
    column: str
    true: str


@dataclass(frozen=True)
class Table:
    """A table: its name, title, rows, and the claims that it should support.

    The claims of tables and rows that are not in the paper state what one would hope for.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    claims: tuple[Claim, ...]
    misprints: tuple[Misprint, ...]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [*self.rows[0].cells]


def is_measured(column: str) -> bool:
    """Whether a column holds figures, not descriptions of rows."""
    return is_better_lower(column) or any(each.fullmatch(column) for each in (RECOVERED, STRENGTH))


def is_better_lower(column: str) -> bool:
    """Whether a column holds error rates or the prior's perplexities of transcripts."""
    return any(each.fullmatch(column) for each in (RATE, LABEL_ERRORS, PERPLEXITY))


@cache
def tables() -> dict[str, Table]:
    """All tables by name, in the order of the paper, then ours."""
    return {path.stem: read_table(path) for path in sorted(FOLDER.glob("*.yaml"))}


def read_table(path: Path) -> Table:
    """Read a table from its file."""
    # This loader keeps every value as text: 9.00 keeps its zeros, and 1:4 is no number of seconds.
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    _, *columns, _, _ = content["columns"]
    rows = []
    for number, (name, *values, minus, words) in enumerate(content["rows"], 1):
        cells = dict(zip(columns, values, strict=True))
        system = None if words == NONE else system_of(words, main="main" in content)
        rows.append(Row(number, name, cells, None if minus == NONE else minus, system))
    claims = tuple(Claim(*each) for each in content.get("claims", []))
    misprints = tuple(Misprint(*each) for each in content.get("misprints", []))
    return Table(path.stem, content["title"], tuple(rows), claims, misprints)


def system_of(words: str, main: bool = False) -> System:
    """The system that words describe: its kind, its unlabeled speech, then properties and settings.

    A setting without a section is one of `matching`.
    """
    kind, unlabeled, *more = words.split()
    values = dict(each.partition("=")[::2] for each in more)
    labels, labeler = values.pop("labels", None), values.pop("labeler", "")
    loss_scale, recorded = float(values.pop("alpha", ALPHA)) / ALPHA, values.pop("recorded", "")
    ensemble, unfiltered = (values.pop(flag, None) is not None for flag in ("ensemble", "unfiltered"))
    settings = (f"{name if '.' in name else f'matching.{name}'}={value}" for name, value in values.items())
    return System(
        cast(Kind, kind),
        cast(Unlabeled, unlabeled),
        tuple(settings),
        labels=cast(Labels | None, labels),
        labeler=labeler,
        ensemble=ensemble,
        filtered=not unfiltered,
        loss_scale=loss_scale,
        main=main,
        recorded=recorded,
    )


def table_named(given: str) -> Table:
    """The table with a number (2, A1), a number with tab (tab2), or a name."""
    for name, table in tables().items():
        number = name.removeprefix("tab").partition("_")[0]
        if given.lower() in (name.lower(), number.lower(), f"tab{number}".lower()):
            return table
    raise UserError(f"there is no table {given}: choose from {', '.join(tables())}")
