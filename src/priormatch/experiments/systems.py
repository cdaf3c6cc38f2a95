"""The systems of the rows of the paper's tables, each as the settings of one training."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from priormatch.experiments.paper import MISSING, Row

Kind = Literal["supervised", "topline", "matched", "pseudo_labels"]
Labels = Literal["asr", "asr_lm"]
Unlabeled = Literal["clean", "all", "light"]
"""The paper's 360 hours, its 860, and the 60,000 of Libri-Light."""

KEPT = {
    "A": "",
    "B": "B",
    "C": "C",
}  # starting points: A is the best supervised model, the others are copies kept during its training
UPDATES = {"On": "on_policy", "Off_never": "never", "Off_always": "always", "Off_better": "better"}
ALPHA = 0.2  # the paper's default
LARGE = ("model.channels=[10,14,18]", "model.blocks=[2,3,6]")  # the paper's larger model, of 11 blocks
LENGTHS = {"Oracle": "oracle", "ASR+LM_decode": "asr_lm", "ASR_only_decode": "greedy"}


TRAINED_BY = "2df2819"
"""A commit that can train the variants whose figures are only recorded."""


@dataclass(frozen=True)
class System:
    """One trained recognizer: the method, the unlabeled speech, and the settings that differ from the scale's.

    `supervised` is trained further for as many updates as matching; `topline` has the transcripts of the unlabeled
    speech; `pseudo_labels` learns from fixed labels of the best supervised model, of a kept copy, or of an ensemble:
    several supervised models, the label of one of which is drawn at each visit of an utterance.
    """

    kind: Kind
    unlabeled: Unlabeled = "clean"
    settings: tuple[str, ...] = ()
    labels: Labels | None = None
    labeler: str = ""
    ensemble: bool = False
    filtered: bool = True  # whether labels are filtered as in Kahn et al.
    loss_scale: float = 1.0  # factor of the scale's loss weight, which corresponds to the paper's 0.2
    main: bool = False  # part of the main results, which the paper trains longer
    recorded: str = ""  # the folder of a removed variant: its figures are shown, but it is not trained


def matched(unlabeled: Unlabeled = "clean", /, **matching: object) -> System:
    """A matched system, by default with the scale's settings; the first proposal is A."""
    return System("matched", unlabeled, overrides(matching))


def with_settings(system: System, *more: str) -> System:
    """Add settings to a system; its own settings of the same name take precedence."""
    own = {each.partition("=")[0] for each in system.settings}
    missing = (each for each in more if each.partition("=")[0] not in own)
    return replace(system, settings=(*missing, *system.settings))


def overrides(values: Mapping[str, object], part: str = "matching") -> tuple[str, ...]:
    """Format the settings of a section as overrides."""
    return tuple(f"{part}.{name}={str(value).replace(' ', '')}" for name, value in values.items())


def distilled(teacher: str, beam_size: str, proposal: str = "A") -> System:
    """Distillation from the proposal: uniform weights on its beam, and no length filter."""
    return matched(
        prior_exponent=0,
        length_filter=[],
        refresh="never" if teacher == "Fix" else "better",
        beam_size=beam_size,
        proposal=KEPT[proposal],
    )


def labeled(
    source: Labels, unlabeled: Unlabeled = "clean", labeler: str = "A", filtered: bool = True
) -> System:
    """Training on fixed pseudo-labels, from the same start as matching."""
    return System("pseudo_labels", unlabeled, (), source, KEPT[labeler], filtered=filtered)


def system_of(table: str, row: Row, position: int) -> System | None:
    """The system of a row; None if the row is quoted from elsewhere or empty in the paper."""
    match table:
        case "tab1_hypotheses":
            return None  # beams, not error rates: see beam_tables.py
        case "tab2_beam_mix":
            mixing = row["mix_paired_to_unpaired"].replace(":", ",")
            speech: Unlabeled = "clean" if row["unlabeled_hours"] == "360" else "all"
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
                return labeled("asr_lm", labeler=row.get("init_proposal", "A"), filtered=False)
            return distilled(row["teacher"], row["k"], row.get("init_proposal", "A"))
        case "tabA1_alpha":
            return replace(matched(), loss_scale=float(row["alpha"]) / ALPHA)
        case "tabA2_reflen":
            return matched(reference_lengths=LENGTHS[row["reference_length"]])
        case "tab8_label_quality":
            system = matched("all") if row["method"] == "LPM" else labeled("asr_lm", "all")
            return replace(system, main=True)
        case _:
            system_or_none = main_system(row)
            return system_or_none and replace(system_or_none, main=True)


def main_system(row: Row) -> System | None:
    """The system of a row of the main results or of their analyses."""
    method, speech = row.get("method") or row["system"], row.get("unlabeled_hours") or row["unlabeled"]
    unlabeled: Unlabeled = "all" if speech.startswith("860") else "clean"
    if row.get("source", "this") not in ("this", "kahn2019"):
        return None
    match method.rstrip("*"):
        case "Supervised" | "GroundTruth":
            return System("topline" if row["labeled_hours"] == "460" else "supervised")
        case "LPM":
            return matched(unlabeled)
        case "LPM_large":
            return with_settings(matched("light"), *LARGE)
        case "PL(ASR)":
            return labeled("asr", unlabeled)
        case "PL(ASR+LM)":
            return labeled("asr_lm", unlabeled)
        case "PL(Ensemble)":
            return replace(labeled("asr_lm", unlabeled), ensemble=True)
        case _:
            return None
