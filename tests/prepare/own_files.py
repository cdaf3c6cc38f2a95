"""Audio of a user's own, in small, and what became of it."""

from pathlib import Path

import numpy as np
import soundfile
from lhotse import CutSet, MonoCut


def write_audio(path: Path, seconds: float = 0.5, rate: int = 16_000, text: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"format": "OGG", "subtype": "OPUS"} if path.suffix == ".opus" else {}
    noise = np.random.default_rng(0).uniform(-0.3, 0.3, round(seconds * rate))
    soundfile.write(path, noise, rate, **options)
    if text is not None:
        path.with_suffix(".txt").write_text(text, encoding="utf-8")
    return path


def truncate(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-20])
    return path


def texts(manifest: Path) -> dict[str, str | None]:
    return {name: cut.supervisions[0].text for name, cut in read(manifest).items()}


def reasons(manifest: Path) -> list[str]:
    """Why utterances were left out of a manifest."""
    listing = manifest.with_name(manifest.name.replace(".jsonl.gz", ".bad.tsv"))
    return [line.split("\t")[1] for line in listing.read_text().splitlines()[1:]]


def read(manifest: Path) -> dict[str, MonoCut]:
    return {cut.id: cut for cut in CutSet.from_file(manifest)}
