"""The paper's claims from its tables, each as one row that is better than another, and whether they held here."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from priormatch.experiments.differences import Estimate, Seeds, difference, in_words
from priormatch.experiments.layout import Cells, markdown
from priormatch.experiments.measure import is_better_lower
from priormatch.experiments.paper import MISSING
from priormatch.experiments.rows import Line


class Claim(NamedTuple):
    """The row `better` has lower figures than the row `than`."""

    says: str
    better: int
    than: int


CLAIMS: dict[str, list[Claim]] = {
    "tab2_beam_mix": [
        Claim("four hypotheses are better than one, 360 hours", 13, 11),
        Claim("four hypotheses are better than one, 860 hours", 23, 21),
        Claim("more than four hypotheses do not help, 360 hours", 13, 15),
        Claim("with more speech they help, 860 hours", 25, 23),
        Claim("more unlabeled speech is better", 23, 13),
        Claim("more unlabeled than labeled batches: 1:4 is better than 4:1", 13, 3),
        Claim("but not too many: 1:4 is better than 1:9", 13, 18),
    ],
    "tab3_init_update": [
        Claim("refreshing the proposal is better than never refreshing it, online model from A", 10, 4),
        Claim("the same, online model from C", 12, 6),
        Claim("refreshing it only if the online model is better, rather than always, from A", 10, 7),
        Claim("the same, online model from C", 12, 9),
        Claim("off-policy is better than on-policy, from A", 10, 1),
        Claim("refreshing corrects a bad proposal, online model from A", 34, 28),
        Claim("the same, online model from C", 36, 30),
        Claim("on-policy training from C does not correct it", 36, 27),
        Claim("an online model from C is better than one from A", 12, 10),
    ],
    "tab4_length_filter": [
        Claim("the length filter helps, on-policy", 2, 1),
        Claim("the same, proposal always refreshed", 6, 5),
        Claim("the same, proposal refreshed if the online model is better", 8, 7),
    ],
    "tab5_lm_ppl": [
        Claim("the strongest prior is better than the weakest", 1, 5),
        *(Claim("a stronger prior is better than the next weaker one", row, row + 1) for row in range(1, 5)),
    ],
    "tab6_kd": [
        *(Claim("matching is better than every kind of distillation", 10, row) for row in range(1, 10)),
        Claim("distilling four hypotheses is better than one, fixed teacher", 4, 2),
        Claim("an improving teacher is better than a fixed one, four hypotheses", 8, 4),
    ],
    "tab7_main": [
        Claim("matching is better than supervised training", 11, 9),
        Claim("matching is better than pseudo-labels", 11, 6),
        Claim("matching is better than pseudo-labels by ASR + LM, 360 hours", 11, 7),
        Claim("matching is better than pseudo-labels by ASR + LM, 860 hours", 12, 8),
        Claim("more unlabeled speech is better", 12, 11),
        Claim("a larger model on far more speech is even better", 13, 12),
        Claim("matching is better than supervised training, decoded with LM", 19, 17),
        Claim("matching is better than pseudo-labels, decoded with LM", 19, 14),
        Claim("matching is better than pseudo-labels by ASR + LM, 360 hours, decoded with LM", 19, 15),
        Claim("matching is better than pseudo-labels by ASR + LM, 860 hours, decoded with LM", 20, 16),
        Claim("more unlabeled speech is better, decoded with LM", 20, 19),
        Claim("a larger model on far more speech is even better, decoded with LM", 21, 20),
        Claim("matching with more speech is better than pseudo-labels of less", 12, 6),
        Claim("the same, pseudo-labels by ASR + LM", 12, 7),
        Claim("not in the paper: matching is better than improving pseudo-labels by ASR + LM", 12, 25),
        Claim("not in the paper: matching is better than distillation", 12, 24),
        Claim("hypotheses by ASR + LM are better than by ASR", 26, 12),
        *(
            Claim("with ASR + LM hypotheses, better than every kind of labels and distillation", 26, row)
            for row in (6, 7, 8, 25, 32, 24)
        ),
        Claim("two rounds of matching are better than one", 33, 12),
        *(
            Claim("two rounds are better than labels and distillation of all speech", 33, row)
            for row in (8, 25, 32, 24)
        ),
        Claim("matching with more speech is better than pseudo-labels of less, decoded with LM", 20, 14),
        Claim("the same, pseudo-labels by ASR + LM, decoded with LM", 20, 15),
        Claim(
            "not in the paper: matching is better than improving pseudo-labels by ASR + LM, decoded with LM",
            20,
            30,
        ),
        Claim("not in the paper: matching is better than distillation, decoded with LM", 20, 29),
        Claim("hypotheses by ASR + LM are better than by ASR, decoded with LM", 31, 20),
        *(
            Claim(
                "with ASR + LM hypotheses, better than every kind of labels and distillation, decoded with LM",
                31,
                row,
            )
            for row in (14, 15, 16, 30, 34, 29)
        ),
        Claim("two rounds of matching are better than one, decoded with LM", 35, 20),
        *(
            Claim(
                "two rounds are better than labels and distillation of all speech, decoded with LM", 35, row
            )
            for row in (16, 30, 34, 29)
        ),
    ],
    "tab8_label_quality": [
        Claim("the proposal's labels improve during matching", 3, 2),
        Claim("and in the end are better than pseudo-labels by ASR + LM", 3, 1),
    ],
    "tab9_decode_ppl": [
        Claim("transcripts after matching are likelier under the prior than after supervised training", 6, 2),
        Claim("likelier than after training on pseudo-labels", 6, 4),
        Claim("likelier than after training on pseudo-labels by ASR + LM", 6, 5),
        Claim("even likelier with more unlabeled speech", 7, 6),
    ],
    "tabA1_alpha": [
        Claim("a loss weight of 0.2 is better than 0.02", 4, 1),
        Claim("a loss weight of 0.2 is better than 0.05", 4, 2),
        Claim("a loss weight of 0.2 is better than 0.1", 4, 3),
        Claim("a loss weight of 0.2 is better than 0.5", 4, 5),
    ],
    "tabA2_reflen": [Claim("true lengths are only slightly better than those of the recognizer", 1, 3)],
    "tabA3_kd_ext": [
        Claim("matching is better than distillation by ASR + LM, proposal A", 28, 1),
        Claim("matching is better than distillation with a fixed teacher, proposal A", 28, 10),
        Claim("matching is better than distillation with an improving teacher, proposal A", 28, 22),
        Claim("the same, proposal B", 29, 23),
        Claim("the same, proposal C", 30, 24),
    ],
    "tabA4_cer": [
        Claim("matching makes fewer character errors than supervised training", 3, 1),
        Claim("fewer with more unlabeled speech", 4, 3),
        Claim("decoded with a language model: fewer than supervised training", 8, 6),
        Claim("fewer with more unlabeled speech", 9, 8),
    ],
    "tabA5_main_ext": [
        Claim("matching is better than supervised training", 37, 35),
        Claim("matching is better than pseudo-labels by ASR + LM", 37, 26),
        Claim("matching is better than pseudo-labels by an ensemble, on other speech", 37, 28),
        Claim("more unlabeled speech is better", 38, 37),
    ],
    "x1_open_questions": [
        Claim("the length filter helps, weights of the prior", 1, 3),
        Claim("the same, eight hypotheses", 10, 11),
        Claim("the same, uniform weights", 4, 6),
        Claim("wider bounds are better than the paper's", 1, 2),
        Claim("weights of the prior are better than uniform ones", 1, 4),
        Claim("the same, eight hypotheses", 10, 12),
        Claim("the same, without the length filter", 3, 6),
        Claim("weights of the prior are better than those of the proposal", 1, 7),
        Claim("eight hypotheses are better than four", 10, 1),
        Claim("a prior that reads the previous sentence helps", 14, 1),
        Claim("selecting half of the utterances by uncertainty helps", 15, 1),
        Claim("lengths by speaking rate help", 16, 1),
        Claim("a moving average as the proposal helps", 17, 1),
        Claim("weights of both prior and proposal help", 18, 1),
    ],
    "x2_main_settings": [
        Claim("matching: refreshing every 100 updates is better than every 200", 3, 1),
        Claim("matching: learning rate 0.0005 is better than 0.00025", 3, 2),
        Claim("matching: learning rate 0.001 is better than 0.0005", 4, 3),
        Claim("matching: lengths by speaking rate help", 6, 3),
        Claim("hypotheses by ASR + LM are better than by ASR", 7, 6),
        Claim("with those, weights of both are better than of the prior alone", 8, 7),
        Claim("with those, learning rate 0.001 is better than 0.0005", 9, 8),
        Claim("pseudo-labels: learning rate 0.0005 is better than 0.00025", 11, 10),
        Claim("pseudo-labels: learning rate 0.001 is better than 0.0005", 12, 11),
        Claim("pseudo-labels: a filter helps", 10, 13),
        Claim("improving pseudo-labels are better than fixed ones", 14, 11),
        Claim("improving pseudo-labels: learning rate 0.001 is better than 0.0005", 15, 14),
        Claim("distillation: learning rate 0.0005 is better than 0.00025", 17, 16),
        Claim("distillation: learning rate 0.001 is better than 0.0005", 18, 17),
        Claim("distillation: an improving teacher is better than a fixed one", 20, 17),
        Claim("improving teacher: learning rate 0.0005 is better than 0.00025", 20, 19),
        Claim("improving teacher: learning rate 0.001 is better than 0.0005", 21, 20),
        Claim("supervised training: learning rate 0.0005 is better than 0.00025", 23, 22),
        Claim("supervised training: learning rate 0.001 is better than 0.0005", 24, 23),
        Claim("matching is better than fixed pseudo-labels", 3, 11),
        Claim("matching is better than distillation from an improving teacher", 3, 20),
        Claim("hypotheses by ASR + LM: several with weights are better than the best as a label", 8, 14),
        Claim("the same, higher learning rate", 9, 15),
        Claim("hypotheses and weights by ASR + LM are better than fixed pseudo-labels", 9, 12),
    ],
    "x3_prior_in_search": [
        *(Claim("a search with the prior is better than without", row, 1) for row in (*range(2, 10), 11, 12)),
        Claim("limits in the search help, with an LM weight of 0", 10, 1),
        Claim("weights of the search are better than of the prior", 3, 2),
        Claim("cubed weights of the search are better", 4, 3),
        Claim("several hypotheses with weights are better than one", 3, 5),
        Claim("the same, cubed weights", 4, 5),
        Claim("the same, larger LM weight", 6, 7),
        Claim("a smaller LM weight is better, several hypotheses", 3, 6),
        Claim("the same, one hypothesis", 5, 7),
        Claim("centered scores are better than a bonus for each piece", 3, 8),
        Claim("the same, larger LM weight", 6, 9),
        Claim("a second round with the prior is better than a small LM weight in every search", 11, 3),
        Claim("two rounds of matching are better than two rounds of fixed labels", 11, 12),
    ],
}
"""Claims by table; for tables that are not in the paper, what one would hope for."""

HEADING = """\
## The claims, and whether they held

Each line claims that the first row is better than the second. The columns show the figure of the first row minus that
of the second: the paper's difference, and ours with the 95 % confidence interval of a paired bootstrap over utterances,
seeds pooled (for perplexities, their mean). A claim *held* if the interval is below zero, is *reversed* if it is above
zero, and *open* if it contains zero. The interval is that of a difference between these trained models; only more seeds
show what other seeds would give. A perplexity without stored utterances has no interval: it is *open*, with the
difference of each seed in parentheses.
"""


class Verdict(NamedTuple):
    """A claim in one column: the paper's difference (NaN if it has none), and ours in words."""

    claim: Claim
    column: str
    paper: float
    ours: str
    held: str


def verdicts(table: str, lines: Sequence[Line], found: Sequence[Seeds]) -> list[Verdict]:
    """Whether the claims held, in measured columns where the paper's own figures support them."""
    rows = {line.number: (line, seeds) for line, seeds in zip(lines, found, strict=True)}
    judged = []
    for claim in CLAIMS.get(table, []):
        if claim.better not in rows or claim.than not in rows:
            continue
        (better, mine), (than, theirs) = rows[claim.better], rows[claim.than]
        for column in filter(is_better_lower, better.row):
            figures = [row[column] for row in (better.row, than.row)]
            paper = math.nan if MISSING in figures else float(figures[0]) - float(figures[1])
            if paper < 0 or math.isnan(paper):
                judged += verdict(claim, column, paper, better, mine, than, theirs)
    return judged


def verdict(
    claim: Claim, column: str, paper: float, better: Line, mine: Seeds, than: Line, theirs: Seeds
) -> list[Verdict]:
    """Whether a claim held in a column; empty if one of its rows was not measured."""
    if (estimate := difference(column, better, mine, than, theirs)) is not None:
        return [Verdict(claim, column, paper, in_words(estimate).strip("*"), judgment(estimate))]
    values = [(a.values.get(column), b.values.get(column)) for a, b in zip(mine, theirs, strict=True)]
    apart = [a - b for a, b in values if a is not None and b is not None]
    if not apart or any(column in each.errors for each in (*mine, *theirs)):
        return []
    each = ", ".join(f"{value:+.2f}" for value in apart)
    return [Verdict(claim, column, paper, f"{statistics.fmean(apart):+.2f} ({each})", "open")]


def judgment(estimate: Estimate) -> str:
    """Whether a row is better as claimed, by the interval of its difference."""
    if not estimate.excludes_zero:
        return "open"
    return "held" if estimate.value < 0 else "reversed"


def section(judged: Sequence[Verdict]) -> str:
    """The section of a page on claims: a count, and a table with a line for each claim."""
    count = Counter(each.held for each in judged)
    told = ", ".join(f"{count[held]} {held}" for held in ("held", "open", "reversed"))
    return f"{HEADING}\nOf {len(judged)} comparisons: {told}.\n\n{markdown(table_of(judged))}"


def table_of(judged: Sequence[Verdict]) -> Cells:
    """A table with a line for each claim and a column for each figure."""
    columns = list(dict.fromkeys(each.column for each in judged))
    body = []
    for claim in dict.fromkeys(each.claim for each in judged):
        mine = {each.column: each for each in judged if each.claim == claim}
        shown = [in_cell(mine[column]) if column in mine else "" for column in columns]
        body.append([claim.says, f"{claim.better} and {claim.than}", *shown])
    return [["claim", "rows", *(column.replace("_", " ") for column in columns)], *body]


def in_cell(judged: Verdict) -> str:
    """A verdict with its figures."""
    paper = "" if math.isnan(judged.paper) else f"paper {judged.paper:+.2f}, "
    held = f"**{judged.held}**" if judged.held == "reversed" else judged.held
    return f"{paper}ours {judged.ours}: {held}"
