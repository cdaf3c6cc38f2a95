"""What a verdict takes from metrics and data."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from lhotse import CutSet, Recording

from priormatch.config import MatchingSettings
from priormatch.data.manifest import utterance
from priormatch.pipeline.run_results import matched, validation_size

LINES: list[dict[str, Any]] = [
    {"stage": "lpm", "update": 0, "validation_score": 20.0, "proposal_refreshed": False},
    {"stage": "lpm", "update": 10, "share_without_survivor": 0.25},
    {"stage": "lpm", "update": 20, "share_without_survivor": 0.75},
    {"stage": "lpm", "update": 20, "validation_score": 25.0, "proposal_refreshed": False},
]


def test_the_record_of_matching_is_read_from_its_metrics() -> None:
    found = matched(LINES, MatchingSettings())
    assert (found.scores, found.replaced, found.without_survivor) == ({0: 20.0, 20: 25.0}, False, 0.5)
    assert found.unchanged
    later = [*LINES, {"stage": "lpm", "update": 30, "validation_score": 15.0, "proposal_refreshed": True}]
    assert matched(later, MatchingSettings()).replaced


def test_a_proposal_that_may_not_be_replaced_is_not_blamed() -> None:
    for settings in (MatchingSettings(refresh="never"), MatchingSettings(baseline="topipl")):
        assert matched(LINES, settings).replaced is None
    assert matched(LINES[:1], MatchingSettings()).replaced is None
    assert matched(LINES, MatchingSettings(length_filter=[])).without_survivor is None
    assert not matched(LINES, replace(MatchingSettings(), start_counts=False)).unchanged
    assert matched([], MatchingSettings()).scores == {}


def test_the_size_of_validation_is_of_what_training_uses(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(48_000, np.float32), 16_000)
    recording = Recording.from_file(tmp_path / "a.wav")
    cuts = CutSet.from_cuts([utterance(f"u{n}", recording, "one", None, "English") for n in range(4)])
    cuts.to_file(tmp_path / "dev.jsonl.gz")
    sets = {"one": tmp_path / "dev.jsonl.gz", "two": tmp_path / "dev.jsonl.gz"}
    whole, some = validation_size(sets, 0), validation_size(sets, 1)
    assert (whole.utterances, whole.seconds) == (8, 24.0)
    assert (some.utterances, some.seconds) == (2, 6.0)
