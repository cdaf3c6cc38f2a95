"""What is written as subtitles and JSON is read back as it was."""

import html
import json
import re

import pytest

from priormatch.evaluation.formats import to_json, to_srt, to_text, to_vtt
from priormatch.evaluation.transcribing import Segment, Transcription

FOUND = Transcription(
    7325.5,
    [
        Segment(0.0, 1.2345, "hello this is <peter> & co", 0.75),
        Segment(59.9996, 62.5, "don't --> stop", 0.125),
        Segment(7322.01, 7325.5, "übermorgen", 1.0),
    ],
)
NOTHING = Transcription(3.0, [])
CUE = re.compile(r"(\d+):(\d\d):(\d\d)([.,])(\d\d\d) --> (\d+):(\d\d):(\d\d)\4(\d\d\d)")


def read_cues(blocks: list[str], point: str) -> list[tuple[float, float, str]]:
    """Cues as a player reads them: the line of times, then text up to the empty line."""
    cues = []
    for block in blocks:
        times, *text = block.splitlines()
        hours, minutes, seconds, found_point, thousandths, *end = CUE.fullmatch(times).groups()
        assert found_point == point
        start = int(hours) * 3600 + int(minutes) * 60 + int(seconds) + int(thousandths) / 1000
        stop = int(end[0]) * 3600 + int(end[1]) * 60 + int(end[2]) + int(end[3]) / 1000
        assert not any("-->" in line for line in text)
        cues.append((start, stop, "\n".join(text)))
    return cues


def test_srt() -> None:
    blocks = to_srt("a.wav", FOUND).rstrip("\n").split("\n\n")
    assert [block.split("\n", 1)[0] for block in blocks] == ["1", "2", "3"]
    cues = read_cues([block.split("\n", 1)[1] for block in blocks], ",")
    assert cues == [
        (0.0, 1.234, "hello this is <peter> & co"),
        (60.0, 62.5, "don't -> stop"),
        (7322.01, 7325.5, "übermorgen"),
    ]
    assert to_srt("a.wav", NOTHING) == ""


def test_vtt() -> None:
    head, *blocks = to_vtt("a.wav", FOUND).rstrip("\n").split("\n\n")
    assert head == "WEBVTT"
    cues = read_cues(blocks, ".")
    assert [html.unescape(text) for *_, text in cues] == [each.text for each in FOUND.segments]
    assert not any(mark in text for *_, text in cues for mark in "<>")
    assert [start for start, *_ in cues] == [0.0, 60.0, 7322.01]
    assert to_vtt("a.wav", NOTHING) == "WEBVTT\n"


def test_json() -> None:
    tree = json.loads(to_json("a/ü.wav", FOUND))
    assert (tree["file"], tree["duration"], tree["text"]) == ("a/ü.wav", 7325.5, FOUND.text)
    assert tree["segments"][1] == {"start": 60.0, "end": 62.5, "text": "don't --> stop", "confidence": 0.125}
    assert [each["end"] for each in tree["segments"]] == pytest.approx([1.2345, 62.5, 7325.5], abs=6e-4)
    assert json.loads(to_json("a", NOTHING)) == {"file": "a", "duration": 3.0, "text": "", "segments": []}


def test_text() -> None:
    assert to_text("a", FOUND).splitlines() == [each.text for each in FOUND.segments]
    assert to_text("a", NOTHING) == ""
    assert FOUND.text == "hello this is <peter> & co don't --> stop übermorgen"
