"""Check whether everything that priormatch needs is installed; this module imports nothing heavy itself."""

import io
import platform
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from operator import eq, ge, gt, le, lt, ne

from priormatch.doctor.findings import Finding

OF_DEVELOPERS = {"browser", "dev", "docs"}  # extras that users do not need
OLDEST_PYTHON = (3, 11)
MODULES = (
    *("torch", "numpy", "lhotse", "soundfile"),
    *("sentencepiece", "safetensors", "omegaconf", "jiwer"),
)
COMPARED = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
FORMATS = {"WAV": "PCM_16", "FLAC": "PCM_16", "OGG": "VORBIS", "MP3": "MPEG_LAYER_III"}


def python_finding(version: tuple[int, ...]) -> Finding:
    """Check whether this Python is new enough."""
    if version < OLDEST_PYTHON:
        return Finding("problem", f"Python {'.'.join(map(str, version))}", "install Python 3.11 or newer")
    return Finding("ok", f"Python {platform.python_version()}")


def requirements() -> list[str]:
    """List the requirements of the installed package; empty if it runs from source without installation."""
    try:
        return metadata.requires("priormatch") or []
    except metadata.PackageNotFoundError:
        return []


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirement_findings(
    declared: Sequence[str], version_of: Callable[[str], str | None]
) -> Iterator[Finding]:
    """Check whether requirements, such as `torch<2.14,>=2.9` or `gradio>=6; extra == "page"`, are installed."""
    if not declared:
        what = "priormatch is not installed as a package"
        yield Finding("warning", what, "run `pip install .` in its folder")
    extras: dict[str, list[str]] = defaultdict(list)
    core: list[str] = []
    for requirement in declared:
        wanted, _, marker = requirement.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"]([\w-]+)", marker)
        (extras[of_extra[1]] if of_extra else core).append(wanted)
    missing = {wanted: reason for wanted in core if (reason := unmet(wanted, version_of))}
    for wanted, reason in missing.items():
        yield Finding("problem", reason, f'run `pip install "{wanted.strip()}"`')
    if core and not missing:
        torch = f"torch {version_of('torch')}"
        yield Finding("ok", f"all {len(core)} packages that priormatch needs, including {torch}")
    reasons = {
        extra: [reason for wanted in needed if (reason := unmet(wanted, version_of))]
        for extra, needed in extras.items()
        if extra not in OF_DEVELOPERS
    }
    if reasons:
        yield extras_finding(reasons)


def extras_finding(reasons: Mapping[str, Sequence[str]]) -> Finding:
    """Report which extras are installed, and the reasons why others are not."""
    there = [extra for extra, why in reasons.items() if not why]
    absent = {extra: why for extra, why in reasons.items() if why}
    what = f"extras: {', '.join(there) or 'none'} installed"
    if not absent:
        return Finding("ok", what)
    missing = ", ".join(f"{extra} ({', '.join(why)})" for extra, why in absent.items())
    advice = f"`pip install 'priormatch[{','.join(absent)}]'` if you want them"
    return Finding("ok", f"{what}; without {missing}", advice)


def unmet(requirement: str, version_of: Callable[[str], str | None]) -> str | None:
    """Return why a requirement such as `torch<2.14,>=2.9` is not met, or None if it is."""
    name, bounds = re.fullmatch(r"\s*([\w.-]+)(?:\[[^\]]*\])?\s*\(?([^)]*)\)?\s*", requirement).groups()  # type: ignore[union-attr]
    version = version_of(name)
    if version is None:
        return f"{name} is not installed"
    for sign, bound in re.findall(r"([<>=!]=|[<>])\s*([\w.]+)", bounds):
        if not COMPARED[sign](numbers(version), numbers(bound)):
            return f"{name} {version} is not {sign}{bound}"
    return None


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version, without trailing zeros: 2.13.0+cpu gives (2, 13)."""
    found = [int(each) for each in re.match(r"[\d.]*", version)[0].split(".") if each]  # type: ignore[index]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def import_findings(modules: Sequence[str]) -> Iterator[Finding]:
    """Report the modules that cannot be imported, installed or not."""
    for name in modules:
        try:
            import_module(name)
        except Exception as error:  # a broken library may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            advice = f"run `pip install --force-reinstall {name}`"
            yield Finding("problem", f"{name} cannot be imported ({reason})", advice)


def sound_findings() -> Iterator[Finding]:
    """Check whether soundfile writes and reads each audio format, in memory."""
    import numpy as np
    import soundfile

    works = []
    for format, subtype in FORMATS.items():
        try:
            held = io.BytesIO()
            soundfile.write(held, np.zeros(16_000, np.float32), 16_000, format=format, subtype=subtype)
            held.seek(0)
            soundfile.read(held)
            works.append(format)
        except (soundfile.LibsndfileError, ValueError, TypeError) as error:
            advice = "convert such files to WAV or FLAC, or run `pip install --upgrade soundfile`"
            yield Finding("warning", f"soundfile cannot read {format} ({error})", advice)
    yield Finding("ok", f"soundfile {soundfile.__version__} reads {', '.join(works)}")


def ffmpeg_finding() -> Finding:
    """Report whether ffmpeg is there, and what it is for."""
    from priormatch.data.ffmpeg import CONTAINERS, INSTALL

    program, kinds = shutil.which("ffmpeg"), ", ".join(CONTAINERS)
    if program is None:
        return Finding("ok", f"no ffmpeg on the PATH: {kinds} files cannot be read", f"for those, {INSTALL}")
    return Finding("ok", f"{program} decodes {kinds} files")
