"""Read a run's folder: settings, data, stages, metrics, scores and beams, and what is missing."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, TypeVar

from priormatch.config import Settings, flat
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX, Summary, summary
from priormatch.errors import UserError
from priormatch.files import read_text
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.progress import track
from priormatch.report.test_sets import Counts, Speaker, Worst, cuts_of_test, speakers_of, worst_of
from priormatch.runs.results import (
    BASE,
    NAMES,
    TOP,
    decoded_files,
    difference_in_words,
    is_compared,
    transcribed,
)
from priormatch.runs.stage import FILE as STAGE
from priormatch.runs.stage import MATCHING, read_record
from priormatch.scoring.bootstrap import bootstrap_interval, paired_bootstrap, recovered_interval
from priormatch.scoring.error_rates import (
    ErrorCounts,
    ErrorKinds,
    character_errors,
    kinds_of_errors,
    word_error_rate_recovered,
    word_errors,
)
from priormatch.scoring.transcripts import both_sides
from priormatch.training.inspected import FILE as INSPECTED
from priormatch.training.inspected import Inspected, read_inspected
from priormatch.training.metrics import parse_entry
from priormatch.yaml_files import read_yaml

Found = TypeVar("Found")
Line = dict[str, Any]
"""A line of metrics.jsonl: its stage, its update, and metrics."""

ORDER = (
    *("data", "tokenizer", "prior", "supervised", "lengths", "supervised-longer", "labels", "pseudo_label"),
    *("fusion", "fusion-matching", "lengths-asr_lm", "lengths-speaking_rate", "lengths-oracle", MATCHING),
)
RESULT_FIELDS = {"finished": str, "notes": list, "versions": dict, "peak_memory_mb": float, "verdict": dict}
VERDICT_FIELDS = {"text": str, "tests": list, "reasons": list, "next": list}
"""The fields that the report takes from results.json, with their types."""
OF_EACH = ("name", "runs")
"""Settings that give the location of a run, not what it does."""
SET_ASIDE = re.compile(r"\.\d+$")
OURS = "lpm"


@dataclass(frozen=True)
class Estimate:
    """A rate in percent with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Score:
    """Scores of a system on a test set; no WERR for baseline and topline, or if one of these is missing."""

    wer: Estimate
    cer: Estimate
    werr: Estimate | None
    kinds: ErrorKinds


@dataclass(frozen=True)
class Scores:
    """Scores by test set and system, in the order of `NAMES`, and sentences on the differences between systems.

    `speakers` are sorted by the error rate of `judged`, and `worst` are its utterances with the most errors.
    """

    tests: Mapping[str, Mapping[str, Score]]
    differences: list[str]
    judged: str = BASE
    speakers: Mapping[str, Sequence[Speaker]] = field(default_factory=dict)
    worst: Mapping[str, Sequence[Worst]] = field(default_factory=dict)


@dataclass(frozen=True)
class Change:
    """A setting that differs from its default."""

    name: str
    value: str
    default: str


@dataclass(frozen=True)
class RunRecord:
    """The contents of a run's folder; `missing` describes in sentences what is missing or could not be read."""

    folder: Path
    name: str
    changes: list[Change]
    settings: dict[str, Any]  # by dotted names
    data: dict[str, Summary]
    sentences: dict[str, int]
    stages: dict[str, dict[str, Any]]
    results: dict[str, Any]  # empty if the run is not finished
    metrics: dict[str, list[Line]]
    scores: Scores
    inspected: list[Inspected]
    missing: list[str]

    @property
    def matching_stage(self) -> str:
        """The stage of matching in the metrics; `priormatch match` may use any name."""
        found = (
            name for name, lines in self.metrics.items() if any("proposal_cer" in line for line in lines)
        )
        return next(found, MATCHING)

    @property
    def matching(self) -> list[Line]:
        """The metrics of local prior matching."""
        return self.metrics.get(self.matching_stage, [])


def read_run(folder: Path) -> RunRecord:
    """Read a run's folder as far as possible; raise `UserError` if no run or training has written to it."""
    if not any((folder / name).is_file() for name in ("settings.yaml", "metrics.jsonl")):
        raise UserError(
            f"{folder} is not the folder of a run: provide one that `priormatch run` made, such as runs/demo"
        )
    missing: list[str] = []
    settings: dict[str, Any] = attempt(read_settings, folder / "settings.yaml", {}, missing)
    defaults = flat(asdict(Settings()))
    changes = [
        Change(name, str(value), str(defaults.get(name, "")))
        for name, value in settings.items()
        if value != defaults.get(name) and name not in OF_EACH
    ]
    results: dict[str, Any] = attempt(read_results, folder / "results.json", {}, missing)
    stages: dict[str, dict[str, Any]] = attempt(read_stages, folder, {}, missing)
    unfinished = [name for name, record in stages.items() if not record["finished"]]
    if not results:
        at_work = f" ({', '.join(unfinished)} not yet done)" if unfinished else ""
        missing.insert(0, f"The run is not finished{at_work}: this report covers its progress so far.")
    return RunRecord(
        folder,
        str(settings.get("name") or folder.resolve().name),
        changes,
        settings,
        attempt(read_data, folder / "data", {}, missing),
        count_sentences(folder / "data"),
        stages,
        results,
        read_metrics(folder / "metrics.jsonl", missing),
        attempt(read_scores, folder, Scores({}, []), missing),
        attempt(read_beams, folder, [], missing),
        missing,
    )


def attempt(read: Callable[[Path], Found], path: Path, otherwise: Found, missing: list[str]) -> Found:
    """Read a path; if that fails, add the reason to `missing` and return `otherwise`."""
    try:
        return read(path)
    except (UserError, OSError) as error:
        missing.append(f"{error}.")
        return otherwise


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings of a run by their dotted names; empty if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        tree = with_names(read_yaml(path), NEW_NAMES)
    except UserError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(tree, dict):
        raise UserError(f"{path} contains no settings")
    return flat(tree)


def read_results(path: Path) -> dict[str, Any]:
    """Read results.json; empty if the run has not written it yet."""
    if not path.is_file():
        return {}
    try:
        found = parse_json(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not (isinstance(found, dict) and has_types(found, RESULT_FIELDS)):
        raise UserError(f"{path} contains no results of a run")
    if not has_types(found.get("verdict", {}), VERDICT_FIELDS):
        raise UserError(f"the verdict in {path} is damaged")
    return found


def has_types(values: Mapping[str, Any], types: Mapping[str, type]) -> bool:
    """Whether the values that are there have these types."""
    return all(isinstance(values.get(name, kind()), kind) for name, kind in types.items())


def read_stages(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the records of the stages, in the order of a run."""
    files = [*folder.glob(STAGE), *folder.glob(f"*/{STAGE}"), *folder.glob(f"*/*/{STAGE}")]
    names = {file.parent: str(file.parent.relative_to(folder)) for file in files}
    kept = {where: name for where, name in names.items() if not SET_ASIDE.search(name)}
    records = {folder.name if name == "." else name: read_record(where) for where, name in kept.items()}
    if bad := [name for name, record in records.items() if record and not is_number(record["seconds"])]:
        raise UserError(f"{STAGE} of {bad[0]} in {folder} is damaged: its seconds are missing")
    return {name: record for name in sorted(records, key=place) if (record := records[name]) is not None}


def place(stage: str) -> tuple[int, int, str]:
    """Sort key of a stage: known stages in their order, decoding last."""
    return stage.startswith("decoded/"), ORDER.index(stage) if stage in ORDER else len(ORDER), stage


def read_data(folder: Path) -> dict[str, Summary]:
    """Summarize the manifests of a run."""
    paths = track(sorted(folder.glob(f"*{SUFFIX}")), "reading the data")
    return {path.name.removesuffix(SUFFIX): summary(read_cuts(path)) for path in paths}


def count_sentences(folder: Path) -> dict[str, int]:
    """Count the lines of a run's text files."""
    counts = {}
    for path in sorted(folder.glob("*.txt")):
        with path.open("rb") as file:
            counts[path.stem] = sum(1 for _ in file)
    return counts


def read_metrics(path: Path, missing: list[str]) -> dict[str, list[Line]]:
    """Read the lines of metrics.jsonl by stage, sorted by update; damaged lines are counted in `missing`."""
    if not path.is_file():
        missing.append(f"{path} is missing, so there are no learning curves.")
        return {}
    stages: dict[str, list[Line]] = {}
    damaged = 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = parse_entry(text)
        if line is None or not is_number(line["update"]):
            damaged += 1
        else:
            stages.setdefault(line["stage"], []).append(line)
    if damaged:
        missing.append(f"{path} has {damaged} unreadable line{'s' * (damaged > 1)}, left out here.")
    return {stage: sorted(lines, key=lambda line: line["update"]) for stage, lines in stages.items()}


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a JSON value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def read_beams(folder: Path) -> list[Inspected]:
    """Read the beams that matching kept, in a run or in a separate folder."""
    files = [file for place in (folder / MATCHING, folder) if (file := place / INSPECTED).is_file()]
    return read_inspected(files[0]) if files else []


def values(lines: Sequence[Line], name: str) -> list[tuple[float, float]]:
    """Return (update, value) for the lines in which the metric is a number."""
    return [(line["update"], line[name]) for line in lines if is_number(line.get(name))]


def read_scores(folder: Path) -> Scores:
    """Score the transcripts in `decoded/SYSTEM/TEST.jsonl` of a run, if there are any."""
    heard = {
        (test, system): transcripts
        for system, files in decoded_files(folder / "decoded").items()
        for test, path in files.items()
        if (transcripts := transcribed(path))
    }
    sides = {key: both_sides(transcripts) for key, transcripts in heard.items()}
    counts = {key: word_errors(*both) for key, both in sides.items()}
    tests: dict[str, dict[str, Score]] = {}
    for (test, system), both in track(sides.items(), "intervals", len(sides)):
        wer, cer = estimate(counts[test, system]), estimate(character_errors(*both))
        kinds = kinds_of_errors(*both)
        tests.setdefault(test, {})[system] = Score(wer, cer, recovered(counts, test, system), kinds)
    tests = {test: tests[test] for test in sorted(tests)}
    judged = OURS if any(OURS in systems for systems in tests.values()) else BASE
    cuts = {test: cuts_of_test(folder / "data", test) for test in tests}
    return Scores(
        tests,
        [words for test in tests for words in differences(counts, test)],
        judged,
        {test: speakers_of(test, heard, counts, cuts[test], judged) for test in tests},
        {test: worst_of(heard.get((test, judged), []), cuts[test]) for test in tests},
    )


def estimate(counts: ErrorCounts) -> Estimate:
    """Compute an error rate and its confidence interval."""
    return Estimate(counts.rate, *bootstrap_interval(counts))


def recovered(counts: Counts, test: str, system: str) -> Estimate | None:
    """Compute the share of the gap between baseline and topline that a system closes (WERR)."""
    base, mine, top = (counts.get((test, name)) for name in (BASE, system, TOP))
    if not is_compared(system) or base is None or mine is None or top is None or base.rate == top.rate:
        return None
    try:
        interval = recovered_interval(base, mine, top)
    except ValueError:  # scored on other utterances
        return None
    return Estimate(word_error_rate_recovered(base.rate, mine.rate, top.rate), *interval)


def differences(counts: Counts, test: str) -> Iterator[str]:
    """Compare local prior matching with the other systems by a paired bootstrap over utterances."""
    ours = counts.get((test, OURS))
    for system in (BASE, "pseudo_label"):
        theirs = counts.get((test, system))
        if ours is None or theirs is None:
            continue
        try:
            found = paired_bootstrap(theirs, ours)
        except ValueError:  # scored on other utterances
            continue
        words = difference_in_words(found.difference, found.interval, found.p_value, NAMES[system])
        yield f"{test}: {NAMES[OURS]} is {words}."
