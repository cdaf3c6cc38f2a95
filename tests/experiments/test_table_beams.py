"""Table 1: our beams with their errors marked, and the paper's below."""

from priormatch.experiments.beam_tables import of_model, papers_beams, sections
from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.scoring.alignment import align

SAID = "she walked very fast"


def test_a_beam_shows_errors_and_what_both_models_say():
    texts = ["she looked very fast indeed", "walked very fast"]
    hypotheses = [
        Hypothesis(rank, text, [], -1.5 * rank, -47.58, 0.25, None, align(SAID, text))
        for rank, text in enumerate(texts, 1)
    ]
    inspection = Inspection("one", SAID, -34.14, 0, True, hypotheses)
    assert of_model("1", "LPM", inspection) == [
        ["1", "LPM", "1", "-1.50", "-47.58", "0.250", "she walked→looked very fast +indeed"],
        ["1", "LPM", "2", "-3.00", "-47.58", "0.250", "-she walked very fast"],
    ]


def test_the_papers_beams_stand_below_ours_with_a_heading():
    legend, papers = sections(papers_beams())
    assert "reference→hypothesis: a substitution" in legend
    heading, _, head, _, first, *others = papers.splitlines()
    assert heading == "## The paper's beams (word pieces)"
    assert head == "| utterance | model | rank | log p(y) | hypothesis |"
    assert first == "| 1 | Ref |  | -34.14 | `_she _walk ed _very _fast _after _she _left _the _house $` |"
    assert len(others) == 17
