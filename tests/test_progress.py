import io
import time

import pytest
from rich.console import Console

from priormatch import progress
from priormatch.errors import UserError
from priormatch.progress import Meter, count_text, duration_text, rate_text, say, track


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-3, "0s"),
        (0.4, "0s"),
        (59.4, "59s"),
        (59.6, "1m00s"),
        (61, "1m01s"),
        (3599.4, "59m59s"),
        (3599.6, "1h00m"),
        (7500, "2h05m"),
        (360_000, "100h00m"),
    ],
)
def test_durations_read_as_people_say_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("speed", "text"),
    [(0.012345, "0.0123/s"), (14.06, "14.1/s"), (99.97, "100/s"), (999.7, "1,000/s"), (1413.2, "1,413/s")],
)
def test_rates_are_plain_numbers(speed: float, text: str) -> None:
    assert rate_text(speed) == text


def test_counts_know_one_from_many() -> None:
    assert [count_text(n, "file") for n in (0, 1, 1200)] == ["0 files", "1 file", "1,200 files"]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Meter("training", 100) as meter:
        for _ in range(100):
            clock.now += 1.0
            meter.advance(note="loss 2")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert lines[0] == "training: 20/100, 1/s, 1m20s left  loss 2"
    assert lines[-1] == "training: 100/100, 1/s  loss 2"


def test_speed_counts_only_what_was_done_since_the_start(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Meter("training", 1000, done=900) as meter:
        clock.now += 10.0
        meter.advance(50)
    assert capsys.readouterr().err == "training: 950/1000, 5/s, 10s left\n"


def test_nothing_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Meter("training", 10, done=10):
        pass
    assert capsys.readouterr().err == ""


def test_without_a_total_there_is_no_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track((each for each in "ab"), "reading")) == ["a", "b"]
    assert capsys.readouterr().err.startswith("reading: 2, ")


def test_tracking_counts_what_has_a_length(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in track([1, 2, 3], "reading"):
        clock.now += 1.0
    assert "reading: 3/3, 1/s" in capsys.readouterr().err


def test_an_error_in_the_middle_passes_through(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="stop"):
        for each in track(range(10), "reading"):
            if each == 3:
                raise ValueError("stop")


def test_square_brackets_are_just_text(capsys: pytest.CaptureFixture[str]) -> None:
    say("[bold]matching.mixing=[1,4][/bold] " + "x" * 300)
    assert capsys.readouterr().err == "[bold]matching.mixing=[1,4][/bold] " + "x" * 300 + "\n"


def test_a_terminal_sees_a_bar_with_speed_and_what_is_left(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=200))
    with Meter("training", 100, done=40) as meter:
        clock.now += 10.0
        meter.advance(30, note="loss 2")
    shown = screen.getvalue()
    for part in ("training", "70/100", "3/s", "loss 2"):
        assert part in shown


def test_a_meter_inside_another_gives_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich 13 raises an error if two bars are shown at once, as when decoding begins within a list of trainings."""
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=screen, force_terminal=True, width=200))
    for _ in range(2):
        with Meter("trainings", 2) as outer:
            with Meter("decoding", 3) as inner:
                inner.advance(3)
            outer.advance(2)
        assert outer.bar is not None
        assert inner.bar is None
    assert "decoding: 3/3" in screen.getvalue()
    with Meter("alone", 1) as meter:
        assert meter.bar is not None


def test_control_characters_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    say("a\x1b[31mred\x07\x9b")
    assert capsys.readouterr().err == "a\\x1b[31mred\\x07\\x9b\n"
    assert str(UserError("b\x1b]0;title\x07")) == "b\\x1b]0;title\\x07"
