"""`priormatch tune` from files to a file, and `priormatch decode` with it."""

import json
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from narrowing import present
from tiny_run import command, files

from priormatch.config import ConvLMSettings, FusionSettings
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.tuning import MATCHING_SHARE, STARTS, Errors, is_worse_than_none
from priormatch.pipeline import tune as module
from priormatch.pipeline import work
from priormatch.recognizers.decode import error_rates, search_with_prior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import read_transcripts

GRID = {"lm_weight": (0.0, 0.5, 1.0), "token_bonus": (0.0, 1.0)}


@pytest.fixture
def home(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tiny_recognizer: SpeechRecognizer,
    tiny_prior: ConvPrior,
    tiny_corpus: Callable[..., Path],
) -> Path:
    """A folder with a recognizer whose hypotheses end, a prior and two validation sets."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "GRID", GRID)
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] += 2
    tiny_recognizer.save("model")
    tiny_prior.save("prior")
    tiny_corpus(4, "dev")
    tiny_corpus(3, "other")
    return tmp_path


def tune(*words: str, out: str = "exp/fusion.yaml", model: str = "model", prior: str = "prior") -> int:
    sets = ("--validation", "dev.jsonl.gz", "--validation", "other.jsonl.gz")
    return command(
        "tune",
        "--model",
        model,
        "--prior",
        prior,
        *sets,
        "--out",
        out,
        "audio.workers=0",
        "fusion.beam_size=3",
        *words,
    )


def decode(out: str, *words: int | str) -> int:
    speech = ("--cuts", "dev.jsonl.gz", "--out", out, "audio.workers=0")
    return command("decode", "--model", "model", *speech, *words)


def said_last(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_what_is_written_is_the_best_that_was_tried(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune() == 0
    tuned = yaml.safe_load((home / "exp/fusion.yaml").read_text())
    trials = [json.loads(line) for line in (home / "exp/fusion.yaml.trials.jsonl").read_text().splitlines()]
    tried = {(each["fusion"]["lm_weight"], each["fusion"]["token_bonus"]) for each in trials}
    starts = {(start["lm_weight"], start["token_bonus"]) for start in STARTS}
    assert tried >= starts
    assert tried - starts - {(FusionSettings.lm_weight, FusionSettings.token_bonus)}, (
        "and it walked from the best"
    )
    best = min((each["wer"], each["cer"]) for each in trials)
    about = tuned["tuned"]
    assert (about["with_prior"]["wer"], about["with_prior"]["cer"]) == best
    assert FusionSettings(**tuned["fusion"]).beam_size == 3
    assert (about["model"], about["prior"]) == ("model", "prior")
    assert about["validation"] == {"dev": "dev.jsonl.gz", "other": "other.jsonl.gz"}
    assert about["utterances"] == {"dev": 4, "other": 3}
    assert f"WER {best[0]:.2f} %" in said_last(capsys)

    greedy, with_prior = decoded_wer(), decoded_wer("--prior", "prior", "--fusion", "exp/fusion.yaml")
    assert greedy == pytest.approx(about["greedy"]["wer"])
    assert with_prior == pytest.approx(best[0])


def test_for_matching_what_the_prior_expects_costs_nothing(home: Path) -> None:
    assert tune("--for-matching") == 0
    trials = [json.loads(line) for line in (home / "exp/fusion.yaml.trials.jsonl").read_text().splitlines()]
    names = "lm_weight", "centered", "token_bonus"
    *searched, plain, chosen = trials
    assert [plain["fusion"][name] for name in names] == [0.0, True, 0.0]
    assert [[each["fusion"][name] for name in names] for each in searched] == [
        [weight, True, 0.0] for weight in (0.5, 1.0) * 2
    ]
    best = min(searched, key=lambda each: (each["wer"], each["cer"]))
    best["fusion"]["lm_weight"] = pytest.approx(MATCHING_SHARE * best["fusion"]["lm_weight"])
    assert chosen["fusion"] == best["fusion"]
    written = yaml.safe_load((home / "exp/fusion.yaml").read_text())
    tuned = written["fusion"]
    assert written["tuned"]["for"] == "matching"
    taken = plain if plain["wer"] < chosen["wer"] else chosen
    assert [tuned[name] for name in names] == [taken["fusion"][name] for name in names]


@pytest.mark.parametrize("kind", ["--for-matching", "--overwrite"])
def test_no_value_is_taken_that_is_worse_than_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """A prior that does harm at any weight, as in a report: 16.4 to 21.8 % WER."""

    def errors_of(model: Any, sets: Any, search: Any, advance: Any = None) -> Errors:
        return Errors(16.4 + 18 * search.lm_weight if isinstance(search, FusionSettings) else 15.0, 5.0)

    monkeypatch.setattr(module, "search_with_prior", lambda prior, fusion: fusion)
    monkeypatch.setattr(module, "errors_of", errors_of)
    assert tune(kind) == 0
    written = yaml.safe_load((home / "exp/fusion.yaml").read_text())
    assert written["fusion"]["lm_weight"] == 0.0
    assert written["tuned"]["with_prior"] == written["tuned"]["without_prior"] == {"wer": 16.4, "cer": 5.0}
    said = " ".join(capsys.readouterr().err.split())
    assert ("the prior is left out of the search" in said) is (
        kind == "--for-matching"
    )  # else weight 0 is in the grid
    assert "greedy decoding without the prior is better (WER 15.00 %, CER 5.00 %)" in said


def test_a_file_tuned_earlier_with_values_worse_than_none_is_noted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = {"greedy": {"wer": 16.4, "cer": 5.0}, "with_prior": {"wer": 21.8, "cer": 7.0}}
    file = home / "fusion.yaml"
    file.write_text(yaml.safe_dump({"fusion": {"lm_weight": 0.1}, "tuned": about}))
    assert is_worse_than_none(file)
    assert decode("x.jsonl", "--prior", "prior", "--fusion", "fusion.yaml") == 0
    assert "worse on its validation sets than decoding without a prior" in " ".join(
        capsys.readouterr().err.split()
    )
    file.write_text(
        yaml.safe_dump({"fusion": {"lm_weight": 0.1}, "tuned": about | {"with_prior": about["greedy"]}})
    )
    assert not is_worse_than_none(file)
    for content in ("fusion: {}\n", "fusion: {}\ntuned: 3\n", "tuned: {greedy: {wer: x}}\n"):
        file.write_text(content)
        assert not is_worse_than_none(file)


def decoded_wer(*words: str) -> float:
    """The mean WER of the two sets as `decode` gives it."""
    rates = []
    for name in ("dev", "other"):
        speech = ("--cuts", f"{name}.jsonl.gz", "--out", "out.jsonl", "--overwrite", "audio.workers=0")
        assert command("decode", "--model", "model", *speech, *words) == 0
        rates.append(error_rates(read_transcripts(Path("out.jsonl")))["wer"])
    return sum(rates) / 2


def test_a_stopped_tuning_goes_on_and_ends_with_the_same_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[Any, ...]] = []

    def stopping(prior: ConvPrior, fusion: FusionSettings) -> Callable[..., Any]:
        if len(tried) == 2:
            raise KeyboardInterrupt
        tried.append(astuple(fusion))
        return search_with_prior(prior, fusion)

    with monkeypatch.context() as patch:
        patch.setattr(module, "search_with_prior", stopping)
        assert tune() == 130
    assert not (home / "exp/fusion.yaml").exists()

    def recording(prior: ConvPrior, fusion: FusionSettings) -> Callable[..., Any]:
        tried.append(astuple(fusion))
        return search_with_prior(prior, fusion)

    monkeypatch.setattr(module, "search_with_prior", recording)
    assert tune() == 0
    assert len(set(tried)) == len(tried) > 2
    assert tune(out="whole/fusion.yaml") == 0
    assert files(home / "exp") == files(home / "whole")


def test_another_model_is_tried_anew(home: Path, tiny_recognizer: SpeechRecognizer) -> None:
    assert tune() == 0
    before = (home / "exp/fusion.yaml.trials.jsonl").read_text()
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias.add_(torch.randn(tiny_recognizer.tokenizer.classes))
    tiny_recognizer.save("model")
    assert tune("--overwrite") == 0
    after = (home / "exp/fusion.yaml.trials.jsonl").read_text()
    assert after.startswith(before)
    assert len(after.splitlines()) >= len(before.splitlines()) + 4


def test_the_weight_changes_what_is_decoded(home: Path) -> None:
    found = {}
    for weight in (0.0, 5.0):
        off = ("fusion.token_bonus=0", "fusion.eos_threshold=.inf")
        words = ("--prior", "prior", f"fusion.lm_weight={weight}", "fusion.beam_size=3", *off)
        assert decode(f"{weight}.jsonl", *words) == 0
        found[weight] = read_transcripts(home / f"{weight}.jsonl")
    assert decode("plain.jsonl", "--beam-size", 3) == 0
    plain = read_transcripts(home / "plain.jsonl")
    for fused, alone in zip(found[0.0], plain, strict=True):
        assert [text for text, _ in fused.nbest] == [text for text, _ in alone.nbest]
        scores = [score for _, score in alone.nbest]
        assert [score for _, score in fused.nbest] == pytest.approx(scores, abs=1e-5)
    assert all(
        present(other.score) < present(one.score) - 5
        for one, other in zip(found[0.0], found[5.0], strict=True)
    ), "the prior's say counts five times"


def test_what_a_kill_leaves_of_one_search_is_not_taken_for_that_of_another(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    monkeypatch.setattr(work, "decode_to_file", lambda *given, **options: keys.append(given[3]))
    searches = [(), ("--beam-size", 2), ("--prior", "prior"), ("--prior", "prior", "fusion.token_margin=5")]
    assert [decode("x.jsonl", *words) for words in [*searches, *searches]] == [0] * 8
    assert len(set(keys)) == len(searches)
    assert keys[:4] == keys[4:]


def test_overrides_beat_the_file_of_tuned_values(home: Path) -> None:
    (home / "fusion.yaml").write_text("fusion: {lm_weight: 5.0, beam_size: 3}\n")
    words = ("--prior", "prior", "--fusion", "fusion.yaml")
    assert decode("tuned.jsonl", *words) == 0
    assert decode("again.jsonl", *words, "fusion.lm_weight=0") == 0
    assert decode("plain.jsonl", "--prior", "prior", "fusion.lm_weight=0", "fusion.beam_size=3") == 0
    assert files(home)["again.jsonl"] == files(home)["plain.jsonl"] != files(home)["tuned.jsonl"]


def test_what_makes_no_sense_is_refused_in_one_sentence(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    other_tokenizer: Tokenizer,
    tiny_prior_settings: ConvLMSettings,
) -> None:
    from priormatch.recognizers.prior import ConvPrior

    def refused(code: int) -> str:
        assert code == 2
        said = said_last(capsys)
        assert said.startswith("priormatch: ")
        return said

    (home / "fusion.yaml").write_text("fusion: {}\n")
    assert "pass --prior too" in refused(decode("x.jsonl", "--fusion", "fusion.yaml"))
    assert "fusion.beam_size=4" in refused(decode("x.jsonl", "--prior", "prior", "--beam-size", 4))
    assert "no fusion settings at nowhere" in refused(
        decode("x.jsonl", "--prior", "prior", "--fusion", "nowhere")
    )
    assert "holds a recognizer, not a prior" in refused(decode("x.jsonl", "--prior", "model"))
    assert "fusion.yaml exists" in refused(tune(out="fusion.yaml"))
    assert "nowhere does not exist" in refused(tune(prior="nowhere"))
    assert "fusion.lm_weight=inf: must be" in refused(tune("fusion.lm_weight=inf"))
    ConvPrior(tiny_prior_settings, other_tokenizer).save("strange")
    assert not (home / "x.jsonl").exists()
    assert decode("x.jsonl", "--prior", "strange") == 0
    assert "it rescores the fusion.beam_size best hypotheses" in capsys.readouterr().err
