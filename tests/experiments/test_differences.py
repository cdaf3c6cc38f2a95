"""Paired differences between the rows of a table, and what they recover."""

import numpy as np
import pytest

from priormatch.experiments.differences import differences, for_machines, in_words, recovered, table_of
from priormatch.experiments.found import Found
from priormatch.experiments.paper import TITLES
from priormatch.experiments.rows import PLAIN, Line, lines_of, reference_of
from priormatch.scoring.bootstrap import paired_bootstrap
from priormatch.scoring.error_rates import ErrorCounts

UTTERANCES = 40


def found(errors, **more):
    """What is measured of a row that errs so often in every utterance of ten words."""
    counts = ErrorCounts(np.asarray(errors), np.full(len(errors), 10))
    return Found({"dev_clean_wer": counts.rate}, {"dev_clean_wer": counts, **more})


def alpha_lines():
    return [line for line in lines_of("tabA1_alpha") if line.row["alpha"] in ("0.1", "0.2", "0.5")]


def test_a_difference_is_the_row_less_plain_matching_over_all_seeds():
    rng = np.random.default_rng(0)
    rows = [[rng.integers(0, most, UTTERANCES) for _ in range(2)] for most in (5, 4, 4)]
    rows[2] = rows[1]  # the same figures as plain matching
    estimates = differences("tabA1_alpha", alpha_lines(), [[found(seed) for seed in row] for row in rows])
    assert [(each.line.row["alpha"], each.against, each.column) for each in estimates] == [
        ("0.1", 4, "dev_clean_wer"),
        ("0.5", 4, "dev_clean_wer"),
    ]
    worse, same = estimates
    assert worse.value == pytest.approx(100 * (np.sum(rows[0]) - np.sum(rows[1])) / (2 * 10 * UTTERANCES))
    lengths = np.full(UTTERANCES, 10)
    pooled = paired_bootstrap(*([ErrorCounts(seed, lengths) for seed in row] for row in rows[:2]))
    assert worse.interval == pooled.interval
    assert worse.excludes_zero
    assert (same.value, same.interval, same.excludes_zero) == (0.0, (0.0, 0.0), False)
    assert in_words(worse).startswith("**+")
    assert in_words(same) == "+0.00 (+0.00 to +0.00)"


def test_seeds_that_one_of_the_rows_lacks_are_left_out():
    one, other = np.full(UTTERANCES, 2), np.full(UTTERANCES, 1)
    rows = [[found(one), found(one * 3)], [found(other), Found()], [Found(), Found()]]
    (estimate,) = differences("tabA1_alpha", alpha_lines(), rows)
    assert estimate.value == pytest.approx(10.0), "of the first seed alone"


def test_rows_that_heard_different_utterances_are_not_compared(capsys):
    one, fewer = np.full(UTTERANCES, 2), np.full(UTTERANCES - 1, 2)
    assert differences("tabA1_alpha", alpha_lines(), [[found(fewer)], [found(one)], [Found()]]) == []
    assert "dev_clean_wer: rows scored on different utterances are not compared" in capsys.readouterr().err


def main_line(number, method, hours):
    row = {"source": "this", "method": method, "labeled_hours": hours, "decode_lm": "None",
           "test_clean_wer": "NA", "test_clean_werr_pct": "NA"}  # fmt: skip
    return Line(number, row, None)


def test_what_is_recovered_has_an_interval_around_it():
    rng = np.random.default_rng(1)
    lines = [
        main_line(1, "Supervised", "100"),
        main_line(2, "Supervised", "460"),
        main_line(3, "LPM", "100"),
    ]
    base = rng.integers(4, 8, 200)
    errors = [base, base - rng.integers(2, 4, 200), base - rng.integers(0, 4, 200)]
    counts = [ErrorCounts(each, np.full(200, 10)) for each in errors]
    (estimate,) = recovered(lines, [[Found({}, {"test_clean_wer": each})] for each in counts])
    low, high = estimate.interval
    assert estimate.line.number == 3, "the ends are nothing to estimate"
    assert estimate.value == pytest.approx(100 * (base - errors[2]).sum() / (base - errors[1]).sum())
    assert low < estimate.value < high < low + 40
    assert table_of([estimate])[0] == ["row", "system", "test clean werr pct"]
    assert for_machines([estimate])[1][:3] == ["3", "NA", "test_clean_werr_pct"]


def test_no_gap_leaves_nothing_to_recover():
    lines = [
        main_line(1, "Supervised", "100"),
        main_line(2, "Supervised", "460"),
        main_line(3, "LPM", "100"),
    ]
    same = [Found({}, {"test_clean_wer": ErrorCounts(np.ones(5, int), np.full(5, 10))})]
    (estimate,) = recovered(lines, [same] * 3)
    assert in_words(estimate) == ""


def test_every_table_of_error_rates_has_a_row_to_compare_with():
    for table in TITLES:
        lines = lines_of(table)
        against = {line.number: reference_of(table, lines, line) for line in lines if line.system is not None}
        assert (table in PLAIN) == any(against.values()), table
        for number, plain in against.items():
            assert plain is not None or PLAIN.get(table, {}).items() <= lines[number - 1].row.items(), table


def test_rows_are_compared_with_those_of_their_decoding_speech_and_proposal():
    lines = lines_of("tab7_main")

    def against(**wanted):
        (line,) = (each for each in lines if wanted.items() <= each.row.items())
        plain = reference_of("tab7_main", lines, line)
        return plain and (plain.row["method"], plain.row["unlabeled"], plain.row["decode_lm"])

    for decoding in ("None", "ConvLM"):
        row = {"source": "this", "method": "Supervised", "decode_lm": decoding}
        assert against(**row, labeled_hours="100") == ("LPM", "360h(S)+All(T)", decoding)
        assert against(**row, labeled_hours="460") == ("LPM", "360h(S)+All(T)", decoding)
        most = ("LPM", "860h(S)+All(T)", decoding)
        assert against(source="ours", labeled_hours="960", decode_lm=decoding) == most
        assert against(source="this", method="LPM_large", decode_lm=decoding) == most
        assert against(source="ours", method="LPM_large", decode_lm=decoding) == most
    others = lines_of("tabA3_kd_ext")
    for line in others:
        plain = reference_of("tabA3_kd_ext", others, line)
        assert plain is None or plain.row["init_proposal"] == line.row["init_proposal"]


def test_where_rows_have_several_starts_plain_matching_has_the_scales():
    lines = lines_of("tab3_init_update")
    for start in ("A", "C"):
        references = [reference_of("tab3_init_update", lines, line, start) for line in lines if line.system]
        assert references.count(None) == 1, "of the plain row itself"
        (plain,) = {each.number: each.row for each in references if each}.values()
        assert (plain["init_proposal"], plain["proposal_update"], plain["init_online"]) == (
            "A",
            "Off_better",
            start,
        )
