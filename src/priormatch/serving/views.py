"""Transcripts and beams as HTML."""

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from priormatch.config import FusionSettings
from priormatch.serving.beams import Say, Stretch, weights

NOTES = {
    Say.none: "Weights are q(y|x), which log q is the logarithm of, renormalised inside the beam.",
    Say.weights: "Weights are the local prior: p_y(y) renormalised inside the beam, which matching trains towards.",
    Say.search: "Rank and weights go by log q + {fusion.lm_weight:g} log p_y + {fusion.token_bonus:g} a piece.",
}
NO_PRIOR = (
    "log p_y and the weights are the prior's, and this page has none: whoever started it can give one to"
    " `priormatch serve` with --prior."
)
NO_SPEECH = "No speech was heard in this recording: it is quiet, too short, or the same noise throughout."

PIECES = Environment(
    loader=PackageLoader("priormatch.serving", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def told(sentence: str = "", lines: Sequence[str] = ()) -> str:
    """A transcript, a line a segment, or the sentence that says why there is none, as HTML."""
    return PIECES.get_template("told.html").render(sentence=sentence, lines=lines)


def beam_table(stretch: Stretch, say: Say, fusion: FusionSettings) -> str:
    """A beam as HTML, as the paper's Table 1 shows beams."""
    found = weights(stretch.beam, say)
    note = NO_PRIOR if found is None else NOTES[say].format(fusion=fusion)
    return PIECES.get_template("beam.html").render(
        title=f"The beam from {clock(stretch.start)} to {clock(stretch.end)}",
        stretch=stretch,
        weights=found,
        note=note,
    )


def segment_name(stretch: Stretch) -> str:
    """A stretch as one to choose: when it is, and what is said in it."""
    return f"{clock(stretch.start)} {stretch.text}"


def clock(seconds: float) -> str:
    """Seconds as on a player: 1:02.5."""
    tenths = round(10 * seconds)
    return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
