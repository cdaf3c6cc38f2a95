"""What is done to references and hypotheses alike before errors are counted.

Error rates move with these rules as much as with the model, so every score names the one it was taken under.
"""

import unicodedata
from collections.abc import Callable, Mapping

from priormatch.data.text import normalise_sentence

Normalizer = Callable[[str], str]

_APOSTROPHES = str.maketrans(dict.fromkeys("‘’‛ʼ", "'"))
_ACCENTS = str.maketrans(
    dict.fromkeys("´`", "'")
)  # typed for apostrophes; NFKC parts the first from its word


def none(text: str) -> str:
    """The words as they stand, with one space between."""
    return " ".join(text.split())


def basic(text: str) -> str:
    """Lower-case words of any script with one space between; idempotent.

    Letters, their marks and numbers stay, in Unicode's form NFKC, and so does an apostrophe inside a word. Invisible
    characters are deleted, and everything else parts words.
    """
    composed = unicodedata.normalize("NFKC", text.translate(_ACCENTS)).lower()
    words = "".join(map(_kept, composed.translate(_APOSTROPHES))).split()
    bare = (word.strip("'") for word in words if any(map(str.isalnum, word)))
    return unicodedata.normalize("NFKC", " ".join(bare))


def _kept(character: str) -> str:
    """What `basic` leaves of a character."""
    kind = unicodedata.category(character)
    if character == "'" or kind[0] in "LMN":
        return character
    return "" if kind == "Cf" else " "


NORMALIZERS: Mapping[str, Normalizer] = {"none": none, "basic": basic, "english": normalise_sentence}
"""By the names that scores carry; `english` is what `priormatch prepare` does to transcripts, and deletes digits."""
