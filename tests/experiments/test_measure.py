"""What the columns of tables measure, on transcripts made by hand, and how it is kept; and the beams of Table 1."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from lhotse import CutSet, MonoCut, SupervisionSegment
from narrowing import present

from priormatch.config import Settings
from priormatch.errors import UserError
from priormatch.experiments.measure import Found, beam, file_of, labels_of, measure, read_found, write_found
from priormatch.experiments.results_page import papers_beams
from priormatch.experiments.scales import Request
from priormatch.experiments.study import Study
from priormatch.experiments.table import tables
from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.recognizers.prior import ConvPrior
from priormatch.scoring.alignment import align
from priormatch.scoring.bootstrap import ScoredTexts
from priormatch.scoring.error_rates import ErrorCounts
from priormatch.scoring.transcripts import Transcript, write_transcripts

SAID, HEARD = ["at ten", "noon"], ["at den", "noon"]
TABLE = "tab6_kd"
ROW = tables()[TABLE].rows[9]


def stand_in(**attributes: object) -> Study:
    """A study of which only what is asked exists."""
    return cast(Study, SimpleNamespace(**attributes))


@pytest.fixture
def study(tmp_path: Path, tiny_prior: ConvPrior) -> Study:
    """A study whose systems all hear the same."""
    path = tmp_path / "transcripts.jsonl"
    pairs = zip(SAID, HEARD, strict=True)
    write_transcripts(
        path, [Transcript(str(number), heard, 2, said, []) for number, (said, heard) in enumerate(pairs)]
    )
    tiny_prior.save(tmp_path / "prior")
    cuts = tmp_path / "cuts.jsonl.gz"
    speakers = (
        SupervisionSegment(name, name, 0, 1, speaker=who) for name, who in (("0", "Bo"), ("1", "Ann"))
    )
    CutSet.from_cuts(MonoCut(each.id, 0, 1, 0, supervisions=[each]) for each in speakers).to_file(cuts)
    return stand_in(
        settings=Settings(device="cpu"),
        models=SimpleNamespace(prior=lambda: tmp_path / "prior"),
        decode=lambda system, part, with_prior: {f"{part}-{kind}": path for kind in ("clean", "other")},
        sets=lambda part: {f"{part}-{kind}": cuts for kind in ("clean", "other")},
    )


def test_the_labels_of_table_8_are_those_of_the_first_and_of_the_last_proposal() -> None:
    study = stand_in(
        models=SimpleNamespace(
            transcripts=lambda labels, unlabeled: Path(f"{labels} labels of {unlabeled}"),
            greedy=lambda unlabeled: Path(f"supervised model on {unlabeled}"),
        ),
        heard=lambda system: Path(f"last proposal on {system.unlabeled}"),
    )
    rows = tables()["tab8_label_quality"].rows
    assert {row.cells["step"]: str(labels_of(study, row.cells, present(row.system))) for row in rows} == {
        "All": "asr_lm labels of all",
        "0": "supervised model on all",
        "3.2M": "last proposal on all",
    }


def test_table_9_takes_what_was_said_for_the_ground_truth_and_what_was_heard_of_all_others(
    study: Study, tiny_prior: ConvPrior
) -> None:
    scored = likelihoods(tiny_prior, [*SAID, *HEARD])
    for row in tables()["tab9_decode_ppl"].rows:
        texts = SAID if row.cells["system"] == "GroundTruth" else HEARD
        found = measure(study, row.cells, present(row.system))
        for column in ("lm_ppl_dev_clean", "lm_ppl_dev_other"):
            assert found.values[column] == pytest.approx(perplexity(scored, texts))
            assert found.texts[column].log_p == pytest.approx([scored[text][0] for text in texts], abs=1e-4)
            assert found.texts[column].pieces.tolist() == [scored[text][1] for text in texts]


@pytest.mark.parametrize(("table", "rate"), [("tabA4_cer", 100 * 1 / 10), ("tabA1_alpha", 100 * 1 / 3)])
def test_table_a4_counts_characters_and_others_words(study: Study, table: str, rate: float) -> None:
    row = tables()[table].rows[0]
    found = measure(study, row.cells, present(row.system))
    assert len(found.values) == (4 if table == "tabA4_cer" else 2)
    assert list(found.values.values()) == pytest.approx([rate] * len(found.values))
    assert found.speakers == {column: [1, 0] for column in found.values}


def test_an_unknown_speaker_leaves_all_of_a_set_unknown(study: Study) -> None:
    cuts = study.sets("dev")["dev-clean"]
    alone = SupervisionSegment("0", "0", 0, 1, speaker="Bo")
    CutSet.from_cuts([MonoCut("0", 0, 1, 0, supervisions=[alone])]).to_file(cuts)
    row = tables()["tabA1_alpha"].rows[0]
    assert measure(study, row.cells, present(row.system)).speakers == {}


@pytest.fixture
def places(tmp_path: Path) -> Any:
    """The places of a study with some settings; no data are needed to keep figures."""

    def make(*settings: Any) -> Any:
        return Request((), "small", overrides=(f"runs={tmp_path}", *settings)).places(0)

    return make


def figures(errors: Any) -> Any:
    counts = ErrorCounts(np.array([errors, 0]), np.array([4, 4]))
    return Found(
        {"dev_clean_wer": counts.rate}, {"dev_clean_wer": counts}, speakers={"dev_clean_wer": [1, 0]}
    )


def test_figures_of_other_settings_are_kept_and_found_by_their_settings(
    places: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = places(), places("matching.updates=7"), places("matching.updates=8")
    for study, errors in ((first, 1), (second, 2)):
        write_found(study, TABLE, ROW, figures(errors))
    file = file_of(first, TABLE, ROW)
    assert file == file_of(second, TABLE, ROW), "one folder"
    assert f"measured again; the old figures are kept as {file}.1" in capsys.readouterr().err
    for study, errors in ((first, 1), (second, 2)):
        found = read_found(study, TABLE, ROW)
        assert found.values == figures(errors).values
        assert found.errors["dev_clean_wer"].errors.tolist() == [errors, 0]
    assert read_found(third, TABLE, ROW) == Found(), "never measured"


def test_the_same_figures_are_put_down_once(places: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        write_found(places(), TABLE, ROW, figures(1))
    file = file_of(places(), TABLE, ROW)
    assert list(file.parent.iterdir()) == [file]
    assert "kept" not in capsys.readouterr().err


def test_of_one_and_the_same_settings_the_latest_figures_are_shown_and_none_are_lost(places: Any) -> None:
    for errors in (1, 2, 3):  # such as on other data
        write_found(places(), TABLE, ROW, figures(errors))
    write_found(places("matching.updates=7"), TABLE, ROW, figures(0))
    assert read_found(places(), TABLE, ROW).values == figures(3).values
    assert len(list(file_of(places(), TABLE, ROW).parent.iterdir())) == 4


def test_what_the_prior_says_of_each_utterance_is_kept_and_older_files_are_read_without(places: Any) -> None:
    row = tables()["tab9_decode_ppl"].rows[5]
    texts = ScoredTexts(np.array([-7.25, -3.5]), np.array([4, 2]))
    write_found(
        places(), "tab9_decode_ppl", row, Found({"lm_ppl_dev_clean": 6.0}, {}, {"lm_ppl_dev_clean": texts})
    )
    found = read_found(places(), "tab9_decode_ppl", row)
    assert found.texts["lm_ppl_dev_clean"].log_p.tolist() == [-7.25, -3.5]
    assert found.texts["lm_ppl_dev_clean"].pieces.tolist() == [4, 2]
    file = file_of(places(), "tab9_decode_ppl", row)
    content = json.loads(file.read_text())
    del content["texts"]
    file.write_text(json.dumps(content))
    assert read_found(places(), "tab9_decode_ppl", row) == Found({"lm_ppl_dev_clean": 6.0})
    write_found(places(), TABLE, ROW, figures(1))
    assert "texts" not in file_of(places(), TABLE, ROW).read_text(), (
        "or all older figures would be put down anew"
    )


def test_damaged_figures_are_named(places: Any) -> None:
    write_found(places(), TABLE, ROW, figures(1))
    file = file_of(places(), TABLE, ROW)
    file.write_bytes(file.read_bytes()[:20] + b"\xff")
    with pytest.raises(UserError, match=rf"{file.name} is damaged \(.*\): remove it and run its table again"):
        read_found(places(), TABLE, ROW)
    write_found(places(), TABLE, ROW, figures(1))
    assert read_found(places(), TABLE, ROW).values == figures(1).values, "measured again, that is no matter"


def test_a_beam_shows_errors_and_what_both_models_say() -> None:
    said = "she walked very fast"
    texts = ["she looked very fast indeed", "walked very fast"]
    hypotheses = [
        Hypothesis(rank, text, [], -1.5 * rank, -47.58, 0.25, None, align(said, text))
        for rank, text in enumerate(texts, 1)
    ]
    inspection = Inspection("one", said, -34.14, 0, True, hypotheses)
    assert beam("1", "LPM", inspection) == [
        ["1", "LPM", "1", "-1.50", "-47.58", "0.250", "she walked→looked very fast +indeed"],
        ["1", "LPM", "2", "-3.00", "-47.58", "0.250", "-she walked very fast"],
    ]


def test_the_papers_beams_are_there_verbatim() -> None:
    first, *others = papers_beams()
    assert first == ["1", "Ref", "", "-34.14", "_she _walk ed _very _fast _after _she _left _the _house $"]
    assert len(others) == 17
