"""Check whether there is enough speech for training."""

from collections.abc import Iterator

from priormatch.doctor.finding import Finding
from priormatch.prepare.look import Speech
from priormatch.progress import duration_text

HARDLY_ANY, LITTLE = 600.0, 3600.0  # seconds of transcribed speech
ADVICE = (
    "a small grammar such as the demo's needs a quarter of an hour, free speech many hours: transcribe more, or see"
    " docs/start-from.md"
)


def amount_findings(labeled: Speech, unlabeled: Speech | None) -> Iterator[Finding]:
    """Warn about little transcribed speech, or less untranscribed than transcribed speech."""
    seconds = 3600 * labeled.hours * labeled.transcribed / max(len(labeled.utterances), 1)
    amount = f"labeled: {duration_text(seconds)} of transcribed speech"
    if seconds < HARDLY_ANY:
        yield Finding("warning", f"{amount} is too little to train a recognizer", ADVICE)
    elif seconds < LITTLE:
        yield Finding("warning", f"{amount} is little", ADVICE)
    if unlabeled is not None and 3600 * unlabeled.hours < seconds:
        what = f"unlabeled: {duration_text(3600 * unlabeled.hours)} is less than the transcribed speech"
        yield Finding("warning", what, "matching helps if there is several times as much: add recordings")
