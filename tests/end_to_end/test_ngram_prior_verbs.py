"""An n-gram prior in a run and in every verb that takes a prior, from the command line to its files."""

import json
from pathlib import Path

import pytest
from tiny_run import command, make_folders

from priormatch.config import load_settings
from priormatch.models.arpa import read_arpa
from priormatch.pipeline.plan import of_run
from priormatch.pipeline.probe import probe
from priormatch.pipeline.run import planned
from priormatch.recognizers.card import read_card
from priormatch.recognizers.ngram_prior import NgramPrior

OWN = (
    "run",
    "tiny.yaml",
    "labeled=labeled",
    "unlabeled=unlabeled",
    "text=text.txt",
    "test.clean=test",
    "--force",
)
NGRAM = ("prior.kind=ngram", "prior.order=3", "longer_supervised=false")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run with an n-gram prior, and the same prior as an ARPA file."""
    root = tmp_path_factory.mktemp("ngram")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_folders(root)
        assert command(*OWN, *NGRAM) == 0
        assert command("export", "runs/tiny/prior/model", "--out", "exported") == 0
    return root


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)


def test_a_run_matches_with_an_n_gram_prior_and_describes_it() -> None:
    prior = NgramPrior.load("runs/tiny/prior/model")
    assert prior.model.order == 3
    assert (
        Path("runs/tiny/report.html").is_file()
        and "lpm" in json.loads(Path("runs/tiny/results.json").read_text())["systems"]
    )
    card, matched = (read_card(Path(f"runs/tiny/{name}/model")) for name in ("prior", "lpm"))
    assert card is not None and matched is not None
    assert (
        "a word 3-gram language model" in card.summary
        and "perplexity per word on 12" in card.sections["Results"]
    )
    assert f"a language model of {prior.model.ngrams:,} n-grams" in matched.sections["Data"]


def test_the_same_run_again_reuses_the_prior_and_another_order_does_not() -> None:
    def to_do(*overrides: str) -> list[str]:
        settings = load_settings(Path("tiny.yaml"), [*OWN[2:-1], *NGRAM, *overrides])
        return [str(each.folder.relative_to("runs/tiny")) for each in planned(settings) if not each.finished]

    assert to_do() == []
    assert to_do("prior.order=2") == ["prior", "lpm", "decoded/lpm"]


def test_a_plan_measures_no_updates_of_an_n_gram_prior() -> None:
    settings = load_settings(Path("tiny.yaml"), [*NGRAM])
    works = of_run(settings, {})
    assert [work.name for work in works] == ["supervised", "lpm"]
    assert probe("matching", settings).seconds > 0


def test_train_prior_makes_the_prior_of_the_run(tmp_path: Path) -> None:
    given = ("--text", "runs/tiny/data/text.txt", "--validation-text", "runs/tiny/data/text-validation.txt")
    assert (
        command("train-prior", *given, "--out", tmp_path / "prior", "--recipe", "tiny.yaml", *NGRAM[:2]) == 0
    )
    one, other = (each / "model/model.safetensors" for each in (tmp_path / "prior", Path("runs/tiny/prior")))
    assert one.read_bytes() == other.read_bytes()


def test_train_prior_of_a_network_needs_a_tokenizer(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = ("--text", "text.txt", "--validation-text", "text.txt", "--out", tmp_path / "prior")
    assert command("train-prior", *given) == 2
    assert "pass --tokenizer, or set prior.kind=ngram" in capfd.readouterr().err


def test_an_exported_prior_decodes_the_same(tmp_path: Path) -> None:
    assert read_arpa(Path("exported/lm.arpa")).order == 3
    for name, prior in (("folder", "runs/tiny/prior/model"), ("arpa", "exported/lm.arpa")):
        given = ("--model", "runs/tiny/supervised/model", "--cuts", "runs/tiny/data/test-clean.jsonl.gz")
        assert (
            command("decode", *given, "--prior", prior, "--out", tmp_path / name, "--recipe", "tiny.yaml")
            == 0
        )
    assert (tmp_path / "folder").read_text() == (tmp_path / "arpa").read_text()


def test_matching_rescores_tuned_beams_with_an_arpa_file(tmp_path: Path) -> None:
    model, cuts = "runs/tiny/supervised/model", "runs/tiny/data/test-clean.jsonl.gz"
    given = ("--model", model, "--prior", "exported/lm.arpa", "--validation", cuts)
    assert (
        command("tune", "--for-matching", *given, "--out", tmp_path / "f.yaml", "--recipe", "tiny.yaml") == 0
    )
    match = ("match", *given, "--labeled", cuts, "--unlabeled", "runs/tiny/data/unlabeled.jsonl.gz")
    lengths = ("--lengths", "runs/tiny/lengths/lengths.jsonl", "--fusion", tmp_path / "f.yaml")
    searched = ("--recipe", "tiny.yaml", "matching.hypotheses=asr_lm", "matching.updates=2")
    assert command(*match, *lengths, "--out", tmp_path / "lpm", *searched) == 0
    assert (tmp_path / "lpm/model/model.safetensors").is_file()


def test_score_shows_the_perplexity_per_word(capfd: pytest.CaptureFixture[str]) -> None:
    decoded = "runs/tiny/decoded/lpm/clean.jsonl"
    assert command("score", decoded, "--prior", "runs/tiny/prior/model", "--json") == 0
    (scored,) = json.loads(capfd.readouterr().out)["scores"]
    assert 1 < scored["reference_perplexity"] < 20


def test_doctor_checks_the_prior_of_a_run(capfd: pytest.CaptureFixture[str]) -> None:
    command("doctor", *OWN[1:-1], *NGRAM)
    assert "prior/model in runs/tiny: complete, " in capfd.readouterr().out
