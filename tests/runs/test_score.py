"""`priormatch score` with references, labels and a prior from elsewhere."""

import math

import pytest
from lhotse import CutSet
from tiny_run import command

from priormatch.data.batches import read_cuts
from priormatch.errors import UserError
from priormatch.evaluation.transcripts import Transcript, write_transcripts
from priormatch.runs.label import with_texts
from priormatch.runs.score import perplexities, score_files

SAID = ["monday at ten", "at nine", "with doctor"]
HEARD = ["monday at", "at ten", "with doctor"]  # two errors in seven words


@pytest.fixture
def decoded(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "decoded.jsonl"
    write_transcripts(path, [Transcript(f"tiny-{i}", text, 3, None, []) for i, text in enumerate(HEARD)])
    return path


def test_labels_of_a_manifest_are_scored_as_far_as_they_go(decoded, tmp_path, tiny_corpus, capsys):
    cuts = tiny_corpus(SAID)
    labelled = tmp_path / "labelled.jsonl.gz"
    some = [with_texts(cut, [text]) for cut, text in zip(read_cuts(cuts), HEARD, strict=True)][1:]
    CutSet.from_cuts(some).to_file(labelled)
    score_files([decoded, labelled], cuts)
    first, second = [line.split("│") for line in capsys.readouterr().out.splitlines() if "jsonl" in line]
    assert [cell.strip() for cell in first[2:4]] == ["3", "28.57"]
    assert [cell.strip() for cell in second[2:4]] == ["2", "25.00"]


def test_an_utterance_without_text_is_no_empty_reference(decoded, tmp_path, tiny_corpus):
    cuts = list(read_cuts(tiny_corpus(SAID)))
    cuts[1].supervisions[0].text = None
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    with pytest.raises(
        UserError, match=r"1 utterances have no reference, the first is tiny-1: give the cuts"
    ):
        score_files([decoded], tmp_path / "some.jsonl.gz")
    with pytest.raises(UserError, match=r"bare\.jsonl\.gz holds no transcribed utterance"):
        score_files([decoded], tiny_corpus(2, "bare", transcribed=False))


def test_a_priors_perplexity_of_hypotheses_and_references(decoded, tmp_path, tiny_prior, tiny_corpus, capsys):
    tiny_prior.save(tmp_path / "prior")
    transcripts = [Transcript(f"u{i}", h, 3, r, []) for i, (h, r) in enumerate(zip(HEARD, SAID, strict=True))]
    ((of_heard, of_said),) = perplexities([transcripts], tmp_path / "prior")
    for texts, found in ((HEARD, of_heard), (SAID, of_said)):
        pieces = sum(len(tiny_prior.tokenizer.encode(text)) + 1 for text in texts)
        log_p = sum(float(tiny_prior.score_texts([text])[0]) for text in texts)
        assert found == pytest.approx(math.exp(-log_p / pieces), rel=1e-4)
    words = ("score", decoded, "--references", tiny_corpus(SAID), "--prior", tmp_path / "prior")
    assert command(*words) == 0
    text = capsys.readouterr().out
    assert f"{of_heard:.2f}" in text
    assert f"{of_said:.2f}" in text


def test_a_prior_that_is_none(decoded, tmp_path, tiny_corpus, capsys):
    words = ("score", decoded, "--references", tiny_corpus(SAID), "--prior", tmp_path / "nowhere")
    assert command(*words) == 2
    assert "nowhere holds no prior" in capsys.readouterr().err
