"""Render transcripts and beams as HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from priormatch.config import FusionSettings
from priormatch.recognizers.formats import Origin, to_srt
from priormatch.recognizers.transcribing import Transcription
from priormatch.scoring.alignment import align
from priormatch.serve.beams import KINDS, SUFFIXES, PriorUse, Segment, Visit, weights

UNSURE = 0.5  # confidence below which a word is marked
NO_SPEECH = "No speech was found in this recording: it is quiet, too short, or the same noise throughout."

PIECES = Environment(
    loader=PackageLoader("priormatch.serve", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def head(
    model: Path, prior: Path | None, most_seconds: float, most_megabytes: int, other: Path | None = None
) -> str:
    """Render the page's purpose, its limits and its models as HTML, with a place for why a file is refused."""
    minutes = most_seconds / 60
    return PIECES.get_template("head.html").render(
        model=model_name(model),
        prior=prior and model_name(prior),
        other=other and model_name(other),
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


@dataclass(frozen=True)
class ShownWord:
    """A word on the page, with its start and end in seconds where they are known."""

    text: str
    differs: bool
    start: float | None = None
    end: float | None = None
    confidence: float | None = None

    @property
    def unsure(self) -> bool:
        """Whether the recognizer gives the word a low probability."""
        return self.confidence is not None and self.confidence < UNSURE


@dataclass(frozen=True)
class ShownLine:
    """A segment on the page, from start to end in seconds."""

    start: float
    end: float
    words: Sequence[ShownWord]


@dataclass(frozen=True)
class Column:
    """A transcript on the page: its name, where it is from, and its segments."""

    name: str
    source: str
    lines: Sequence[ShownLine]


def transcript(visit: Visit, use: PriorUse) -> str:
    """Render the transcript as HTML, one line per segment, to play and to take along.

    Beside it are the transcript of the second recognizer, if there is one, and with weights of the prior the prior's
    choice. Words in which these differ from the transcript are marked, and so are words of low confidence.
    """
    found = visit.result(use) or []
    columns = columns_of(found, visit.other, use)
    return PIECES.get_template("transcript.html").render(
        columns=columns,
        address=None if visit.path is None else f"gradio_api/file={quote(str(visit.path))}",
        name=visit.path.stem if visit.path else "transcript",
        text="\n".join(each.text for each in found),
        srt=subtitles(found),
        clock=clock,
        timed=any(word.start is not None for line in columns[0].lines for word in line.words),
        unsure=UNSURE,
    )


def columns_of(found: Sequence[Segment], other: Sequence[Segment] | None, use: PriorUse) -> list[Column]:
    """The transcript, and what is shown beside it."""
    choices = {
        each.start: each.transcript_of(best)
        for each in found
        if use is PriorUse.weights and (best := each.heaviest) is not None
    }
    compared = (choices or None) if other is None else texts_of(other)
    models = "recognizer and prior" if use is PriorUse.search else "the recognizer"
    lines = [line_of(each, compared) for each in found]
    columns = [Column("Transcript", f"of {models}: rank 1 of each beam", lines)]
    if other is not None:
        lines = [line_of(each, texts_of(found)) for each in other]
        columns.append(Column("Second recognizer", "rank 1 of each beam, without the prior", lines))
    if choices:
        lines = [
            ShownLine(each.start, each.end, compared_words(choices[each.start], each.text))
            for each in found
            if each.start in choices
        ]
        columns.append(
            Column("The prior’s choice", "the hypothesis with the largest weight in each beam", lines)
        )
    return columns


def texts_of(segments: Sequence[Segment]) -> dict[float, str]:
    """The best transcript of each segment, by its start in seconds."""
    return {each.start: each.text for each in segments}


def line_of(segment: Segment, beside: Mapping[float, str] | None) -> ShownLine:
    """A segment as a line, its words compared with those of another transcript of the same segments.

    Without another transcript no word differs.
    """
    other = segment.text if beside is None else beside.get(segment.start, "")
    words = compared_words(segment.text, other)
    known = segment.heard.words if segment.heard is not None else ()
    if [each.text for each in known] == [each.text for each in words]:
        words = [
            replace(word, start=each.start, end=each.end, confidence=each.confidence)
            for word, each in zip(words, known, strict=True)
        ]
    return ShownLine(segment.start, segment.end, words)


def compared_words(text: str, other: str) -> list[ShownWord]:
    """The words of a text, each with whether another text has a different word in its place."""
    if not other:
        return [ShownWord(word, True) for word in text.split()]
    return [
        ShownWord(each.hypothesis, each.kind != "equal") for each in align(other, text) if each.hypothesis
    ]


def subtitles(found: Sequence[Segment]) -> str:
    """The transcript as SubRip."""
    heard = [each.heard for each in found if each.heard is not None]
    return to_srt(Origin("", ""), Transcription(max((each.end for each in heard), default=0.0), heard))


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
