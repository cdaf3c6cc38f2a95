"""Alarms: none for a calm run, and one for each thing that can go wrong."""

import pytest
from tiny_report import matching_lines

from priormatch.report.alarms import largest_entropy, of_matching, skipped_updates

SETTINGS = {"matching.beam_size": 4}


def changed(**figures):
    """The metrics of a calm run with other figures at its end."""
    lines = sorted(matching_lines(), key=lambda line: line["update"])
    for name, value in figures.items():
        [line for line in lines if name in line][-1][name] = value
    return lines


def test_a_calm_run_raises_none():
    assert list(of_matching(changed(), SETTINGS)) == []
    assert list(skipped_updates({"lpm": changed()})) == []
    assert list(of_matching([], {})) == []


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({"length_ratio": 0.85}, "0.85 times as long"),
        ({"share_without_survivor": 0.6}, "60% of the unlabeled utterances"),
        ({"local_prior_entropy": 1.3}, "entropy 1.30 of at most 1.39 nats"),
        ({"validation_score": 17.0}, "ends at a validation CER of 17.0 %, after 15.0 % at its best"),
        ({"label_wer": 31.0}, "The labels got worse, from 30.0 to 31.0 % WER"),
    ],
)
def test_each_alarm(figures, word):
    (alarm,) = of_matching(changed(**figures), SETTINGS)
    assert word in alarm


@pytest.mark.parametrize("figures", [{"share_without_survivor": 0.6}, {"validation_score": 17.0}])
@pytest.mark.parametrize("hypotheses", ["asr", "asr_lm"])
def test_where_the_prior_searches_along_a_search_without_it_is_advised(figures, hypotheses):
    (alarm,) = of_matching(changed(**figures), SETTINGS | {"matching.hypotheses": hypotheses})
    assert ("let the proposal search without the prior" in alarm) == (hypotheses == "asr_lm")


def test_a_proposal_that_was_never_replaced():
    lines = [
        {**line, "proposal_refreshed": False} if "proposal_refreshed" in line else line for line in changed()
    ]
    (alarm,) = of_matching(lines, SETTINGS)
    assert "No online model has replaced the proposal" in alarm
    assert list(of_matching([line for line in lines if line["update"] == 0], SETTINGS)) == []


@pytest.mark.parametrize("how", [{"matching.refresh": "never"}, {"matching.baseline": "topipl"}])
def test_a_proposal_that_is_to_stay_or_an_average_need_not_be_replaced(how):
    lines = [
        {**line, "proposal_refreshed": False} if "proposal_refreshed" in line else line for line in changed()
    ]
    assert list(of_matching(lines, SETTINGS | how)) == []


def test_skipped_updates_of_any_stage():
    lines = [
        {"stage": "prior", "update": 100, "skipped": 0.0},
        {"stage": "prior", "update": 200, "skipped": 0.01},
    ]
    (alarm,) = skipped_updates({"lpm": [], "prior": lines})
    assert alarm.startswith("prior: updates were skipped before update 200")


@pytest.mark.parametrize("beam", [None, "four", 0, True])
def test_the_entropy_of_an_unknown_beam(beam):
    assert largest_entropy({"matching.beam_size": beam}) == 0.0
    assert list(of_matching(changed(local_prior_entropy=9.0), {"matching.beam_size": beam})) == []
