"""Files of text with anything in them are read as sentences, or refused in a sentence."""

import gzip
import lzma
from pathlib import Path
from typing import Literal

import pytest
from guard import fuzzed, survives
from hostile import damaged
from hypothesis import given
from hypothesis import strategies as st

from priormatch.config import LanguageSettings
from priormatch.data.normalizer import normalizer_of
from priormatch.data.text_files import prepare_text, read_book_ids, read_sentences
from priormatch.prepare.overview import sample_text

pytestmark = pytest.mark.slow

VALID = "Mr. Smith said: “It’s 3 o’clock...” Then—he left!\n\nДва слова. ３ मिनट। 'tis so.\n".encode()
PACKED = {
    "txt": bytes,
    "gz": lambda content: gzip.compress(content, 1),
    "xz": lambda content: lzma.compress(content, preset=0),
}
SENTENCES = [
    b"...",
    b"'",
    b"\xef\xbb\xbf",
    b"\0",
    b"\xff\xfe",
    b"\r",
    b"\x85",
    "\u2028".encode(),
    "\ufdfa".encode() * 50,
]

contents = st.one_of(
    damaged(VALID),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(SENTENCES) | st.binary(max_size=20), max_size=8).map(b" ".join),
    st.integers(1, 3000).map(lambda count: "\u0301\u0327".encode() * count),
    st.integers(1, 3000).map(lambda count: b"'." * count),
)


def use_text(path: Path, out: Path, kind: Literal["english", "unicode", "turkic"]) -> None:
    """What verbs do with text."""
    list(read_sentences(path))
    normalizer = normalizer_of(LanguageSettings(kind))
    for lines_are_sentences in (True, False):
        prepare_text(
            [path],
            out,
            overwrite=True,
            lines_are_sentences=lines_are_sentences,
            transcripts=["so"],
            normalizer=normalizer,
        )
        out.read_text(encoding="utf-8")
    sample_text(path, normalizer)
    read_book_ids(path)


@fuzzed
@given(
    content=contents,
    suffix=st.sampled_from(sorted(PACKED)),
    kind=st.sampled_from(["english", "unicode", "turkic"]),
    data=st.data(),
)
def test_text(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str, kind: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"fuzzed.{suffix}"
    packed = PACKED[suffix](content)
    path.write_bytes(data.draw(damaged(packed)) if suffix != "txt" and data.draw(st.booleans()) else packed)
    survives(use_text, path, path.with_name("out.txt"), kind)
