import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import pytest
from narrowing import present
from packaging.requirements import Requirement
from packaging.version import Version

import priormatch

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "priormatch"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Declared though src never imports it: lhotse imports it and does not declare it.
NEEDED_BY_LHOTSE = {"urllib3"}
# Modules whose distribution has another name, and modules that stand for a distribution behind them.
DISTRIBUTION_OF = {
    "espeakng_loader": "espeakng-loader",
    "huggingface_hub": "huggingface-hub",
    "yaml": "pyyaml",
    "torch.utils.tensorboard": "tensorboard",
}


def names(requirements: list[str]) -> set[str]:
    return {present(re.match(r"[\w.-]+", text))[0].lower() for text in requirements}


def imported_distributions() -> set[str]:
    """Third-party distributions imported anywhere in src, inside functions too."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            else:
                continue
            found.update(DISTRIBUTION_OF.get(name, name.split(".")[0]) for name in modules)
    found = {DISTRIBUTION_OF.get(name, name) for name in found}
    return found - set(sys.stdlib_module_names) - {"priormatch"}


def python(code: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


def test_a_cpu_build_of_torch_has_no_cuda_packages_beside_it() -> None:
    import torch

    if torch.version.cuda is not None:
        pytest.skip("torch is built for CUDA here")
    beside = sorted(found.name for found in distributions() if found.name.lower().startswith("nvidia-"))
    assert beside == []


COMES_WITH_TORCH_FOR_CUDA = {"triton"}


def test_every_import_is_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    declared = names(PROJECT["dependencies"]).union(
        *(names(extras[name]) for name in extras if name != "dev")
    )
    assert imported_distributions() <= declared | COMES_WITH_TORCH_FOR_CUDA


def test_every_core_dependency_is_imported() -> None:
    assert names(PROJECT["dependencies"]) - NEEDED_BY_LHOTSE <= imported_distributions()


def test_espeak_which_is_gpl_stays_out_of_the_core() -> None:
    assert "espeakng-loader" not in names(PROJECT["dependencies"])


HEAVY = [
    "torch",
    "lhotse",
    "scipy",
    "matplotlib",
    "tensorboard",
    "huggingface_hub",
    "onnx",
    "wandb",
    "gradio",
]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"]])
def test_the_command_line_answers_without_heavy_imports(arguments: list[str]) -> None:
    result = python(
        f"import sys; sys.argv = ['priormatch', *{arguments}]\n"
        "from priormatch.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('HEAVY', sorted(set({HEAVY}) & sys.modules.keys()))"
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "HEAVY []"
    if arguments == ["--version"]:
        assert priormatch.__version__ in result.stdout


def test_importing_the_package_does_not_import_torch() -> None:
    result = python("import sys, priormatch; print('torch' in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


def test_the_version_is_the_same_everywhere() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|(a|b|rc)\d+)?", priormatch.__version__)
    assert f"\nversion: {priormatch.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert priormatch.__version__ in (ROOT / "CHANGELOG.md").read_text()


def test_the_wheel_made_from_the_sdist_has_recipes_and_types_and_no_tests(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    result = subprocess.run(build, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = tmp_path.glob("priormatch-*.whl")
    inside = zipfile.ZipFile(wheel).namelist()
    recipes = {f"priormatch/recipes/{path.name}" for path in (ROOT / "recipes").glob("*.yaml")}
    code = {f"priormatch/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("*.py")}
    tables = {f"priormatch/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.rglob("tables/*.yaml")}
    templates = {
        f"priormatch/{path.relative_to(SOURCE).as_posix()}" for path in SOURCE.glob("report/templates/*")
    }
    assert recipes and tables and templates
    assert recipes | code | tables | templates | {"priormatch/py.typed"} <= set(inside)
    assert {name.split("/")[0] for name in inside} == {
        "priormatch",
        wheel.name.rsplit("-py3", 1)[0] + ".dist-info",
    }


# The set-up behind the make targets.


@pytest.fixture
def setup_venv() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("setup_venv", ROOT / ".ci" / "setup_venv.py"))
    module = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(module)
    return module


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A folder laid out like a virtual environment with priormatch and its one requirement."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    site_packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, requires in {
        "priormatch": "Requires-Dist: Some_Package>=1; extra == 'dev'\n",
        "some-package": "",
    }.items():
        module = name.replace("-", "_")
        information = site_packages / f"{module}-1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}"
        )
        (information / "RECORD").write_text(f"{module}.py,,\n__pycache__/{module}.cpython-311.pyc,,\n")
        (site_packages / f"{module}.py").touch()
    return tmp_path


def test_an_intact_environment_is_whole_even_without_compiled_files(
    setup_venv: ModuleType, environment: Path
) -> None:
    assert setup_venv.is_whole(environment)


def test_extras_that_nobody_asked_for_may_be_missing(setup_venv: ModuleType, environment: Path) -> None:
    metadata = next(environment.rglob("priormatch-1.0.dist-info")) / "METADATA"
    metadata.write_text(metadata.read_text() + 'Requires-Dist: playwright>=1; extra == "browser"\n')
    assert setup_venv.is_whole(environment)
    metadata.write_text(metadata.read_text() + 'Requires-Dist: another>=1; extra == "demo"\n')
    assert not setup_venv.is_whole(environment)


@pytest.mark.parametrize(
    "lost",
    [
        "bin/python",
        "lib/python3.11/site-packages/some_package.py",
        "lib/python3.11/site-packages/some_package-1.0.dist-info/METADATA",
        "lib/python3.11/site-packages/priormatch-1.0.dist-info/METADATA",
    ],
)
def test_an_environment_that_lost_something_is_not_whole(
    setup_venv: ModuleType, environment: Path, lost: str
) -> None:
    (environment / lost).unlink()
    assert not setup_venv.is_whole(environment)


def test_an_environment_whose_interpreter_fails_is_not_whole(
    setup_venv: ModuleType, environment: Path
) -> None:
    (environment / "bin" / "python").unlink()
    (environment / "bin" / "python").symlink_to("/bin/false")
    assert not setup_venv.is_whole(environment)


CPU, GIVEN = ["--index-url", "https://download.pytorch.org/whl/cpu"], ["--index-url", "https://given"]
FOLDER = ["--no-index", "--find-links", "wheels"]


@pytest.mark.parametrize(
    ("cpu", "given", "sources"),
    [
        (True, {}, [["--no-index"], CPU]),
        (False, {}, []),
        (True, {"TORCH_INDEX": ""}, []),
        (True, {"TORCH_INDEX": "https://given"}, [GIVEN]),
        (False, {"TORCH_INDEX": "https://given"}, [GIVEN]),
        (True, {"TORCH_FIND_LINKS": "wheels"}, [FOLDER]),
        (False, {"TORCH_FIND_LINKS": "wheels", "TORCH_INDEX": "https://given"}, [FOLDER, GIVEN]),
    ],
)
def test_where_torch_is_taken_from(
    setup_venv: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    cpu: bool,
    given: dict[str, str],
    sources: list[list[str]],
) -> None:
    monkeypatch.setattr(setup_venv, "wants_cpu_build", lambda: cpu)
    monkeypatch.delenv("TORCH_INDEX", raising=False)
    monkeypatch.delenv("TORCH_FIND_LINKS", raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert setup_venv.torch_sources() == sources


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_the_lock_fits_pyproject_and_every_entry_has_hashes(setup_venv: ModuleType, python: str) -> None:
    entries = re.split(r"^(?=\w)", (ROOT / "requirements" / f"python{python}.lock").read_text(), flags=re.M)[
        1:
    ]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}$", entry.rstrip()) for entry in entries)
    pinned = [present(re.match(r"([\w.-]+)==(\S+)", entry)) for entry in entries]
    locked = {each[1]: each[2] for each in pinned}
    locked["torch"] = (ROOT / "requirements" / "torch.lock").read_text().split("==")[-1].strip()
    extras = PROJECT["optional-dependencies"]
    asked_for = [*PROJECT["dependencies"], *extras["dev"], *extras["demo"]]
    asked_for += [each for name in ("datasets", "docs", "export", "hub") for each in extras[name]]
    wanted = [Requirement(text) for text in asked_for]
    unmet = [
        str(each)
        for each in wanted
        if each.name != "priormatch"
        and locked.get(setup_venv.normal_name(each.name), "0") not in each.specifier
    ]
    assert unmet == [], "call make lock"
    assert not any(Version(version).is_prerelease for version in locked.values())


def test_a_python_without_a_lock_is_refused(
    setup_venv: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup_venv, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"there are locks for"):
        setup_venv.lock_file()


def test_the_range_of_torch_is_read_from_pyproject(setup_venv: ModuleType) -> None:
    assert setup_venv.torch_requirement(ROOT / "pyproject.toml") == "torch>=2.9,<2.14"
