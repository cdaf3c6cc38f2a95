"""Frames per second of each encoder, and the frames that CTC needs."""

import pytest

from priormatch.config import ConformerSettings, ModelSettings
from priormatch.recognizers.frame_rate import frame_seconds_of, frames_needed, way_to_fit

TDS = ModelSettings()
CONFORMER = ModelSettings(encoder="conformer", conformer=ConformerSettings(subsampling=4))


def test_frames_per_second_of_each_encoder() -> None:
    assert frame_seconds_of(TDS) == pytest.approx(0.08)
    assert frame_seconds_of(ModelSettings(channels=[4, 6], blocks=[1, 1])) == pytest.approx(0.04)
    assert frame_seconds_of(CONFORMER) == pytest.approx(0.04)
    coarse = ModelSettings(encoder="conformer", conformer=ConformerSettings(subsampling=8))
    assert frame_seconds_of(coarse) == pytest.approx(0.08)


@pytest.mark.parametrize(("classes", "frames"), [([], 0), ([3], 1), ([3, 4, 3], 3), ([3, 3, 4, 4, 4], 8)])
def test_ctc_needs_a_blank_between_equal_tokens(classes: list[int], frames: int) -> None:
    assert frames_needed(classes) == frames


def test_the_advice_names_only_what_would_help() -> None:
    assert "subsampling=4" in way_to_fit(TDS, "word piece")
    assert "unigram" not in way_to_fit(TDS, "word piece")
    assert way_to_fit(CONFORMER, "character").startswith(
        "use longer tokens (tokenizer.kind=unigram), or check"
    )
    assert way_to_fit(CONFORMER, "word piece").startswith("check that the transcripts belong to their audio")
