"""What the columns of tables measure, on transcripts made by hand."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from priormatch.config import Settings
from priormatch.experiments.measure import labels_of, measure
from priormatch.experiments.rows import lines_of
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.scoring.transcripts import Transcript, write_transcripts

SAID, HEARD = ["at ten", "noon"], ["at den", "noon"]


@pytest.fixture
def study(tmp_path, tiny_prior):
    """A study whose systems all hear the same."""
    path = tmp_path / "transcripts.jsonl"
    pairs = zip(SAID, HEARD, strict=True)
    write_transcripts(
        path, [Transcript(str(number), heard, 2, said, []) for number, (said, heard) in enumerate(pairs)]
    )
    tiny_prior.save(tmp_path / "prior")
    return SimpleNamespace(
        settings=Settings(device="cpu"),
        models=SimpleNamespace(prior=lambda: tmp_path / "prior"),
        decode=lambda system, part, with_prior: {f"{part}-{kind}": path for kind in ("clean", "other")},
    )


def test_the_labels_of_table_8_are_those_of_the_first_and_of_the_last_proposal():
    study = SimpleNamespace(
        models=SimpleNamespace(
            transcripts=lambda labels, unlabeled: Path(f"{labels} labels of {unlabeled}"),
            greedy=lambda unlabeled: Path(f"supervised model on {unlabeled}"),
        ),
        heard=lambda system: Path(f"last proposal on {system.unlabeled}"),
    )
    lines = lines_of("tab8_label_quality")
    assert {line.row["step"]: str(labels_of(study, line.row, line.system)) for line in lines} == {
        "All": "asr_lm labels of all",
        "0": "supervised model on all",
        "3.2M": "last proposal on all",
    }


def test_table_9_takes_what_was_said_for_the_ground_truth_and_what_was_heard_of_all_others(study, tiny_prior):
    scored = likelihoods(tiny_prior, [*SAID, *HEARD])
    for line in lines_of("tab9_decode_ppl"):
        texts = SAID if line.row["system"] == "GroundTruth" else HEARD
        found = measure(study, line.row, line.system)
        for column in ("lm_ppl_dev_clean", "lm_ppl_dev_other"):
            assert found.values[column] == pytest.approx(perplexity(scored, texts))
            assert found.texts[column].log_p == pytest.approx([scored[text][0] for text in texts], abs=1e-4)
            assert found.texts[column].pieces.tolist() == [scored[text][1] for text in texts]


@pytest.mark.parametrize(("table", "rate"), [("tabA4_cer", 100 * 1 / 10), ("tabA1_alpha", 100 * 1 / 3)])
def test_table_a4_counts_characters_and_others_words(study, table, rate):
    line = lines_of(table)[0]
    values = measure(study, line.row, line.system).values
    assert len(values) == (4 if table == "tabA4_cer" else 2)
    assert list(values.values()) == pytest.approx([rate] * len(values))
