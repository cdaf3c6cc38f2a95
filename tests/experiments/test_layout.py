"""Tables with ours beside the paper's."""

from priormatch.experiments.layout import cells, markdown, named, tsv
from priormatch.experiments.measure import with_recovered

ROWS = [
    {"alpha": "0.1", "dev_clean_wer": "9.24", "dev_other_wer": "NA"},
    {"alpha": "0.2", "dev_clean_wer": "9.00", "dev_other_wer": "26.47"},
]
FOUND = [[{"dev_clean_wer": 10.0}, {"dev_clean_wer": 11.0}], [{}, {}]]


def test_two_columns_for_each_figure():
    assert cells(ROWS, FOUND) == [
        ["alpha", "dev clean wer, paper", "ours", "dev other wer, paper", "ours"],
        ["0.1", "9.24", "10.50 (10.00, 11.00)", "", ""],
        ["0.2", "9.00", "", "26.47", ""],
    ]


def test_a_seed_that_is_not_done_is_no_part_of_the_mean():
    row, found = ROWS[1], [{}, {"dev_clean_wer": 12.0}, {"dev_clean_wer": 11.0}]
    assert cells([row], [found])[1] == ["0.2", "9.00", "11.50 (-, 12.00, 11.00)", "26.47", ""]


def test_ours_stand_alone_where_the_paper_has_none():
    rows = [{"method": "LPM", "note": "NA", "dev_clean_wer": "NA"}]
    assert cells(rows, [[{"dev_clean_wer": 10.0}]]) == [
        ["method", "note", "dev clean wer, ours"],
        ["LPM", "NA", "10.00"],
    ]
    assert named(rows[0]) == "LPM"


def test_markdown_has_a_line_for_each_row():
    lines = markdown(cells(ROWS, FOUND)).splitlines()
    assert len(lines) == 4
    assert lines[1] == "| --- | --- | --- | --- | --- |"


def test_machines_get_every_seed():
    head, first, second = (line.split("\t") for line in tsv(ROWS, FOUND, [3, 5]).splitlines())
    assert head[3:] == [f"ours_dev_{kind}_wer_seed{seed}" for kind in ("clean", "other") for seed in (3, 5)]
    assert first == ["0.1", "9.24", "NA", "10.000", "11.000", "NA", "NA"]
    assert second[3:] == ["NA"] * 4


def main_row(method, hours, decode="None", source="this"):
    return {"source": source, "method": method, "labeled_hours": hours, "decode_lm": decode, "test_clean_wer": "NA",
            "test_clean_werr_pct": "NA", "test_clean_werr_960_pct": "NA"}  # fmt: skip


def test_recovered_rates_need_both_ends_of_the_same_decoding():
    rows = [
        main_row("Supervised", "100"),
        main_row("Supervised", "460"),
        main_row("LPM", "100"),
        main_row("LPM", "100", "ConvLM"),
        main_row("Supervised", "460", source="kahn2019"),
        main_row("Supervised", "960", source="ours"),
    ]
    values = [{"test_clean_wer": each} for each in (20.0, 10.0, 12.5, 9.0, 11.0, 5.0)]
    found = with_recovered(rows, values)
    assert [each.get("test_clean_werr_pct") for each in found] == [0.0, 100.0, 75.0, None, 90.0, 150.0]
    assert [each.get("test_clean_werr_960_pct") for each in found][:3] == [0.0, 1000 / 15, 50.0]
