"""Model folders: damage is found by hashes, and nothing that a stranger writes into one is trusted."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from narrowing import present
from safetensors.torch import load_file, save_file

from priormatch.config import ConvLMSettings, ModelSettings
from priormatch.data.normalizer import Normalizer
from priormatch.data.tokenizer import train_tokenizer
from priormatch.errors import UserError
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

FILES = ["model.safetensors", "model.yaml", "tokenizer.model"]


@pytest.fixture
def folder(tmp_path: Path, tiny_recognizer: SpeechRecognizer) -> Path:
    tiny_recognizer.save(tmp_path / "model")
    return tmp_path / "model"


def unseal(folder: Path) -> None:
    """Leave a folder as earlier versions and strangers write it, without hashes."""
    save_file(load_file(folder / FILES[0]), folder / FILES[0])


def refusal(load: Callable[[Path], object], folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "again" in message
    assert "\n" not in message
    assert len(message) < 600 + 3 * len(str(folder))
    return message


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    step = max(len(content) // 60, 1)
    for place in range(0, len(content), step):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 7
        (folder / name).write_bytes(damaged)
        refusal(SpeechRecognizer.load, folder)
    (folder / name).write_bytes(content)
    SpeechRecognizer.load(folder)


def test_the_models_of_a_run_are_proposed(
    tmp_path: Path, tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    run = tmp_path / "run"
    tiny_prior.save(run / "prior" / "model")
    with pytest.raises(
        UserError, match=r"run contains no recognizer: .* provide the folder of a trained recog"
    ):
        SpeechRecognizer.load(run)
    tiny_recognizer.save(run / "base" / "model")
    with pytest.raises(
        UserError, match=r"run contains no recognizer: model.yaml is missing; give .*/base/model$"
    ):
        SpeechRecognizer.load(run)
    tiny_recognizer.save(run / "lpm" / "model")
    with pytest.raises(UserError, match=r"give \S*/lpm/model, or one of the others in it: \S*/base/model$"):
        SpeechRecognizer.load(run)
    with pytest.raises(UserError, match=r"run contains no prior: .* give \S*/prior/model$"):
        ConvPrior.load(run)


def test_a_folder_that_does_not_exist_gets_its_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere does not exist: provide the folder of a trained recognizer"):
        SpeechRecognizer.load(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="file is a file, not a folder"):
        SpeechRecognizer.load(tmp_path / "file")


def test_the_damaged_file_is_named(folder: Path) -> None:
    (folder / "model.yaml").write_text((folder / "model.yaml").read_text() + "# edited\n")
    assert "model.yaml is not the one that was written with model.safetensors: SHA-256" in refusal(
        SpeechRecognizer.load, folder
    )
    content = bytearray((folder / FILES[0]).read_bytes())
    content[-1] ^= 1
    (folder / FILES[0]).write_bytes(content)
    assert "model.safetensors is damaged (the SHA-256 of " in refusal(SpeechRecognizer.load, folder)


def test_a_language_that_is_gone_is_noticed(
    tmp_path: Path, tiny_prior_settings: ConvLMSettings, tiny_sentences: list[str]
) -> None:
    turkish = train_tokenizer(tiny_sentences, 31, Normalizer("turkic"))
    ConvPrior(tiny_prior_settings, turkish).save(tmp_path)
    assert ConvPrior.load(tmp_path).tokenizer.normalizer.kind == "turkic"
    (tmp_path / "language.yaml").unlink()
    assert "language.yaml is not the one that was written" in refusal(ConvPrior.load, tmp_path)


def test_folders_without_hashes_load_as_before(folder: Path, tmp_path: Path, tiny_prior: ConvPrior) -> None:
    sealed = SpeechRecognizer.load(folder).state_dict()
    unseal(folder)
    (folder / "README.md").write_text("edited")
    assert all(
        torch.equal(value, sealed[name]) for name, value in SpeechRecognizer.load(folder).state_dict().items()
    )
    tiny_prior.save(tmp_path / "prior")
    before = ConvPrior.load(tmp_path / "prior").score_texts(["monday at nine"])
    unseal(tmp_path / "prior")
    assert torch.equal(ConvPrior.load(tmp_path / "prior").score_texts(["monday at nine"]), before)


def test_the_same_model_is_written_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    SpeechRecognizer.load(folder).save(tmp_path / "again")
    assert all((tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes() for name in FILES)


def test_loading_draws_what_building_draws(folder: Path, tiny_recognizer: SpeechRecognizer) -> None:
    torch.manual_seed(5)
    SpeechRecognizer.load(folder)
    after_loading = torch.rand(3)
    torch.manual_seed(5)
    SpeechRecognizer(tiny_recognizer.settings, tiny_recognizer.tokenizer)
    assert torch.equal(torch.rand(3), after_loading)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_neither_written_nor_read(
    folder: Path, tiny_recognizer: SpeechRecognizer, value: float
) -> None:
    before = {name: (folder / name).read_bytes() for name in FILES}
    with torch.no_grad():
        present(tiny_recognizer.decoder).start[0] = value
    with pytest.raises(UserError, match=r"decoder\.start contains NaN or infinity: lower the learning rate"):
        tiny_recognizer.save(folder)
    assert {name: (folder / name).read_bytes() for name in FILES} == before
    save_file(tiny_recognizer.state_dict(), folder / FILES[0])
    assert "contains NaN or infinity in decoder.start" in refusal(SpeechRecognizer.load, folder)


def test_weights_of_another_type_are_refused(folder: Path) -> None:
    weights = load_file(folder / FILES[0])
    save_file({name: value.half() for name, value in weights.items()}, folder / FILES[0])
    SpeechRecognizer.load(folder)
    save_file({name: value.to(torch.int32) for name, value in weights.items()}, folder / FILES[0])
    assert "of type I32" in refusal(SpeechRecognizer.load, folder)


HOSTILE = [
    {"size": 10**9},
    {"size": 60_000},
    {"size": 10**400},
    {"size": -1},
    {"size": 0},
    {"size": None},
    {"size": "???"},
    {"size": [1]},
    {"n_mels": 10**8},
    {"channels": [10**6, 10**6]},
    {"channels": []},
    {"channels": [2]},
    {"channels": "2"},
    {"channels": None},
    {"blocks": [10**9, 1]},
    {"blocks": [-1, 1]},
    {"blocks": [1] * 10_000, "channels": [1] * 10_000},
    {"kernel": 10**9 + 1},
    {"kernel": 4},
    {"dropout": float("nan")},
    {"dropout": 1.5},
    {"dropout": "high"},
    {"longest_output": 10**12},
    {"longest_output": 0},
    {"ctc": "maybe"},
    {"surprise": 1},
    {1: 2},
    {"size": "${oc.env:HOME}"},
    {"size": "${" * 10_000},
]


def tampered(folder: Path, settings: object, **others: object) -> None:
    tree = yaml.safe_load((folder / "model.yaml").read_text())
    tree |= {"settings": tree["settings"] | settings if isinstance(settings, dict) else settings, **others}
    (folder / "model.yaml").write_text(yaml.safe_dump(tree))


@pytest.mark.parametrize("settings", [*HOSTILE, None, 3, [], "words"], ids=lambda each: str(each)[:40])
def test_settings_of_a_stranger_are_checked_before_anything_is_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, settings: object
) -> None:
    unseal(folder)
    tampered(folder, settings)
    monkeypatch.setattr("priormatch.recognizers.recognizer.LogMel", on_meta_alone)
    assert os.environ["HOME"] not in refusal(SpeechRecognizer.load, folder).replace(str(folder), "")


def on_meta_alone(n_mels: int) -> torch.nn.Module:
    """Stands for the first part of a recognizer that would take memory."""
    assert torch.empty(1).device.type == "meta", "the network is built before its weights are known to fit"
    return torch.nn.Identity()


@pytest.mark.parametrize(
    "settings",
    [
        {"bottlenecks": [[4, 8, 10**9]]},
        {"bottlenecks": [[4, 8, 250]]},
        {"bottlenecks": [[10**9, 8, 1]]},
        {"bottlenecks": [[4, 8]]},
        {"bottlenecks": [[]]},
        {"bottlenecks": [[4, 8, 1]] * 2000},
        {"bottlenecks": {}},
        {"embedding": 10**7},
        {"kernel": 0},
        {"kernel": 60_000},
    ],
    ids=lambda each: str(each)[:40],
)
def test_settings_of_a_strangers_prior_are_checked(
    tmp_path: Path, tiny_prior: ConvPrior, settings: object
) -> None:
    tiny_prior.save(tmp_path)
    unseal(tmp_path)
    tampered(tmp_path, settings)
    refusal(ConvPrior.load, tmp_path)


@pytest.mark.parametrize("value", [10**400, 1e30, float("inf"), None, True, {}])
def test_figures_of_a_stranger_are_checked(folder: Path, value: object) -> None:
    unseal(folder)
    tampered(folder, {}, longest_heard=value)
    if value is True:
        assert SpeechRecognizer.load(folder).longest_heard == 1
    else:
        assert "longest_heard is" in refusal(SpeechRecognizer.load, folder)


@pytest.mark.parametrize("name", FILES)
def test_pipes_and_devices_are_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(UserError, match=name):
        SpeechRecognizer.load(folder)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(UserError, match=name):
        SpeechRecognizer.load(folder)


def test_links_to_files_are_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    for name in FILES:
        (tmp_path / "linked" / name).symlink_to(folder / name)
    SpeechRecognizer.load(tmp_path / "linked")


def test_a_tokenizer_out_of_all_proportion_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("priormatch.data.tokenizer.MOST_BYTES", 100)
    assert "tokenizer.model is larger than" in refusal(SpeechRecognizer.load, folder)
    monkeypatch.undo()
    monkeypatch.setattr("priormatch.data.tokenizer.MOST_PIECES", 5)
    assert "tokenizer.model has 28 pieces" in refusal(SpeechRecognizer.load, folder)


def test_settings_as_they_were_saved_come_back(folder: Path, tiny_model_settings: ModelSettings) -> None:
    assert SpeechRecognizer.load(folder).settings == tiny_model_settings


def test_weights_that_float32_cannot_hold_are_refused(folder: Path) -> None:
    weights = {name: value.double().fill_(1e300) for name, value in load_file(folder / FILES[0]).items()}
    save_file(weights, folder / FILES[0])
    assert "of type F64" in refusal(SpeechRecognizer.load, folder)


def test_models_that_compute_no_numbers_are_refused(
    folder: Path, tmp_path: Path, tiny_prior: ConvPrior
) -> None:
    tiny_prior.save(tmp_path / "prior")
    for load, place in ((SpeechRecognizer.load, folder), (ConvPrior.load, tmp_path / "prior")):
        weights = {name: value.fill_(3e38) for name, value in load_file(place / FILES[0]).items()}
        save_file(weights, place / FILES[0])
        assert "computes NaN or infinity" in refusal(load, place)
