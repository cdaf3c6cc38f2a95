"""Normalization of references and hypotheses before errors are counted.

Error rates depend on these rules as much as on the model, so every score names its normalizer.
"""

from collections.abc import Callable, Mapping

from priormatch.data.normalizer import ENGLISH, Normalizer, normalize_unicode


def none(text: str) -> str:
    """The unchanged words, separated by one space."""
    return " ".join(text.split())


def basic(text: str) -> str:
    """Lower-case words of any script, as `unicode` produces them, but with numbers kept; idempotent."""
    return normalize_unicode(text, numbers=True)


NORMALIZERS: Mapping[str, Callable[[str], str]] = {
    "none": none,
    "basic": basic,
    "english": ENGLISH,
    "unicode": Normalizer("unicode"),
    "turkic": Normalizer("turkic"),
}
"""Normalizers by the names in scores; the last three are those of `priormatch prepare` and delete digits."""
