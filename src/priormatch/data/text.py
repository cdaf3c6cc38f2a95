"""Normalization of written English to the words a recognizer outputs, and sentence splitting.

The rules are those of the text pipeline behind the paper's language model, changed where they do harm:

- Typographic quotes count as plain ones; long dashes and ellipses separate words ("wait...what" stays two words).
- Punctuation is removed before the apostrophe rule, not after it, so 'don't,' is recognized as don't in quotes.
- Only apostrophes are stripped from a word's edges. The original also tries each word without its first letter,
  which turns she'll into he'll, and it exempts every 's, so it keeps the quotation mark of 'so.
"""

import re
from itertools import pairwise

# Words that begin or end with an apostrophe. One inside a word is always kept, so don't needs no entry.
_AFTER_APOSTROPHE = """
    ad ard ave bout bove cause cept ead elp em ere erself fore fraid gainst im imself midst mong mongst neath
    nother nuff ome ouse ow pon sblood scuse sdeath spose tain't til till tis tisn't tother twas twasn't tween
    twere tweren't twill twixt twon't twould twould've twouldn't
"""
_BEFORE_APOSTROPHE = "an d fo gi ha mo o ol po t th wi y"
_BEFORE_IN = """
    anyth ask be break bring call com cry darl do drink dy eat even everyth feel fight fish get giv go hav
    hunt keep know laugh leav liv look mak morn noth play read rid runn say see shoot sitt sleep someth speak
    stand start stay tak talk tell think try wait walk work
"""
CONTRACTIONS = frozenset(
    [f"'{rest}" for rest in _AFTER_APOSTROPHE.split()]
    + [f"{start}'" for start in _BEFORE_APOSTROPHE.split()]
    + [f"{stem}in'" for stem in _BEFORE_IN.split()]
)

APOSTROPHES = "‘’‛ʼ"  # used in place of the plain one
_PARTING = dict.fromkeys("-‐‑‒–—―…", " ")
_DELETED = dict.fromkeys('0123456789"“”„‟«»,?!#&(){}[]*+=;:.', "")
_CHARACTERS = str.maketrans(dict.fromkeys(APOSTROPHES, "'") | _PARTING | _DELETED)


def normalize_sentence(text: str) -> str:
    """Reduce a sentence to lower-case words separated by one space; idempotent; empty if no word is left.

    Digits, double quotes and punctuation are deleted, and hyphens and dashes become spaces. An apostrophe is kept
    inside a word and in a contraction. Other symbols and accented letters are not changed.
    """
    if ".." in text:
        text = text.replace("..", " ")
    text = text.translate(_CHARACTERS).lower()
    if "'" not in text:
        return " ".join(text.split())
    words = (_unquoted(word) if "'" in word else word for word in text.split())
    return " ".join(word for word in words if word)


class Unspoken(ValueError):
    """A transcript that is not the words spoken, with the reason; `kind` is a short form of the reason."""

    def __init__(self, transcript: str, reason: str, kind: str) -> None:
        super().__init__(f"its transcript {transcript.strip()[:40]!r} {reason}")
        self.kind = kind


def _unquoted(word: str) -> str:
    """Strip apostrophes from the edges, except in contractions: 'hello' becomes hello, 'tis and o' are kept."""
    core = word.strip("'")
    for contraction in (f"'{core}", f"{core}'"):
        if contraction in word and contraction in CONTRACTIONS:
            return contraction
    return core


_ABBREVIATED = """
    mr mrs ms messrs mme mlle mons dr st ste prof rev revd hon gov sen capt cpt col gen lt lieut sgt sergt
    maj cmdr adm supt insp esq jr sr bros co inc ltd vs viz cf approx dept vol vols ch chap figs pp feb apr
    aug sept oct nov dec blvd mt ft
"""
_ABBREVIATIONS = frozenset(_ABBREVIATED.split())
_DOTTED = re.compile(r"[a-hj-z]|[a-z](\.[a-z])+")  # initials, e.g, p.m; not i, which ends many sentences
STOPS = frozenset(".!?…।॥؟۔։።")  # the last six are Devanagari's, Arabic's, Urdu's, Armenian's and Ethiopic's
_STOPS = "".join(STOPS)
_CLOSING = "\"'”’»)]}_*"
_BRACKETING = _CLOSING + "“‘„«([{"


def split_sentences(text: str) -> list[str]:
    """Split running text into sentences; joined by spaces they give the text with its whitespace collapsed.

    A sentence ends with a word that ends in a stop, ignoring closing quotes and brackets, unless the stop belongs to
    an abbreviation or the next word begins with a lower-case letter. In lower-cased text the latter rule cannot
    apply; there, every stop except an abbreviation's and an ellipsis ends the sentence.
    """
    words = text.split()
    has_capitals = 50 * sum(word[0].isupper() for word in words) >= len(words)
    sentences, begin = [], 0
    for end, (word, following) in enumerate(pairwise(words), start=1):
        last = word[-1] if word[-1] not in _CLOSING else word.rstrip(_CLOSING)[-1:]
        if last in STOPS and _ends_sentence(word, following, has_capitals):
            sentences.append(" ".join(words[begin:end]))
            begin = end
    return [*sentences, " ".join(words[begin:])] if words else []


def _ends_sentence(word: str, following: str, has_capitals: bool) -> bool:
    """Return whether a word with a stop ends its sentence."""
    word, first = word.strip(_BRACKETING), following.lstrip(_BRACKETING)[:1]
    if first in STOPS or (has_capitals and first.islower()):
        return False
    stem = word.rstrip(_STOPS)
    stop = word[len(stem) :]
    if stop != ".":
        return has_capitals or not set(stop) <= set(".…")
    stem = re.split("[-–—]", stem.lower())[-1]
    if stem == "no":
        return not first.isdigit()
    return stem not in _ABBREVIATIONS and not _DOTTED.fullmatch(stem)
