from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priormatch.errors import UserError
from priormatch.scoring.transcripts import (
    PartialTranscripts,
    Transcript,
    from_line,
    read_transcripts,
    to_line,
    write_transcripts,
)


def test_transcripts_survive_being_written(tmp_path: Path) -> None:
    several = [
        Transcript("a", "at nine", 2, "at ten", [("at nine", -1.5), ("at", -2.0)]),
        Transcript("b\u2028c\x85", "naïve\u2028", 2, "", [("x", -1.0), ("y", -2.0)]),
        Transcript("d", "", 0, None, []),
        Transcript("e", "at", 1, None, [("at", -0.25)]),
        Transcript("f", "at at", 2, None, [("at at", -3.0)], ended=False),
    ]
    path = tmp_path / "new" / "decoded.jsonl"
    write_transcripts(path, several)
    assert read_transcripts(path) == several
    assert [each.name for each in path.parent.iterdir()] == ["decoded.jsonl"]


@pytest.mark.parametrize(
    "content",
    [
        b"{half",
        b"3\n",
        b"[]\n",
        b"null\n",
        b'{"id": "a"}\n',
        b"\x1f\x8b\x08\xff\xff",
        b'"text"\n',
        b'{"id": "a", "hypothesis": null}\n',
        b'{"id": "a", "hypothesis": "x", "reference": ["x"]}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_transcript_names_file_and_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "decoded.jsonl"
    path.write_bytes(b'{"id": "a", "hypothesis": "x"}\n' + content)
    with pytest.raises(UserError, match=r"decoded\.jsonl:2: not a transcript"):
        read_transcripts(path)


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no transcripts at .*nowhere\.jsonl"):
        read_transcripts(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(UserError, match=r"empty\.jsonl contains no transcripts"):
        read_transcripts(tmp_path / "empty.jsonl")


def test_only_what_says_something_is_written() -> None:
    assert to_line(Transcript("a", "at", 1, None, [])) == '{"id": "a", "hypothesis": "at", "pieces": 1}\n'
    assert to_line(Transcript("a", "at", 1, None, [("at", -0.5)], False)) == (
        '{"id": "a", "hypothesis": "at", "pieces": 1, "ended": false, "score": -0.5}\n'
    )


def test_the_score_is_that_of_the_best() -> None:
    assert Transcript("a", "at", 1, None, [("at", -0.5), ("ten", -0.7)]).score == -0.5
    assert Transcript("a", "at", 1, None, []).score is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
SCORES = st.floats(allow_nan=False, allow_infinity=False)
NBEST = st.lists(st.tuples(TEXTS, SCORES), max_size=3)
TRANSCRIPTS = st.builds(
    Transcript, TEXTS, TEXTS, st.integers(0), st.none() | TEXTS, NBEST, st.booleans()
).map(
    lambda each: replace(
        each, nbest=[(each.hypothesis, each.nbest[0][1]), *each.nbest[1:]] if each.nbest else []
    )
)


@given(TRANSCRIPTS)
def test_any_transcript_is_one_line_and_comes_back(transcript: Transcript) -> None:
    line = to_line(transcript).encode()
    assert line.splitlines(keepends=True) == [line]
    assert from_line(line) == transcript
    for end in range(len(line) - 1):  # cut off anywhere, it is not taken for whole
        with pytest.raises(ValueError):
            from_line(line[:end])


A, B = Transcript("a", "at nine", 2, None, []), Transcript("b", "at ten", 2, "at ten", [])


def test_parts_are_found_again_under_the_same_key(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.jsonl"
    write_transcripts(PartialTranscripts(out, "key").file(1), [A])
    assert PartialTranscripts(out, "key").missing(3) == [0, 2]
    assert PartialTranscripts(out, "other").missing(3) == [0, 1, 2]
    assert PartialTranscripts(out, "key").missing(3) == [0, 1, 2]  # the other has begun anew


def test_parts_are_read_in_their_order(tmp_path: Path) -> None:
    partial = PartialTranscripts(tmp_path / "out.jsonl", "key")
    for number, part in ((1, [B]), (0, [A]), (2, [])):
        write_transcripts(partial.file(number), part)
    assert list(partial.transcripts(3)) == [A, B]


@pytest.mark.parametrize("content", [b"", b'{"key": "key"}\n', b"\xff\xfe\n"])
def test_a_partial_file_of_an_earlier_version_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out.jsonl.partial").write_bytes(content)
    assert PartialTranscripts(tmp_path / "out.jsonl", "key").missing(1) == [0]


def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    partial = PartialTranscripts(tmp_path / "out.jsonl", "key")
    write_transcripts(partial.file(0), [A])
    partial.remove()
    assert list(tmp_path.iterdir()) == []
