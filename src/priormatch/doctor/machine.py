"""Check the machine: the device, tested with a tiny model, and the disk for runs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import torch

from priormatch.config import ModelSettings, TrainingSettings
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch
from priormatch.data.tokenizer import train_tokenizer
from priormatch.decoding.beam import Hypotheses
from priormatch.device import find_device, has_kernels, mixed_precision
from priormatch.doctor.findings import Finding
from priormatch.progress import count_text
from priormatch.recognizers.recognizer import SpeechRecognizer

GB = 1 << 30
LITTLE_MEMORY = 8 * GB  # of a GPU
LITTLE_DISK, HARDLY_ANY_DISK = 5 * GB, GB // 2
TINY = ModelSettings(n_mels=40, channels=[4, 6], blocks=[1, 1], kernel=9, size=32, dropout=0.0)


def findings(device: str, runs: Path) -> Iterator[Finding]:
    """Run all checks of the machine."""
    yield disk_finding(runs, free_space(runs))
    found = find_device(device)
    yield from gpu_findings(found) if found.type == "cuda" else cpu_findings(driver=has_driver())
    yield from computing_findings(found)


def has_driver() -> bool:
    """Return whether this machine has an NVIDIA driver."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def cpu_findings(driver: bool) -> Iterator[Finding]:
    """Report that the CPU is used, and why a GPU is not if there is a driver."""
    if driver and torch.version.cuda is None:
        what = f"there is an NVIDIA driver, but PyTorch {torch.__version__} is built without CUDA"
        yield Finding("warning", what, "install a CUDA build of torch, see pytorch.org")
    elif driver and not torch.cuda.is_available():
        what = f"there is an NVIDIA driver, but PyTorch {torch.__version__} sees no GPU"
        advice = "check whether `nvidia-smi` lists one, and whether CUDA_VISIBLE_DEVICES hides it"
        yield Finding("warning", what, advice)
    what = f"computing on the CPU with {count_text(torch.get_num_threads(), 'thread')}"
    yield Finding("warning", what, "enough for the demo and for tiny data; for hours of speech use a GPU")


def gpu_findings(device: torch.device) -> Iterator[Finding]:
    """Report the GPU, its free memory, and whether priormatch's kernels run on it."""
    free, total = torch.cuda.mem_get_info(device)
    what = f"{torch.cuda.get_device_name(device)}, {free / GB:.1f} of {total / GB:.1f} GB free"
    if free < LITTLE_MEMORY:
        advice = "lower training.batch.seconds and matching.batch.seconds, or free the GPU"
        yield Finding("warning", what, advice)
    else:
        yield Finding("ok", what)
    if has_kernels(device):
        yield Finding("ok", "Triton is installed: fused kernels and recorded steps are used")
    else:
        what = "Triton is missing: plain layers are used, which are slower"
        yield Finding("warning", what, "install triton")


def computing_findings(device: torch.device) -> Iterator[Finding]:
    """Check the results of a matrix product and an update of a tiny recognizer on a device."""
    checks = {"a matrix product": product_is_right, "an update of a tiny recognizer": update_is_right}
    for name, check in checks.items():
        try:
            right, reason = check(device), "the result is wrong"
        except Exception as error:  # a driver or a compiler may raise anything
            right, reason = False, (str(error).splitlines() or [type(error).__name__])[0]
        if right:
            yield Finding("ok", f"{name} on {device}")
        else:
            advice = "try device=cpu; if that works, install a PyTorch that fits the GPU's driver"
            yield Finding("problem", f"{name} failed on {device} ({reason})", advice)


def product_is_right(device: torch.device) -> bool:
    """Multiply two matrices on the device and on the CPU, and compare."""
    one, other = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0))
    there = (one.to(device) @ other.to(device)).cpu()
    return bool(torch.allclose(there, one @ other, atol=0.05))


def update_is_right(device: torch.device) -> bool:
    """Train a tiny recognizer on noise: its loss must fall, and its weights must stay finite."""
    torch.manual_seed(0)
    model = SpeechRecognizer(TINY, train_tokenizer(["one two three", "three two one"], 12)).to(device).train()
    labels = torch.tensor([[[*model.tokenizer.encode("one two"), model.tokenizer.eos]]], device=device)
    samples = torch.tensor([SAMPLE_RATE], device=device)
    spoken = Hypotheses(labels, torch.tensor([[labels.shape[-1]]], device=device), model.tokenizer)
    batch = Batch.of_audio(0.1 * torch.randn(1, SAMPLE_RATE, device=device), samples)
    settings = TrainingSettings(input_sampling=0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.001)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        with mixed_precision(device):
            loss = model.losses(batch, spoken, settings).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses[1] < losses[0] and all(bool(weight.isfinite().all()) for weight in model.parameters())


def free_space(folder: Path) -> int | None:
    """Return the free bytes where a folder is or will be, or None if it cannot be written to."""
    place = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return shutil.disk_usage(place).free if place.is_dir() and os.access(place, os.W_OK) else None


def disk_finding(folder: Path, free: int | None) -> Finding:
    """Check whether there is space for a run's checkpoints and models."""
    if free is None:
        return Finding("problem", f"runs={folder} cannot be written to", "set runs= to another folder")
    what = f"{free / GB:.1f} GB free for runs in {folder}"
    if free >= LITTLE_DISK:
        return Finding("ok", what)
    advice = "free some space, or set runs= to another disk"
    return Finding("problem" if free < HARDLY_ANY_DISK else "warning", what, advice)
