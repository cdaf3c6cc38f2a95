"""Names spelled differently before version 0.1.0, so that older runs still load."""

from pathlib import Path
from typing import Any

OLD_NAMES = {
    "labeled": "labelled",
    "unlabeled": "unlabelled",
    "pseudo_labeled": "pseudo_labelled",
    "unlabeled-transcribed": "unlabelled-transcribed",
    "unlabeled-clean": "unlabelled-clean",
    "unlabeled-other": "unlabelled-other",
    "unlabeled-whole": "unlabelled-whole",
    "centered": "centred",
}
OLD_COLUMNS = {"labeling": "labelling"}
REMOVED_FROM_MATCHING = {"average": 0.999, "renewed": 1.0, "selected": 1.0, "selected_at_random": 0.25}
"""Removed settings of matching at the values that every run has now: part of the fingerprints of older runs."""
NEW_NAMES = {old: new for new, old in OLD_NAMES.items()}


def with_names(tree: Any, names: dict[str, str]) -> Any:
    """Rename the keys of a settings tree that `names` lists."""
    if isinstance(tree, dict):
        return {names.get(key, key): with_names(value, names) for key, value in tree.items()}
    return [with_names(each, names) for each in tree] if isinstance(tree, list) else tree


def existing_manifest(folder: Path, name: str, suffix: str) -> Path:
    """The path of a manifest in a folder, or the one an older version wrote if only that exists."""
    return existing(folder / f"{name}{suffix}", folder / f"{OLD_NAMES.get(name, name)}{suffix}")


def existing(new: Path, old: Path) -> Path:
    """The new path, or the one an older version used if only that exists."""
    return old if old.exists() and not new.exists() else new
