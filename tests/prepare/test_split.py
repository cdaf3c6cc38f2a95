"""Validation sets with speakers of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet, Recording

from priormatch.data.manifest import utterance
from priormatch.errors import UserError
from priormatch.prepare.split import split_by_speaker


def cuts(spoken: list[tuple[str | None, float]]) -> CutSet:
    return CutSet.from_cuts(
        utterance(f"u{i}", Recording(f"u{i}", [], 16_000, round(16_000 * seconds), seconds), None, speaker)
        for i, (speaker, seconds) in enumerate(spoken)
    )


def speakers(part: CutSet) -> set[str | None]:
    return {cut.supervisions[0].speaker for cut in part}


SPOKEN = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 30).map(float)), min_size=2).filter(
    lambda spoken: len({speaker for speaker, _ in spoken}) > 1
)


@given(SPOKEN, st.floats(0.01, 0.99), st.integers(0, 1000))
def test_speakers_are_disjoint_and_nothing_is_lost(
    spoken: list[tuple[str, float]], share: float, seed: int
) -> None:
    train, validation = split_by_speaker(cuts(spoken), share, seed)
    assert speakers(train) and speakers(validation)
    assert not speakers(train) & speakers(validation)
    assert sorted([*train.ids, *validation.ids]) == sorted(f"u{i}" for i in range(len(spoken)))
    again = split_by_speaker(cuts(spoken), share, seed)
    assert [list(part.ids) for part in again] == [list(train.ids), list(validation.ids)]


def test_the_share_is_met_and_the_seed_matters() -> None:
    spoken = cuts([(f"s{i % 40}", 10.0) for i in range(400)])
    drawn = set()
    for seed in range(5):
        _, validation = split_by_speaker(spoken, 0.1, seed)
        assert sum(cut.duration for cut in validation) == pytest.approx(400)
        drawn.add(tuple(validation.ids))
    assert len(drawn) > 1


def test_a_tiny_share_takes_the_shortest_speaker() -> None:
    spoken = cuts([("long", 100.0), ("short", 10.0), ("middle", 50.0)])
    assert all(speakers(split_by_speaker(spoken, 0.01, seed)[1]) == {"short"} for seed in range(5))


def test_unknown_speakers_stay_in_training() -> None:
    train, validation = split_by_speaker(cuts([("a", 5.0), (None, 5.0), ("b", 5.0), (None, 5.0)]), 0.9, 1)
    assert None in speakers(train)
    assert None not in speakers(validation)


@pytest.mark.parametrize("speaker", [None, "only"])
def test_without_two_speakers_utterances_are_drawn_and_the_user_is_told(
    speaker: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    train, validation = split_by_speaker(cuts([(speaker, 2.0)] * 50), 0.1, 0)
    assert (len(train), len(validation)) == (45, 5)
    assert "fewer than two speakers" in capsys.readouterr().err


def test_impossible_splits_are_refused() -> None:
    with pytest.raises(UserError, match="1 utterance"):
        split_by_speaker(cuts([("a", 5.0)]), 0.1, 0)
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match="between 0 and 1"):
            split_by_speaker(cuts([("a", 5.0), ("b", 5.0)]), share, 0)
