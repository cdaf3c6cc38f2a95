"""Figures of rows beside their systems, of whatever settings they are."""

import json

import numpy as np
import pytest

from priormatch.config import recipe_path
from priormatch.errors import UserError
from priormatch.experiments.found import Found, file_of, read_found, write_found
from priormatch.experiments.rows import lines_of
from priormatch.experiments.scales import places_of
from priormatch.recognizers.perplexity import ScoredTexts
from priormatch.scoring.error_rates import ErrorCounts

TABLE = "tab6_kd"
LINE = lines_of(TABLE)[9]


@pytest.fixture
def places(tmp_path):
    """The places of a study with some settings; no data are needed to keep figures."""

    def make(*settings):
        return places_of("small", recipe_path("table-small"), 0, (f"runs={tmp_path}", *settings))

    return make


def figures(errors):
    counts = ErrorCounts(np.array([errors, 0]), np.array([4, 4]))
    return Found({"dev_clean_wer": counts.rate}, {"dev_clean_wer": counts})


def test_figures_of_other_settings_are_kept_and_found_by_their_settings(places, capsys):
    first, second, third = places(), places("matching.updates=7"), places("matching.updates=8")
    for study, errors in ((first, 1), (second, 2)):
        write_found(study, TABLE, LINE, figures(errors))
    file = file_of(first, TABLE, LINE)
    assert file == file_of(second, TABLE, LINE), "one folder"
    assert f"measured again; the old figures are kept as {file}.1" in capsys.readouterr().err
    for study, errors in ((first, 1), (second, 2)):
        found = read_found(study, TABLE, LINE)
        assert found.values == figures(errors).values
        assert found.errors["dev_clean_wer"].errors.tolist() == [errors, 0]
    assert read_found(third, TABLE, LINE) == Found(), "never measured"


def test_the_same_figures_are_put_down_once(places, capsys):
    for _ in range(2):
        write_found(places(), TABLE, LINE, figures(1))
    file = file_of(places(), TABLE, LINE)
    assert list(file.parent.iterdir()) == [file]
    assert "kept" not in capsys.readouterr().err


def test_of_one_and_the_same_settings_the_latest_figures_are_shown_and_none_are_lost(places):
    for errors in (1, 2, 3):  # such as on other data
        write_found(places(), TABLE, LINE, figures(errors))
    write_found(places("matching.updates=7"), TABLE, LINE, figures(0))
    assert read_found(places(), TABLE, LINE).values == figures(3).values
    assert len(list(file_of(places(), TABLE, LINE).parent.iterdir())) == 4


def test_what_the_prior_says_of_each_utterance_is_kept_and_older_files_are_read_without(places):
    line = lines_of("tab9_decode_ppl")[5]
    texts = ScoredTexts(np.array([-7.25, -3.5]), np.array([4, 2]))
    write_found(
        places(), "tab9_decode_ppl", line, Found({"lm_ppl_dev_clean": 6.0}, {}, {"lm_ppl_dev_clean": texts})
    )
    found = read_found(places(), "tab9_decode_ppl", line)
    assert found.texts["lm_ppl_dev_clean"].log_p.tolist() == [-7.25, -3.5]
    assert found.texts["lm_ppl_dev_clean"].pieces.tolist() == [4, 2]
    file = file_of(places(), "tab9_decode_ppl", line)
    content = json.loads(file.read_text())
    del content["texts"]
    file.write_text(json.dumps(content))
    assert read_found(places(), "tab9_decode_ppl", line) == Found({"lm_ppl_dev_clean": 6.0})
    write_found(places(), TABLE, LINE, figures(1))
    assert "texts" not in file_of(places(), TABLE, LINE).read_text(), (
        "or all older figures would be put down anew"
    )


def test_damaged_figures_are_named(places):
    write_found(places(), TABLE, LINE, figures(1))
    file = file_of(places(), TABLE, LINE)
    file.write_bytes(file.read_bytes()[:20] + b"\xff")
    with pytest.raises(UserError, match=rf"{file.name} is damaged \(.*\): remove it and run its table again"):
        read_found(places(), TABLE, LINE)
    write_found(places(), TABLE, LINE, figures(1))
    assert read_found(places(), TABLE, LINE).values == figures(1).values, "measured again, that is no matter"
