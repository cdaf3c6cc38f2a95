"""Beams and transcripts as HTML: what stands in them, and that words stay words."""

import pytest

from priormatch.config import FusionSettings
from priormatch.serving.beams import Say, Scored, Stretch
from priormatch.serving.views import beam_table, clock, segment_name, told

BEAM = [Scored("at <b>nine</b>", -1.0, -1.5, -2.0), Scored("", -2.0, -3.5, -2.0)]
FUSION = FusionSettings(lm_weight=0.25, token_bonus=0.5)


@pytest.mark.parametrize(
    ("say", "weight", "note"),
    [
        (Say.none, "0.731", "q(y|x)"),
        (Say.weights, "0.500", "local prior"),
        (Say.search, "0.881", "log q + 0.25 log p_y + 0.5 a piece"),
    ],
)
def test_a_beam(say, weight, note):
    page = beam_table(Stretch(1.0, 62.54, BEAM), say, FUSION)
    assert "The beam from 0:01.0 to 1:02.5" in page
    assert "&lt;b&gt;nine&lt;/b&gt;" in page and "<b>" not in page
    assert f">{weight}<" in page and note in page
    assert "(nothing)" in page and "found no end" not in page


def test_without_a_prior_it_says_why_columns_are_empty():
    page = beam_table(Stretch(0.0, 1.0, [Scored("at", -1.0, -1.0)], ended=False), Say.weights, FUSION)
    assert page.count("no prior") == 2
    assert "this page has none" in page
    assert "the search found no end" in page


def test_a_transcript_or_a_sentence():
    assert "<p>at nine</p>\n<p>&lt;i&gt;</p>" in told(lines=["at nine", "<i>"])
    sentence = told(sentence="<x>.wav: the file is empty.")
    assert "&lt;x&gt;.wav" in sentence and 'role="alert"' in sentence and "Transcript" not in sentence


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00.0"), (59.96, "1:00.0"), (62.54, "1:02.5"), (3600, "60:00.0")]
)
def test_times_are_those_of_a_player(seconds, shown):
    assert clock(seconds) == shown
    assert segment_name(Stretch(seconds, seconds + 1, BEAM)) == f"{shown} at <b>nine</b>"
