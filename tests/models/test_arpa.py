"""ARPA files: read as KenLM reads them, written so that nothing changes, and refused by line when damaged."""

import gzip
import importlib.util
import lzma
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from priormatch.errors import UserError
from priormatch.models.arpa import is_arpa, read_arpa, write_arpa
from priormatch.models.kneser_ney import estimate

SMALL = """
a comment of the tool that wrote this

\\data\\
ngram 1=5
ngram 2 = 3
ngram 3=1

\\1-grams:
-0.5\t</s>
-99 <s> -0.25
-1.0\ta\t-0.125
-1.25  b  -0.5
-2 <unk>

\\2-grams:
-0.25\t<s> a\t-0.75
-0.375 a b
-0.625 a </s>

\\3-grams:
-0.0625 <s> a b

\\end\\
"""


def written(folder: Path, text: str = SMALL, name: str = "lm.arpa") -> Path:
    pack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress}
    (folder / name).write_bytes(pack.get(Path(name).suffix, bytes)(text.encode()))
    return folder / name


@pytest.mark.parametrize("name", ["lm.arpa", "LM.ARPA", "lm.arpa.gz", "lm.arpa.xz"])
def test_probabilities_and_backoffs_are_those_in_the_file(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name=name)
    assert is_arpa(path)
    model = read_arpa(path)
    assert (model.order, model.ngrams, [*model.words]) == (3, 9, ["<unk>", "<s>", "</s>", "a", "b"])
    sums = {
        "a b": -0.25 - 0.0625 + (-0.5 - 0.5),  # a | <s>; b | <s> a; </s> | b by backoff
        "b": (-0.25 - 1.25) + (-0.5 - 0.5),  # b | <s> by backoff
        "a": -0.25 + (-0.75 - 0.625),  # </s> | <s> a by backoff to </s> | a
        "": -0.25 - 0.5,
        "oov a": (-0.25 - 2) + -1.0 + -0.625,  # the unknown word has no backoff
    }
    scores = model.score([("", text) for text in sums])
    np.testing.assert_allclose(scores, np.array([*sums.values()]) * math.log(10), rtol=1e-6)
    after = model.score([("b a", "b"), ("a", "b")])  # nothing begins with b a; <s> a b is a trigram
    expected = [-0.375 + (-0.5 - 0.5), -0.0625 + (-0.5 - 0.5)]
    np.testing.assert_allclose(after, np.array(expected) * math.log(10), rtol=1e-6)


def test_what_is_written_is_read_as_the_same_numbers(tmp_path: Path) -> None:
    model, _ = estimate(["the cat sat", "the dog sat down", "ünïcode ’tis", "the cat"], 4)
    write_arpa(model, tmp_path / "lm.arpa")
    again = read_arpa(tmp_path / "lm.arpa")
    assert again.words == model.words
    for name in ("keys", "log_p", "backoff"):
        for one, other in zip(getattr(model, name), getattr(again, name), strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype


@pytest.mark.skipif(importlib.util.find_spec("kenlm") is None, reason="needs kenlm")
def test_scores_are_those_of_kenlm(tmp_path: Path) -> None:
    kenlm = importlib.import_module("kenlm")
    model, _ = estimate(["the cat sat", "the dog sat down", "a dog", "the cat"] * 2, 3)
    write_arpa(model, tmp_path / "lm.arpa")
    texts = ["the cat sat down", "a cat", "", "the unheard dog sat", "dog dog dog dog"]
    theirs = kenlm.Model(str(tmp_path / "lm.arpa"))
    expected = [theirs.score(text) * math.log(10) for text in texts]
    np.testing.assert_allclose(model.score([("", text) for text in texts]), expected, rtol=1e-5)


def test_words_in_capitals_are_read_in_lower_case(tmp_path: Path) -> None:
    capitals = SMALL.replace(" a", " A").replace("\ta", "\tA").replace(" b", " B")
    model = read_arpa(written(tmp_path, capitals))
    assert "A" in capitals and [*model.words][3:] == ["a", "b"]
    some = read_arpa(written(tmp_path, SMALL.replace(" b", " B")))
    assert [*some.words][3:] == ["a", "B"]


def test_without_unknown_words_they_are_as_improbable_as_in_kenlm(tmp_path: Path) -> None:
    text = SMALL.replace("-2 <unk>\n", "").replace("ngram 1=5", "ngram 1=4")
    model = read_arpa(written(tmp_path, text))
    assert model.log_p[0][0] == -100 and model.ngrams == 9


def test_the_n_grams_may_come_in_any_order(tmp_path: Path) -> None:
    swapped = SMALL.replace("-0.375 a b\n-0.625 a </s>", "-0.625 a </s>\n-0.375 a b")
    one, other = read_arpa(written(tmp_path)), read_arpa(written(tmp_path, swapped, "b.arpa"))
    assert swapped != SMALL
    np.testing.assert_array_equal(one.log_p[1], other.log_p[1])
    np.testing.assert_array_equal(one.keys[1], other.keys[1])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", r"no line \\data\\"),
        ("ngram 1=5\nngram 2 = 3\nngram 3=1\n", "", "announces no n-grams"),
        ("ngram 2 = 3", "ngram 3=3", "line 6: 'ngram 3=3' where a number of 2-grams"),
        ("ngram 2 = 3", "ngram 2=0", "line 6: .* from 1 to"),
        ("ngram 1=5", "ngram 1=999999999", "line 5: .* from 1 to 16,777,216"),
        ("ngram 1=5", "ngram 1=4", r"line 14: '-2 <unk>' where \\2-grams: belongs"),
        ("ngram 1=5", "ngram 1=6", r"line 16: '\\2-grams:': this is not log10 p, 1 word"),
        ("ngram 3=1", "ngram 3=2", r"line 24: '\\end\\': this is not log10 p, 3 words"),
        ("\n\\end\\\n", "", r"the file ends where \\end\\ belongs"),
        ("-0.0625 <s> a b\n\n\\end\\\n", "", "the file ends before the last of 1 3-grams"),
        ("-1.0\ta", "-1.0\ta b c", "line 12: .* this is not log10 p, 1 word"),
        ("-1.0\ta", "one\ta", r"line 12: 'one a -0.125': log10 p is not a number from -1e\+06 to 0"),
        ("-1.0\ta", "nan\ta", "line 12: .* log10 p is not"),
        ("-1.0\ta", "0.5\ta", "line 12: .* log10 p is not"),
        ("-1.0\ta", "-inf\ta", "line 12: .* log10 p is not"),
        ("-0.125", "1e30", "line 12: .* log10 backoff is not a number"),
        ("b  -0.5", "a  -0.5", "line 13: the n-gram is listed twice"),
        ("-0.375 a b", "-0.375 a </s>", "the n-gram is listed twice"),
        ("-0.375 a b", "-0.375 a c", "line 18: '-0.375 a c': a word is not among the 1-grams"),
        ("<s> a b", "b a b", "line 22: '-0.0625 b a b': its first words are not among the 2-grams"),
        ("-99 <s> -0.25", "-99 <S> -0.25", "<s> is not among the 1-grams"),
        ("-0.5\t</s>", "-0.5\tend", "</s> is not among the 1-grams"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = SMALL.replace(old, new, 1)
    assert text != SMALL
    path = written(tmp_path, text)
    with pytest.raises(UserError, match=message) as refused:
        read_arpa(path)
    assert str(refused.value).startswith(str(path))


def test_files_that_are_not_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lm.arpa"
    path.write_bytes(SMALL.replace(" b", " ü").encode("latin1"))
    with pytest.raises(UserError, match=r"not UTF-8 text \(b'\\xfc'\)"):
        read_arpa(path)
    path = written(tmp_path, name="cut.arpa.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UserError, match=r"cut.arpa.gz cannot be read"):
        read_arpa(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_arpa(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_arpa(tmp_path / "missing.arpa")


@pytest.mark.parametrize("inside", ["a", "a "])
def test_a_line_without_end_is_refused(tmp_path: Path, inside: str) -> None:
    path = written(tmp_path, SMALL.replace("-1.0\ta", f"-1.0\t{inside * (1 << 16)}"))
    with pytest.raises(UserError, match="line 12: longer than 65,536 bytes"):
        read_arpa(path)


@pytest.mark.parametrize("name", ["lm.arpa.gz", "lm.arpa.xz"])
def test_a_small_file_that_expands_without_end_is_refused(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, SMALL.replace("\\end\\", "\n" * (1 << 23)), name)
    assert path.stat().st_size < 1 << 14
    with pytest.raises(UserError, match="expands to more than 100 times its size"):
        read_arpa(path)


def test_more_orders_than_are_read_are_refused(tmp_path: Path) -> None:
    counts = "".join(f"ngram {order}=1\n" for order in range(1, 12))
    with pytest.raises(UserError, match="at most 10 orders"):
        read_arpa(written(tmp_path, f"\\data\\\n{counts}"))


@pytest.mark.parametrize("name", ["lm.txt", "arpa", "lm.arpa.zip", "model"])
def test_other_names_are_not_those_of_arpa_files(name: str) -> None:
    assert not is_arpa(Path(name))
