"""The verb `transcribe`: recordings to text, JSON and subtitles."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from priormatch.cli.options import (
    BeamSize,
    Device,
    Force,
    FusedPrior,
    Fusion,
    Longest,
    model_argument,
    settings_of,
)
from priormatch.errors import UserError

if TYPE_CHECKING:
    from priormatch.evaluation.transcribing import Transcription
    from priormatch.runs.transcribe import Put

SOME_FAILED = 1  # the exit code


class Format(StrEnum):
    """What transcripts are written as."""

    txt = "txt"
    json = "json"
    srt = "srt"
    vtt = "vtt"


def transcribe(
    model: Annotated[Path, model_argument("Folder of a recogniser.")],
    recordings: Annotated[
        list[Path], typer.Argument(metavar="FILES|FOLDERS...", help="Audio of any length and rate.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of transcripts, a file a recording; without it, text is printed."),
    ] = None,
    formats: Annotated[
        list[Format] | None, typer.Option("--format", help="Of the files in --out; may be repeated.")
    ] = None,
    prior: FusedPrior = None,
    fusion: Fusion = None,
    beam_size: BeamSize = 1,
    longest: Longest = None,
    pause: Annotated[float, typer.Option("--pause", min=0.3, help="Seconds of quiet at which to cut.")] = 0.4,
    batch_seconds: Annotated[
        float | None,
        typer.Option("--batch-seconds", min=1.0, help="Audio heard at a time; less needs less memory."),
    ] = None,
    device: Device = "auto",
    overwrite: Force = False,
) -> None:
    """Transcribe recordings, which are cut at their pauses; in folders, what is not audio by its name is passed over.

    Transcripts that are in --out already are left as they are, so a call that was stopped goes on; those of other
    models or settings are refused. A recording that cannot be read is named at the end and stops no other; the exit
    code is then 1. It is 0 when all went well, and 2, with nothing done, when the call makes no sense.

    Example: priormatch transcribe runs/demo/lpm/model talks --out transcripts --format txt --format srt
    """
    if formats and out is None:
        raise UserError("--format is for files: give --out, the folder they go to")
    if prior is not None and beam_size != 1:
        raise UserError("with --prior the beam size is a setting, fusion.beam_size: write it into --fusion")
    settings = settings_of(None, None, fusion, prior)
    from priormatch.evaluation.decoding import plain_search, search_with_prior
    from priormatch.evaluation.transcribing import cutting_for
    from priormatch.runs import transcribe as work
    from priormatch.runs.stage import fingerprint
    from priormatch.runs.transcribed import Transcribed
    from priormatch.search.tuning import finite

    found = work.find_recordings(recordings)
    recognizer, judge = work.load_models(model, prior, device)
    search = plain_search(beam_size) if judge is None else search_with_prior(judge, settings.fusion)
    cutting = cutting_for(recognizer, longest, pause=pause)
    if batch_seconds is not None and batch_seconds < cutting.longest:
        raise UserError(
            f"--batch-seconds {batch_seconds:g} must hold the longest segment, of {cutting.longest:g} s:"
            " give a lower --longest too"
        )
    put = printed(several=len(found) > 1)
    if out is not None:
        wanted = [each.value for each in formats or [Format.txt]]
        transcribed = Transcribed(
            out,
            {
                "model": fingerprint(model),
                "prior": None if prior is None else fingerprint(prior),
                "search": {"beam_size": beam_size} if prior is None else finite(settings.fusion),
                "cutting": cutting,
            },
        )
        files = work.missing_files(work.places_in(out, found, recordings), wanted, transcribed, overwrite)
        found, put = list(files), work.write_files(files, transcribed)
    if found and work.transcribe(recognizer, found, search, cutting, batch_seconds, put):
        sys.exit(SOME_FAILED)


def printed(several: bool) -> "Put":
    """Print transcriptions, under the names of their files where there are several."""

    def put(path: Path, found: "Transcription") -> None:
        from priormatch.evaluation.formats import to_text

        if several:
            print(f"==> {path} <==")
        print(to_text(str(path), found), end="", flush=True)

    return put
