"""Claims of the paper: that its own figures bear them, and when they are said to have held."""

import numpy as np
import pytest

from priormatch.experiments.claims import CLAIMS, section, verdicts
from priormatch.experiments.found import Found
from priormatch.experiments.measure import is_better_lower
from priormatch.experiments.paper import MISSING, TITLES
from priormatch.experiments.rows import lines_of
from priormatch.recognizers.perplexity import ScoredTexts
from priormatch.scoring.error_rates import ErrorCounts

BASE = np.tile([2, 3, 4, 3], 30)


def wer(errors, column="dev_clean_wer"):
    counts = ErrorCounts(np.asarray(errors), np.full(len(errors), 10))
    return Found({column: counts.rate}, {column: counts})


@pytest.mark.parametrize("table", CLAIMS)
def test_the_papers_own_figures_bear_its_claims(table):
    lines = {line.number: line.row for line in lines_of(table)}
    for claim in CLAIMS[table]:
        better, than = lines[claim.better], lines[claim.than]
        columns = [
            each for each in better if is_better_lower(each) and MISSING not in (better[each], than[each])
        ]
        lower = [float(better[each]) < float(than[each]) for each in columns]
        assert any(lower) or not columns, claim


def test_every_table_of_figures_is_judged():
    assert CLAIMS.keys() == TITLES.keys() - {"tab1_hypotheses"}


def judged(better, than):
    """What becomes of the claim that row 4 of Table A1 is better than row 1."""
    lines = [line for line in lines_of("tabA1_alpha") if line.number in (1, 4)]
    return verdicts("tabA1_alpha", lines, [than, better])


@pytest.mark.parametrize(
    ("less", "held"), [(-1, "held"), (1, "reversed"), (np.tile([1, -1, 0, 0], 30), "open")]
)
def test_the_interval_decides(less, held):
    (found,) = judged([wer(BASE + less)], [wer(BASE)])
    assert (found.claim.better, found.claim.than, found.held) == (4, 1, held)
    assert found.paper == pytest.approx(9.00 - 10.86)
    assert found.ours.startswith(f"{10 * np.mean(less):+.2f} (")


def test_what_was_not_measured_is_not_judged():
    assert judged([Found()], [wer(BASE)]) == []
    assert judged([wer(BASE)], [wer(BASE[:-1])]) == [], "other utterances"


def test_columns_where_the_paper_has_it_otherwise_are_left_out():
    lines = [line for line in lines_of("tab6_kd") if line.number in (4, 8)]
    columns = ("dev_clean_wer", "dev_other_wer")
    both = [
        [Found({}, {name: found for column in columns for name, found in wer(errors, column).errors.items()})]
        for errors in (BASE + 1, BASE)
    ]
    assert [each.column for each in verdicts("tab6_kd", lines, both)] == ["dev_other_wer"], (
        "12.09 against 11.60"
    )


def perplexities_judged(better, than):
    """What becomes of the claim that row 7 of Table 9 is better than row 6."""
    lines = [line for line in lines_of("tab9_decode_ppl") if line.number in (6, 7)]
    return verdicts("tab9_decode_ppl", lines, [than, better])


def perplexed(perplexities):
    """A row whose transcripts have five pieces each, at these perplexities."""
    pieces = np.full(len(perplexities), 5)
    texts = ScoredTexts(-pieces * np.log(perplexities), pieces)
    return Found({"lm_ppl_dev_clean": texts.perplexity}, {}, {"lm_ppl_dev_clean": texts})


@pytest.mark.parametrize(
    ("times", "held"),
    [(np.full(120, 0.9), "held"), (np.full(120, 1.1), "reversed"), (np.tile([5, 0.19, 1, 1], 30), "open")],
)
def test_perplexities_of_one_seed_are_judged_by_their_interval(times, held):
    (found,) = perplexities_judged([perplexed(10 * BASE * times)], [perplexed(10 * BASE)])
    assert (found.paper, found.held) == (pytest.approx(59.84 - 61.73), held)
    low, high = (float(each) for each in found.ours.partition("(")[2].strip(")").split(" to "))
    value = float(found.ours.partition(" ")[0])
    assert low < value < high
    assert value != 0


def test_a_difference_of_perplexities_is_the_mean_of_the_seeds():
    better, than = ([perplexed(np.full(9, each)) for each in seeds] for seeds in ((25, 21), (30, 20)))
    (found,) = perplexities_judged(better, than)
    assert found.ours == "-2.00 (-2.00 to -2.00)"


@pytest.mark.parametrize("than", [Found({"lm_ppl_dev_clean": 30.0}), perplexed(np.full(8, 30))])
def test_perplexities_without_their_utterances_or_of_others_stay_open(than, capsys):
    (found,) = perplexities_judged([perplexed(np.full(9, 25))], [than])
    assert (found.ours, found.held) == ("-5.00 (-5.00)", "open")
    assert ("rows were scored on different utterances" in capsys.readouterr().err) == bool(than.texts)


def test_the_page_counts_and_shows_them():
    text = section(judged([wer(BASE + 1)], [wer(BASE)]))
    assert "Of 1 comparisons: 0 held, 0 open, 1 reversed." in text
    assert "| a loss weight of 0.2 is better than 0.02 | 4 and 1 | paper -1.86, ours +10.00 (" in text
    assert "**reversed** |" in text
