"""How a language is written: text to the words a recognizer writes, for English and for any other language.

One normalizer serves transcripts, the prior's text and scores alike, and a tokenizer's folder names it.
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
FOREIGN = 0.01  # the share of letters above which a text is hardly English
INSIDE = "'·\u05f3\u05f4\u200c\u200d"
"""Signs that stay between letters: apostrophe, middle dot, geresh, gershayim, and the invisible (non-)joiner."""

_APOSTROPHES = str.maketrans(dict.fromkeys(APOSTROPHES + "´`", "'") | {"ŉ": "'n"})
# Thai and Lao vowels that NFKC takes apart.
_SARA_AM = (("\u0e4d\u0e32", "\u0e33"), ("\u0ecd\u0eb2", "\u0eb3"))


@dataclass(frozen=True)
class Normalizer:
    """Reduces text to the words of a language: lower case, one space between, no punctuation; idempotent.

    - english: as the paper's text was; see `normalize_sentence`.
    - unicode: `normalize_unicode`, for every language that parts its words by spaces.
    - turkic: the same, but I becomes ı and İ becomes i.

    With an `alphabet`, in small letters, a text that holds another letter is of no use.
    """

    kind: NormalizerKind = "english"
    alphabet: str = ""

    @property
    def name(self) -> str:
        """What to call it beside a score: `english`, or `unicode with 33 letters`."""
        return f"{self.kind} with {len(self._letters)} letters" if self._letters else self.kind

    @cached_property
    def _letters(self) -> frozenset[str]:
        return frozenset(compose(self.alphabet)) - {" "}

    @property
    def letters(self) -> frozenset[str]:
        """The alphabet that is given, or English's; empty where it is whatever letters the text has."""
        return self._letters or frozenset(ENGLISH_LETTERS if self.kind == "english" else "")

    def __call__(self, text: str) -> str:
        """The words of a text, whatever their letters; empty where there is none."""
        if self.kind == "english":
            return normalize_sentence(text)
        return normalize_unicode(text, self.kind == "turkic")

    def foreign(self, words: str) -> list[str]:
        """Letters of normalized words that the given alphabet lacks, in order; none where none is given."""
        return sorted(set(words) - self._letters - {" "}) if self._letters else []

    def spoken(self, transcript: str) -> str:
        """Normalize a transcript; raise `Unspoken` where that does not give the words spoken.

        Normalization deletes digits, and a transcript with words missing would teach nonsense.
        """
        if any(map(str.isdigit, transcript)):
            raise Unspoken(transcript, "has digits: write numbers as words", "digits in the transcript")
        if "\N{REPLACEMENT CHARACTER}" in transcript:
            reason = "was read in a wrong encoding once: make it anew from its source"
            raise Unspoken(transcript, reason, "wrong encoding of the transcript")
        words = self(transcript)
        if not words:
            raise Unspoken(transcript, "holds no word", "empty transcript")
        if foreign := " ".join(self.foreign(words)):
            raise Unspoken(
                transcript, f"has {foreign}, which the alphabet lacks", f"{foreign} not in the alphabet"
            )
        return words

    def save(self, folder: Path) -> None:
        """Write `language.yaml` into the folder of a tokenizer; none means English."""
        import yaml

        file = folder / LANGUAGE_FILE
        if self == ENGLISH:
            file.unlink(missing_ok=True)
        else:
            known = asdict(LanguageSettings(self.kind, self.alphabet))
            replace_text(file, yaml.safe_dump(known, allow_unicode=True, sort_keys=False))


ENGLISH = Normalizer()


def kind_for(letters: Counter[str]) -> NormalizerKind:
    """The normalizer that suits text with these letters: another than English's where one in a hundred is foreign."""
    written = {each for each in letters if unicodedata.category(each)[0] in "LM"}
    counts = Counter({each: letters[each] for each in written})
    most = FOREIGN * counts.total()
    if sum(count for letter, count in counts.items() if letter not in ENGLISH_LETTERS) <= most:
        return "english"
    return "turkic" if counts["ı"] > most else "unicode"


def normalizer_of(language: LanguageSettings) -> Normalizer:
    """The normalizer that settings ask for."""
    if language.alphabet != language.alphabet.lower():
        raise UserError(f"the alphabet {language.alphabet!r} has capitals: give its small letters alone")
    return Normalizer(language.normalizer, language.alphabet)


def normalizer_in(folder: Path) -> Normalizer:
    """The normalizer of the text that a tokenizer, a recognizer or a prior in that folder was made from."""
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
        raise UserError(f"{file} names no normalizer ({reason}): make or copy the folder again") from error
    return Normalizer(cast(NormalizerKind, kind), alphabet)


def normalize_unicode(text: str, turkic: bool = False, numbers: bool = False) -> str:
    """Reduce text in any script to lower-case words with one space between; idempotent.

    Letters and the marks on them stay (ß, é, й, the vowel signs of Indic scripts, Arabic and Hebrew points), and so
    do apostrophes and the like inside a word: l'ami, об'єкт, col·lega. Punctuation and symbols part words, and digits
    too unless `numbers` stay; soft hyphens, other invisible signs and the Arabic tatweel vanish. What Unicode has in
    several ways is written in one: its NFKC form, but for two vowels that this would take apart.
    """
    text = compose(text.translate(_APOSTROPHES)).replace("İ", "i")
    if turkic:
        text = text.replace("I", "ı")
    words = compose(text.lower().translate(_KEPT_WITH_NUMBERS if numbers else _KEPT)).split()
    return " ".join(filter(None, map(_trimmed, words)))


def compose(text: str) -> str:
    """The NFKC form of a text, with Thai and Lao sara am whole."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    for apart, whole in _SARA_AM:
        text = text.replace(apart, whole)
    return text


def _trimmed(word: str) -> str:
    """A word without the signs and marks at its edges that stand on or between no letters."""
    standing = (
        place
        for place, each in enumerate(word)
        if not (each in INSIDE or unicodedata.category(each)[0] == "M")
    )
    return word[next(standing, len(word)) :].rstrip(INSIDE)


class _Kept(dict[int, str]):
    """What becomes of a character, found out at its first occurrence: itself, nothing, or a space."""

    def __init__(self, categories: str) -> None:
        # The tatweel lengthens a word; the zero-width space parts two.
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
