"""Geometry of the report's charts; `templates/charts.html` draws it as SVG.

Matplotlib is not used: here text stays text in the page's font, colors follow the reader's light or dark theme, a
chart is 2 kB, and screen readers can read it out. All coordinates are in a viewBox of width WIDTH.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from priormatch.report.run_folder import Estimate

Point = tuple[float, float]
Row = tuple[str, int, Estimate]
"""A name, the number of its color, and its estimate."""

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 40, 12, 10, 24
ROW, NAMES_WIDTH, VALUE_WIDTH = 26, 128, 36
TICKS = 4
MOST_POINTS = 150
NAME_LETTERS = 21


@dataclass(frozen=True)
class Series:
    """A named line of (x, y) points, sorted by x; `tone` is the number of its color."""

    name: str
    points: list[Point]
    tone: int = 0


@dataclass(frozen=True)
class Tick:
    """A position on an axis and its label."""

    at: float
    label: str


@dataclass(frozen=True)
class DrawnLine:
    """A series as drawn: the path, and its points with their tooltips."""

    name: str
    tone: int
    path: str
    dots: list[tuple[float, float, str]]
    last: str


@dataclass(frozen=True)
class LineChart:
    """Lines over updates; `level` is a dashed horizontal line, `marks` are x coordinates of events."""

    title: str
    description: str
    lines: list[DrawnLine]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    level: Tick | None
    marks: list[float]
    height: float = HEIGHT


@dataclass(frozen=True)
class Bar:
    """A row of an interval chart: a point and its interval at y."""

    name: str
    tone: int
    y: float
    at: float
    low: float
    high: float
    label: str


@dataclass(frozen=True)
class IntervalChart:
    """Points with intervals, one row for each, and headings between them."""

    title: str
    description: str
    bars: list[Bar]
    headings: list[Tick]
    x_ticks: list[Tick]
    zero: float | None
    height: float


def line_chart(
    title: str,
    series: Sequence[Series],
    level: tuple[float, str] | None = None,
    marks: Sequence[float] = (),
    until: float = 1,
) -> LineChart | None:
    """Chart all series that have points, from x = 0 to at least `until`; return None if none has."""
    series = [each for each in series if each.points]
    if not series:
        return None
    xs = [x for each in series for x, _ in each.points]
    ys = [y for each in series for _, y in each.points] + ([level[0]] if level else [])
    series = [replace(each, points=thinned(each.points)) for each in series]
    across, up = Axis(0, max(*xs, until)), Axis(min(*ys, 0), max(*ys, 0)).rounded()

    def x_of(update: float) -> float:
        return across.place(update, LEFT, WIDTH - RIGHT)

    def y_of(value: float) -> float:
        return up.place(value, HEIGHT - BOTTOM, TOP)

    lines = []
    for each in series:
        dots = [
            (x_of(update), y_of(value), f"{each.name}: {short(value)} at update {update:,.0f}")
            for update, value in each.points
        ]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, _ in dots)
        lines.append(DrawnLine(each.name, each.tone, path, dots, short(each.points[-1][1])))
    return LineChart(
        title,
        f"{title}. " + " ".join(map(in_words, series)),
        lines,
        [Tick(x_of(x), f"{x:,.0f}") for x in across.ticks()],
        [Tick(y_of(y), short(y)) for y in up.ticks()],
        Tick(y_of(level[0]), level[1]) if level else None,
        list(map(x_of, marks)),
    )


def thinned(points: list[Point]) -> list[Point]:
    """Keep at most MOST_POINTS points, evenly spread, including the first and the last."""
    if len(points) <= MOST_POINTS:
        return points
    last = len(points) - 1
    return [points[round(number * last / (MOST_POINTS - 1))] for number in range(MOST_POINTS)]


def in_words(series: Series) -> str:
    """Describe a line for screen readers."""
    (first, start), (last, end) = series.points[0], series.points[-1]
    lowest, highest = (pick(y for _, y in series.points) for pick in (min, max))
    return (
        f"{series.name}: from {short(start)} at update {first:,.0f} to {short(end)} at update {last:,.0f},"
        f" between {short(lowest)} and {short(highest)}."
    )


def interval_chart(title: str, groups: Mapping[str, Sequence[Row]]) -> IntervalChart | None:
    """Chart the rows with finite estimates, each group below its name if it has one; return None if there are none."""
    shown = {
        group: drawn
        for group, rows in groups.items()
        if (drawn := [row for row in rows if all(map(math.isfinite, astuple(row[2])))])
    }
    if not shown:
        return None
    figures = [each for rows in shown.values() for _, _, each in rows]
    axis = Axis(min(0.0, *(each.low for each in figures)), max(0.0, *(each.high for each in figures)))
    bars: list[Bar] = []
    headings: list[Tick] = []
    words: list[str] = []

    def next_line() -> float:
        return TOP + (len(bars) + len(headings) + 0.5) * ROW

    def x_of(value: float) -> float:
        return axis.place(value, NAMES_WIDTH, WIDTH - VALUE_WIDTH)

    for group, rows in shown.items():
        if group:
            headings.append(Tick(next_line(), group))
            words.append(f"{group}:")
        for name, tone, each in rows:
            at, low, high = map(x_of, (each.value, each.low, each.high))
            cut = name if len(name) <= NAME_LETTERS else f"…{name[1 - NAME_LETTERS :]}"
            bars.append(Bar(cut, tone, next_line(), at, low, high, minus(f"{each.value:.1f}")))
            words.append(f"{name}: {each.value:.1f}, from {each.low:.1f} to {each.high:.1f}.")
    return IntervalChart(
        title,
        f"{title}. " + " ".join(words),
        bars,
        headings,
        [Tick(x_of(x), short(x)) for x in axis.ticks()],
        x_of(0.0) if axis.low < 0 else None,
        TOP + (len(bars) + len(headings)) * ROW + BOTTOM,
    )


@dataclass(frozen=True)
class Axis:
    """A range of values."""

    low: float
    high: float

    @property
    def step(self) -> float:
        """The distance between ticks: 1, 2 or 5 times a power of ten."""
        rough = (self.high - self.low or 1.0) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        return power * next(each for each in (1, 2, 5, 10) if each * power >= rough * 0.999)

    def rounded(self) -> "Axis":
        """Extend the range to the next ticks."""
        low, high = math.floor(self.low / self.step + 1e-9), math.ceil(self.high / self.step - 1e-9)
        return Axis(low * self.step, high * self.step)

    def ticks(self) -> list[float]:
        """Return round values within the range, including zero if it is inside."""
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [number * self.step for number in range(first, last + 1)]

    def place(self, value: float, start: float, end: float) -> float:
        """Map a value to a coordinate between those of the range's ends."""
        share = (value - self.low) / (self.high - self.low or 1.0)
        return round(start + share * (end - start), 1)


def short(value: float) -> str:
    """Format a number with few digits."""
    if value == 0 or abs(value) >= 1000:
        return minus(f"{value:,.0f}")
    digits = min(max(0, 2 - math.floor(math.log10(abs(value)))), 4)
    written = f"{value:.{digits}f}"
    return minus(written.rstrip("0").rstrip(".") if digits else written)


def minus(number: str) -> str:
    """Replace the hyphen of a number by a minus sign."""
    return number.replace("-", "−")
