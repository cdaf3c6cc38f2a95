"""No function takes more than six positional parameters: more are keyword-only, or fields of a dataclass."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import priormatch

ROOT = Path(priormatch.__file__).parent
MOST = 6
BOUND = ("self", "cls", "ctx")
"""First parameters that Python or, for ctx, torch's autograd passes."""
KERNELS = "*_kernels.py"
"""Triton launches these with positional arguments."""
FILES = sorted(path for path in ROOT.rglob("*.py") if not path.match(KERNELS))


def functions_of(body: ast.AST, name: str = "") -> Iterator[tuple[str, ast.arguments]]:
    """Qualified names and parameters of the functions in a module, class or function."""
    for node in ast.iter_child_nodes(body):
        own = name
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = f"{name}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield own, node.args
        yield from functions_of(node, own)


def long_signatures(source: str) -> set[str]:
    """Names of the functions with more than MOST positional parameters."""
    found = set()
    for name, parameters in functions_of(ast.parse(source)):
        names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
        given = names[1:] if names and names[0] in BOUND else names
        if len(given) > MOST:
            found.add(name)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_function_takes_more_than_six_positional_parameters(path: Path) -> None:
    assert long_signatures(path.read_text(encoding="utf-8")) == set()


def test_parameters_are_counted_as_they_can_be_passed() -> None:
    source = """
class Model:
    def six(self, a, b, c, d, e, f, *rest, g): ...
    def seven(self, a, b, c, d, e, f, g): ...
async def outer(a, b, c, /, d, e, f, g):
    if True:
        def inner(a, b, c, d, e, f, self): ...
"""
    assert long_signatures(source) == {"Model.seven", "outer", "outer.inner"}
