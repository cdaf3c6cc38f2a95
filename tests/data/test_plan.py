"""The plan of an epoch: a pure function of (seed, epoch) that visits every utterance once."""

from collections.abc import Sequence
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import BatchSettings
from priormatch.data.plan import Plan, cut_by_seconds, plan_batches, shapes_of, sorted_nearly

durations_of = st.lists(st.floats(0.1, 36.0), min_size=1, max_size=60).map(np.array)
sizes = st.one_of(
    st.builds(BatchSettings, seconds=st.floats(1.0, 100.0)),
    st.builds(BatchSettings, utterances=st.integers(1, 20)),
)
speeds_of = st.sampled_from([(1.0,), (1.0, 0.9, 1.1)])


def lists(plan: Sequence[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in plan]


@given(durations=durations_of, size=sizes, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_a_plan_visits_every_utterance_once_and_is_reproducible(
    durations: np.ndarray, size: BatchSettings, seed: int, epoch: int
) -> None:
    plan = plan_batches(durations, size, seed, epoch)
    assert sorted(np.concatenate(plan)) == list(range(len(durations)))
    assert all(len(batch) for batch in plan)
    assert lists(plan) == lists(plan_batches(durations, size, seed, epoch))


@given(durations=durations_of, size=sizes)
def test_no_batch_is_too_large_unless_it_is_one_utterance(durations: np.ndarray, size: BatchSettings) -> None:
    for batch in plan_batches(durations, size, 0, 0):
        if size.utterances:
            assert len(batch) <= size.utterances
        else:
            assert len(batch) == 1 or durations[batch].max() * len(batch) <= size.seconds


def test_epochs_and_seeds_shuffle_differently_and_neighbors_change() -> None:
    durations = np.random.default_rng(0).uniform(1, 20, 200)
    plans = [plan_batches(durations, BatchSettings(utterances=4), *key) for key in ((0, 0), (0, 1), (1, 0))]
    order = [tuple(np.concatenate(plan)) for plan in plans]
    together = [{tuple(sorted(batch.tolist())) for batch in plan} for plan in plans]
    assert len(set(order)) == 3
    assert len(together[0] & together[1]) < len(together[0]) / 2


def test_utterances_of_a_batch_are_alike_in_length() -> None:
    durations = np.random.default_rng(0).uniform(1, 20, 400)
    plan = plan_batches(durations, BatchSettings(utterances=8), 0, 0)
    padded = sum(durations[batch].max() * len(batch) for batch in plan)
    assert padded < 1.15 * durations.sum()


def test_very_many_utterances_are_sorted_nearly_and_visited_once(monkeypatch: pytest.MonkeyPatch) -> None:
    durations = np.random.default_rng(0).uniform(1.0, 24.0, 1000)
    exactly = plan_batches(durations, BatchSettings(utterances=8), 1, 0)
    monkeypatch.setattr("priormatch.data.plan.SAMPLED", 100)
    order = sorted_nearly(durations)
    assert sorted(order.tolist()) == list(range(1000))
    assert np.diff(durations[order]).min() >= -durations.max() / 65_535
    found = plan_batches(durations, BatchSettings(utterances=8), 1, 0)
    assert np.mean([np.array_equal(*pair) for pair in zip(found, exactly, strict=True)]) > 0.9


def test_cutting_by_seconds_by_hand() -> None:
    assert cut_by_seconds(np.array([1.0, 1.0, 2.0, 3.0, 9.0, 1.0]), 6.0) == [0, 3, 4, 5]
    assert cut_by_seconds(np.array([3.0, 1.0, 1.0]), 6.0) == [
        0,
        2,
    ]  # the longest so far counts, wherever it is
    assert cut_by_seconds(np.array([9.0]), 6.0) == [0]
    assert cut_by_seconds(np.array([]), 6.0) == [0]


@given(st.lists(st.floats(0.01, 36.0), max_size=400).map(np.array), st.floats(0.5, 40.0))
def test_cutting_by_seconds_is_what_a_loop_over_utterances_does(
    durations: np.ndarray, seconds: float
) -> None:
    starts, longest = [0], 0.0
    for position, duration in enumerate(durations.tolist()):
        longest = max(longest, duration)
        if position > starts[-1] and longest * (position - starts[-1] + 1) > seconds:
            starts.append(position)
            longest = duration
    assert cut_by_seconds(durations, seconds) == starts


def test_shapes_of_a_large_corpus_come_from_a_sample_and_fit_its_longest_utterance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    durations = np.random.default_rng(0).uniform(1, 20, 999)
    durations[1] = 35.0  # which the sample, every tenth, does not have
    size, speeds = BatchSettings(seconds=100, buckets=4), (1.0, 0.9)
    whole = Plan(durations, size, 0, speeds).shapes
    monkeypatch.setattr("priormatch.data.plan.SAMPLED", 100)
    sampled = Plan(durations, size, 0, speeds).shapes
    assert sampled[-1] == whole[-1]
    assert [each.seconds for each in sampled] == pytest.approx([each.seconds for each in whole], rel=0.1)


@given(
    durations=durations_of, size=sizes, buckets=st.integers(1, 5), speeds=speeds_of, epoch=st.integers(0, 3)
)
def test_an_epoch_of_shapes_visits_everything_once(
    durations: np.ndarray, size: BatchSettings, buckets: int, speeds: Sequence[float], epoch: int
) -> None:
    size = BatchSettings(size.seconds, size.utterances, buckets)
    plan = Plan(durations, size, 7, speeds)
    requests = plan.epoch(epoch)
    assert sorted(visit.utterance for each in requests for visit in each.visits) == [*range(len(durations))]
    assert {visit.drawn for each in requests for visit in each.visits} == {(7, epoch)}
    assert [*requests] == [*Plan(durations, size, 7, speeds).epoch(epoch)]
    assert len(plan.shapes) <= buckets
    for request in requests:
        assert all(
            durations[each.utterance] / each.speed < request.shape.seconds + 1e-6 for each in request.visits
        )
        assert [visit.speed for visit in request.visits] == sorted(visit.speed for visit in request.visits)
    assert {each.shape for each in requests} <= {*plan.shapes}
    assert sum(len(each.visits) != each.shape.rows for each in requests) <= 1


def test_shapes_by_hand() -> None:
    durations = np.array([1.0, 1.0, 1.0, 1.0, 4.0, 8.0])  # 16 s, half of them in all but the last
    assert shapes_of(durations, BatchSettings(seconds=20, buckets=2)) == [(4.0, 5), (8.0, 2)]
    assert shapes_of(durations, BatchSettings(utterances=3, buckets=1)) == [(8.0, 3)]
    assert shapes_of(durations, BatchSettings(seconds=5, buckets=4)) == [(1.0, 5), (4.0, 1), (8.0, 1)]
    ((seconds, rows),) = shapes_of(np.full(9, 1.97), BatchSettings(seconds=20, buckets=3))
    assert (round(seconds, 9), rows) == (2.0, 10)


def test_what_fills_no_batch_moves_to_the_next_shape() -> None:
    durations = np.array([1.0, 1.0, 1.0, 4.0, 4.0, 8.0])
    plan = Plan(durations, BatchSettings(seconds=8, buckets=3), 0)
    assert plan.shapes == [(4.0, 2), (8.0, 1)]
    found = {each.shape.seconds: 0 for each in plan.epoch(0)}
    for each in plan.epoch(0):
        found[each.shape.seconds] += len(each.visits)
    assert found == {4.0: 4, 8.0: 2}


def test_shapes_are_shuffled_and_neighbors_change() -> None:
    durations = np.random.default_rng(0).uniform(1, 20, 400)
    size = BatchSettings(seconds=60, buckets=5)
    plans = [Plan(durations, size, seed).epoch(epoch) for seed, epoch in ((0, 0), (0, 1), (1, 0))]
    together = [{frozenset(visit.utterance for visit in each.visits) for each in plan} for plan in plans]
    for other in together[1:]:
        assert len(together[0] & other) < len(together[0]) / 10
    for plan in plans:
        changes = sum(one.shape.seconds != next.shape.seconds for one, next in pairwise(plan))
        assert changes > len(plan) / 2, "batches of one shape do not follow each other"


def test_shapes_pad_little_on_speech_like_durations() -> None:
    durations = np.random.default_rng(0).beta(4, 2, 3000) * 16 + 1
    plan = Plan(durations, BatchSettings(seconds=500, buckets=10), 0, (1.0, 0.9, 1.1))
    requests = plan.epoch(0)
    audio = sum(durations[visit.utterance] / visit.speed for each in requests for visit in each.visits)
    padded = sum(each.shape.seconds * each.shape.rows for each in requests)
    assert padded < 1.12 * audio


def test_every_speed_is_drawn_about_as_often_and_anew_in_each_epoch() -> None:
    plan = Plan(np.ones(900), BatchSettings(utterances=9), 0, (1.0, 0.9, 1.1))
    drawn = []
    for epoch in (0, 1):
        speeds = {visit.utterance: visit.speed for each in plan.epoch(epoch) for visit in each.visits}
        drawn.append([speeds[utterance] for utterance in range(900)])
    assert all(240 < epoch.count(speed) < 360 for epoch in drawn for speed in (1.0, 0.9, 1.1))
    assert 200 < sum(one == other for one, other in zip(*drawn, strict=True)) < 400


@given(skip=st.integers(0, 20), buckets=st.integers(0, 2))
def test_requests_start_anywhere(skip: int, buckets: int) -> None:
    plan = Plan(np.linspace(1, 3, 10), BatchSettings(seconds=7, buckets=buckets), 1)
    through = [*islice(plan.requests(0), 26)]
    assert [*islice(plan.requests(skip), 6)] == through[skip : skip + 6]
