"""The geometry of charts: by hand, and properties that hold for all figures."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowing import present

from priormatch.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_POINTS,
    NAMES_WIDTH,
    RIGHT,
    ROW,
    TOP,
    VALUE_WIDTH,
    WIDTH,
    Axis,
    Series,
    interval_chart,
    line_chart,
    short,
)
from priormatch.report.run_folder import Estimate

numbers = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda value: value == 0 or abs(value) > 1e-9)


def test_a_line_by_hand() -> None:
    points = [(0.0, 0.0), (50.0, 10.0), (100.0, 20.0)]
    chart = present(line_chart("loss", [Series("a", points)], level=(20, "most"), marks=[50]))
    middle, right = (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT
    low, high = HEIGHT - BOTTOM, TOP
    dots = [(x, y) for x, y, _ in chart.lines[0].dots]
    assert dots == [(LEFT, low), (middle, (low + high) / 2), (right, high)]
    assert chart.lines[0].path == f"M{LEFT}.0 {low}.0L{middle} {(low + high) / 2}L{right}.0 {high}.0"
    assert [tick.label for tick in chart.y_ticks] == ["0", "5", "10", "15", "20"]
    assert (present(chart.level).at, chart.marks) == (high, [middle])
    assert chart.description == "loss. a: from 0 at update 0 to 20 at update 100, between 0 and 20."
    assert chart.lines[0].dots[1][2] == "a: 10 at update 50"


def test_charts_of_nothing() -> None:
    assert line_chart("loss", [Series("a", [])]) is None
    assert interval_chart("wer", {"": []}) is None
    assert interval_chart("wer", {"": [("a", 0, Estimate(1.0, float("nan"), 2.0))]}) is None


@given(st.lists(st.tuples(st.integers(0, 10**7), numbers), min_size=1, max_size=300))
def test_all_points_lie_inside(points: list[tuple[float, float]]) -> None:
    points = sorted(points)
    chart = present(line_chart("loss", [Series("a", points)]))
    dots = chart.lines[0].dots
    assert len(dots) == min(len(points), MOST_POINTS)
    assert all(LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM for x, y, _ in dots)
    assert all(TOP <= tick.at <= HEIGHT - BOTTOM for tick in chart.y_ticks)
    assert dots[-1][2].endswith(f"update {points[-1][0]:,.0f}")


@given(st.lists(st.tuples(numbers, numbers, numbers).map(sorted), min_size=1, max_size=9))
def test_all_intervals_lie_inside(figures: list[list[float]]) -> None:
    rows = [
        (f"system {row}", 0, Estimate(value, low, high)) for row, (low, value, high) in enumerate(figures)
    ]
    chart = present(interval_chart("wer", {"": rows}))
    for bar in chart.bars:
        assert NAMES_WIDTH <= bar.low <= bar.at <= bar.high <= WIDTH - VALUE_WIDTH
        assert bar.y < chart.height - BOTTOM


def test_a_long_name_keeps_its_end() -> None:
    rows = [("/a/very/long/folder/of/runs: lpm", 0, Estimate(1, 0, 2))]
    chart = present(interval_chart("wer", {"": rows}))
    assert chart.bars[0].name == "…/folder/of/runs: lpm"
    assert "/a/very/long" in chart.description


def test_groups_have_lines_of_their_own() -> None:
    low = Estimate(1, 0, 2)
    groups = {"first": [("a", 0, low), ("b", 0, low)], "none": [], "last": [("a", 1, low)]}
    chart = present(interval_chart("wer", groups))
    lines = [TOP + (line + 0.5) * ROW for line in range(5)]
    assert [(each.at, each.label) for each in chart.headings] == [(lines[0], "first"), (lines[3], "last")]
    assert [bar.y for bar in chart.bars] == [lines[1], lines[2], lines[4]]
    assert chart.height == TOP + 5 * ROW + BOTTOM
    assert "last: a: 1.0, from 0.0 to 2.0." in chart.description
    assert interval_chart("wer", {"none": []}) is None


@given(numbers, numbers)
def test_ticks_are_few_and_round(one: float, other: float) -> None:
    low, high = min(one, other, 0), max(one, other, 0)
    axis = Axis(low, high).rounded()
    little = 1e-6 * (high - low)
    assert axis.low <= low + little
    assert axis.high >= high - little
    assert 1 <= len(axis.ticks()) <= 8


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0003, "1"),
        (0.0504, "0.0504"),
        (14.63, "14.6"),
        (-69.9, "−69.9"),
        (1234.5, "1,234"),
        (100, "100"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert short(value) == text
