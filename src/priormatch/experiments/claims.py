"""What the paper claims from its tables, each as one row that is better than another, and whether that held here."""

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
        Claim("more than four do not help, 360 hours", 13, 15),
        Claim("with more speech they do, 860 hours", 25, 23),
        Claim("more unlabeled speech is better", 23, 13),
        Claim("more unlabeled than labeled batches, 1:4 rather than 4:1", 13, 3),
        Claim("but not too many, 1:4 rather than 1:9", 13, 18),
    ],
    "tab3_init_update": [
        Claim("a proposal that is renewed is better than one that never is, online model from A", 10, 4),
        Claim("the same, online model from C", 12, 6),
        Claim("renewing it only when that is better, rather than always, from A", 10, 7),
        Claim("the same, online model from C", 12, 9),
        Claim("off the policy rather than on it, from A", 10, 1),
        Claim("a bad proposal is put right by renewing it, online model from A", 34, 28),
        Claim("the same, online model from C", 36, 30),
        Claim("on the policy from C it is not put right", 36, 27),
        Claim("an online model from C rather than A", 12, 10),
    ],
    "tab4_length_filter": [
        Claim("without the length filter it is worse, on the policy", 2, 1),
        Claim("the same, the proposal always renewed", 6, 5),
        Claim("the same, the proposal renewed when that is better", 8, 7),
    ],
    "tab5_lm_ppl": [
        Claim("the strongest prior is better than the weakest", 1, 5),
        *(Claim("a stronger prior is better than the next weaker", row, row + 1) for row in range(1, 5)),
    ],
    "tab6_kd": [
        *(Claim("matching is better than every kind of distillation", 10, row) for row in range(1, 10)),
        Claim("distilling more hypotheses than one, fixed teacher", 4, 2),
        Claim("a teacher that improves, four hypotheses", 8, 4),
    ],
    "tab7_main": [
        Claim("matching is better than supervised training", 11, 9),
        Claim("than pseudo-labels", 11, 6),
        Claim("than pseudo-labels by ASR + LM, 360 hours", 11, 7),
        Claim("than pseudo-labels by ASR + LM, 860 hours", 12, 8),
        Claim("more unlabeled speech is better", 12, 11),
        Claim("a larger model on far more speech is better still", 13, 12),
        Claim("decoded with a language model, matching is better than supervised training", 19, 17),
        Claim("than pseudo-labels", 19, 14),
        Claim("than pseudo-labels by ASR + LM, 360 hours", 19, 15),
        Claim("than pseudo-labels by ASR + LM, 860 hours", 20, 16),
        Claim("more unlabeled speech is better", 20, 19),
        Claim("a larger model on far more speech is better still", 21, 20),
        Claim("matching with more of it than pseudo-labels of less", 12, 6),
        Claim("than those by ASR + LM", 12, 7),
        Claim("not in the paper: matching is better than pseudo-labels by ASR + LM that improve", 12, 25),
        Claim("than distillation", 12, 24),
        Claim("hypotheses by ASR + LM rather than by ASR", 26, 12),
        *(
            Claim("with those, than every kind of labels and distillation", 26, row)
            for row in (6, 7, 8, 25, 32, 24)
        ),
        Claim("two rounds of matching rather than one", 33, 12),
        *(
            Claim("two rounds, than labels and distillation of all speech", 33, row)
            for row in (8, 25, 32, 24)
        ),
        Claim("decoded with a language model, matching with more speech than pseudo-labels of less", 20, 14),
        Claim("than those by ASR + LM", 20, 15),
        Claim("not in the paper: than pseudo-labels by ASR + LM that improve", 20, 30),
        Claim("than distillation", 20, 29),
        Claim("hypotheses by ASR + LM rather than by ASR", 31, 20),
        *(
            Claim("with those, than every kind of labels and distillation", 31, row)
            for row in (14, 15, 16, 30, 34, 29)
        ),
        Claim("two rounds of matching rather than one", 35, 20),
        *(
            Claim("two rounds, than labels and distillation of all speech", 35, row)
            for row in (16, 30, 34, 29)
        ),
    ],
    "tab8_label_quality": [
        Claim("the proposal's labels get better while matching goes on", 3, 2),
        Claim("and end better than pseudo-labels by ASR + LM", 3, 1),
    ],
    "tab9_decode_ppl": [
        Claim(
            "what matching teaches to say is likelier to the prior than what supervised training does", 6, 2
        ),
        Claim("and than what pseudo-labels do", 6, 4),
        Claim("and than what pseudo-labels by ASR + LM do", 6, 5),
        Claim("the more so with more unlabeled speech", 7, 6),
    ],
    "tabA1_alpha": [
        Claim("a weight of 0.2 is better than 0.02", 4, 1),
        Claim("than 0.05", 4, 2),
        Claim("than 0.1", 4, 3),
        Claim("than 0.5", 4, 5),
    ],
    "tabA2_reflen": [Claim("true lengths are hardly better than those of the recognizer", 1, 3)],
    "tabA3_kd_ext": [
        Claim("matching is better than distillation by ASR + LM, proposal A", 28, 1),
        Claim("than distillation with a fixed teacher, proposal A", 28, 10),
        Claim("than distillation with an improving teacher, proposal A", 28, 22),
        Claim("proposal B: than distillation with an improving teacher", 29, 23),
        Claim("proposal C: than distillation with an improving teacher", 30, 24),
    ],
    "tabA4_cer": [
        Claim("matching makes fewer character errors than supervised training", 3, 1),
        Claim("fewer with more unlabeled speech", 4, 3),
        Claim("decoded with a language model: fewer than supervised training", 8, 6),
        Claim("fewer with more unlabeled speech", 9, 8),
    ],
    "tabA5_main_ext": [
        Claim("matching is better than supervised training", 37, 35),
        Claim("than pseudo-labels by ASR + LM", 37, 26),
        Claim("than pseudo-labels by an ensemble, on other speech", 37, 28),
        Claim("more unlabeled speech is better", 38, 37),
    ],
    "x1_open_questions": [
        Claim("with the length filter rather than without, the prior's weights", 1, 3),
        Claim("the same, eight hypotheses", 10, 11),
        Claim("the same, uniform weights", 4, 6),
        Claim("wider bounds than the paper's", 1, 2),
        Claim("the prior's weights rather than uniform ones", 1, 4),
        Claim("the same, eight hypotheses", 10, 12),
        Claim("the same, without the length filter", 3, 6),
        Claim("the prior's weights rather than the proposal's own", 1, 7),
        Claim("eight hypotheses rather than four", 10, 1),
        Claim("a prior that has read the sentence before", 14, 1),
        Claim("half of the utterances selected by doubt", 15, 1),
        Claim("lengths by speaking rate", 16, 1),
        Claim("a moving average for a proposal", 17, 1),
        Claim("weights that ask the proposal as well", 18, 1),
    ],
    "x2_main_settings": [
        Claim("matching renewed every 100 updates rather than every 200", 3, 1),
        Claim("at twice the rate of 0.00025", 3, 2),
        Claim("at four times that", 4, 3),
        Claim("lengths by speaking rate", 6, 3),
        Claim("hypotheses by ASR + LM rather than by ASR", 7, 6),
        Claim("and weights by both rather than by the prior alone", 8, 7),
        Claim("those at twice the rate", 9, 8),
        Claim("pseudo-labels at twice the rate", 11, 10),
        Claim("at four times that", 12, 11),
        Claim("with a filter rather than without", 10, 13),
        Claim("pseudo-labels that improve rather than stay", 14, 11),
        Claim("those at twice the rate", 15, 14),
        Claim("distillation at twice the rate", 17, 16),
        Claim("at four times that", 18, 17),
        Claim("from a teacher that improves rather than stays", 20, 17),
        Claim("that at twice the rate", 20, 19),
        Claim("at four times that", 21, 20),
        Claim("supervised training at twice the rate", 23, 22),
        Claim("at four times that", 24, 23),
        Claim("matching rather than pseudo-labels that stay", 3, 11),
        Claim("matching rather than distillation that improves", 3, 20),
        Claim("hypotheses by ASR + LM: several with weights rather than the best as a label", 8, 14),
        Claim("the same at the higher rate", 9, 15),
        Claim("hypotheses and weights by ASR + LM rather than pseudo-labels that stay", 9, 12),
    ],
    "x3_prior_in_search": [
        *(Claim("a search with the prior rather than without", row, 1) for row in (*range(2, 10), 11, 12)),
        Claim("limits in the search alone", 10, 1),
        Claim("weights of the search rather than of the prior", 3, 2),
        Claim("those cubed", 4, 3),
        Claim("several hypotheses with weights rather than one", 3, 5),
        Claim("the same, cubed", 4, 5),
        Claim("the same, with more of the prior in the search", 6, 7),
        Claim("less of the prior in the search, several hypotheses", 3, 6),
        Claim("the same, one hypothesis", 5, 7),
        Claim("centered scores rather than a bonus for each piece", 3, 8),
        Claim("the same, with more of the prior in the search", 6, 9),
        Claim("a second round with the prior rather than a weak say in every search", 11, 3),
        Claim("two rounds of matching rather than of labels that stay", 11, 12),
    ],
}
"""By table; of those that the paper has not, what one would hope for."""

HEADING = """\
## What is claimed, and whether it held

Each line says that one row is better than another; its columns have the paper's figure less that of the other row, and
ours, with the 95 % interval of a paired bootstrap over utterances, the seeds together (of perplexities their mean):
*held* where that lies below zero, *reversed* where it lies above, *open* where it holds zero. It tells how sure a
difference of these trained models is; what other seeds would give, only more seeds tell. A perplexity whose utterances
were not kept has no interval: *open*, with the difference of each seed in brackets.
"""


class Verdict(NamedTuple):
    """A claim in one column: the paper's difference (NaN where it has none), and ours in words."""

    claim: Claim
    column: str
    paper: float
    ours: str
    held: str


def verdicts(table: str, lines: Sequence[Line], found: Sequence[Seeds]) -> list[Verdict]:
    """Whether the claims held, in those columns that were measured and where the paper's own figures bear them."""
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
    """Whether a claim held in a column; nothing where one of its rows was not measured."""
    if (estimate := difference(column, better, mine, than, theirs)) is not None:
        return [Verdict(claim, column, paper, in_words(estimate).strip("*"), judgment(estimate))]
    values = [(a.values.get(column), b.values.get(column)) for a, b in zip(mine, theirs, strict=True)]
    apart = [a - b for a, b in values if a is not None and b is not None]
    if not apart or any(column in each.errors for each in (*mine, *theirs)):
        return []
    each = ", ".join(f"{value:+.2f}" for value in apart)
    return [Verdict(claim, column, paper, f"{statistics.fmean(apart):+.2f} ({each})", "open")]


def judgment(estimate: Estimate) -> str:
    """Whether a row that should be better is, by its interval."""
    if not estimate.excludes_zero:
        return "open"
    return "held" if estimate.value < 0 else "reversed"


def section(judged: Sequence[Verdict]) -> str:
    """The part of a page that tells it: a count, and a table with a line for each claim."""
    count = Counter(each.held for each in judged)
    told = ", ".join(f"{count[held]} {held}" for held in ("held", "open", "reversed"))
    return f"{HEADING}\nOf {len(judged)} comparisons: {told}.\n\n{markdown(table_of(judged))}"


def table_of(judged: Sequence[Verdict]) -> Cells:
    """A line for each claim, with a column for each figure that it is about."""
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
