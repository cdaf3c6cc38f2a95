"""What is written as subtitles and JSON is read back as it was."""

import html
import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowing import present

from priormatch.recognizers.formats import (
    Origin,
    balanced_lines,
    cues_of,
    to_json,
    to_json_line,
    to_srt,
    to_text,
    to_vtt,
)
from priormatch.recognizers.transcribing import Segment, Transcription, Word

FOUND = Transcription(
    7325.5,
    [
        Segment(0.0, 1.2345, "hello this is <peter> & co", 0.75),
        Segment(59.9996, 62.5, "don't --> stop", 0.125),
        Segment(7322.01, 7325.5, "übermorgen", 1.0),
    ],
)
NOTHING = Transcription(3.0, [])
ORIGIN = Origin("a/ü.wav", "lpm/model", "prior/model")
CUE = re.compile(r"(\d+):(\d\d):(\d\d)([.,])(\d\d\d) --> (\d+):(\d\d):(\d\d)\4(\d\d\d)")


def read_cues(blocks: list[str], point: str) -> list[tuple[float, float, str]]:
    """Cues as a player reads them: the line of times, then text up to the empty line."""
    cues = []
    for block in blocks:
        times, *text = block.splitlines()
        hours, minutes, seconds, found_point, thousandths, *end = present(CUE.fullmatch(times)).groups()
        assert found_point == point
        start = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(thousandths) / 1000
        stop = int(end[0]) * 3600 + int(end[1]) * 60 + int(end[2]) + int(end[3]) / 1000
        assert not any("-->" in line for line in text)
        cues.append((start, stop, "\n".join(text)))
    return cues


def test_srt() -> None:
    blocks = to_srt(ORIGIN, FOUND).rstrip("\n").split("\n\n")
    assert [block.split("\n", 1)[0] for block in blocks] == ["1", "2", "3"]
    cues = read_cues([block.split("\n", 1)[1] for block in blocks], ",")
    assert cues == [
        (0.0, 1.234, "hello this is <peter> & co"),
        (60.0, 62.5, "don't -> stop"),
        (7322.01, 7325.5, "übermorgen"),
    ]
    assert to_srt(ORIGIN, NOTHING) == ""


def test_vtt() -> None:
    head, *blocks = to_vtt(ORIGIN, FOUND).rstrip("\n").split("\n\n")
    assert head == "WEBVTT"
    cues = read_cues(blocks, ".")
    assert [html.unescape(text) for *_, text in cues] == [each.text for each in FOUND.segments]
    assert not any(mark in text for *_, text in cues for mark in "<>")
    assert [start for start, *_ in cues] == [0.0, 60.0, 7322.01]
    assert to_vtt(ORIGIN, NOTHING) == "WEBVTT\n"


def test_json() -> None:
    tree = json.loads(to_json(ORIGIN, FOUND))
    assert (tree["model"], tree["prior"]) == ("lpm/model", "prior/model")
    assert (tree["file"], tree["duration"], tree["text"]) == ("a/ü.wav", 7325.5, FOUND.text)
    assert tree["segments"][1] == {"start": 60.0, "end": 62.5, "text": "don't --> stop", "confidence": 0.125}
    assert [each["end"] for each in tree["segments"]] == pytest.approx([1.2345, 62.5, 7325.5], abs=6e-4)
    assert json.loads(to_json(Origin("a", "m"), NOTHING)) == {
        "file": "a",
        "model": "m",
        "prior": None,
        "duration": 3.0,
        "text": "",
        "segments": [],
    }
    line = to_json_line(ORIGIN, FOUND)
    assert line.index("\n") == len(line) - 1
    assert json.loads(line) == tree


def test_text() -> None:
    assert to_text(ORIGIN, FOUND).splitlines() == [each.text for each in FOUND.segments]
    assert to_text(ORIGIN, NOTHING) == ""
    assert FOUND.text == "hello this is <peter> & co don't --> stop übermorgen"


def test_a_long_segment_becomes_cues_that_share_its_time_by_length() -> None:
    words = ["a" * 29, "b" * 30, "c" * 20, "d" * 19]
    found = Transcription(20.0, [Segment(5.0, 15.0, " ".join(words), 0.5), Segment(16.0, 17.0, "ten", 0.5)])
    first, second, third = cues_of(found)
    assert (first.text, second.text) == (f"{words[0]}\n{words[1]}", f"{words[2]} {words[3]}")
    assert (first.start, second.end) == (5.0, 15.0)
    assert first.end == second.start == pytest.approx(5 + 10 * 60 / 100)
    assert third == (16.0, 17.0, "ten")
    assert to_srt(ORIGIN, found).splitlines()[:8] == [
        *("1", "00:00:05,000 --> 00:00:11,000", words[0], words[1], ""),
        *("2", "00:00:11,000 --> 00:00:15,000", f"{words[2]} {words[3]}"),
    ]


def test_a_cue_is_long_enough_to_be_read_but_ends_before_the_next() -> None:
    said = [(0.5, "no"), (1.2, "yes"), (9.5, "bye")]
    segments = [Segment(at, at + 0.4, text, 0.5, (Word(at, at + 0.04, text, 0.5),)) for at, text in said]
    assert list(cues_of(Transcription(10.0, segments))) == [
        (0.5, 1.2, "no"),
        (1.2, 2.2, "yes"),
        (9.5, 10.0, "bye"),
    ]


def test_two_lines_are_about_as_long() -> None:
    text = "please come to five birch lane at nine on monday"
    assert balanced_lines(text) == ["please come to five birch", "lane at nine on monday"]


@given(st.lists(st.text(st.characters(categories=["L", "P", "Zs"]), max_size=60)).map(" ".join))
def test_no_cue_is_too_wide_or_too_high_and_no_letter_is_lost(text: str) -> None:
    cues = list(cues_of(Transcription(60.0, [Segment(2.0, 9.5, text, 0.5)])))
    assert [len(cue.text.split("\n")) for cue in cues[:-1]] == [2] * len(cues[:-1])
    assert all(0 < len(line) <= 42 for cue in cues for line in cue.text.split("\n"))
    assert "".join("".join(cue.text for cue in cues).split()) == "".join(text.split())
    times = [time for cue in cues for time in (cue.start, cue.end)]
    assert times == sorted(times)
    assert all(one.end == other.start for one, other in pairwise(cues))
    assert not cues or (times[0] == 2.0 and times[-1] == pytest.approx(9.5))
