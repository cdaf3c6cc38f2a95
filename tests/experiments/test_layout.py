"""Tables with ours beside the paper's."""

from priormatch.experiments.layout import Values, every_seed, markdown, side_by_side
from priormatch.experiments.table import Row

ROWS = [
    {"alpha": "0.1", "dev_clean_wer": "9.24", "dev_other_wer": "NA"},
    {"alpha": "0.2", "dev_clean_wer": "9.00", "dev_other_wer": "26.47"},
]
FOUND: list[list[Values]] = [[{"dev_clean_wer": 10.0}, {"dev_clean_wer": 11.0}], [{}, {}]]


def test_two_columns_for_each_figure() -> None:
    assert side_by_side(ROWS, FOUND) == [
        ["alpha", "dev clean wer, paper", "ours", "dev other wer, paper", "ours"],
        ["0.1", "9.24", "10.50 (10.00, 11.00)", "", ""],
        ["0.2", "9.00", "", "26.47", ""],
    ]


def test_a_seed_that_is_not_done_is_no_part_of_the_mean() -> None:
    row, found = ROWS[1], [{}, {"dev_clean_wer": 12.0}, {"dev_clean_wer": 11.0}]
    assert side_by_side([row], [found])[1] == ["0.2", "9.00", "11.50 (-, 12.00, 11.00)", "26.47", ""]


def test_ours_stand_alone_where_the_paper_has_none() -> None:
    rows = [{"method": "LPM", "note": "NA", "dev_clean_wer": "NA"}]
    assert side_by_side(rows, [[{"dev_clean_wer": 10.0}]]) == [
        ["method", "note", "dev clean wer, ours"],
        ["LPM", "NA", "10.00"],
    ]
    assert Row(1, "plain", rows[0]).description == "LPM"


def test_markdown_has_a_line_for_each_row() -> None:
    lines = markdown(side_by_side(ROWS, FOUND)).splitlines()
    assert len(lines) == 4
    assert lines[1] == "| --- | --- | --- | --- | --- |"


def test_machines_get_every_seed() -> None:
    head, first, second = every_seed(ROWS, FOUND, [3, 5])
    assert head[3:] == [f"ours_dev_{kind}_wer_seed{seed}" for kind in ("clean", "other") for seed in (3, 5)]
    assert first == ["0.1", "9.24", "NA", "10.000", "11.000", "NA", "NA"]
    assert second[3:] == ["NA"] * 4
