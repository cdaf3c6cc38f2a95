"""Beams and transcripts as HTML: what stands in them, and that words stay words."""

import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from priormatch.config import FusionSettings
from priormatch.recognizers.transcribing import Segment as Heard
from priormatch.recognizers.transcribing import Word
from priormatch.serve.beams import PriorUse, Scored, Segment, Visit
from priormatch.serve.views import beam_table, clock, head, model_name, segment_name, sentence, transcript

BEAM = [Scored("at <b>nine</b>", -1.0, -1.5, -2.0), Scored("", -2.0, -3.5, -2.0)]
FUSION = FusionSettings(lm_weight=0.25, token_bonus=0.5)


def visit(*segments: Segment, other: list[Segment] | None = None) -> Visit:
    return Visit(Path("/tmp/a b/talk <1>.wav"), list(segments), list(segments), other)


def heard(start: float, text: str, *confidences: float) -> Segment:
    """A segment whose words last half a second each, where they have confidences."""
    words = [
        Word(start + number / 2, start + number / 2 + 0.5, word, confidence)
        for number, (word, confidence) in enumerate(zip(text.split(), confidences, strict=False))
    ]
    best = Heard(start, start + 2.0, text, 0.4, tuple(words))
    return Segment(start, start + 2.0, [Scored(text, -1.0, -1.0)], heard=best)


@pytest.mark.parametrize(
    ("use", "weight", "note"),
    [
        (PriorUse.none, "0.731", "q(y|x)"),
        (PriorUse.weights, "0.500", "local prior"),
        (PriorUse.search, "0.881", "log q + 0.25 log p<sub>y</sub> + 0.5 per token"),
    ],
)
def test_a_beam(use: Any, weight: str, note: str) -> None:
    page = beam_table(Segment(1.0, 62.54, BEAM), use, FUSION)
    assert "The beam from 0:01.0 to 1:02.5" in page
    assert "&lt;b&gt;nine&lt;/b&gt;" in page and "<b>" not in page
    assert f">{weight}<" in page and note in page
    assert "(nothing)" in page and "found no end" not in page


def test_without_a_prior_it_says_why_columns_are_empty() -> None:
    page = beam_table(Segment(0.0, 1.0, [Scored("at", -1.0, -1.0)], ended=False), PriorUse.weights, FUSION)
    assert page.count("no prior") == 2
    assert "this page has none" in page
    assert "the search found no end" in page


def test_the_transcript_is_rank_1_and_the_priors_choice_is_shown_with_its_weights() -> None:
    beam = [Scored("at nine", -1.0, -1.0, -9.0), Scored("at ten", -2.0, -2.0, -3.0)]
    segment = Segment(0.0, 1.0, beam)
    rows = beam_table(segment, PriorUse.weights, FUSION).split("<tr")[2:]
    assert ["transcript" in rows[0], "transcript" in rows[1].split("</tr>")[0]] == [True, False]
    assert ["prior’s choice" in row.split("</tr>")[0] for row in rows] == [False, True]
    page = transcript(visit(segment), PriorUse.weights)
    places = [
        page.index(part)
        for part in ("Transcript", "<p>at <mark>nine</mark></p>", "<p>at <mark>ten</mark></p>")
    ]
    assert places == sorted(places)
    for use in (PriorUse.none, PriorUse.search):
        assert "prior’s choice" not in beam_table(segment, use, FUSION) + transcript(visit(segment), use)
    assert "of recognizer and prior" in transcript(visit(segment), PriorUse.search)


def test_loops_are_cut_from_transcript_and_choice() -> None:
    beam = [Scored("ten " * 5, -1.0, -1.0, -9.0), Scored("nine " * 5, -2.0, -2.0, -3.0)]
    segment = Segment(0.0, 1.0, beam, ended=False)
    page = transcript(visit(segment), PriorUse.weights)
    assert "<p><mark>ten</mark></p>" in page and "<p><mark>nine</mark></p>" in page
    assert "ten ten" in beam_table(segment, PriorUse.weights, FUSION)


def test_without_a_prior_nothing_is_its_choice() -> None:
    alone = Segment(0.0, 1.0, [Scored("at <i>", -1.0, -1.0)])
    assert "choice" not in transcript(visit(alone), PriorUse.weights) + beam_table(
        alone, PriorUse.weights, FUSION
    )
    assert "<p>at &lt;i&gt;</p>" in transcript(visit(alone), PriorUse.weights)


def test_words_have_times_and_those_of_low_confidence_are_marked() -> None:
    page = transcript(visit(heard(61.0, "meeting at nine", 0.9, 0.49, 0.5)), PriorUse.none)
    assert (
        '<span class="word" data-at="61.00" data-until="61.50" title="1:01.0, confidence 0.90">meeting</span>'
        in page
    )
    assert re.findall('class="word unsure"[^>]*>([a-z]+)<', page) == ["at"]
    assert '<button type="button" class="clock" data-at="61.00" data-until="63.00"' in page
    assert "<mark>" not in page and "attention" not in page


def test_without_times_of_words_a_segment_has_its_own() -> None:
    page = transcript(visit(heard(1.0, "meeting at nine")), PriorUse.none)
    assert "<p>meeting at nine</p>" in page and 'data-at="1.00"' in page
    assert "decodes by attention, which gives no times of words" in page


def test_both_recognizers_stand_side_by_side_with_their_differences_marked() -> None:
    ours = [heard(0.0, "meeting at nine", 0.9, 0.9, 0.9), heard(3.0, "alone")]
    other = [heard(0.0, "a meeting at ten"), heard(9.0, "noise")]
    page = transcript(visit(*ours, other=other), PriorUse.none)
    first, second = page.split("<section")[1:]
    assert 'aria-label="Second recognizer"' in second
    assert marked(first) == ["nine", "alone"] and marked(second) == ["a", "ten", "noise"]
    assert "<mark>a</mark> meeting at <mark>ten</mark>" in second
    same = transcript(visit(*ours, other=ours), PriorUse.none)
    assert marked(same.partition('class="hint"')[0]) == []


def marked(page: str) -> list[str]:
    return [
        re.sub("<[^>]*>", "", each)
        for each in re.findall("<mark>(.*?)</mark>", page.partition('class="hint"')[0])
    ]


def test_all_words_differ_where_the_second_recognizer_found_none() -> None:
    page = transcript(visit(heard(0.0, "at nine"), other=[]), PriorUse.none)
    assert page.count("<mark>") == 2 + 1  # and that of the key


def test_the_transcript_can_be_taken_along_as_subtitles() -> None:
    page = transcript(visit(heard(1.0, 'at "nine" & <ten>'), heard(5.0, "at ten")), PriorUse.none)
    assert 'src="gradio_api/file=/tmp/a%20b/talk%20%3C1%3E.wav"' in page
    assert 'download="talk &lt;1&gt;.srt"' in page
    (address,) = re.findall('href="(data:[^"]*)"', page)
    srt = unquote(address.partition(",")[2])
    assert srt.startswith('1\n00:00:01,000 --> 00:00:03,000\nat "nine" & <ten>\n\n2\n00:00:05,000')
    copied = [unescape(each) for each in re.findall('data-copy="([^"]*)"', page)]
    assert copied == ['at "nine" & <ten>\nat ten', srt]


def test_a_sentence() -> None:
    words = sentence("<x>.wav: the file is empty.")
    assert "&lt;x&gt;.wav" in words and 'role="alert"' in words and "Transcript" not in words


@pytest.mark.parametrize(
    ("seconds", "limit"), [(60, "1 minute or"), (1800, "30 minutes"), (30, "0.5 minutes")]
)
def test_the_head_names_models_and_limits(seconds: int, limit: Any) -> None:
    page = head(Path("runs/<b>/model"), None, seconds, 7)
    assert limit in page and "7 MB" in page
    assert "<code>runs/&lt;b&gt;/model</code>. Prior: none." in page
    assert "<code>runs/prior</code>" in head(Path("model"), Path("runs/prior"), seconds, 7)


def test_a_model_of_the_hub_has_its_name_there() -> None:
    assert model_name(Path("/home/ann/hub/models--ann--calls--8k/snapshots/4fa2")) == "ann/calls--8k"
    assert model_name(Path("runs/demo/lpm/model")) == "runs/demo/lpm/model"


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00.0"), (59.96, "1:00.0"), (62.54, "1:02.5"), (3600, "60:00.0")]
)
def test_times_are_those_of_a_player(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown
    assert segment_name(Segment(seconds, seconds + 1, BEAM)) == f"{shown} at <b>nine</b>"
