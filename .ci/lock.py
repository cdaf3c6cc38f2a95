"""Resolve the dependencies of the core and the extras that `make venv` installs, into `requirements/*.lock`.

`make lock` runs this. It needs the network, and takes uv, which resolves for Pythons that are not installed here, into
a virtual environment of its own that is deleted afterwards.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "requirements"
PYTHONS = ("3.11", "3.12")
EXTRAS = ("demo", "dev")
TORCH = "torch==2.13.0"
OF_TORCH = re.compile(r"(torch|triton|nvidia-|cuda-)")
"""Distributions that differ between builds of torch: the lock leaves them to the build that is installed."""

HEAD = """\
# Every dependency of priormatch[{extras}] on Python {python}, except torch (torch.lock). Made by `make lock`;
# `make venv LOCKED=1` installs it.
"""


def main() -> None:
    """Write a lock file for each Python, and the pin of torch."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "uv"], check=True)
        for python in PYTHONS:
            text = without_torch(resolve(Path(folder) / "bin" / "uv", python))
            head = HEAD.format(extras=",".join(EXTRAS), python=python)
            (OUT / f"python{python}.lock").write_text(head + text)
    (OUT / "torch.lock").write_text(
        f"# No hash: the build depends on the machine (CPU, CUDA version).\n{TORCH}\n"
    )


def resolve(uv: Path, python: str) -> str:
    """The newest versions that fit together, with the hashes of all their files, in pip's format."""
    command = [str(uv), "pip", "compile", "pyproject.toml", "--quiet", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--python-version", python, "--constraint", "-"]
    command += [word for extra in EXTRAS for word in ("--extra", extra)]
    done = subprocess.run(command, cwd=ROOT, input=TORCH, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def without_torch(lock: str) -> str:
    """The entries of a lock file that do not depend on the build of torch."""
    entries = re.split(r"^(?=\w)", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if not OF_TORCH.match(entry))


if __name__ == "__main__":
    main()
