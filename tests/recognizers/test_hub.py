"""Models that travel: pushed to a stand-in of the Hub and loaded from there, and what is said when they cannot."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hub_stub import Hub
from narrowing import present
from tiny_run import command

from priormatch.data.batches import Batch
from priormatch.data.normalizer import Normalizer
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError
from priormatch.pipeline.publish import publish
from priormatch.recognizers.card import CARD, read_card
from priormatch.recognizers.hub import model_folder
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

FILES = {"model.safetensors", "model.yaml", "tokenizer.model", CARD}


@pytest.fixture
def folder(tiny_recognizer: SpeechRecognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A saved recognizer in the folder where the process is."""
    monkeypatch.chdir(tmp_path)
    tiny_recognizer.save("model")
    return Path("model")


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_recognizer_comes_back_bit_for_bit(
    hub: Hub, folder: Path, tiny_recognizer: SpeechRecognizer
) -> None:
    (folder / "notes.txt").write_text("mine alone")
    assert command("push", folder, "ann/tones") == 0
    held = hub.repositories["ann/tones"]
    assert held.commits[held.branches["main"]].keys() == FILES
    back = SpeechRecognizer.load("ann/tones")
    assert_same_weights(back, tiny_recognizer)
    waveforms, samples = 0.1 * torch.randn(2, 8_000), torch.tensor([8_000, 5_000])
    ours, theirs = (model.propose(Batch.of_audio(waveforms, samples), 2) for model in (tiny_recognizer, back))
    assert torch.equal(ours.classes, theirs.classes)
    assert torch.equal(ours.scores, theirs.scores)


def test_a_prior_comes_back_and_its_card_says_how_to_load_it(
    hub: Hub, tiny_prior: ConvPrior, tmp_path: Path
) -> None:
    tiny_prior.save(tmp_path / "prior")
    publish(tmp_path / "prior", "ann/words")
    assert torch.equal(ConvPrior.load("ann/words").score_texts(["monday"]), loaded(tmp_path / "prior"))
    assert 'Prior.load("ann/words")' in (model_folder("ann/words") / CARD).read_text()


def loaded(folder: Path) -> torch.Tensor:
    return ConvPrior.load(folder).score_texts(["monday"])


def test_a_model_of_another_language_still_knows_how_it_is_written(
    hub: Hub, tiny_recognizer: SpeechRecognizer, tmp_path: Path
) -> None:
    russian = Normalizer("unicode", "абвгд")
    tiny_recognizer.tokenizer = Tokenizer(tiny_recognizer.tokenizer.model, russian)
    tiny_recognizer.longest_heard = 4.5
    tiny_recognizer.save(tmp_path / "model")
    publish(tmp_path / "model", "ann/tones")
    held = hub.repositories["ann/tones"]
    assert held.commits[held.branches["main"]].keys() == FILES | {"language.yaml"}
    back = SpeechRecognizer.load("ann/tones")
    assert (back.tokenizer.normalizer, back.longest_heard) == (russian, 4.5)
    card = (model_folder("ann/tones") / CARD).read_text()
    assert "the normalizer `unicode with 5 letters`" in card
    assert "`priormatch transcribe ann/tones recordings`" in card
    assert "at most 4.5 s" in card


def test_what_only_the_model_before_had_goes_and_nothing_else(
    hub: Hub, folder: Path, tiny_recognizer: SpeechRecognizer
) -> None:
    english = tiny_recognizer.tokenizer
    tiny_recognizer.tokenizer = Tokenizer(english.model, Normalizer("unicode", "абвгд"))
    tiny_recognizer.save("russian")
    publish(Path("russian"), "ann/tones")
    held = hub.repositories["ann/tones"]
    others: dict[str, bytes | None] = {"notes.txt": b"mine", "old/language.yaml": b"mine", "a.yaml": b"mine"}
    held.commit("main", others)
    publish(folder, "ann/tones", revision="english")
    assert held.commits[held.branches["english"]].keys() == FILES | others.keys()
    assert held.commits[held.branches["main"]].keys() == FILES | others.keys() | {"language.yaml"}
    assert SpeechRecognizer.load("ann/tones@english").tokenizer.normalizer == english.normalizer


def test_only_a_models_own_files_are_fetched(hub: Hub, folder: Path) -> None:
    publish(folder, "ann/tones")
    hub.repositories["ann/tones"].commit("main", {"training.pkl": b"danger", "sub/other.py": b"danger"})
    assert {path.name for path in model_folder("ann/tones").rglob("*")} == FILES
    assert not any("pkl" in each or ".py" in each for each in hub.requests)


def test_a_revision_is_another_model(hub: Hub, folder: Path, tiny_recognizer: SpeechRecognizer) -> None:
    publish(folder, "ann/tones")
    with torch.no_grad():
        present(tiny_recognizer.decoder).start.add_(1)
    tiny_recognizer.save("changed")
    assert command("push", "changed", "ann/tones", "--revision", "louder") == 0
    plain, louder = SpeechRecognizer.load("ann/tones"), SpeechRecognizer.load("ann/tones@louder")
    assert torch.equal(present(plain.decoder).start + 1, present(louder.decoder).start)
    with pytest.raises(UserError, match="ann/tones on the Hub has no revision quieter"):
        SpeechRecognizer.load("ann/tones@quieter")


def test_a_private_model_is_for_those_who_may(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("push", folder, "ann/secret", "--private") == 0
    assert hub.repositories["ann/secret"].private
    from huggingface_hub import constants

    SpeechRecognizer.load("ann/secret")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "empty")
    with pytest.raises(UserError, match="no model of that name on the Hub that you can access"):
        SpeechRecognizer.load("ann/secret")


def test_what_is_public_is_not_pushed_to_as_private(hub: Hub, folder: Path) -> None:
    publish(folder, "ann/tones")
    before = dict(hub.repositories["ann/tones"].branches)
    with pytest.raises(UserError, match="ann/tones is public on the Hub"):
        publish(folder, "ann/tones", private=True)
    assert hub.repositories["ann/tones"].branches == before


def test_a_wrong_token_is_told_and_never_shown(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    assert command("push", folder, "ann/tones") == 2
    said = "".join(capfd.readouterr())
    assert "hf auth login" in said
    assert "hf_wrong" not in said
    assert hub.repositories == {}


def test_a_failed_push_leaves_the_card_alone(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(folder, "ann/tones", license="mit")
    before = (folder / CARD).read_bytes()
    assert b"ann/tones" in before
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match=r"^model could not be pushed to ann/gone"):
        publish(folder, "ann/gone", license="cc0-1.0")
    assert (folder / CARD).read_bytes() == before
    (folder / CARD).unlink()
    with pytest.raises(UserError, match="could not be pushed"):
        publish(folder, "ann/gone")
    assert not (folder / CARD).exists()


def test_a_fetched_model_needs_no_network_the_second_time(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(folder, "ann/tones")
    first = SpeechRecognizer.load("ann/tones")
    hub.repositories.clear()
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert_same_weights(first, SpeechRecognizer.load("ann/tones"))
    with pytest.raises(
        UserError, match="there is no folder ann/other here, and the download from the Hub failed"
    ):
        SpeechRecognizer.load("ann/other")


@pytest.mark.parametrize("name", ["tones", "ann/tones/more", "../tones", "ann/tones@main", "ann/ tones", ""])
def test_names_that_the_hub_does_not_take(
    hub: Hub, folder: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="is not a valid name on the Hub"):
        publish(folder, name)
    assert hub.requests == []
    assert capsys.readouterr().err == ""
    assert not (folder / CARD).exists(), "nor is it written into a card"


def test_a_folder_that_is_not_whole_is_not_pushed(
    hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert command("push", folder, "ann/tones") == 2
    assert "cannot be read" in capsys.readouterr().err
    assert command("push", "nowhere", "ann/tones") == 2
    assert "no folder nowhere" in capsys.readouterr().err
    (folder / "tokenizer.model").unlink()
    assert command("push", folder, "ann/tones") == 2
    assert hub.requests == []


def test_an_edited_card_goes_as_it_is(hub: Hub, folder: Path) -> None:
    (folder / CARD).write_text("my own words\n")
    publish(folder, "ann/tones")
    assert (model_folder("ann/tones") / CARD).read_text() == "my own words\n"
    assert (folder / CARD).read_text() == "my own words\n"


def test_a_license_goes_onto_the_card(hub: Hub, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publish(folder, "ann/tones")
    assert "names no license: pass --license" in capsys.readouterr().err
    assert command("push", folder, "ann/tones", "--license", "cc-by-4.0") == 0
    assert "license" not in capsys.readouterr().err
    card = read_card(model_folder("ann/tones"))
    assert card is not None
    assert card.facts["license"] == "cc-by-4.0"
    assert "License" not in card.sections
    (folder / CARD).write_text("my own words\n")
    assert command("push", folder, "ann/tones", "--license", "mit") == 2
    assert "README.md has been edited: add `license: mit` to it" in capsys.readouterr().err


def test_where_xet_is_out_of_reach_the_other_way_is_named(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    pytest.importorskip("hf_xet")
    with pytest.raises(
        UserError, match="the Xet servers cannot be reached; set HF_HUB_DISABLE_XET=1, and try"
    ):
        publish(folder, "ann/tones")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with pytest.raises(UserError, match="ann/tones on the Hub is empty: check the name, or push a model"):
        SpeechRecognizer.load("ann/tones")
    hub.repositories["ann/tones"].commit("main", {"README.md": b"of something else"})
    with pytest.raises(UserError, match="ann/tones on the Hub contains no priormatch model"):
        SpeechRecognizer.load("ann/tones")


def test_a_folder_here_comes_before_the_hub(
    hub: Hub, tiny_recognizer: SpeechRecognizer, folder: Path
) -> None:
    tiny_recognizer.save("ann/tones")
    SpeechRecognizer.load("ann/tones")
    assert model_folder("no-name") == Path("no-name")
    assert model_folder("../ann") == Path("../ann")
    assert model_folder("a/b/c") == Path("a/b/c")
    assert hub.requests == []


def test_a_verb_takes_a_model_of_the_hub(
    hub: Hub, folder: Path, tiny_corpus: Callable[..., Path], tmp_path: Path
) -> None:
    publish(folder, "ann/tones")
    cuts = tiny_corpus(3)
    here = ("decode", "--model", folder, "--cuts", cuts, "--out", "here.jsonl", "audio.workers=0")
    assert command(*here) == 0
    there = ("decode", "--model", "ann/tones", "--cuts", cuts, "--out", "there.jsonl", "audio.workers=0")
    assert command(*there) == 0
    assert Path("here.jsonl").read_text() == Path("there.jsonl").read_text()


def test_without_the_library_a_word_on_how_to_get_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"pip install 'priormatch\[hub\]'"):
        SpeechRecognizer.load("ann/tones")
    with pytest.raises(UserError, match=r"pip install 'priormatch\[hub\]'"):
        publish(folder, "ann/tones")
