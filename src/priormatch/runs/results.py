"""Results of a run: error rates of all systems, their comparison, a table and a chart."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from priormatch.files import read_text, replace_text
from priormatch.json_text import parse_json, without_nan
from priormatch.scoring.bootstrap import PairedTest, bootstrap_interval, p_in_words, paired_bootstrap
from priormatch.scoring.error_rates import (
    ErrorCounts,
    character_errors,
    word_error_rate_recovered,
    word_errors,
)
from priormatch.scoring.transcripts import Transcript, both_sides, read_transcripts

START, BASE, TOP = "supervised_start", "supervised", "topline"
NAMES = {
    "supervised_start": "supervised, before longer training",
    "supervised": "supervised",
    "pseudo_label": "fixed pseudo-labels",
    "lpm": "local prior matching",
    "topline": "topline (all labels)",
}


COLORS = dict(zip(NAMES, ["#c5ccd4", "#9aa5b1", "#d9a441", "#2f6f9f", "#6b9e6b"], strict=True))
"""Of the bars in the chart."""


def score_systems(decoded: Mapping[str, Mapping[str, Path]]) -> dict[str, Any]:
    """Error rates with intervals of every system and test set, and gains over the supervised system."""
    transcripts = {
        system: {test: transcribed(path) for test, path in tests.items()} for system, tests in decoded.items()
    }
    errors = {
        system: {test: word_errors(*both_sides(each)) for test, each in tests.items()}
        for system, tests in transcripts.items()
    }
    systems = {
        system: {test: rates(errors[system][test], each) for test, each in tests.items()}
        for system, tests in transcripts.items()
    }
    others = [system for system in systems if is_compared(system)]
    results: dict[str, Any] = {"systems": systems, "werr": {}, "gain": {}, "lpm_against_pseudo_label": {}}
    for system in others:
        tests = systems[system]
        results["gain"][system] = {
            test: paired_entry(paired_bootstrap(errors[BASE][test], errors[system][test])) for test in tests
        }
        if TOP in systems:
            results["werr"][system] = {
                test: word_error_rate_recovered(
                    systems[BASE][test]["wer"], tests[test]["wer"], systems[TOP][test]["wer"]
                )
                for test in tests
            }
    if {"lpm", "pseudo_label"} <= systems.keys():
        results["lpm_against_pseudo_label"] = {
            test: paired_entry(paired_bootstrap(errors["pseudo_label"][test], errors["lpm"][test]))
            for test in systems["lpm"]
        }
    return results


def is_compared(system: str) -> bool:
    """Whether a system is compared with the baseline: not the baseline, what it was trained from, or the topline."""
    return system not in (START, BASE, TOP)


def transcribed(path: Path) -> list[Transcript]:
    """The transcripts that have references."""
    return [each for each in read_transcripts(path) if each.reference is not None]


def decoded_files(folder: Path) -> dict[str, dict[str, Path]]:
    """The transcripts `folder/SYSTEM/TEST.jsonl` by system, in the order of `NAMES`, and test set."""
    return {
        system: {path.stem: path for path in sorted((folder / system).glob("*.jsonl"))}
        for system in NAMES
        if (folder / system).is_dir()
    }


def rates(errors: ErrorCounts, transcripts: list[Transcript]) -> dict[str, Any]:
    """WER with its 95 % confidence interval, and CER, in percent."""
    cer = character_errors(*both_sides(transcripts))
    return {"wer": errors.rate, "wer_interval": list(bootstrap_interval(errors)), "cer": cer.rate}


def paired_entry(test: PairedTest) -> dict[str, Any]:
    """Convert a comparison of two systems to a JSON entry."""
    return {
        "difference": test.difference,
        "interval": list(test.interval),
        "p_value": test.p_value,
        "relative": test.relative_gain,
        "relative_interval": list(test.relative_interval),
    }


def table(results: Mapping[str, Any], title: str) -> Table:
    """WER of each system and test set, with the recovered share of the gap or the relative gain."""
    tests = list(next(iter(results["systems"].values())))
    recovered = bool(results["werr"])
    shown = Table(title=title, title_justify="left")
    shown.add_column("system")
    for test in tests:
        shown.add_column(f"{test}\nWER % (95 %)", justify="right")
        shown.add_column("WERR %" if recovered else "relative gain % (p)", justify="right")
    for system, rows in results["systems"].items():
        cells = []
        for test in tests:
            low, high = rows[test]["wer_interval"]
            cells.append(f"{rows[test]['wer']:.2f} ({low:.2f}-{high:.2f})")
            cells.append(gain_cell(results, system, test, recovered))
        shown.add_row(NAMES.get(system, system), *cells)
    return shown


def gain_cell(results: Mapping[str, Any], system: str, test: str, recovered: bool) -> str:
    """The gain of a system on a test set; "" for the baseline and the topline."""
    if recovered:
        return f"{results['werr'][system][test]:.1f}" if system in results["werr"] else ""
    if system not in results["gain"]:
        return ""
    gain = results["gain"][system][test]
    return f"{gain['relative']:.1f} ({p_in_words(gain['p_value'])})"


def show(results: Mapping[str, Any], title: str) -> None:
    """Print the table on standard output."""
    console = Console()
    console.print(table(results, title))
    for test, against in results["lpm_against_pseudo_label"].items():
        words = difference_in_words(
            against["difference"], against["interval"], against["p_value"], "the pseudo-labels"
        )
        console.print(f"{test}: local prior matching is {words}", highlight=False)


def difference_in_words(difference: float, interval: Sequence[float], p_value: float, other: str) -> str:
    """Describe how far a WER is below or above another, with the 95 % confidence interval of the difference."""
    low, high = interval if difference >= 0 else (-interval[1], -interval[0])
    apart = f"{abs(difference):.2f} points of WER {'below' if difference > 0 else 'above'} {other}"
    words = apart if difference else f"equal to {other} in WER"
    return f"{words} (95 % {low:.2f} to {high:.2f}, {p_in_words(p_value)})"


def draw(results: Mapping[str, Any], path: Path) -> bool:
    """Draw the error rates as bars with confidence intervals; return False if Matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    systems = results["systems"]
    tests = list(next(iter(systems.values())))
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots(1, len(tests), sharey=True, squeeze=False)[0]
    for axis, test in zip(axes, tests, strict=True):
        values = [systems[system][test]["wer"] for system in systems]
        bounds = [systems[system][test]["wer_interval"] for system in systems]
        reach = [
            [value - low for value, (low, _) in zip(values, bounds, strict=True)],
            [high - value for value, (_, high) in zip(values, bounds, strict=True)],
        ]
        positions = range(len(systems))
        axis.barh(positions, values, xerr=reach, color=[COLORS[system] for system in systems], capsize=3)
        axis.set_yticks(positions, [NAMES.get(system, system) for system in systems])
        axis.set_title(test)
        axis.set_xlabel("word error rate, %")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0].invert_yaxis()  # shared by all
    figure.savefig(path, dpi=150)
    return True


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write results.json; NaN, such as the WERR without a gap, becomes null."""
    replace_text(path, json.dumps(without_nan(results), indent=2, allow_nan=False) + "\n")


def same_systems(path: Path, results: Mapping[str, Any]) -> bool:
    """Whether a results.json has the same error rates."""
    try:
        return parse_json(read_text(path))["systems"] == without_nan(results["systems"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
