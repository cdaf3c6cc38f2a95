import json
import os
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from narrowing import present
from safetensors.torch import save_file
from torch import nn

from priormatch import tensor_files
from priormatch.config import OptimizerSettings
from priormatch.errors import UserError
from priormatch.training.checkpoint import (
    DAMAGED,
    FILE,
    OLD,
    Checkpoints,
    of_prefix,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    with_prefix,
    write_checkpoint,
)
from priormatch.training.optimizer import make_optimizer

KINDS = [
    OptimizerSettings("sgd", 0.1, momentum=0.9),
    OptimizerSettings("sgd", 0.1),
    OptimizerSettings("adamw", 0.1),
]


class Scaled(nn.Module):
    """A layer with a scalar among its parameters, as the encoder's norms have."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gain * self.linear(x)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.arange(6.0).view(2, 3) / 10).square().sum().backward()
    optimizer.step()


def test_there_and_back(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 2), "b": torch.tensor(5)}
    write_checkpoint(tmp_path / "new", tensors, {"update": 7, "best": float("inf"), "list": [1, 2]})
    found, state = present(read_checkpoint(tmp_path / "new"))
    assert state == {"update": 7, "best": float("inf"), "list": [1, 2]}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_tensors_that_share_memory_are_written_each(tmp_path: Path) -> None:
    whole = torch.randn(4, 4)
    write_checkpoint(tmp_path, {"whole": whole, "same": whole, "part": whole[:, 1], "turned": whole.T}, {})
    found, _ = present(read_checkpoint(tmp_path))
    assert torch.equal(found["whole"], whole)
    assert torch.equal(found["same"], whole)
    assert torch.equal(found["part"], whole[:, 1])
    assert torch.equal(found["turned"], whole.T)


def test_only_tensors_that_share_memory_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {}
    monkeypatch.setattr(tensor_files, "save_file", lambda tensors, path, metadata: written.update(tensors))
    alone, shared = nn.Parameter(torch.randn(3)), torch.randn(4)
    with pytest.raises(FileNotFoundError):  # as nothing was saved
        write_checkpoint(tmp_path, {"alone": alone, "first": shared, "second": shared[1:3]}, {})
    assert written["alone"].data_ptr() == alone.data_ptr()
    assert written["first"].data_ptr() == shared.data_ptr()
    assert written["second"].untyped_storage().data_ptr() != shared.data_ptr()
    assert all(each.device.type == "cpu" and not each.requires_grad for each in written.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_checkpoint_takes_no_memory_on_the_gpu(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(256, 256, device="cuda")}
    tensors["b"] = tensors["a"][:8]
    before = torch.cuda.max_memory_allocated()
    write_checkpoint(tmp_path, tensors, {})
    assert torch.cuda.max_memory_allocated() == before
    found, _ = present(read_checkpoint(tmp_path))
    assert all(torch.equal(found[name], tensors[name].cpu()) for name in tensors)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "nowhere") is None


def test_a_half_written_file_is_not_looked_at(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a": torch.ones(2)}, {"update": 1})
    (tmp_path / f".tmp-{FILE}").write_bytes(b"half of a")
    assert present(read_checkpoint(tmp_path))[1] == {"update": 1}
    write_checkpoint(tmp_path, {"a": torch.ones(2)}, {"update": 2})
    assert present(read_checkpoint(tmp_path))[1] == {"update": 2}
    assert sorted(each.name for each in tmp_path.iterdir()) == [OLD, FILE]


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "no state"])
def test_a_damaged_file_names_itself_and_the_way_out(tmp_path: Path, damage: str) -> None:
    write_checkpoint(tmp_path, {"a": torch.randn(100)}, {"update": 1})
    file = tmp_path / FILE
    if damage == "no state":
        save_file({"a": torch.ones(1)}, file)
    else:
        file.write_bytes({"cut": file.read_bytes()[:-50], "empty": b"", "text": b"not a checkpoint"}[damage])
    with pytest.raises(UserError, match=rf"{FILE} is damaged .*remove it"):
        read_checkpoint(tmp_path)


def two_checkpoints(folder: Path) -> bytes:
    """Write two generations; the content of the newer file."""
    for update in (1, 2):
        tensors = {
            "model/a": torch.arange(200.0) * update,
            "task/empty": torch.zeros(0, 3),
            "b": torch.tensor(5),
        }
        write_checkpoint(folder, tensors, {"update": update, "best": 0.5})
    return (folder / FILE).read_bytes()


def flipped(content: bytes, bits: list[int] | np.ndarray) -> bytes:
    damaged = bytearray(content)
    for bit in bits:
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_flipped_bits_fall_back_to_the_checkpoint_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = two_checkpoints(tmp_path)
    older = (tmp_path / OLD).read_bytes()
    random = np.random.default_rng(0)
    for _ in range(200):
        (tmp_path / OLD).write_bytes(older)
        (tmp_path / FILE).write_bytes(
            flipped(content, random.choice(8 * len(content), random.integers(1, 11)))
        )
        tensors, state = present(read_checkpoint(tmp_path))
        assert state == {"update": 1, "best": 0.5}
        assert torch.equal(tensors["model/a"], torch.arange(200.0))
    said = " ".join(capsys.readouterr().err.split())
    assert f"{FILE} is damaged" in said
    assert f"resuming from {OLD}, written at update 1" in said


def test_the_tensor_that_is_damaged_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = two_checkpoints(tmp_path)
    (tmp_path / FILE).write_bytes(flipped(content, [8 * (len(content) - 300)]))
    assert present(read_checkpoint(tmp_path))[1]["update"] == 1
    assert "SHA-256 of model/a is not what was written" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_checkpoint_is_kept_and_the_good_one_not_written_over(tmp_path: Path) -> None:
    damaged = two_checkpoints(tmp_path)[:-1]
    (tmp_path / FILE).write_bytes(damaged)
    read_checkpoint(tmp_path)
    assert present(read_checkpoint(tmp_path))[1]["update"] == 1, "a second time"
    write_checkpoint(tmp_path, {"a": torch.ones(1)}, {"update": 2})
    assert (tmp_path / DAMAGED).read_bytes() == damaged
    assert present(read_checkpoint(tmp_path))[1]["update"] == 2
    (tmp_path / FILE).write_bytes(b"")
    assert present(read_checkpoint(tmp_path))[1]["update"] == 1


def test_two_damaged_checkpoints_are_named(tmp_path: Path) -> None:
    two_checkpoints(tmp_path)
    for name in (FILE, OLD):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(
        UserError, match=rf"{OLD} is damaged .* {FILE} is damaged as well, so remove both"
    ) as caught:
        read_checkpoint(tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / FILE).exists(), "nothing is moved away where nothing replaces it"


@pytest.mark.parametrize("moved", [0, 1], ids=["before the renames", "between the renames"])
def test_a_kill_while_names_change_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    two_checkpoints(tmp_path)
    calls = []

    def replace_until_killed(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) > moved:
            raise KeyboardInterrupt
        return replace(source, target)

    replace = os.replace
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", replace_until_killed)
        write_checkpoint(tmp_path, {"a": torch.ones(1)}, {"update": 3})
    assert present(read_checkpoint(tmp_path))[1]["update"] == 2


def test_a_checkpoint_is_on_the_disk_before_another_gives_up_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_checkpoints(tmp_path)
    done: list[str] = []
    sync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        done.append("sync")
        sync(descriptor)

    def noted_replace(old: Path, new: Path) -> None:
        done.append(new.name)
        replace(old, new)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_checkpoint(tmp_path, {"a": torch.ones(1)}, {"update": 3})
    assert [name for name in done if name != "sync"] == [OLD, FILE]
    assert done[0] == "sync"
    assert done[-1] == "sync"


def test_a_checkpoint_without_hashes_is_read(tmp_path: Path) -> None:
    metadata = {"state": json.dumps({"update": 7, "best": float("inf")})}
    save_file({"a": torch.ones(2)}, tmp_path / FILE, metadata=metadata)
    tensors, state = present(read_checkpoint(tmp_path))
    assert state == {"update": 7, "best": float("inf")}
    assert torch.equal(tensors["a"], torch.ones(2))
    write_checkpoint(tmp_path, tensors, {"update": 8})
    (tmp_path / FILE).unlink()
    assert present(read_checkpoint(tmp_path))[1]["update"] == 7


def test_hashes_do_not_vanish_unnoticed(tmp_path: Path) -> None:
    content = two_checkpoints(tmp_path)
    assert content.count(b'"priormatch"') == 1
    (tmp_path / OLD).unlink()
    (tmp_path / FILE).write_bytes(content.replace(b'"priormatch"', b'"qriormatch"'))
    with pytest.raises(UserError, match="no training state"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("settings", KINDS, ids=["momentum", "sgd", "adamw"])
def test_an_optimizer_goes_on_to_the_bit(settings: OptimizerSettings, tmp_path: Path) -> None:
    torch.manual_seed(1)
    straight = Scaled()
    optimizer = make_optimizer(straight.parameters(), settings)
    for _ in range(3):
        step(straight, optimizer)
    write_checkpoint(
        tmp_path,
        with_prefix("model", straight.state_dict())
        | with_prefix("optimizer", optimizer_tensors(optimizer, straight)),
        {},
    )
    tensors, _ = present(read_checkpoint(tmp_path))
    resumed = Scaled()
    resumed.load_state_dict(of_prefix("model", tensors))
    other = make_optimizer(resumed.parameters(), settings)
    restore_optimizer(other, resumed, of_prefix("optimizer", tensors))
    for _ in range(3):
        step(straight, optimizer)
        step(resumed, other)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert [each.keys() for each in optimizer.state.values()] == [
        each.keys() for each in other.state.values()
    ]


def test_prefixes_part_groups_whose_names_begin_alike() -> None:
    one, other = {"a.b": torch.ones(1)}, {"a.b": torch.zeros(1)}
    mixed = with_prefix("task", one) | with_prefix("task2", other)
    assert torch.equal(of_prefix("task", mixed)["a.b"], torch.ones(1))
    assert of_prefix("model", mixed) == {}


def test_the_order_of_tensors_does_not_change_a_byte(tmp_path: Path) -> None:
    tensors = {"model/b": torch.ones(2), "model/a": torch.zeros(3)}
    for name, given in {"one": tensors, "other": dict(reversed(tensors.items()))}.items():
        write_checkpoint(tmp_path / name, given, {"update": 1})
    assert (tmp_path / "one" / FILE).read_bytes() == (tmp_path / "other" / FILE).read_bytes()


def test_checkpoints_hold_what_was_there_when_they_were_asked_for(tmp_path: Path) -> None:
    weight, values = torch.ones(3), {"loss": [1.0]}
    with closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.write({"a": weight}, {"update": 1, "values": values})
        weight.zero_()
        values["loss"].append(2.0)
    tensors, state = present(read_checkpoint(tmp_path))
    assert torch.equal(tensors["a"], torch.ones(3))
    assert state == {"update": 1, "values": {"loss": [1.0]}}


def test_a_checkpoint_of_a_later_update_is_not_replaced(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {"a": torch.ones(1)}, {"update": 5})
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write({"a": torch.zeros(1)}, {"update": 5})
    with pytest.raises(
        UserError, match="is at update 5, but this process at 5: another process trains there"
    ):
        checkpoints.close()
    assert present(read_checkpoint(tmp_path))[0]["a"] == 1


def test_an_error_in_the_background_is_raised_at_the_next_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    checkpoints = Checkpoints(tmp_path / "file")
    checkpoints.write({"a": torch.ones(1)}, {"update": 1})
    with pytest.raises(FileExistsError):
        checkpoints.write({"a": torch.ones(1)}, {"update": 2})
    checkpoints.close()
