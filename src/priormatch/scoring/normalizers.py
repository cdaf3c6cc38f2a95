"""What is done to references and hypotheses alike before errors are counted.

Error rates move with these rules as much as with the model, so every score names the one it was taken under.
"""

from collections.abc import Callable, Mapping

from priormatch.data.normalizer import ENGLISH, Normalizer, normalize_unicode


def none(text: str) -> str:
    """The words as they stand, with one space between."""
    return " ".join(text.split())


def basic(text: str) -> str:
    """Lower-case words of any script, as `unicode` writes them, but numbers stay too; idempotent."""
    return normalize_unicode(text, numbers=True)


NORMALIZERS: Mapping[str, Callable[[str], str]] = {
    "none": none,
    "basic": basic,
    "english": ENGLISH,
    "unicode": Normalizer("unicode"),
    "turkic": Normalizer("turkic"),
}
"""By the names that scores carry; the last three are those of `priormatch prepare`, and delete digits."""
