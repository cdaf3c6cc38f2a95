"""The facts that the verdict on a run rests on, from its results, metrics and data."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from priormatch.config import MatchingSettings, Settings
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import summary
from priormatch.pipeline.run_data import RunData
from priormatch.report.run_folder import Line, read_metrics, values
from priormatch.runs.results import BASE, transcribed
from priormatch.runs.stage import MATCHING
from priormatch.runs.verdict import Comparison, Facts, Matched, Size

OURS = "lpm"


def facts_of(
    folder: Path,
    settings: Settings,
    data: RunData,
    results: Mapping[str, Any],
    decoded: Mapping[str, Mapping[str, Path]],
    *,
    refusal: str = "",
) -> Facts:
    """What is known about a run whose systems were scored."""
    lines = read_metrics(folder / "metrics.jsonl", []).get(MATCHING, [])
    tests = {name: compared(results, name, path) for name, path in decoded.get(OURS, {}).items()}
    return Facts(
        tests,
        matched(lines, settings.matching),
        validation_size(data.validation, settings.training.validate_on),
        data.test == data.validation,
        refusal,
    )


def compared(results: Mapping[str, Any], name: str, transcripts: Path) -> Comparison:
    """The comparison on a test set, and its size."""
    found, gain = transcribed(transcripts), results["gain"][OURS][name]
    return Comparison(
        utterances=len(found),
        words=sum(len((each.reference or "").split()) for each in found),
        before=results["systems"][BASE][name]["wer"],
        after=results["systems"][OURS][name]["wer"],
        gain=gain["relative"],
        interval=(gain["relative_interval"][0], gain["relative_interval"][1]),
        p_value=gain["p_value"],
    )


def matched(lines: Sequence[Line], settings: MatchingSettings) -> Matched:
    """What the metrics tell about matching."""
    decisions = [
        line["proposal_refreshed"] for line in lines if line["update"] > 0 and "proposal_refreshed" in line
    ]
    judged = settings.refresh == "better" and settings.baseline != "topipl"
    left = [share for _, share in values(lines, "share_without_survivor")]
    return Matched(
        scores={int(update): score for update, score in values(lines, "validation_score")},
        replaced=any(decisions) if judged and decisions else None,
        without_survivor=sum(left) / len(left) if left and settings.length_filter else None,
        start_counts=settings.start_counts,
    )


def validation_size(paths: Mapping[str, Path], most: int) -> Size:
    """The size of all validation sets together, as training uses at most `most` utterances of each; 0: all."""
    utterances, seconds = 0, 0.0
    for path in paths.values():
        whole = summary(read_cuts(path))
        used = min(whole.utterances, most) if most else whole.utterances
        utterances += used
        seconds += 3600 * whole.hours * used / max(whole.utterances, 1)
    return Size(utterances, seconds)
