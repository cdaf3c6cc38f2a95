"""The systems behind the rows of the paper's tables, as settings of one training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from priormatch.tables.paper import MISSING, Row, read_table

Kind = Literal["supervised", "topline", "matched", "pseudo_labels"]
Labels = Literal["asr", "asr_lm"]
Unlabelled = Literal["clean", "all"]
"""The paper's 360 hours, and its 860."""

KEPT = {
    "A": "",
    "B": "B",
    "C": "C",
}  # where trainings start: A is the best supervised model, the others kept copies
UPDATES = {"On": "on_policy", "Off_never": "never", "Off_always": "always", "Off_better": "better"}
ALPHA = 0.2  # the paper's default
LENGTHS = {"Oracle": "oracle", "ASR+LM_decode": "asr_lm", "ASR_only_decode": "greedy"}


@dataclass(frozen=True)
class System:
    """One trained recogniser: how, on which unlabelled speech, and what differs from the scale's settings.

    A `supervised` one is trained on for as long as matching is; a `topline` has the transcripts of the unlabelled
    speech; `pseudo_labels` learns from fixed labels, by the best supervised model or by a copy that was kept.
    """

    kind: Kind
    unlabelled: Unlabelled = "clean"
    settings: tuple[str, ...] = ()
    labels: tuple[Labels, ...] = ()
    labeller: str = ""
    filtered: bool = True  # whether labels are filtered as Kahn et al. do
    loss_scale: float = 1.0  # times the scale's own loss weight, which stands for the paper's 0.2
    main: bool = False  # of the main results, which the paper trains for longer


def matched(unlabelled: Unlabelled = "clean", /, **matching: object) -> System:
    """Matching of some kind, by default as the paper has it: the proposal starts from A, the online model from C."""
    return System("matched", unlabelled, overrides({"start": KEPT["C"], "proposal": KEPT["A"], **matching}))


def overrides(matching: Mapping[str, object]) -> tuple[str, ...]:
    """Settings of matching as overrides, less those that are empty."""
    plain = {f"matching.{name}": str(value).replace(" ", "") for name, value in matching.items()}
    return tuple(f"{key}={value}" for key, value in plain.items() if value)


def distilled(teacher: str, beam_size: str, proposal: str = "A") -> System:
    """Distillation of the proposal: all hypotheses of its beam weigh the same, and no length filter is used."""
    return matched(
        prior_exponent=0,
        length_filter=[],
        refresh="never" if teacher == "Fix" else "better",
        beam_size=beam_size,
        proposal=KEPT[proposal],
    )


def labelled(
    source: Labels, unlabelled: Unlabelled = "clean", labeller: str = "A", filtered: bool = True
) -> System:
    """Fixed pseudo-labels, learnt from where matching starts."""
    settings = overrides({"start": KEPT["C"]})
    return System("pseudo_labels", unlabelled, settings, (source,), KEPT[labeller], filtered)


def system_of(table: str, row: Row, position: int) -> System | None:
    """The system of a row; None for one that is quoted from elsewhere, or that the paper leaves empty."""
    match table:
        case "tab1_hypotheses":
            return None  # beams, not error rates: tables/hypotheses.py
        case "tab2_beam_mix":
            mixing = row["mix_paired_to_unpaired"].replace(":", ",")
            speech: Unlabelled = "clean" if row["unlabeled_hours"] == "360" else "all"
            return matched(speech, beam_size=row["beam_k"], mixing=f"[{mixing}]")
        case "tab3_init_update":
            if row["dev_clean_wer"] == MISSING:
                return None
            return matched(
                start=KEPT[row["init_online"]],
                proposal=KEPT[row["init_proposal"]],
                refresh=UPDATES[row["proposal_update"]],
            )
        case "tab4_length_filter":
            bounds: dict[str, object] = {} if row["length_filter"] == "yes" else {"length_filter": []}
            return matched(start=KEPT["A"], refresh=UPDATES[row["proposal_update"]], **bounds)
        case "tab5_lm_ppl":
            return matched(prior="" if position == 0 else f"weaker{position}")
        case "tab6_kd" | "tabA3_kd_ext":
            if row["method"] == "LPM":
                return matched(proposal=KEPT[row.get("init_proposal", "A")])
            if row["hyp_source"] == "ASR+LM":
                return labelled("asr_lm", labeller=row.get("init_proposal", "A"), filtered=False)
            return distilled(row["teacher"], row["k"], row.get("init_proposal", "A"))
        case "tabA1_alpha":
            return replace(matched(), loss_scale=float(row["alpha"]) / ALPHA)
        case "tabA2_reflen":
            return matched(reference_lengths=LENGTHS[row["reference_length"]])
        case "tab8_label_quality":
            system = matched("all") if row["method"] == "LPM" else labelled("asr_lm", "all")
            return replace(system, main=True)
        case _:
            system_or_none = main_system(row)
            return system_or_none and replace(system_or_none, main=True)


def main_system(row: Row) -> System | None:
    """The system of a row of the main results and of the analyses of them."""
    method, speech = row.get("method") or row["system"], row.get("unlabeled_hours") or row["unlabeled"]
    unlabelled: Unlabelled = "all" if speech.startswith("860") else "clean"
    if row.get("source", "this") not in ("this", "kahn2019") or speech.startswith("60000"):
        return None
    match method.rstrip("*"):
        case "Supervised" | "GroundTruth":
            return System("topline" if row["labeled_hours"] == "460" else "supervised")
        case "LPM":
            return matched(unlabelled)
        case "PL(ASR)":
            return labelled("asr", unlabelled)
        case "PL(ASR+LM)":
            return labelled("asr_lm", unlabelled)
        case _:
            return None


MORE: dict[str, list[tuple[dict[str, str], System]]] = {
    "tab6_kd": [
        ({"method": "KD, length filter", "teacher": "Imp", "k": "4"}, matched(prior_exponent=0)),
        (
            {"method": "KD, posterior", "teacher": "Imp", "k": "4"},
            matched(prior_exponent=0, proposal_exponent=1, length_filter=[]),
        ),
        ({"method": "LPM, times posterior^0.3", "teacher": "Imp", "k": "4"}, matched(proposal_exponent=0.3)),
        ({"method": "LPM, moving average", "teacher": "Imp", "k": "4"}, matched(refresh="average")),
    ],
}
"""Rows that the paper has not, by table."""


def rows_of(table: str) -> list[tuple[Row, System | None]]:
    """The rows of a table, each with its system, and behind them rows that the paper has not."""
    rows = read_table(table)
    empty = dict.fromkeys(rows[0], MISSING) | ({"hyp_source": "ASR"} if "hyp_source" in rows[0] else {})
    found = [(row, system_of(table, row, position)) for position, row in enumerate(rows)]
    return [*found, *((empty | more, system) for more, system in MORE.get(table, []))]
