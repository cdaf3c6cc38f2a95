"""Tuning: descent to the best values, a log that a kill cannot hurt, and the file that decoding reads."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from priormatch.config import FusionSettings, load_settings
from priormatch.config.checks import BOUNDS, keys_of
from priormatch.decoding.tuning import (
    GRID,
    LIMITS,
    NAMES,
    Errors,
    Trials,
    centered,
    descend,
    neighbor,
    read_tuned,
    starts_from,
    write_tuned,
)
from priormatch.errors import UserError

START = FusionSettings(eos_threshold=math.inf, token_bonus=0.0)


def bowl(lm_weight: float, token_bonus: float) -> Callable[..., Errors]:
    """Errors that grow with the distance from these values."""

    def measure(fusion: FusionSettings) -> Errors:
        distance = abs(fusion.lm_weight - lm_weight) + abs(fusion.token_bonus - token_bonus)
        return Errors(10 + distance, 5.0)

    return measure


@given(st.sampled_from(GRID["lm_weight"]), st.sampled_from(GRID["token_bonus"]))
def test_it_finds_the_bottom_of_a_bowl(weight: float, bonus: float) -> None:
    assert descend(bowl(weight, bonus), [START], GRID) == replace(START, lm_weight=weight, token_bonus=bonus)


def test_centered_values_have_no_bonus_and_both_kinds_of_limits() -> None:
    found = centered(replace(START, token_bonus=1.0), GRID["lm_weight"])
    assert [each.lm_weight for each in found] == [*GRID["lm_weight"], *GRID["lm_weight"]]
    assert {(each.centered, each.token_bonus) for each in found} == {(True, 0.0)}
    assert {each.eos_threshold for each in found} == {math.inf, LIMITS["eos_threshold"]}


def test_without_limits_no_value_shows_one() -> None:
    given = FusionSettings(beam_threshold=9.0)
    for found in (starts_from(given, limited=False), centered(given, [0.2], limited=False)):
        limits = {(each.eos_threshold, each.token_margin, each.attention_jump) for each in found}
        assert limits == {(math.inf, math.inf, math.inf)}
        assert {each.beam_threshold for each in found} == {math.inf}


def test_it_goes_round_until_nothing_changes() -> None:
    """Each step along one axis makes room for a step along the other."""

    def slanted(fusion: FusionSettings) -> Errors:
        return Errors(abs(fusion.lm_weight - fusion.token_bonus) - 1.5 * fusion.token_bonus, 0.0)

    grid = {"lm_weight": (0.0, 0.1, 0.2, 0.3), "token_bonus": (0.0, 0.1, 0.2, 0.3)}
    best = descend(slanted, [replace(START, lm_weight=0.0, token_bonus=0.0)], grid)
    assert (best.lm_weight, best.token_bonus) == (0.3, 0.3)


def test_weight_and_bonus_step_together_along_a_narrow_valley() -> None:
    def measure(fusion: FusionSettings) -> Errors:
        apart = abs(fusion.lm_weight - fusion.token_bonus)
        return Errors(10 * apart - fusion.lm_weight - fusion.token_bonus, 0.0)

    grid = {"lm_weight": (0.0, 0.1, 0.2, 0.3), "token_bonus": (0.0, 0.1, 0.2, 0.3)}
    best = descend(measure, [replace(START, lm_weight=0.0, token_bonus=0.0)], grid)
    assert (best.lm_weight, best.token_bonus) == (0.3, 0.3), "no step of one alone is better"


def test_it_begins_at_the_best_of_its_starts() -> None:
    """Two hollows with a ridge between them: the deeper is found from the start that lies in it."""

    def measure(fusion: FusionSettings) -> Errors:
        return Errors(5.0 if fusion.eos_threshold == math.inf else 1 + abs(fusion.lm_weight - 0.6), 0.0)

    starts = [replace(START, eos_threshold=math.inf), replace(START, eos_threshold=1.1, lm_weight=0.2)]
    grid = {"lm_weight": GRID["lm_weight"], "token_bonus": GRID["token_bonus"]}
    best = descend(measure, starts, grid)
    assert (best.eos_threshold, best.lm_weight) == (1.1, 0.6)


def test_every_number_but_the_width_of_the_beam_is_tuned() -> None:
    assert GRID.keys() == set(NAMES) - {"beam_size", "centered"}


def test_the_usual_starts_have_the_limits_off_and_on() -> None:
    starts = starts_from(START)
    assert starts[0] == START
    for name in LIMITS:
        assert {getattr(each, name) for each in starts[1:]} == {math.inf, LIMITS[name]}
    assert all(each.beam_size == START.beam_size for each in starts)


def test_a_search_for_decoding_values_begins_without_centering_too() -> None:
    starts = starts_from(FusionSettings(lm_weight=0.15, centered=True, token_bonus=0.0))
    assert [each.centered for each in starts] == [True, *[False] * (len(starts) - 1)]


@pytest.mark.parametrize(("step", "expected"), [(1, 0.5), (-1, 0.4)])
def test_a_value_beside_the_list_steps_to_the_nearest_in_it(step: int, expected: float) -> None:
    found = neighbor(replace(START, lm_weight=0.45), GRID, ["lm_weight"], step)
    assert found == replace(START, lm_weight=expected)


def test_a_list_ends() -> None:
    assert (
        neighbor(replace(START, lm_weight=GRID["lm_weight"][-1]), GRID, ["lm_weight", "token_bonus"], 1)
        is None
    )
    assert neighbor(replace(START, eos_threshold=math.inf), GRID, ["eos_threshold"], 1) is None
    assert neighbor(replace(START, eos_threshold=math.inf), GRID, ["eos_threshold"], -1) == replace(
        START, eos_threshold=2.0
    )


def test_ties_of_words_are_broken_by_characters_and_ties_of_both_change_nothing() -> None:
    def measure(fusion: FusionSettings) -> Errors:
        return Errors(10.0, 3.0 if fusion.token_margin == 6.0 else 4.0)

    assert descend(measure, [START], GRID) == replace(START, token_margin=6.0)
    assert descend(lambda _: Errors(10.0, 4.0), [START], GRID) == START


def test_every_value_that_is_tried_may_be_set() -> None:
    bounds = {key: holds for _, holds, patterns in BOUNDS for key in keys_of(patterns)}
    for name, values in GRID.items():
        assert all(map(bounds[f"fusion.{name}"], values))
        assert list(values) == sorted(set(values))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "exp" / "fusion.yaml.trials.jsonl"


class Counted:
    """A measure that remembers what it was asked."""

    def __init__(self, stop_after: float = math.inf) -> None:
        self.asked: list[FusionSettings] = []
        self.stop_after = stop_after

    def __call__(self, fusion: FusionSettings) -> Errors:
        if len(self.asked) == self.stop_after:
            raise KeyboardInterrupt
        self.asked.append(fusion)
        return bowl(0.8, 1.0)(fusion)


def test_nothing_is_tried_twice_and_a_stopped_descent_goes_on(log: Path) -> None:
    first, second = Counted(stop_after=9), Counted()
    with pytest.raises(KeyboardInterrupt):
        descend(Trials(log, "key").measured(first), starts_from(START), GRID)
    best = descend(Trials(log, "key").measured(second), starts_from(START), GRID)
    assert best == replace(START, lm_weight=0.8, token_bonus=1.0)
    whole = Counted()
    descend(Trials(log.with_name("whole"), "key").measured(whole), starts_from(START), GRID)
    assert first.asked + second.asked == whole.asked
    assert log.read_bytes() == log.with_name("whole").read_bytes()
    for line in log.read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)  # numbers that are JSON


def test_limits_that_are_off_come_back(log: Path) -> None:
    tried = [START, replace(START, eos_threshold=1.5), replace(START, beam_size=3, attention_jump=20.0)]
    before = [Trials(log, "key").measured(bowl(0.1, 0.2))(each) for each in tried]
    again = Trials(log, "key").measured(lambda _: pytest.fail("it was tried before"))
    assert [again(each) for each in tried] == before


def test_a_line_cut_off_and_lines_of_others_are_passed_over_and_kept(log: Path) -> None:
    Trials(log, "one").measured(lambda _: Errors(1.0, 1.0))(START)
    Trials(log, "two").measured(lambda _: Errors(2.0, 2.0))(START)
    whole = log.read_bytes()
    noise = b"[1]\nnull\n{}\n" + b'{"of": "one", "fusion": {"lm_wait": 1}, "wer": 1, "cer": 1}\n\xff\xfe\n'
    log.write_bytes(whole[: whole.index(b"\n") + 1] + noise + whole[whole.index(b"\n") + 1 : -20])
    trials = Trials(log, "two")
    assert trials.found == {}, "the cut-off one"
    assert trials.measured(lambda _: Errors(3.0, 3.0))(START) == Errors(3.0, 3.0)
    assert list(Trials(log, "one").found.values()) == [Errors(1.0, 1.0)]
    assert list(Trials(log, "two").found.values()) == [Errors(3.0, 3.0)]


@settings(max_examples=8)
@given(
    st.builds(
        FusionSettings,
        beam_size=st.integers(1, 100),
        lm_weight=st.floats(0, 1e6),
        token_bonus=st.floats(0, 10),
        eos_threshold=st.floats(1, math.inf),
        token_margin=st.floats(0, math.inf),
    )
)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, fusion: FusionSettings) -> None:
    path = tmp_path_factory.mktemp("tuned") / "exp" / "fusion.yaml"
    write_tuned(path, fusion, {"model": "exp/model", "greedy": {"wer": 3.5}})
    assert load_settings(None, read_tuned(path)).fusion == fusion
    assert yaml.safe_load(path.read_text())["tuned"]["greedy"]["wer"] == 3.5


def test_overrides_beat_the_file_and_it_needs_not_name_everything(tmp_path: Path) -> None:
    path = tmp_path / "fusion.yaml"
    path.write_text("fusion: {lm_weight: 0.25, eos_threshold: .inf}\n")
    found = load_settings(None, [*read_tuned(path), "fusion.token_bonus=2"])
    assert found.fusion == FusionSettings(lm_weight=0.25, token_bonus=2.0, eos_threshold=math.inf)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"- a\n- list\n",
        b"just words",
        b"lm_weight: 0.5\n",
        b"fusion: 3\n",
        b"fusion: {lm_wait: 0.5}\n",
        b"fusion: {lm_weight: much}\n",
        b"fusion: {lm_weight: -1}\n",
        b"fusion: {lm_weight: null}\n",
        b"fusion: {beam_size: 0}\n",
        b"fusion: {eos_threshold: 0.5}\n",
        b"fusion: [lm_weight\n",
        b"\xff\xfe\xff",
    ],
)
def test_a_file_of_something_else_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fusion.yaml"
    path.write_bytes(content)
    with pytest.raises(
        UserError, match=f"{path} does not hold fusion settings .*`priormatch tune`"
    ) as caught:
        read_tuned(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no fusion settings at .*nowhere.yaml: .*`priormatch tune`"):
        read_tuned(tmp_path / "nowhere.yaml")
