"""The results of a run: the verdict on it, with the facts that this rests on, and the files that are left."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from priormatch.config import MatchingSettings, Settings
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import summary
from priormatch.files import set_aside
from priormatch.pipeline.run_data import RunData
from priormatch.pipeline.stages import Run
from priormatch.progress import duration_text, say
from priormatch.report.page import FILE as REPORT
from priormatch.report.page import write_report
from priormatch.report.run_folder import Line, read_metrics, values
from priormatch.runs.results import BASE, START, draw, same_systems, show, transcribed, write_results
from priormatch.runs.stage import MATCHING, read_record
from priormatch.runs.verdict import Comparison, Facts, Matched, Size, Verdict

RESULTS = "results.json"
LONGER = (
    "supervised is the model of supervised-longer: trained further for as many updates as matching makes, so that"
    " matching is compared with the same amount of training"
)
"""A note to results with both."""


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
    tests = {name: compared(results, name, path) for name, path in decoded.get(MATCHING, {}).items()}
    return Facts(
        tests,
        matched(lines, settings.matching),
        validation_size(data.validation, settings.training.validate_on),
        data.test == data.validation,
        refusal,
    )


def compared(results: Mapping[str, Any], name: str, transcripts: Path) -> Comparison:
    """The comparison on a test set, and its size."""
    found, gain = transcribed(transcripts), results["gain"][MATCHING][name]
    return Comparison(
        utterances=len(found),
        words=sum(len((each.reference or "").split()) for each in found),
        before=results["systems"][BASE][name]["wer"],
        after=results["systems"][MATCHING][name]["wer"],
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


def finish(this: Run, results: dict[str, Any], judged: Verdict) -> None:
    """Write, plot and print the results and the verdict, and write the report of the run."""
    folders = {"data": this.folder / "data"} | {name: stage.folder for name, stage in this.made.items()}
    records = {
        name: record for name, folder in folders.items() if (record := read_record(folder)) is not None
    }
    seconds = {name: record["seconds"] for name, record in records.items()}
    results |= {
        "seconds": {"total": round(sum(seconds.values()), 1), **seconds},
        "peak_memory_mb": max(record["peak_memory_mb"] for record in records.values()),
        "seed": this.settings.training.seed,
        "versions": next(iter(records.values()))["versions"],
        "notes": [*this.data.notes, *([LONGER] if START in results["systems"] else [])],
        "verdict": judged.as_json(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    path = this.folder / RESULTS
    if path.exists() and not same_systems(path, results):
        for old in (path, path.with_suffix(".png"), this.folder / REPORT):
            if old.exists():
                say(f"{old.name}: the old file is kept as {set_aside(old)}")
    write_results(path, results)
    drawn = draw(results, this.folder / "results.png")
    show(results, f"{this.settings.name}: word error rates")
    for line in judged.lines():
        print(line)
    for note in results["notes"]:
        say(note)
    say(
        f"{duration_text(results['seconds']['total'])} in total, peak memory {results['peak_memory_mb']:.0f} MB"
    )
    picture = f" and {path.with_suffix('.png')}" if drawn else ""
    say(f"results: {path}{picture}")
    model, events = this.folder / MATCHING / "model", this.folder / "tensorboard"
    models = (
        f"{model} and those of the other stages"
        if model.is_dir()
        else f"those of the stages in {this.folder}"
    )
    say(f"models: {models}{f'; TensorBoard: {events}' * events.is_dir()}")
    say(f"report, to open in a browser: {write_report([this.folder])}")
