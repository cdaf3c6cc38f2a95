"""How much speech the sets of a recipe have: counted where they exist, and as published for known corpora."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from priormatch.config import Settings
from priormatch.prepare.overview import sample_speech


@dataclass(frozen=True)
class Amount:
    """Utterances, their hours in total, and whether both are only as published."""

    utterances: int
    hours: float
    published: bool = False


PUBLISHED = {
    "train-clean-100": Amount(28_539, 100.6, published=True),
    "train-clean-360": Amount(104_014, 363.6, published=True),
    "train-other-500": Amount(148_688, 496.7, published=True),
    "dev-clean": Amount(2_703, 5.4, published=True),
    "dev-other": Amount(2_864, 5.3, published=True),
    "test-clean": Amount(2_620, 5.4, published=True),
    "test-other": Amount(2_939, 5.1, published=True),
    "librilight-60kh": Amount(17_300_000, 57_706.4, published=True),  # in segments of about 12 seconds
}
"""Amounts by the name of the manifest."""
DEMO_SECONDS = 3.0
ROLES = ("labeled", "unlabeled", "validation", "test")

Amounts = Mapping[str, list[Amount]]
"""The sets of a recipe by role: labeled, unlabeled, validation, test; a role with an unknown set is missing."""


def amounts_of(settings: Settings) -> Amounts:
    """The amounts of speech of a recipe."""
    found = demo_amounts() if settings.corpus == "demo" else known_amounts(settings)
    if "labeled" in found and not settings.validation and "validation" not in found:
        (labeled,), share = found["labeled"], settings.validation_share
        held_out = Amount(round(share * labeled.utterances), share * labeled.hours, labeled.published)
        found["validation"] = [held_out]
    if "validation" in found and not settings.test:
        found.setdefault("test", found["validation"])
    return found


def known_amounts(settings: Settings) -> dict[str, list[Amount]]:
    """The amounts of the sets that a recipe names, of roles in which all are known."""
    named = {
        "labeled": [settings.labeled],
        "unlabeled": [settings.unlabeled],
        "validation": settings.validation,
        "test": settings.test.values(),
    }
    found = {role: known(paths) for role, paths in named.items()}
    return {role: amounts for role, amounts in found.items() if amounts}


def known(paths: Iterable[str]) -> list[Amount]:
    """The amount at each path; nothing if one of them is unknown."""
    found = [amount_at(path) for path in paths]
    amounts = [each for each in found if each is not None]
    return amounts if len(amounts) == len(found) else []


def amount_at(path: str) -> Amount | None:
    """The amount of speech at a path: counted if it exists, else as published for a manifest of this name."""
    if path and Path(path).exists():
        speech = sample_speech(Path(path))
        return Amount(len(speech.utterances), speech.hours)
    return PUBLISHED.get(Path(path).name.partition(".")[0])


def demo_amounts() -> dict[str, list[Amount]]:
    """The amounts of the built-in corpus."""
    from priormatch.prepare.demo import DEFAULT_SIZES as SIZES

    counts = {
        "labeled": [SIZES.labeled],
        "unlabeled": [SIZES.unlabeled],
        "validation": 2 * [SIZES.validation],
        "test": 2 * [SIZES.test],
    }
    return {
        role: [Amount(count, count * DEMO_SECONDS / 3600) for count in each] for role, each in counts.items()
    }
