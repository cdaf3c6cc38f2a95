"""The rows of tables with their systems: the paper's rows, then our additional rows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from priormatch.decoding.tuning import LIMITS as USUAL_LIMITS
from priormatch.experiments.paper import MISSING, Row, read_table
from priormatch.experiments.systems import (
    LARGE,
    System,
    distilled,
    labeled,
    matched,
    overrides,
    system_of,
    with_settings,
)

USUAL, PAPERS, OFF = (
    "usual",
    "[0.95,1.05]",
    "[]",
)  # bounds of the length filter: those of the scale, those of the paper, none
WEIGHTS: dict[str, dict[str, object]] = {
    "prior": {},
    "uniform": {"prior_exponent": 0},
    "posterior": {"prior_exponent": 0, "proposal_exponent": 1},
}
BY_BOTH: dict[str, object] = {"hypotheses": "asr_lm"}
"""The proposal searches with the prior."""

LABELS: dict[str, object] = {**BY_BOTH, **WEIGHTS["uniform"], "beam_size": 1}
"""The best hypothesis of that search is the label."""

TWO_ROUNDS = "matched-all-second_round=0.4"
LABELS_TWICE = "matched-all-hypotheses=asr_lm-prior_exponent=0-beam_size=1-refresh=never-second_round=0.4"
"""Folders of two rounds of matching, and of fixed labels: a second round did not help and was removed."""

BOTH = "860h(S)+All(T)"
Named = tuple[str, str, System]
"""A method, its unlabeled speech and text, and its system."""

PLAIN: dict[str, dict[str, str]] = {
    "tab2_beam_mix": {"beam_k": "4", "mix_paired_to_unpaired": "1:4"},
    "tab3_init_update": {"init_proposal": "A", "proposal_update": "Off_better"},
    "tab4_length_filter": {"proposal_update": "Off_better", "length_filter": "yes"},
    "tab5_lm_ppl": {"lm_token_ppl": "34.24"},
    "tab6_kd": {"method": "LPM"},
    "tab7_main": {"method": "LPM"},
    "tab8_label_quality": {"method": "LPM", "step": "3.2M"},
    "tabA1_alpha": {"alpha": "0.2"},
    "tabA2_reflen": {"reference_length": "ASR_only_decode"},
    "tabA3_kd_ext": {"method": "LPM"},
    "tabA4_cer": {"method": "LPM"},
    "tabA5_main_ext": {"method": "LPM"},
    "x1_open_questions": {"method": "LPM", "weights": "prior", "length_filter": USUAL, "k": "4"},
    "x2_main_settings": {"method": "LPM", "settings": "T = 100, rate 0.0005"},
    "x3_prior_in_search": {"search": "ASR"},
}
"""Values that identify the row of plain local prior matching, the reference for the other rows of a table."""


class Line(NamedTuple):
    """A row with its number, from 1, and its system; None if the row is printed but not run."""

    number: int
    row: Row
    system: System | None


def lines_of(table: str) -> list[Line]:
    """All rows of a table."""
    rows = read_table(table)
    more = own_rows(table)
    columns = dict.fromkeys(key for row in (*rows, *(row for row, _ in more)) for key in row)
    empty = dict.fromkeys(columns, MISSING)
    found = [(row, system_of(table, row, position)) for position, row in enumerate(rows)]
    return [Line(number, empty | row, system) for number, (row, system) in enumerate([*found, *more], 1)]


def own_rows(table: str) -> list[tuple[Row, System]]:
    """Rows that are not in the paper."""
    match table:
        case "tab6_kd":
            row = {"method": "KD, length filter", "hyp_source": "ASR", "teacher": "Imp", "k": "4"}
            return [(row, matched(prior_exponent=0))]
        case "tab7_main":
            return [
                row
                for systems in (main_systems(), in_two_rounds())
                for decode_lm in ("None", "ConvLM")
                for row in main_rows(systems, decode_lm)
            ]
        case "x1_open_questions":
            return open_questions()
        case "x2_main_settings":
            return main_settings()
        case "x3_prior_in_search":
            return searches()
        case _:
            return []


def main_systems() -> list[Named]:
    """A topline with the labels of all unlabeled speech, and other methods that use that speech without labels."""
    return [
        ("Supervised", MISSING, System("topline", "all")),
        ("LPM_large", BOTH, with_settings(matched("all"), *LARGE)),
        ("KD", "860h(S)", matched("all", beam_size=8, length_filter=[], **WEIGHTS["uniform"])),
        ("PL(ASR+LM), improving", BOTH, matched("all", **LABELS)),
        ("LPM, hypotheses by ASR+LM", BOTH, matched("all", **BY_BOTH, **WEIGHTS["posterior"])),
    ]


def in_two_rounds() -> list[Named]:
    """Two rounds of labels and of matching; in the second, the first round's model searches with the prior."""
    return [
        ("PL(ASR+LM), two rounds", BOTH, System("matched", "all", recorded=LABELS_TWICE)),
        ("LPM, two rounds", BOTH, System("matched", "all", recorded=TWO_ROUNDS)),
    ]


def main_rows(systems: Sequence[Named], decode_lm: str) -> list[tuple[Row, System]]:
    """The rows of systems that follow the main results."""
    recovered = {f"test_{kind}_werr_960_pct": MISSING for kind in ("clean", "other")}
    return [
        (
            {
                "source": "ours",
                "method": method,
                "labeled_hours": "960" if system.kind == "topline" else "100",
                "unlabeled": speech,
                "decode_lm": decode_lm,
                **recovered,
            },
            replace(system, main=True),
        )
        for method, speech, system in systems
    ]


def open_questions() -> list[tuple[Row, System]]:
    """Open questions of the paper: weights with different filters, more hypotheses, directions that it only names."""
    grid = [(weights, bounds, 4) for weights, bounds in product(WEIGHTS, (USUAL, PAPERS, OFF))]
    grid += [(weights, bounds, 8) for weights, bounds in product(("prior", "uniform"), (USUAL, OFF))]
    row, context = open_row("LPM, context", context="true")
    return [
        *(open_row("LPM", *each) for each in grid),
        (row, with_settings(context, "prior.model.context=true")),
        removed_row("LPM, selection", "matched-all-selected=0.5"),
        open_row("LPM, lengths by speaking rate", reference_lengths="speaking_rate"),
        removed_row("LPM, moving average", "matched-all-refresh=average"),
        open_row("LPM, times posterior^0.3", proposal_exponent=0.3),
    ]


def open_row(
    method: str, weights: str = "prior", bounds: str = USUAL, k: int = 4, /, **matching: object
) -> tuple[Row, System]:
    """A row of Table X1 with its system, on all unlabeled speech."""
    row = {"method": method, "weights": weights, "length_filter": bounds, "k": str(k)}
    row |= {f"dev_{kind}_wer": MISSING for kind in ("clean", "other")}
    chosen = {} if bounds == USUAL else {"length_filter": bounds}
    return row, matched("all", beam_size=k, **chosen, **WEIGHTS[weights], **matching)


def removed_row(method: str, recorded: str) -> tuple[Row, System]:
    """A row of Table X1 whose variant was removed, with the folder of its figures."""
    row, _ = open_row(method)
    return row, System("matched", "all", recorded=recorded)


def main_settings() -> list[tuple[Row, System]]:
    """Candidate settings for the main results."""
    unless_told = overrides({"refresh_every": 200, "reference_lengths": "greedy"})
    often = {"refresh_every": 100}
    spoken = often | {"reference_lengths": "speaking_rate"}
    both = spoken | BY_BOTH
    by_rate, by_both = "T = 100, lengths by speaking rate", "hypotheses by ASR + LM"
    labels, unfiltered = labeled("asr_lm", "all"), labeled("asr_lm", "all", filtered=False)
    improving = matched("all", **both, **WEIGHTS["uniform"], beam_size=1)
    fixed, renewed = (replace(distilled(teacher, "8"), unlabeled="all") for teacher in ("Fix", "Imp"))
    low, usual, high = 2.5e-4, 5e-4, 1e-3
    grid: list[tuple[str, str, System, Sequence[float]]] = [
        ("LPM", "T = 200", matched("all"), (usual,)),
        ("LPM", "T = 100", matched("all", **often), (low, usual, high)),
        ("LPM", by_rate, matched("all", **spoken), (low, usual)),
        ("LPM", f"{by_rate}, {by_both}", matched("all", **both), (usual,)),
        (
            "LPM",
            f"{by_rate}, {by_both}, weights too",
            matched("all", **both, **WEIGHTS["posterior"]),
            (usual, high),
        ),
        ("PL(ASR+LM)", "filtered", labels, (low, usual, high)),
        ("PL(ASR+LM)", "not filtered", unfiltered, (low,)),
        ("PL(ASR+LM)", f"improving, {by_rate}", improving, (usual, high)),
        ("KD", "fixed, k = 8", fixed, (low, usual, high)),
        ("KD", "improving, k = 8, T = 100", with_settings(renewed, *overrides(often)), (low, usual, high)),
        ("Supervised", "trained on", System("supervised", "all"), (low, usual, high)),
    ]
    figures = {f"dev_{kind}_wer": MISSING for kind in ("clean", "other")}
    return [
        (
            {"method": method, "settings": f"{settings}, rate {rate:g}", **figures},
            replace(
                with_settings(system, *unless_told, f"matching.optimizer.learning_rate={rate:g}"), main=True
            ),
        )
        for method, settings, system, rates in grid
        for rate in rates
    ]


def searches() -> list[tuple[Row, System]]:
    """Hypotheses of a search with the prior, and their weights.

    The LM weight is tuned or given in the row: 0.4 is best for the first proposal at small scale. Some rows use scores
    that are not centered, with a bonus for each piece instead, equal to the mean cost of a piece. The last two rows
    are only recorded: in a second round, the first round's model was the proposal, searched with the prior, and was not
    replaced.
    """
    tuned, posterior = BY_BOTH, WEIGHTS["posterior"]
    none, much, by_bonus, much_by_bonus = (
        USUAL_LIMITS | {"lm_weight": weight, "centered": centered, "token_bonus": bonus}
        for weight, centered, bonus in ((0, True, 0), (0.4, True, 0), (0.15, False, 0.45), (0.4, False, 1.17))
    )
    rows: list[tuple[str, str, str, dict[str, object], Mapping[str, object]]] = [
        ("ASR", "4", "prior", {}, {}),
        ("ASR+LM", "4", "prior", tuned, {}),
        ("ASR+LM", "4", "of the search", tuned | posterior, {}),
        ("ASR+LM", "4", "of the search, cubed", tuned | posterior | {"proposal_exponent": 3}, {}),
        ("ASR+LM", "1", MISSING, LABELS, {}),
        ("ASR+LM, 0.4", "4", "of the search", tuned | posterior, much),
        ("ASR+LM, 0.4", "1", MISSING, LABELS, much),
        ("ASR+LM, 0.15, bonus 0.45", "4", "of the search", tuned | posterior, by_bonus),
        ("ASR+LM, 0.4, bonus 1.17", "4", "of the search", tuned | posterior, much_by_bonus),
        ("ASR, with limits", "4", "prior", tuned, none),
    ]
    removed = [
        ("ASR, then ASR+LM", "4", "prior, then of the search", TWO_ROUNDS),
        ("ASR+LM, not renewed, twice", "1", MISSING, LABELS_TWICE),
    ]
    figures = {f"dev_{kind}_wer": MISSING for kind in ("clean", "other")}
    trained = [
        (
            {"search": search, "k": k, "weights": weights, **figures},
            replace(with_settings(matched("all", **matching), *overrides(fusion, "fusion")), main=True),
        )
        for search, k, weights, matching, fusion in rows
    ]
    return trained + [
        (
            {"search": search, "k": k, "weights": weights, **figures},
            System("matched", "all", recorded=folder, main=True),
        )
        for search, k, weights, folder in removed
    ]


def reference_of(table: str, lines: Sequence[Line], line: Line, start: str = "C") -> Line | None:
    """The row of plain matching that a row is compared with, with the same decoding, speech and first proposal.

    If a table has several starts of the online model, the plain row has that of the scale, `start`; the paper's is C.
    A row with more speech than any row of plain matching is compared with the one that has most.
    """
    if line.system is None or table not in PLAIN:
        return None
    same = [name for name in ("decode_lm", "init_proposal") if name in line.row and name not in PLAIN[table]]
    speech = "all" if line.system.unlabeled == "light" else line.system.unlabeled
    wanted = {name: line.row[name] for name in same} | PLAIN[table]
    if "init_online" in line.row:
        wanted["init_online"] = start
    for each in lines:
        if each.system is not None and each.system.unlabeled == speech and wanted.items() <= each.row.items():
            return each if each is not line else None
    return None
