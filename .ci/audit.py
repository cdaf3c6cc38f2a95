"""Look up known vulnerabilities of the locked dependencies with pip-audit; needs the network.

`make audit` runs this. It is no part of the tests. An audit that could not be made is an error, never a pass.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))


def main() -> None:
    """Audit each lock file; exit 1 on a known vulnerability, 2 where not everything could be looked up."""
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"]).returncode:
            unknown("pip-audit cannot be installed (see above)")
        findings = {lock.name: audit(python, lock) for lock in LOCKS}
    for name, found in findings.items():
        print(f"{name}: {len(found)} packages looked up")
    packages = [each for found in findings.values() for each in found]
    vulnerable = {
        (each["name"], each["version"], known["id"]) for each in packages for known in each["vulns"]
    }
    for package, version, identity in sorted(vulnerable):
        print(f"{package} {version}: {identity}")
    sys.exit(1 if vulnerable else 0)


def audit(python: str, lock: Path) -> list[dict[str, Any]]:
    """What pip-audit knows of each package of a lock file."""
    command = [
        python,
        "-m",
        "pip_audit",
        "--format=json",
        "--progress-spinner=off",
        "--disable-pip",
        "--no-deps",
    ]
    done = subprocess.run([*command, f"--requirement={lock}"], capture_output=True, text=True)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        unknown(f"pip-audit failed on {lock.name}: {done.stderr.strip().splitlines()[-1:]}")
    if skipped := [each["name"] for each in found if "skip_reason" in each]:
        unknown(f"the database did not answer for {len(skipped)} of {len(found)} packages of {lock.name}")
    return found


def unknown(reason: str) -> NoReturn:
    """Leave with the reason why nothing is known."""
    print(f"make audit: {reason}. Nothing was audited: call it again where the network can be reached.")
    sys.exit(2)


if __name__ == "__main__":
    main()
