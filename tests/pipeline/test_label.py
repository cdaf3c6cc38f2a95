"""`priormatch label`: from hypotheses to cuts to train on, of one model or of several."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lhotse import CutSet
from narrowing import present
from tiny_run import command, files

from priormatch.config import AudioSettings
from priormatch.data.batches import UtteranceReader
from priormatch.data.corpus import Corpus, cut_text, cut_texts, read_cuts
from priormatch.data.pack import pack
from priormatch.data.plan import Request, Visit
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.matching.label_filters import LabelFilter
from priormatch.pipeline.label import label_cuts, with_texts
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import Transcript, read_transcripts, write_transcripts

A = ["monday", "at nine", "at nine", "", "no no no no no no"]
B = ["monday", "at ten", "", "with", "doctor"]


def heard(
    path: Path, texts: list[str], scores: list[float] | None = None, unended: list[int] | tuple[Any, ...] = ()
) -> Path:
    transcripts = [
        Transcript(
            f"tiny-{i}", text, 1, None, [] if scores is None else [(text, scores[i])], i not in unended
        )
        for i, text in enumerate(texts)
    ]
    write_transcripts(path, transcripts)
    return path


@pytest.fixture
def cuts(tiny_corpus: Callable[..., Path]) -> Path:
    return tiny_corpus(6, transcribed=False)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "new" / "labeled.jsonl.gz"


def texts_of(path: Path) -> dict[str, list[str]]:
    return {cut.id: cut_texts(cut) for cut in read_cuts(path)}


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_hypotheses_become_texts_and_every_loss_is_told(
    cuts: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = heard(tmp_path / "a.jsonl", A, unended=[2])
    label_cuts(cuts, [path], out, LabelFilter())
    assert texts_of(out) == {"tiny-0": ["monday"], "tiny-1": ["at nine"]}
    told = said(capsys)
    assert f"{path}: 2 of 6 kept; " in told
    for reason in ("1 empty", "1 without an end", "1 repeating themselves", "1 not transcribed"):
        assert reason in told
    assert "2 of 6 utterances labeled" in told
    assert [cut_text(cut) for cut in read_cuts(cuts)] == [None] * 6


def test_the_rest_of_a_cut_stays_as_it_is(cuts: Path, out: Path, tmp_path: Path) -> None:
    label_cuts(cuts, [heard(tmp_path / "a.jsonl", A)], out, LabelFilter())
    before, after = ({cut.id: cut.to_dict() for cut in read_cuts(path)} for path in (cuts, out))
    for name, cut in after.items():
        assert cut["supervisions"][0].pop("text") == texts_of(out)[name][0]
        assert cut == before[name]


def test_the_best_share_by_the_score_a_piece(
    cuts: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = heard(tmp_path / "b.jsonl", B, scores=[-4.0, -1.0, -0.1, -2.0, -3.0])
    label_cuts(cuts, [path], out, LabelFilter(keep_best=0.5))
    assert texts_of(out) == {"tiny-1": ["at ten"], "tiny-3": ["with"]}
    assert "2 with a low score" in said(capsys)


def test_several_models_leave_all_their_texts(
    cuts: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [heard(tmp_path / "a.jsonl", A), heard(tmp_path / "b.jsonl", B)]
    label_cuts(cuts, paths, out, LabelFilter())
    assert texts_of(out) == {
        "tiny-0": ["monday"],  # they agree
        "tiny-1": ["at nine", "at ten"],
        "tiny-2": ["at nine"],
        "tiny-3": ["with"],
        "tiny-4": ["doctor"],
    }
    assert "5 of 6 utterances labeled, 2 of them by several models" in said(capsys)


def test_what_most_models_heard_is_taught_most(cuts: Path, out: Path, tmp_path: Path) -> None:
    paths = [heard(tmp_path / f"{i}.jsonl", [text]) for i, text in enumerate(["at", "ten", "at"])]
    label_cuts(cuts, paths, out, LabelFilter())
    assert texts_of(out) == {"tiny-0": ["at", "ten", "at"]}


def test_labels_take_the_place_of_all_that_was_there(tiny_corpus: Callable[..., Path]) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["monday"]))
    cut.supervisions[0].custom = {"kept": 3}
    both = with_texts(cut, ["at nine", "at ten"])
    assert cut_texts(both) == ["at nine", "at ten"]
    assert cut_texts(with_texts(both, ["with"])) == ["with"]
    assert with_texts(both, ["with"]).supervisions[0].custom == {"kept": 3}
    assert cut_texts(cut) == ["monday"]
    assert cut_texts(with_texts(cut.drop_supervisions(), ["with"])) == ["with"]


def test_training_reads_both_texts(cuts: Path, out: Path, tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    label_cuts(cuts, [heard(tmp_path / "a.jsonl", A), heard(tmp_path / "b.jsonl", B)], out, LabelFilter())
    corpus = Corpus.load(out, AudioSettings(workers=0), transcribed=True)
    reader = UtteranceReader(corpus, tiny_tokenizer)
    batches = [reader.__getitems__(Request([Visit(1, (0, epoch))])) for epoch in range(20)]
    assert {tiny_tokenizer.decode(each.labels[0].tolist()) for each in batches} == {"at nine", "at ten"}


def test_packed_audio_keeps_all_texts(cuts: Path, out: Path, tmp_path: Path) -> None:
    label_cuts(cuts, [heard(tmp_path / "a.jsonl", A), heard(tmp_path / "b.jsonl", B)], out, LabelFilter())
    assert texts_of(pack(read_cuts(out), tmp_path / "packed", "both")) == texts_of(out)


def test_bad_input_is_named_and_writes_nothing(cuts: Path, out: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger.jsonl"
    write_transcripts(stranger, [Transcript("x", "at", 1, None, [])])
    with pytest.raises(UserError, match=r"stranger\.jsonl and .*tiny\.jsonl\.gz have no utterance in common"):
        label_cuts(cuts, [heard(tmp_path / "a.jsonl", A), stranger], out, LabelFilter())
    with pytest.raises(UserError, match=r"a\.jsonl has no scores, which --keep-best needs"):
        label_cuts(cuts, [tmp_path / "a.jsonl"], out, LabelFilter(keep_best=0.9))
    with pytest.raises(UserError, match=r"no labels are left for .*labeled\.jsonl\.gz"):
        label_cuts(cuts, [heard(tmp_path / "silent.jsonl", ["", ""])], out, LabelFilter())
    assert not out.exists()


def test_transcripts_of_more_speech_do_not_count(cuts: Path, out: Path, tmp_path: Path) -> None:
    """Not in the share either: of the two that are left one stays."""
    path = heard(tmp_path / "b.jsonl", B, scores=[-1.0, -2.0, -3.0, -4.0, -5.0])
    some = tmp_path / "some.jsonl.gz"
    CutSet.from_cuts(cut for cut in read_cuts(cuts) if cut.id in ("tiny-3", "tiny-4")).to_file(some)
    label_cuts(some, [path], out, LabelFilter(keep_best=0.5))
    assert texts_of(out) == {"tiny-3": ["with"]}


@pytest.fixture
def model(tiny_recognizer: SpeechRecognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    return "model"


KEEP_ALL = ("--keep-unended", "--most-repeats", "0", "audio.workers=0")


def test_label_decodes_filters_and_keeps_the_transcripts(
    model: str, cuts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("label", "--cuts", cuts, *KEEP_ALL)
    assert command(*words, "--model", model, "--out", "all.jsonl.gz") == 0
    decoded = {each.id: each for each in read_transcripts(tmp_path / "all.transcripts.jsonl")}
    assert len(decoded) == 6
    labels = texts_of(tmp_path / "all.jsonl.gz")
    assert labels == {name: [each.hypothesis] for name, each in decoded.items() if each.hypothesis}

    halved = ("--transcripts", "all.transcripts.jsonl", "--keep-best", "0.5", "--out", "half.jsonl.gz")
    assert command(*words, *halved) == 0
    half = texts_of(tmp_path / "half.jsonl.gz")
    a_piece = {
        name: present(each.score) / (each.pieces + 1) for name, each in decoded.items() if each.hypothesis
    }
    assert len(half) >= math.ceil(len(a_piece) / 2)
    assert min(a_piece[name] for name in half) >= max([a_piece[n] for n in a_piece if n not in half])
    assert sorted(each.name for each in tmp_path.glob("*.jsonl*")) == [
        "all.jsonl.gz",
        "all.transcripts.jsonl",
        "half.jsonl.gz",
        "tiny.jsonl.gz",
    ]


def test_label_searches_with_the_prior_as_decode_does(
    model: str, cuts: Path, tmp_path: Path, tiny_prior: ConvPrior
) -> None:
    tiny_prior.save("prior")
    words = ("--model", model, "--cuts", cuts, "--prior", "prior", "audio.workers=0", "fusion.lm_weight=3")
    assert command("decode", *words, "--out", "decoded.jsonl") == 0
    assert command("label", *words, "--out", "all.jsonl.gz", "--keep-unended") == 0
    assert (tmp_path / "all.transcripts.jsonl").read_bytes() == (tmp_path / "decoded.jsonl").read_bytes()


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    def refused(*words: Path | str) -> str:
        before = files(tmp_path)
        assert command("label", *words) == 2
        assert files(tmp_path) == before
        return capsys.readouterr().err.strip().splitlines()[-1]

    return refused


def test_nothing_is_written_over(model: str, cuts: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    words = ("--cuts", cuts, "--model", model, "--out", "all.jsonl.gz", *KEEP_ALL)
    (tmp_path / "all.jsonl.gz").write_text("mine")
    assert "all.jsonl.gz exists: choose another --out, or pass --overwrite" in refused(*words)
    (tmp_path / "all.jsonl.gz").unlink()
    (tmp_path / "all.transcripts.jsonl").write_text("mine")
    assert "all.transcripts.jsonl exists: use it with --transcripts" in refused(*words)
    assert command("label", *words, "--overwrite") == 0
    assert json.loads((tmp_path / "all.transcripts.jsonl").read_text().splitlines()[0])["id"] == "tiny-0"


def test_wrong_uses(
    cuts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("--cuts", cuts, "--out", "all.jsonl.gz")
    assert "pass either --model" in refused(*words)
    assert "pass either --model" in refused(*words, "--model", "m", "--transcripts", "t")
    assert "need --model" in refused(*words, "--transcripts", "t", "--beam-size", "4")
    assert "must end in .jsonl.gz" in refused("--cuts", cuts, "--out", "all.json", "--model", "m")
    assert "--keep-best" in refused(*words, "--model", "m", "--keep-best", "90")
