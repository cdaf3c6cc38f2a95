"""Rows compared: paired differences, what they recover, and which claims are said to have held."""

from typing import Any

import numpy as np
import pytest

from priormatch.experiments.comparisons import (
    Measured,
    differences,
    for_machines,
    in_words,
    plain_of,
    recovered,
    section,
    table_of,
    verdicts,
    with_recovered,
)
from priormatch.experiments.measure import Found
from priormatch.experiments.table import Row, tables
from priormatch.scoring.bootstrap import ScoredTexts, paired_bootstrap
from priormatch.scoring.error_rates import ErrorCounts

UTTERANCES = 40
BASE = np.tile([2, 3, 4, 3], 30)


def measured(table: Any, rows: Any) -> Any:
    """Rows of a table by number, with what was measured of them with each seed."""
    return [Measured(tables()[table].rows[number - 1], seeds) for number, seeds in rows.items()]


def plain(table: Any, row: Any, start: str = "C") -> Any:
    """The row that a row is compared with."""
    found = plain_of(row, [Measured(each, []) for each in tables()[table].rows], start)
    return found and found.row


def wer(errors: Any, column: str = "dev_clean_wer") -> Any:
    """What is measured of a row that errs so often in every utterance of ten words."""
    counts = ErrorCounts(np.asarray(errors), np.full(len(errors), 10))
    return Found({column: counts.rate}, {column: counts})


def alpha_differences(*rows: Any) -> Any:
    """The differences of rows 3 and 5 of Table A1 from row 4."""
    return differences("tabA1_alpha", measured("tabA1_alpha", dict(zip((3, 4, 5), rows, strict=True))))


def test_a_difference_is_the_row_less_plain_matching_over_all_seeds() -> None:
    rng = np.random.default_rng(0)
    rows = [[rng.integers(0, most, UTTERANCES) for _ in range(2)] for most in (5, 4, 4)]
    rows[2] = rows[1]  # the same figures as plain matching
    estimates = alpha_differences(*([wer(seed) for seed in row] for row in rows))
    assert [(each.row.cells["alpha"], each.against, each.column) for each in estimates] == [
        ("0.1", 4, "dev_clean_wer"),
        ("0.5", 4, "dev_clean_wer"),
    ]
    worse, same = estimates
    assert worse.value == pytest.approx(100 * (np.sum(rows[0]) - np.sum(rows[1])) / (2 * 10 * UTTERANCES))
    lengths = np.full(UTTERANCES, 10)
    first, second = ([ErrorCounts(seed, lengths) for seed in row] for row in rows[:2])
    pooled = paired_bootstrap(first, second)
    assert worse.interval == pooled.interval
    assert worse.excludes_zero
    assert (same.value, same.interval, same.excludes_zero) == (0.0, (0.0, 0.0), False)
    assert in_words(worse).startswith("**+")
    assert in_words(same) == "+0.00 (+0.00 to +0.00)"


def test_seeds_that_one_of_the_rows_lacks_are_left_out() -> None:
    one, other = np.full(UTTERANCES, 2), np.full(UTTERANCES, 1)
    rows = [[wer(one), wer(one * 3)], [wer(other), Found()], [Found(), Found()]]
    (estimate,) = alpha_differences(*rows)
    assert estimate.value == pytest.approx(10.0), "of the first seed alone"


def test_rows_that_heard_different_utterances_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    one, fewer = np.full(UTTERANCES, 2), np.full(UTTERANCES - 1, 2)
    assert alpha_differences([wer(fewer)], [wer(one)], [Found()]) == []
    assert "dev_clean_wer: rows scored on different utterances are not compared" in capsys.readouterr().err


def test_known_speakers_give_a_second_interval_and_unknown_ones_none() -> None:
    rng = np.random.default_rng(0)
    speakers = np.repeat(range(4), UTTERANCES // 4)
    skill = np.array([0, 1, 3, 6])[speakers]  # speakers differ more than utterances of one of them
    rows = [[wer(skill + rng.integers(0, 2, UTTERANCES))], [wer(rng.integers(0, 2, UTTERANCES))], [Found()]]
    (alone,) = alpha_differences(*rows)
    assert alone.by_speaker is None
    assert "speakers" not in in_words(alone)
    assert "low_speakers" not in for_machines([alone])[0]
    for (found,) in rows[:2]:
        found.speakers["dev_clean_wer"] = speakers.tolist()
    (known,) = alpha_differences(*rows)
    assert known.interval == alone.interval
    assert known.by_speaker is not None
    assert known.by_speaker[1] - known.by_speaker[0] > 2 * (known.interval[1] - known.interval[0])
    assert f"; over speakers {known.by_speaker[0]:+.2f} to {known.by_speaker[1]:+.2f})" in in_words(known)
    assert for_machines([known])[1][-2:] == [f"{end:.3f}" for end in known.by_speaker]
    rows[1][0].speakers["dev_clean_wer"] = speakers[::-1].tolist()
    (apart,) = alpha_differences(*rows)
    assert apart.by_speaker is None, "rows that disagree on the speakers"


def main_rows(found: Any, *rows: Any) -> Any:
    """Rows of the main results: source, method, labeled hours and decoding, with what was measured of them."""
    columns, figures = ("source", "method", "labeled_hours", "decode_lm"), ("wer", "werr_pct", "werr_960_pct")
    cells = [
        dict(zip(columns, row, strict=True)) | {f"test_clean_{name}": "NA" for name in figures}
        for row in rows
    ]
    return [
        Measured(Row(number, str(number), each), [seed])
        for number, (each, seed) in enumerate(zip(cells, found, strict=True), 1)
    ]


ENDS = ("this", "Supervised", "100", "None"), ("this", "Supervised", "460", "None")
LPM = ("this", "LPM", "100", "None")


def test_recovered_rates_need_both_ends_of_the_same_decoding() -> None:
    rows = [
        *ENDS,
        LPM,
        ("this", "LPM", "100", "ConvLM"),
        ("kahn2019", "Supervised", "460", "None"),
        ("ours", "Supervised", "960", "None"),
    ]
    values = [Found({"test_clean_wer": each}) for each in (20.0, 10.0, 12.5, 9.0, 11.0, 5.0)]
    found = [seed for (seed,) in with_recovered(main_rows(values, *rows))]
    assert [each.get("test_clean_werr_pct") for each in found] == [0.0, 100.0, 75.0, None, 90.0, 150.0]
    assert [each.get("test_clean_werr_960_pct") for each in found][:3] == [0.0, 1000 / 15, 50.0]


def test_what_is_recovered_has_an_interval_around_it() -> None:
    rng = np.random.default_rng(1)
    base = rng.integers(4, 8, 200)
    errors = [base, base - rng.integers(2, 4, 200), base - rng.integers(0, 4, 200)]
    found = [wer(each, "test_clean_wer") for each in errors]
    (estimate,) = recovered(main_rows(found, *ENDS, LPM))
    low, high = estimate.interval
    assert estimate.row.number == 3, "the ends are nothing to estimate"
    assert estimate.value == pytest.approx(100 * (base - errors[2]).sum() / (base - errors[1]).sum())
    assert low < estimate.value < high < low + 40
    assert table_of([estimate])[0] == ["row", "system", "test clean werr pct"]
    assert for_machines([estimate])[1][:3] == ["3", "NA", "test_clean_werr_pct"]


def test_no_gap_leaves_nothing_to_recover() -> None:
    same = wer(np.ones(5, int), "test_clean_wer")
    (estimate,) = recovered(main_rows([same] * 3, *ENDS, LPM))
    assert in_words(estimate) == ""


def test_every_table_of_error_rates_has_a_row_to_compare_with() -> None:
    for name, table in tables().items():
        rows = [row for row in table.rows if row.system is not None]
        plains = {row.name for each in rows if (row := plain(name, each)) is not None}
        assert bool(plains) == (name not in ("tab1_hypotheses", "tab9_decode_ppl")), name
        for row in rows:
            assert (plain(name, row) is None) == (row.name in plains or not plains), (name, row.name)


def test_rows_are_compared_with_those_of_their_decoding_speech_and_proposal() -> None:
    def against(**wanted: Any) -> Any:
        (row,) = (each for each in tables()["tab7_main"].rows if wanted.items() <= each.cells.items())
        found = plain("tab7_main", row).cells
        return found["method"], found["unlabeled"], found["decode_lm"]

    for decoding in ("None", "ConvLM"):
        row = {"source": "this", "method": "Supervised", "decode_lm": decoding}
        assert against(**row, labeled_hours="100") == ("LPM", "360h(S)+All(T)", decoding)
        assert against(**row, labeled_hours="460") == ("LPM", "360h(S)+All(T)", decoding)
        most = ("LPM", "860h(S)+All(T)", decoding)
        assert against(source="ours", labeled_hours="960", decode_lm=decoding) == most
        assert against(source="this", method="LPM_large", decode_lm=decoding) == most
        assert against(source="ours", method="LPM_large", decode_lm=decoding) == most
    for each in tables()["tabA3_kd_ext"].rows:
        other = plain("tabA3_kd_ext", each)
        assert other is None or other.cells["init_proposal"] == each.cells["init_proposal"]


def test_where_rows_have_several_starts_plain_matching_has_the_scales() -> None:
    rows = [row for row in tables()["tab3_init_update"].rows if row.system]
    for start in ("A", "C"):
        references = [plain("tab3_init_update", row, start) for row in rows]
        assert references.count(None) == 1, "of the plain row itself"
        (cells,) = {each.number: each.cells for each in references if each}.values()
        wanted = {"init_proposal": "A", "proposal_update": "Off_better", "init_online": start}
        assert wanted.items() <= cells.items()


def judged(better: Any, than: Any) -> Any:
    """What becomes of the claim that row 4 of Table A1 is better than row 1."""
    return verdicts(tables()["tabA1_alpha"].claims, measured("tabA1_alpha", {1: than, 4: better}))


@pytest.mark.parametrize(
    ("less", "held"), [(-1, "held"), (1, "reversed"), (np.tile([1, -1, 0, 0], 30), "open")]
)
def test_the_interval_decides(less: Any, held: Any) -> None:
    (found,) = judged([wer(BASE + less)], [wer(BASE)])
    assert (found.rows, found.held) == ((4, 1), held)
    assert found.paper == pytest.approx(9.00 - 10.86)
    assert found.ours.startswith(f"{10 * np.mean(less):+.2f} (")


def test_what_was_not_measured_is_not_judged() -> None:
    assert judged([Found()], [wer(BASE)]) == []
    assert judged([wer(BASE)], [wer(BASE[:-1])]) == [], "other utterances"


def test_columns_where_the_paper_has_it_otherwise_are_left_out() -> None:
    fixed, improving = (
        [Found({}, wer(errors, "dev_clean_wer").errors | wer(errors, "dev_other_wer").errors)]
        for errors in (BASE + 1, BASE)
    )
    judged = verdicts(tables()["tab6_kd"].claims, measured("tab6_kd", {4: fixed, 8: improving}))
    assert [each.column for each in judged] == ["dev_other_wer"], "12.09 against 11.60"


def perplexities_judged(better: Any, than: Any) -> Any:
    """What becomes of the claim that row 7 of Table 9 is better than row 6."""
    return verdicts(tables()["tab9_decode_ppl"].claims, measured("tab9_decode_ppl", {6: than, 7: better}))


def perplexed(perplexities: Any) -> Any:
    """A row whose transcripts have five pieces each, at these perplexities."""
    pieces = np.full(len(perplexities), 5)
    texts = ScoredTexts(-pieces * np.log(perplexities), pieces)
    return Found({"lm_ppl_dev_clean": texts.perplexity}, {}, {"lm_ppl_dev_clean": texts})


@pytest.mark.parametrize(
    ("times", "held"),
    [(np.full(120, 0.9), "held"), (np.full(120, 1.1), "reversed"), (np.tile([5, 0.19, 1, 1], 30), "open")],
)
def test_perplexities_of_one_seed_are_judged_by_their_interval(times: Any, held: Any) -> None:
    (found,) = perplexities_judged([perplexed(10 * BASE * times)], [perplexed(10 * BASE)])
    assert (found.paper, found.held) == (pytest.approx(59.84 - 61.73), held)
    low, high = (float(each) for each in found.ours.partition("(")[2].strip(")").split(" to "))
    value = float(found.ours.partition(" ")[0])
    assert low < value < high
    assert value != 0


def test_a_difference_of_perplexities_is_the_mean_of_the_seeds() -> None:
    better, than = ([perplexed(np.full(9, each)) for each in seeds] for seeds in ((25, 21), (30, 20)))
    (found,) = perplexities_judged(better, than)
    assert found.ours == "-2.00 (-2.00 to -2.00)"


@pytest.mark.parametrize("than", [Found({"lm_ppl_dev_clean": 30.0}), perplexed(np.full(8, 30))])
def test_perplexities_without_their_utterances_or_of_others_stay_open(
    than: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = perplexities_judged([perplexed(np.full(9, 25))], [than])
    assert (found.ours, found.held) == ("-5.00 (-5.00)", "open")
    assert ("rows were scored on different utterances" in capsys.readouterr().err) == bool(than.texts)


def test_the_page_counts_and_shows_them() -> None:
    text = section(judged([wer(BASE + 1)], [wer(BASE)]))
    assert "Of 1 comparisons: 0 held, 0 open, 1 reversed." in text
    assert "| a loss weight of 0.2 is better than 0.02 | 4 and 1 | paper -1.86, ours +10.00 (" in text
    assert "**reversed** |" in text
