import json
import pickle
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hub_stub import Hub, Repository
from safetensors.torch import load_file, save_file

from priormatch.errors import UserError
from priormatch.recognizers.hf_folder import is_pretrained, load_network, load_part, pretrained

LM = "AutoModelForCausalLM", "a causal language model"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GPT-2 of 2 layers in one file, and in shards."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 64}
    network = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    network.save_pretrained(folder / "whole")
    network.save_pretrained(folder / "shards", max_shard_size="5KB")
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(saved / "whole", tmp_path / "copy"))


def with_config(folder: Path, **entries: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | entries))


def with_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")


@pytest.mark.parametrize("name", ["whole", "shards"])
def test_a_folder_gives_the_network_that_was_saved(
    saved: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = pretrained(saved / name)
    assert (found.model_type, found.architectures, found.commit) == ("gpt2", ("GPT2LMHeadModel",), None)
    assert is_pretrained(found.folder)
    network = load_network(found, *LM)
    assert not network.training
    assert network.dtype == torch.float32
    stored = load_file(saved / "whole" / "model.safetensors")
    assert all(
        torch.equal(stored[key], value) for key, value in network.state_dict().items() if key in stored
    )
    assert capfd.readouterr().err == ""


def test_weights_in_half_precision_become_float32(folder: Path) -> None:
    with_weights(folder, lambda weights: {key: value.half() for key, value in weights.items()})
    assert load_network(pretrained(folder), *LM).dtype == torch.float32


def test_constants_of_older_versions_are_no_foreign_weights(folder: Path) -> None:
    old = {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64),
        "transformer.h.0.attn.masked_bias": torch.ones(1),
    }
    with_weights(folder, lambda weights: weights | old)
    load_network(pretrained(folder), *LM)


def test_pickles_are_never_opened(folder: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "executed",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match=r"no weights in the format safetensors.*save_pretrained"):
        pretrained(folder)
    assert not (tmp_path / "executed").exists()


def test_code_in_a_folder_is_never_executed(folder: Path, tmp_path: Path) -> None:
    evil = f"from pathlib import Path\nPath({str(tmp_path / 'executed')!r}).touch()\n"
    for name in ("modeling_evil.py", "custom_generate/generate.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(evil)
    code = {"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"}
    tokenizer = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["modeling_evil.Tokenizer", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    with_config(folder, auto_map=code, attn_implementation="ann/kernel", _attn_implementation="ann/kernel")
    network = load_network(pretrained(folder), *LM)
    assert type(network).__name__ == "GPT2LMHeadModel"
    assert network.config._attn_implementation in ("eager", "sdpa")
    with pytest.raises(UserError, match="tokenizer"):
        load_part(pretrained(folder), "AutoTokenizer", "tokenizer")
    with_config(folder, model_type="evil")
    with pytest.raises(UserError, match=r"model_type is evil.*code in a model folder is never run"):
        pretrained(folder)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"model_type": None}, "model_type is None"),
        ({"model_type": ["gpt2"]}, "model_type is"),
        ({"model_type": "whisper"}, "lacks weights"),
        ({"model_type": "wav2vec2"}, "is not a causal language model"),
        ({"n_layer": 3}, "lacks weights"),
        ({"n_layer": 1}, "has weights that the architecture does not"),
        ({"n_positions": 32}, "has weights of another shape"),
        ({"n_layer": 10**9}, "n_layer=1000000000 is above 1000"),
        ({"vocab_size": 10**12}, "describes 16,000,000,007,6"),
        ({"n_embd": 10**9}, "cannot be read"),
        ({"vocab_size": -1}, "cannot be read"),
        ({"n_embd": "wide"}, "cannot be read"),
        ({"num_labels": 10**12, "n_embd": -1}, "cannot be read"),
        ({"quantization_config": {"quant_method": "gptq"}}, "is quantized"),
    ],
)
def test_configurations_that_do_not_fit(folder: Path, entries: dict[str, Any], message: str) -> None:
    with_config(folder, **entries)
    with pytest.raises(UserError, match=message):
        load_network(pretrained(folder), *LM)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "\x00", '{"a": ' * 100 + "1" + "}" * 100, '{"a": "\\ud800"}', " " * (5 << 20)]
)
def test_damaged_configurations(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        pretrained(folder)


def test_weights_that_are_not_whole(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match="is damaged"):
        load_network(pretrained(folder), *LM)
    file.unlink()
    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "../whole/model.safetensors"}}'
    )
    with pytest.raises(UserError, match="which is not a weights file"):
        pretrained(folder)
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1-of-1.safetensors"}}')
    with pytest.raises(UserError, match=r"lacks model-1-of-1\.safetensors"):
        pretrained(folder)


def test_weights_that_are_not_finite(folder: Path) -> None:
    with_weights(folder, lambda weights: {key: value / 0 for key, value in weights.items()})
    with pytest.raises(UserError, match="the weights contain NaN or infinity"):
        load_network(pretrained(folder), *LM)


def test_what_transformers_would_take_instead_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "ann/other"}')
    with pytest.raises(UserError, match="holds an adapter"):
        pretrained(folder)
    (folder / "adapter_config.json").unlink()
    (folder / "shard-00000-model-00001-of-00001.safetensors").touch()
    with pytest.raises(UserError, match="holds a distributed checkpoint"):
        pretrained(folder)


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json is missing"):
        pretrained(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        pretrained(tmp_path / "none")


def test_a_hub_id_may_carry_a_revision_and_its_commit_is_known(hub: Hub, folder: Path) -> None:
    repository = hub.repositories["ann/lm"] = Repository(private=False)
    files: dict[str, bytes | None] = {path.name: path.read_bytes() for path in folder.iterdir()}
    first = repository.commit("main", files)
    harm: dict[str, bytes | None] = {"pytorch_model.bin": b"x", "modeling.py": b"x", "onnx/model.onnx": b"x"}
    second = repository.commit("new", files | harm)
    assert pretrained("ann/lm").commit == first
    found = pretrained("ann/lm@new")
    assert (found.commit, found.source) == (second, "ann/lm")
    assert {path.name for path in found.folder.iterdir()} == files.keys()
    assert not any(name in request for name in harm for request in hub.requests)
    asked = len(hub.requests)
    load_network(found, *LM)
    assert len(hub.requests) == asked


def test_without_transformers_a_word_on_how_to_get_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'priormatch\[hf\]'"):
        pretrained(folder)
