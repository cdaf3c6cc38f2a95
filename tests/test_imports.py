"""Packages import downward only, imports inside functions and for type checkers included."""

import ast
from pathlib import Path

import pytest

import priormatch

ROOT = Path(priormatch.__file__).parent
LAYERS = (
    ("__main__",),
    ("cli",),
    ("experiments",),
    ("library",),
    ("pipeline",),
    ("report", "serve", "doctor"),
    ("runs",),
    ("training",),
    ("matching",),
    ("recognizers",),
    ("kernels",),
    ("models",),
    ("decoding",),
    ("prepare",),
    ("scoring",),
    ("data",),
    ("config",),
)
"""From the top down; every other module of the root stands below all of these."""
LEVEL = {name: level for level, layer in enumerate(reversed(LAYERS), start=1) for name in layer}
MODULES = sorted(
    path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"
)  # which names what users import


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_by(path: Path) -> set[str]:
    """The packages and modules of ours, directly below the root, that a file imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "priormatch":
            names = [f"priormatch.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("priormatch.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_its_own_package_and_those_below(path: Path) -> None:
    own = part_of(path)
    allowed = {own} | {name for name in imported_by(path) if LEVEL.get(name, 0) < LEVEL.get(own, 0)}
    if own not in LEVEL:
        allowed |= {name for name in imported_by(path) if name not in LEVEL}
    assert imported_by(path) <= allowed


def test_every_package_has_its_layer() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= set(LEVEL)
    assert set(LEVEL) - packages == {"__main__", "library"}
