"""Render transcripts and beams as HTML."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from priormatch.config import FusionSettings
from priormatch.serve.beams import KINDS, SUFFIXES, PriorUse, Segment, weights

NO_SPEECH = "No speech was found in this recording: it is quiet, too short, or the same noise throughout."

PIECES = Environment(
    loader=PackageLoader("priormatch.serve", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def head(model: Path, prior: Path | None, most_seconds: float, most_megabytes: int) -> str:
    """Render the page's purpose, its limits and its models as HTML, with a place for why a file is refused."""
    minutes = most_seconds / 60
    return PIECES.get_template("head.html").render(
        model=model_name(model),
        prior=prior and model_name(prior),
        kinds=KINDS,
        suffixes=SUFFIXES,
        minutes=f"{minutes:g} minute{'s' * (minutes != 1)}",
        megabytes=most_megabytes,
    )


def model_name(folder: Path) -> str:
    """Return the folder of a model, or its name on the Hub if the folder is in the Hub's cache."""
    if folder.parent.name != "snapshots":
        return str(folder)
    return folder.parents[1].name.removeprefix("models--").replace("--", "/", 1)


def sentence(words: str) -> str:
    """Render why there is no transcript as HTML."""
    return PIECES.get_template("sentence.html").render(sentence=words)


def transcript(found: Sequence[Segment], use: PriorUse) -> str:
    """Render a transcript as HTML, one line per segment; with weights of the prior, also the prior's choice."""
    choices = [(each, each.heaviest) for each in found] if use is PriorUse.weights else []
    models = "recognizer and prior" if use is PriorUse.search else "the recognizer"
    return PIECES.get_template("transcript.html").render(
        source=f"of {models}: rank 1 of each beam",
        transcript=[each.text for each in found],
        choices=[segment.transcript_of(choice) for segment, choice in choices if choice is not None],
    )


def beam_table(segment: Segment, use: PriorUse, fusion: FusionSettings) -> str:
    """Render a beam as HTML, in the form of the paper's Table 1."""
    return PIECES.get_template("beam.html").render(
        title=f"The beam from {clock(segment.start)} to {clock(segment.end)}",
        segment=segment,
        weights=weights(segment.beam, use),
        choice=segment.heaviest if use is PriorUse.weights else None,
        use=use,
        fusion=fusion,
    )


def segment_name(segment: Segment) -> str:
    """Name a segment in the list: its start and its transcript."""
    return f"{clock(segment.start)} {segment.text}"


def clock(seconds: float) -> str:
    """Format seconds as a player does: 1:02.5."""
    tenths = round(10 * seconds)
    return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
