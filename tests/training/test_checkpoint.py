import pytest
import torch
from torch import nn

from priormatch.config import OptimizerSettings
from priormatch.errors import UserError
from priormatch.training import checkpoint
from priormatch.training.checkpoint import (
    FILE,
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


def test_there_and_back(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b": torch.tensor(5)}
    write_checkpoint(tmp_path / "new", tensors, {"update": 7, "best": float("inf"), "list": [1, 2]})
    found, state = read_checkpoint(tmp_path / "new")
    assert state == {"update": 7, "best": float("inf"), "list": [1, 2]}
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)


def test_tensors_that_share_memory_are_written_each(tmp_path):
    whole = torch.randn(4, 4)
    write_checkpoint(tmp_path, {"whole": whole, "same": whole, "part": whole[:, 1], "turned": whole.T}, {})
    found, _ = read_checkpoint(tmp_path)
    assert torch.equal(found["whole"], whole)
    assert torch.equal(found["same"], whole)
    assert torch.equal(found["part"], whole[:, 1])
    assert torch.equal(found["turned"], whole.T)


def test_only_tensors_that_share_memory_are_copied(tmp_path, monkeypatch):
    written = {}
    monkeypatch.setattr(checkpoint, "save_file", lambda tensors, path, metadata: written.update(tensors))
    alone, shared = nn.Parameter(torch.randn(3)), torch.randn(4)
    with pytest.raises(FileNotFoundError):  # as nothing was saved
        write_checkpoint(tmp_path, {"alone": alone, "first": shared, "second": shared[1:3]}, {})
    assert written["alone"].data_ptr() == alone.data_ptr()
    assert written["first"].data_ptr() == shared.data_ptr()
    assert written["second"].untyped_storage().data_ptr() != shared.data_ptr()
    assert all(each.device.type == "cpu" and not each.requires_grad for each in written.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_checkpoint_takes_no_memory_on_the_gpu(tmp_path):
    tensors = {"a": torch.randn(256, 256, device="cuda")}
    tensors["b"] = tensors["a"][:8]
    before = torch.cuda.max_memory_allocated()
    write_checkpoint(tmp_path, tensors, {})
    assert torch.cuda.max_memory_allocated() == before
    found, _ = read_checkpoint(tmp_path)
    assert all(torch.equal(found[name], tensors[name].cpu()) for name in tensors)


def test_no_checkpoint_is_none(tmp_path):
    assert read_checkpoint(tmp_path) is None
    assert read_checkpoint(tmp_path / "nowhere") is None


def test_a_half_written_file_is_not_looked_at(tmp_path):
    write_checkpoint(tmp_path, {"a": torch.ones(2)}, {"update": 1})
    (tmp_path / f".tmp-{FILE}").write_bytes(b"half of a")
    assert read_checkpoint(tmp_path)[1] == {"update": 1}
    write_checkpoint(tmp_path, {"a": torch.ones(2)}, {"update": 2})
    assert read_checkpoint(tmp_path)[1] == {"update": 2}
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "no state"])
def test_a_damaged_file_names_itself_and_the_way_out(tmp_path, damage):
    write_checkpoint(tmp_path, {"a": torch.randn(100)}, {"update": 1})
    file = tmp_path / FILE
    if damage == "no state":
        from safetensors.torch import save_file

        save_file({"a": torch.ones(1)}, file)
    else:
        file.write_bytes({"cut": file.read_bytes()[:-50], "empty": b"", "text": b"not a checkpoint"}[damage])
    with pytest.raises(UserError, match=rf"{FILE} is damaged .*remove it"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("settings", KINDS, ids=["momentum", "sgd", "adamw"])
def test_an_optimiser_goes_on_to_the_bit(settings, tmp_path):
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
    tensors, _ = read_checkpoint(tmp_path)
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


def test_prefixes_part_groups_whose_names_begin_alike():
    one, other = {"a.b": torch.ones(1)}, {"a.b": torch.zeros(1)}
    mixed = with_prefix("task", one) | with_prefix("task2", other)
    assert torch.equal(of_prefix("task", mixed)["a.b"], torch.ones(1))
    assert of_prefix("model", mixed) == {}
