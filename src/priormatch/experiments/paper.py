"""The figures of the paper's tables (Hsu, Lee, Synnaeve, Hannun, 2020, arXiv 2002.10336), as printed."""

import csv
from pathlib import Path

from priormatch.errors import UserError

FOLDER = Path(__file__).parent / "figures"
MISSING = "NA"

TITLES = {
    "tab1_hypotheses": "Table 1: hypotheses and the prior's scores, before and after matching",
    "tab2_beam_mix": "Table 2: beam size, mixing and the amount of unlabeled speech",
    "tab3_init_update": "Table 3: starting points of proposal and online model, and refresh policy of the proposal",
    "tab4_length_filter": "Table 4: the length filter",
    "tab5_lm_ppl": "Table 5: the strength of the prior",
    "tab6_kd": "Table 6: distillation",
    "tab7_main": "Table 7: the main results",
    "tab8_label_quality": "Table 8: the quality of labels",
    "tab9_decode_ppl": "Table 9: perplexity of greedy transcripts under the prior",
    "tabA1_alpha": "Table A1: the weight of the loss on unlabeled speech",
    "tabA2_reflen": "Table A2: sources of reference lengths",
    "tabA3_kd_ext": "Table A3: distillation from other starting points",
    "tabA4_cer": "Table A4: character error rates of the main results",
    "tabA5_main_ext": "Table A5: the main results next to all others",
    "x1_open_questions": "Table X1: open questions of the paper",
    "x2_main_settings": "Table X2: candidate settings for the main results, compared on the dev sets",
    "x3_prior_in_search": "Table X3: hypotheses from a search with the prior",
}
BEAMS = "tab1_hypotheses"  # shows beams; has no figures
OWN = ("x1_open_questions", "x2_main_settings", "x3_prior_in_search")  # tables that are not in the paper

MISPRINTS = {("test_other_werr_pct", "132.19"): "127.69", ("test_clean_werr_pct", "55.47"): "55.61"}
"""Recovered word error rates as printed in the paper, and the values that follow from its word error rates."""

Row = dict[str, str]


def table_name(given: str) -> str:
    """The full name of a table given by its number (2, A1), as tab2, or by its name."""
    for name in TITLES:
        number = name.removeprefix("tab").partition("_")[0]
        if given.lower() in (name.lower(), number.lower(), f"tab{number}".lower()):
            return name
    raise UserError(f"there is no table {given}: choose from {', '.join(TITLES)}")


def read_table(name: str) -> list[Row]:
    """The rows of a table, with columns in order; values that the paper does not give are NA."""
    if name in OWN:
        return []
    with (FOLDER / f"{name}.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
