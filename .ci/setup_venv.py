"""Make `.venv` fit for work: create it, complete it or repair it; do nothing when it is whole and up to date.

Needs the standard library alone. The environment variables it heeds are explained at the top of the Makefile.
"""

# ruff: noqa: UP036 (an older Python is turned away before it meets an import it does not know)
import sys

if sys.version_info < (3, 11):
    sys.exit(
        f"priormatch needs Python 3.11 or newer and {sys.executable} is {sys.version.split()[0]}; "
        "name another with: make PYTHON=/path/to/python3.11"
    )

import os
import shutil
import subprocess
import tomllib
from importlib.metadata import Distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
READY = VENV / "ready"  # written last; holds what the environment was built for
EXTRAS = "demo,dev"
TORCH_LOCK = ROOT / "requirements" / "torch.lock"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def main() -> None:
    """Bring `.venv` up to date."""
    lock = lock_file() if os.environ.get("LOCKED") else None
    pinned = "".join(file.read_text() for file in (lock, TORCH_LOCK) if lock is not None and file is not None)
    wanted = f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}{pinned}"
    built_for = READY.read_text() if READY.is_file() else ""
    usable = built_for.startswith(f"{ROOT}\n") and is_whole(VENV)
    if usable and built_for == wanted:
        return
    if not usable:
        print(f"Setting up {VENV} with {sys.executable}", flush=True)
        create = [sys.executable, "-m", "venv", "--clear", str(VENV)]
        if subprocess.run(create).returncode:
            sys.exit(f"Could not make {VENV} (see above); fix the cause and run make again.")
    READY.unlink(missing_ok=True)
    if not (install() if lock is None else install_locked(lock)):
        sys.exit(f"Could not install priormatch into {VENV} (see above); fix the cause and run make again.")
    READY.write_text(wanted)


def install() -> bool:
    """Install priormatch in the newest versions that pyproject.toml allows."""
    install_torch(torch_requirement(ROOT / "pyproject.toml"))
    return pip_install("--editable", f"{ROOT}[{EXTRAS}]")


def install_locked(lock: Path) -> bool:
    """Install exactly the locked versions, their hashes checked; torch by its version alone."""
    if not pip_install("--require-hashes", "--no-deps", "--requirement", str(lock)):
        return False
    pin = TORCH_LOCK.read_text().splitlines()[-1]
    install_torch(pin)
    return pip_install(pin) and pip_install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))


def lock_file() -> Path:
    """The lock file of this Python."""
    lock = ROOT / "requirements" / f"python{sys.version_info.major}.{sys.version_info.minor}.lock"
    if not lock.is_file():
        known = ", ".join(sorted(each.stem for each in lock.parent.glob("python*.lock")))
        sys.exit(f"{lock.name} does not exist: there are locks for {known}; name one with make PYTHON=...")
    return lock


def is_whole(venv: Path) -> bool:
    """Whether the interpreter runs and priormatch, all it asks for and every installed file are there."""
    python = venv / "bin" / "python"
    if not python.exists() or subprocess.run([str(python), "-c", ""], capture_output=True).returncode:
        return False
    folders = list(venv.glob("lib/python3*/site-packages/*.dist-info"))
    if not all((folder / "METADATA").is_file() for folder in folders):
        return False
    installed = {normal_name(found.name): found for found in map(Distribution.at, folders)}
    if "priormatch" not in installed:
        return False
    requires = installed["priormatch"].requires or []
    asked_for = {requirement_name(text) for text in requires if is_wanted(text)}
    return asked_for <= installed.keys() and all(has_its_files(found) for found in installed.values())


def has_its_files(found: Distribution) -> bool:
    """Whether every file that was installed is still there (compiled ones aside, which come and go)."""
    return all(Path(str(file.locate())).exists() for file in found.files or [] if file.suffix != ".pyc")


def is_wanted(requirement: str) -> bool:
    """Whether a requirement is of the core or of one of EXTRAS, which are all that is installed here."""
    _, of_extra, extra = requirement.partition("extra ==")
    return not of_extra or extra.strip(" \"')") in EXTRAS.split(",")


def requirement_name(requirement: str) -> str:
    """The normalized name at the head of a requirement such as `torch<2.14,>=2.9; extra == "x"`."""
    end = next((i for i, letter in enumerate(requirement) if not (letter.isalnum() or letter in "-_.")), None)
    return normal_name(requirement[:end])


def normal_name(name: str) -> str:
    """Write a distribution's name as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def torch_requirement(pyproject: Path) -> str:
    """The requirement on torch that pyproject.toml states."""
    dependencies = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    return next(str(text) for text in dependencies if requirement_name(text) == "torch")


def install_torch(requirement: str) -> None:
    """Install torch ahead of the rest where a plain installation would take the wrong build."""
    sources = torch_sources()
    if not sources or any(pip_install(*source, "--no-deps", requirement) for source in sources):
        return
    sys.exit(
        f"Could not install {requirement} by way of {' or '.join(' '.join(source) for source in sources)}; "
        "give another index with make TORCH_INDEX=URL, a folder of wheels with make TORCH_FIND_LINKS=FOLDER, "
        "or take PyPI's build with make TORCH_INDEX="
    )


def torch_sources() -> list[list[str]]:
    """Where to look for torch, as options of pip, best first; empty where plain pip does right."""
    folder, index = os.environ.get("TORCH_FIND_LINKS"), os.environ.get("TORCH_INDEX")
    if not folder and index is None and wants_cpu_build():
        # Wheels at hand, in a folder that pip is configured to look into, spare the download.
        return [["--no-index"], ["--index-url", CPU_INDEX]]
    from_folder = [["--no-index", "--find-links", folder]] if folder else []
    return from_folder + ([["--index-url", index]] if index else [])


def wants_cpu_build() -> bool:
    """Whether this is Linux without a working NVIDIA GPU, where PyPI's torch brings gigabytes for nothing."""
    if sys.platform != "linux":
        return False
    smi = shutil.which("nvidia-smi")
    return smi is None or subprocess.run([smi, "-L"], capture_output=True).returncode != 0


def pip_install(*arguments: str) -> bool:
    """Run pip in `.venv` and say whether it succeeded; a look at local wheels alone is silent."""
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    return (
        subprocess.run([*pip, "install", *arguments], capture_output="--no-index" in arguments).returncode
        == 0
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("Interrupted; the next call of make sets up again.")
