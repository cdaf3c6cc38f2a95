"""Every verb that takes a prior, with a language model of Hugging Face."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hf_models import tiny_gpt2
from hub_stub import Hub, Repository
from tiny_run import command, make_folders

from priormatch import load_settings, match
from priormatch.config import PretrainedSettings, Settings
from priormatch.data.normalizer import Normalizer
from priormatch.doctor.recipe import prior_findings
from priormatch.errors import UserError
from priormatch.library import _digest_of
from priormatch.models.kneser_ney import estimate
from priormatch.pipeline.preflight import weights_of_prior
from priormatch.pipeline.recipe import recipe_of_matching
from priormatch.progress import Meter
from priormatch.recognizers.card import read_card
from priormatch.recognizers.folder import WEIGHTS
from priormatch.recognizers.hf_prior import HuggingFacePrior
from priormatch.recognizers.kenlm_prior import KenlmPrior
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import read_record
from priormatch.scoring.transcripts import read_transcripts

OWN = ("labeled=labeled", "unlabeled=unlabeled", "text=text.txt", "test.clean=test")
SHORT = (
    "threads=1",
    "audio.workers=0",
    "matching.updates=4",
    "matching.refresh_every=2",
    "matching.batch.utterances=4",
    "matching.combine=sum",
    "matching.mixing=[1,1]",
    "matching.optimizer.kind=adamw",
    "matching.max_proposal_cer=1000",
    "matching.length_filter=[]",
)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_gpt2(tmp_path_factory.mktemp("prior") / "lm")


@pytest.fixture
def speech(
    tiny_corpus: Callable[..., Path],
    tiny_recognizer: SpeechRecognizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Path]:
    """A recognizer in the folder `model` of the process, and manifests."""
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    return {
        "labeled": tiny_corpus(6, "labeled"),
        "unlabeled": tiny_corpus(6, "unlabeled", transcribed=False),
        "dev": tiny_corpus(4, "dev"),
    }


def settings(*overrides: str) -> Settings:
    return load_settings(None, [*SHORT, *overrides])


def test_matching_by_call_and_by_verb_are_the_same(lm: Path, speech: dict[str, Path]) -> None:
    given = (speech["labeled"], speech["unlabeled"], {"dev": speech["dev"]})
    form = "prior.text_form=sentence"
    called = match("model", lm, *given, "call", settings=settings(form, "device=cpu"))
    words = ("--labeled", given[0], "--unlabeled", given[1], "--validation", speech["dev"])
    assert command("match", "--model", "model", "--prior", lm, *words, "--out", "verb", *SHORT, form) == 0
    verb = SpeechRecognizer.load("verb/model").state_dict()
    assert all(torch.equal(value, verb[name]) for name, value in called.state_dict().items())
    card = read_card(Path("verb/model"))
    assert card is not None
    assert f"prior: {lm.name}, a pretrained language model of" in card.sections["Data"]
    assert "text_form sentence" in card.sections["Data"]
    assert command("match", "--model", "model", "--prior", lm, *words, "--out", "verb", *SHORT) == 2, (
        "other form"
    )


def test_matching_goes_on_after_a_stop_to_the_same_weights(
    lm: Path, speech: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("model", lm, speech["labeled"], speech["unlabeled"], {"dev": speech["dev"]})
    straight = match(*given, "straight", settings=settings()).state_dict()
    advance = Meter.advance

    def stop(meter: Meter, amount: int = 1, note: str | None = None) -> None:
        advance(meter, amount, note)
        if (meter.description, meter.done) == ("stopped", 3):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Meter, "advance", stop)
        match(*given, "stopped", settings=settings())
    again = match(*given, "stopped", settings=settings()).state_dict()
    assert "resuming from update 2" in capsys.readouterr().err
    assert all(torch.equal(value, again[name]) for name, value in straight.items())


def test_what_a_model_computes_tells_it_from_others_of_its_class(
    lm: Path, hf_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    def kenlm(name: str) -> KenlmPrior:
        (tmp_path / name).touch()
        return KenlmPrior(None, None, file=tmp_path / name)

    ngrams = estimate(["a b", "b a"], 2)[0]
    whisper = hf_folder("whisper")
    models: list[object] = [
        *(kenlm(name) for name in ("one.binary", "other.binary")),
        *(NgramPrior(ngrams, Normalizer(kind)) for kind in ("english", "turkic")),
        *(HuggingFacePrior.load(lm, form=form) for form in ("as_written", "sentence")),
        *(load_recognizer(whisper, "cpu", PretrainedSettings(language=code)) for code in ("en", "de")),
        load_recognizer(whisper, "cpu", PretrainedSettings(language="en", train="decoder")),
    ]
    digests = [_digest_of(each) for each in models]
    assert len({*digests}) == len(models)
    assert _digest_of(HuggingFacePrior.load(lm)) == digests[4]


def test_verbs_that_search_rescore_with_it(
    lm: Path, speech: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    cuts = ("--cuts", speech["dev"])
    rest = ("threads=1", "audio.workers=0")
    wanted = ("fusion.lm_weight=2", "fusion.beam_size=3", "fusion.token_bonus=0", *rest)
    model = ("--model", "model", "--prior", lm)
    assert command("decode", *model, *cuts, "--out", "with.jsonl", *wanted) == 0
    assert command("decode", "--model", "model", *cuts, "--out", "plain.jsonl", "--beam-size", 3, *rest) == 0
    prior = HuggingFacePrior.load(lm)
    for found, plain in zip(
        read_transcripts(Path("with.jsonl")), read_transcripts(Path("plain.jsonl")), strict=True
    ):
        texts = [text for text, _ in plain.nbest]
        added = (2 * prior.score_texts(texts)).tolist()
        scores = {text: score + more for (text, score), more in zip(plain.nbest, added, strict=True)}
        assert found.hypothesis == max(scores, key=lambda text: scores[text])
    assert command("tune", *model, "--validation", speech["dev"], "--out", "fusion.yaml", *rest) == 0
    assert command("hypotheses", *model, *cuts, "--json", *rest) == 0
    capsys.readouterr()
    assert command("score", "with.jsonl", "--prior", lm, "--json") == 0
    (shown,) = json.loads(capsys.readouterr().out)["scores"]
    texts = [each.hypothesis for each in read_transcripts(Path("with.jsonl"))]
    words = sum(len(text.split()) + 1 for text in texts)
    assert shown["perplexity"] == pytest.approx(
        math.exp(-float(prior.score_texts(texts).sum()) / words), rel=1e-4
    )


def test_weights_divided_by_length(
    lm: Path, speech: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("hypotheses", "--model", "model", "--prior", lm, "--cuts", speech["dev"], "--json", "--count", 1)
    assert command(*asked, "threads=1", "audio.workers=0", "matching.length_normalization=1") == 0
    (line,) = capsys.readouterr().out.splitlines()
    hypotheses = json.loads(line)["hypotheses"]
    each = torch.tensor([one["log_prior"] / (len(one["pieces"]) + 1) for one in hypotheses])
    found = torch.tensor([one["weight"] for one in hypotheses])
    torch.testing.assert_close(found, each.softmax(dim=0), atol=1e-4, rtol=1e-4)


def test_a_run_uses_it_in_place_of_a_prior_of_its_own(
    hub: Hub, lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    make_folders(tmp_path)
    repository = hub.repositories["ann/lm"] = Repository(private=False)
    commit = repository.commit("main", {each.name: each.read_bytes() for each in lm.iterdir()})
    asked: tuple[str, ...] = (
        "run",
        "tiny.yaml",
        *OWN,
        "training.updates=4",
        "training.window_updates=2",
        "matching.updates=4",
    )
    asked += ("training.validate_every=4", "longer_supervised=false", "matching.prior_exponent=0.5")
    assert command(*asked, "prior.pretrained=ann/lm") == 0
    run = tmp_path / "runs/tiny"
    assert not (run / "prior").exists()
    record = read_record(run / "lpm")
    assert record is not None
    assert record["recipe"]["settings"]["prior"] == {"name": "ann/lm", "commit": commit}
    assert f"pretrained: ann/lm@{commit}" in (run / "settings.yaml").read_text()
    card = read_card(run / "lpm/model")
    assert card is not None
    assert f"prior: ann/lm@{commit}" in card.sections["Data"]
    capsys.readouterr()
    assert command(*asked, "prior.pretrained=ann/lm") == 0
    assert " ..." not in capsys.readouterr().err, "nothing is made again"
    assert command(*asked, f"prior.pretrained={lm}") == 0
    record = read_record(run / "lpm")
    assert record is not None
    assert record["recipe"]["settings"]["prior"].keys() == {"sha256"}
    assert "lpm: rerun because prior" in capsys.readouterr().err


def test_doctor_reads_it_and_compares_letters(lm: Path, tmp_path: Path) -> None:
    wanted = settings(f"prior.pretrained={lm}").prior
    (found,) = prior_findings(wanted, ["one two"])
    assert (found.status, "can write all letters" in found.what) == ("ok", True)
    (lm_without := tmp_path / "lm").mkdir()
    wanted.pretrained = str(lm_without)
    (found,) = prior_findings(wanted, ["one two"])
    assert found.status == "problem"
    stored = sum(each.numel() for each in HuggingFacePrior.load(lm).network.parameters())
    assert weights_of_prior(settings(f"prior.pretrained={lm}")) == stored


def test_a_prior_that_cannot_write_the_output_is_refused(
    lm: Path, speech: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lacking(*letters: str) -> Callable[[Any, Any], list[str]]:
        return lambda prior, all: [each for each in all if each in letters]

    monkeypatch.setattr(HuggingFacePrior, "cannot_write", lacking("e"))
    given = ("model", lm, speech["labeled"], speech["unlabeled"], {"dev": speech["dev"]})
    match(*given, "few", settings=settings())
    assert "letters (e): it cannot distinguish hypotheses that differ in them" in capsys.readouterr().err
    monkeypatch.setattr(HuggingFacePrior, "cannot_write", lacking(*"aeiou"))
    with pytest.raises(UserError, match=r"cannot write \d of the recognizer's \d+ letters \(a e"):
        match(*given, "many", settings=settings())


def test_folders_of_our_own_are_still_ours(lm: Path, tmp_path: Path) -> None:
    assert isinstance(load_prior(lm), HuggingFacePrior)
    with pytest.raises(UserError, match="contains no prior"):
        load_prior(tmp_path)
    (tmp_path / WEIGHTS).write_bytes((lm / WEIGHTS).read_bytes())
    (tmp_path / "config.json").write_bytes((lm / "config.json").read_bytes())
    with pytest.raises(UserError, match="has no tokenizer"):
        load_prior(tmp_path)


def test_settings_that_change_nothing_leave_fingerprints_alone() -> None:
    plain = recipe_of_matching(settings())
    assert not {"text_form", "prior"} & plain.keys()
    assert "length_normalization" not in plain["matching"]
    changed = recipe_of_matching(settings("prior.text_form=lower", "matching.length_normalization=0.5"))
    assert (changed["text_form"], changed["matching"]["length_normalization"]) == ("lower", 0.5)
    with pytest.raises(UserError, match=r"prior\.keep.*is not trained"):
        settings("prior.pretrained=x", "prior.keep={a: {update: 10}}")
