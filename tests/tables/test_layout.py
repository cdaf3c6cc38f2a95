"""Tables with ours beside the paper's."""

from priormatch.tables.layout import cells, markdown, tsv
from priormatch.tables.measure import with_recovered

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


def test_markdown_has_a_line_for_each_row():
    lines = markdown(cells(ROWS, FOUND)).splitlines()
    assert len(lines) == 4
    assert lines[1] == "| --- | --- | --- | --- | --- |"


def test_machines_get_every_seed():
    head, first, second = (line.split("\t") for line in tsv(ROWS, FOUND, [3, 5]).splitlines())
    assert head[3:] == [f"ours_dev_{kind}_wer_seed{seed}" for kind in ("clean", "other") for seed in (3, 5)]
    assert first == ["0.1", "9.24", "NA", "10.000", "11.000", "NA", "NA"]
    assert second[3:] == ["NA"] * 4


def test_recovered_rates_need_both_ends_of_the_same_decoding():
    def row(method, hours, decode="None"):
        return {"source": "this", "method": method, "labeled_hours": hours, "decode_lm": decode,
                "test_clean_wer": "NA", "test_clean_werr_pct": "NA"}  # fmt: skip

    rows = [
        row("Supervised", "100"),
        row("Supervised", "460"),
        row("LPM", "100"),
        row("LPM", "100", "ConvLM"),
    ]
    values = [{"test_clean_wer": each} for each in (20.0, 10.0, 12.5, 9.0)]
    found = with_recovered(rows, values)
    assert [each.get("test_clean_werr_pct") for each in found] == [0.0, 100.0, 75.0, None]
