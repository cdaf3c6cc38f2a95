"""The systems behind the rows of the paper's tables, as settings of one training."""

import re
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
LENGTHS = {"Oracle": "oracle", "ASR+LM_decode": "asr_lm", "ASR_only_decode": "greedy"}


@dataclass(frozen=True)
class System:
    """One trained recogniser: how, on which unlabelled speech, and what differs from the scale's settings.

    A `supervised` one is trained on for as long as matching is; a `topline` has the transcripts of the unlabelled
    speech; `pseudo_labels` learns from fixed labels by the models named.
    """

    kind: Kind
    unlabelled: Unlabelled = "clean"
    settings: tuple[str, ...] = ()
    labels: tuple[Labels, ...] = ()
    main: bool = False  # of the main results, which the paper trains for longer

    @property
    def name(self) -> str:
        """What its folder is called."""
        unlabelled = [] if self.kind == "supervised" else [self.unlabelled]
        changed = [each.removeprefix("matching.") for each in self.settings]
        words = "-".join([self.kind, *unlabelled, *self.labels, *changed])
        return re.sub(r"[^\w.=,+\-]+", "_", words)


def matched(unlabelled: Unlabelled = "clean", /, **matching: object) -> System:
    """Matching of some kind, by default as the paper has it: the proposal starts from A, the online model from C."""
    wanted = {"start": KEPT["C"], "proposal": KEPT["A"], **matching}
    changed = {f"matching.{name}": str(value).replace(" ", "") for name, value in wanted.items()}
    settings = tuple(f"{key}={value}" for key, value in changed.items() if value)
    return System("matched", unlabelled, settings)


def distilled(teacher: str, beam_size: str, proposal: str = "A", **matching: object) -> System:
    """Distillation of the proposal: all hypotheses of its beam weigh the same, and no length filter is used."""
    return matched(
        prior_exponent=0, length_filter=[], refresh="never" if teacher == "Fix" else "better",
        beam_size=beam_size, proposal=KEPT[proposal], **matching,
    )  # fmt: skip


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
                return (
                    System("pseudo_labels", labels=("asr_lm",))
                    if row.get("init_proposal", "A") == "A"
                    else None
                )
            return distilled(row["teacher"], row["k"], row.get("init_proposal", "A"))
        case "tabA1_alpha":
            return matched(loss_weight=row["alpha"])
        case "tabA2_reflen":
            return matched(reference_lengths=LENGTHS[row["reference_length"]])
        case "tab8_label_quality":
            return (
                replace(matched("all"), main=True)
                if row["method"] == "LPM"
                else System("pseudo_labels", "all", labels=("asr_lm",))
            )
        case _:
            return main_system(row)


def main_system(row: Row) -> System | None:
    """The system of a row of the main results and of the analyses of them."""
    method, speech = (
        row.get("method") or row.get("system") or "",
        row.get("unlabeled_hours") or row.get("unlabeled"),
    )
    unlabelled: Unlabelled = "all" if (speech or "").startswith("860") else "clean"
    if row.get("source", "this") not in ("this", "kahn2019") or "60000" in (speech or ""):
        return None
    if method == "GroundTruth":
        return System("supervised")
    if method == "Supervised":
        return System("supervised") if row["labeled_hours"] == "100" else System("topline")
    if method == "LPM":
        return replace(matched(unlabelled), main=True)
    sources: dict[str, Labels] = {"PL(ASR)": "asr", "PL(ASR+LM)": "asr_lm"}
    source = sources.get(method.rstrip("*"))
    return System("pseudo_labels", unlabelled, labels=(source,)) if source else None


def rows_of(table: str) -> list[tuple[Row, System | None]]:
    """The rows of a table, each with its system."""
    return [(row, system_of(table, row, position)) for position, row in enumerate(read_table(table))]
