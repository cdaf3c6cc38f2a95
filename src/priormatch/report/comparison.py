"""Compare several runs: their error rates on each test set, and the settings that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from priormatch.report.charts import IntervalChart, grouped_chart
from priormatch.report.curves import MEASURES, TONES
from priormatch.report.run_folder import OF_EACH, RunRecord
from priormatch.report.scores import Score
from priormatch.runs.results import NAMES


@dataclass(frozen=True)
class Comparison:
    """The scores of runs on a test set, by system and run, and their charts."""

    test: str
    systems: dict[str, dict[str, Score]]
    charts: list[IntervalChart]


def compared(runs: Mapping[str, RunRecord]) -> list[Comparison]:
    """Compare runs, given by their labels, on every test set."""
    tests = dict.fromkeys(test for record in runs.values() for test in record.scores.tests)
    return [
        compare(test, {label: record.scores.tests.get(test, {}) for label, record in runs.items()})
        for test in tests
    ]


def compare(test: str, runs: Mapping[str, Mapping[str, Score]]) -> Comparison:
    """Compare runs on one test set, given their scores by system."""
    found = {
        system: {label: scores[system] for label, scores in runs.items() if system in scores}
        for system in NAMES
    }
    systems = {system: scores for system, scores in found.items() if scores}
    charts = [
        grouped_chart(
            f"{test}: {title}",
            {
                NAMES[system]: [
                    (label, TONES[system], each)
                    for label, score in scores.items()
                    if (each := measure(score))
                ]
                for system, scores in systems.items()
            },
        )
        for title, measure in MEASURES.items()
    ]
    return Comparison(test, systems, [chart for chart in charts if chart is not None])


def differing(records: Sequence[RunRecord]) -> dict[str, list[str]]:
    """Return the settings that differ, with each run's value; "unknown" for a run without settings."""
    names = dict.fromkeys(name for record in records for name in record.settings if name not in OF_EACH)
    rows = {
        name: [str(record.settings.get(name, "–")) if record.settings else "unknown" for record in records]
        for name in names
    }
    return {name: row for name, row in rows.items() if len({*row} - {"unknown"}) > 1}
