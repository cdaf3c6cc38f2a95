"""Text normalization for English and other languages: reduce text to the words a recognizer outputs.

Transcripts, the prior's text and scores use the same normalizer, which is stored in the tokenizer's folder.
"""

import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from priormatch.config import LanguageSettings, NormalizerKind
from priormatch.data.text import APOSTROPHES, Unspoken, normalize_sentence
from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.yaml_files import read_yaml

LANGUAGE_FILE = "language.yaml"
ENGLISH_LETTERS = "abcdefghijklmnopqrstuvwxyz'"
FOREIGN = 0.01  # share of non-English letters above which a text is not taken for English
INSIDE = "'·\u05f3\u05f4\u200c\u200d"
"""Characters kept between letters: apostrophe, middle dot, geresh, gershayim, and the invisible (non-)joiner."""

_APOSTROPHES = str.maketrans(dict.fromkeys(APOSTROPHES + "´`", "'") | {"ŉ": "'n"})
# Thai and Lao vowels that NFKC decomposes.
_SARA_AM = (("\u0e4d\u0e32", "\u0e33"), ("\u0ecd\u0eb2", "\u0eb3"))


@dataclass(frozen=True)
class Normalizer:
    """Reduces text to words in lower case, separated by one space, without punctuation; idempotent.

    - english: as in the paper; see `normalize_sentence`.
    - unicode: `normalize_unicode`, for every language that separates words by spaces.
    - turkic: the same, but I becomes ı and İ becomes i.

    With an `alphabet`, in lower case, text that contains any other letter is rejected.
    """

    kind: NormalizerKind = "english"
    alphabet: str = ""

    @property
    def name(self) -> str:
        """Its name beside a score: `english`, or `unicode with 33 letters`."""
        return f"{self.kind} with {len(self._letters)} letters" if self._letters else self.kind

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(compose(self.alphabet)) - {" "}

    @property
    def letters(self) -> frozenset[str]:
        """The given alphabet, or that of English; empty if any letter is allowed."""
        return self._letters or frozenset(ENGLISH_LETTERS if self.kind == "english" else "")

    def __call__(self, text: str) -> str:
        """Return the words of a text, whatever their letters; empty if there are none."""
        if self.kind == "english":
            return normalize_sentence(text)
        return normalize_unicode(text, self.kind == "turkic")

    def foreign(self, words: str) -> list[str]:
        """List the letters of normalized words that are not in the alphabet, sorted; empty without an alphabet."""
        return sorted(set(words) - self._letters - {" "}) if self._letters else []

    def spoken(self, transcript: str) -> str:
        """Normalize a transcript; raise `Unspoken` if the result would not be the words spoken.

        Normalization deletes digits, and a transcript with missing words is a wrong target.
        """
        if any(map(str.isdigit, transcript)):
            raise Unspoken(transcript, "has digits: write numbers as words", "digits in the transcript")
        if "\N{REPLACEMENT CHARACTER}" in transcript:
            reason = "was once read in a wrong encoding: create it again from its source"
            raise Unspoken(transcript, reason, "wrong encoding of the transcript")
        words = self(transcript)
        if not words:
            raise Unspoken(transcript, "contains no word", "empty transcript")
        if foreign := " ".join(self.foreign(words)):
            raise Unspoken(
                transcript, f"has {foreign}, not in the alphabet", f"{foreign} not in the alphabet"
            )
        return words

    def save(self, folder: Path) -> None:
        """Write `language.yaml` into the folder of a tokenizer; without that file the language is English."""
        import yaml

        file = folder / LANGUAGE_FILE
        if self == ENGLISH:
            file.unlink(missing_ok=True)
        else:
            known = asdict(LanguageSettings(self.kind, self.alphabet))
            replace_text(file, yaml.safe_dump(known, allow_unicode=True, sort_keys=False))


ENGLISH = Normalizer()


def kind_for(letters: Counter[str]) -> NormalizerKind:
    """Choose the normalizer for text with these letter counts: not English if over 1 % of them are foreign."""
    written = {each for each in letters if unicodedata.category(each)[0] in "LM"}
    counts = Counter({each: letters[each] for each in written})
    most = FOREIGN * counts.total()
    if sum(count for letter, count in counts.items() if letter not in ENGLISH_LETTERS) <= most:
        return "english"
    return "turkic" if counts["ı"] > most else "unicode"


def normalizer_of(language: LanguageSettings) -> Normalizer:
    """Return the normalizer that the settings select."""
    if language.alphabet != language.alphabet.lower():
        raise UserError(f"the alphabet {language.alphabet!r} has capitals: use lower-case letters only")
    return Normalizer(language.normalizer, language.alphabet)


def normalizer_in(folder: Path) -> Normalizer:
    """Read the normalizer of the tokenizer, recognizer or prior in a folder."""
    file = folder / LANGUAGE_FILE
    if not file.exists():
        return ENGLISH
    try:
        known = read_yaml(file)
        kind, alphabet = known["normalizer"], known["alphabet"]
        if kind not in ("english", "unicode", "turkic") or not isinstance(alphabet, str):
            raise ValueError(f"normalizer={kind}, alphabet={alphabet}")
    except (OSError, UserError, ValueError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise UserError(f"{file} names no normalizer ({reason}): create or copy the folder again") from error
    return Normalizer(cast(NormalizerKind, kind), alphabet)


def normalize_unicode(text: str, turkic: bool = False, numbers: bool = False) -> str:
    """Reduce text in any script to lower-case words separated by one space; idempotent.

    - Letters and their marks are kept (ß, é, й, the vowel signs of Indic scripts, Arabic and Hebrew points), and so
      are apostrophes and similar characters inside a word: l'ami, об'єкт, col·lega.
    - Punctuation and symbols separate words, and so do digits, unless `numbers` keeps them.
    - Soft hyphens, other invisible characters and the Arabic tatweel are deleted.
    - Text is in NFKC form, except for two vowels that NFKC would decompose.
    """
    text = compose(text.translate(_APOSTROPHES)).replace("İ", "i")
    if turkic:
        text = text.replace("I", "ı")
    words = compose(text.lower().translate(_KEPT_WITH_NUMBERS if numbers else _KEPT)).split()
    return " ".join(filter(None, map(_trimmed, words)))


def compose(text: str) -> str:
    """Return the NFKC form of a text, with Thai and Lao sara am kept composed."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    for apart, whole in _SARA_AM:
        text = text.replace(apart, whole)
    return text


def _trimmed(word: str) -> str:
    """Strip the characters of `INSIDE` from both ends of a word, and marks before its first letter."""
    standing = (
        place
        for place, each in enumerate(word)
        if not (each in INSIDE or unicodedata.category(each)[0] == "M")
    )
    return word[next(standing, len(word)) :].rstrip(INSIDE)


class _Kept(dict[int, str]):
    """Maps a character to itself, to nothing or to a space; computed at its first occurrence."""

    def __init__(self, categories: str) -> None:
        # The tatweel lengthens a word; the zero-width space separates two.
        super().__init__({0x0640: "", 0x200B: " "})
        self.categories = categories

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        category = unicodedata.category(letter)
        if category[0] in self.categories or category in ("Mn", "Mc") or letter in INSIDE:
            self[code] = letter
        else:
            self[code] = "" if category in ("Cf", "Me") else " "
        return self[code]


_KEPT, _KEPT_WITH_NUMBERS = _Kept("L"), _Kept("LN")
