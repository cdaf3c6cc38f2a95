"""The verb `transcribe`: recordings to text, JSON and subtitles."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from priormatch.cli.options import (
    Device,
    Force,
    FusedPrior,
    Fusion,
    Language,
    Longest,
    Threads,
    fusion_of,
    model_argument,
)
from priormatch.errors import UserError

if TYPE_CHECKING:
    from priormatch.pipeline.transcribe import OriginOf, Put
    from priormatch.recognizers.transcribing import Transcription

SOME_FAILED = 1  # the exit code


class Format(StrEnum):
    """The format of transcripts."""

    txt = "txt"
    json = "json"
    srt = "srt"
    vtt = "vtt"


SUBTITLES = (Format.srt, Format.vtt)

Recordings = Annotated[
    list[Path], typer.Argument(metavar="FILES|FOLDERS...", help="Audio of any length and sample rate.")
]
Transcripts = Annotated[
    Path | None,
    typer.Option(
        "--out", help="Folder for transcripts, one file per recording; without it, they are printed."
    ),
]
Formats = Annotated[
    list[Format] | None,
    typer.Option("--format", help="Output format, txt by default; may be repeated with --out."),
]
BeamSize = Annotated[
    int | None,
    typer.Option(
        "--beam-size",
        min=1,
        help="Beam size. Default: 1 (greedy), or with --prior the beam size in --fusion.",
    ),
]
Pause = Annotated[
    float, typer.Option("--pause", min=0.3, help="Minimum length in seconds of the pauses to cut at.")
]
BatchSeconds = Annotated[
    float | None,
    typer.Option(
        "--batch-seconds", min=1.0, help="Seconds of audio per batch; smaller batches need less memory."
    ),
]


def transcribe(
    model: Annotated[Path, model_argument("Folder of a recognizer.")],
    recordings: Recordings,
    *,
    out: Transcripts = None,
    formats: Formats = None,
    prior: FusedPrior = None,
    fusion: Fusion = None,
    beam_size: BeamSize = None,
    longest: Longest = None,
    pause: Pause = 0.4,
    batch_seconds: BatchSeconds = None,
    language: Language = "",
    device: Device = "auto",
    threads: Threads = 0,
    overwrite: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Transcribe recordings, which are cut at their pauses; in folders, files without an audio suffix are skipped.

    Existing transcripts in --out are kept, so an interrupted command resumes. If they were made with another model or
    other settings, the command refuses to run. Recordings that cannot be read, or must be converted first (.wma), are
    listed at the end and do not stop the others. The exit code is 0 on success, 1 if some recordings failed, and 2 for
    an invalid command.

    Example: priormatch transcribe runs/demo/lpm/model talks --out transcripts --format txt --format srt
    """
    given = [*(formats or []), *([Format.json] if as_json else [])]
    wanted = list(dict.fromkeys(given or [Format.txt]))
    if out is None and len(wanted) > 1:
        raise UserError("only one format can be printed: pass one --format, or a folder as --out")
    fused = fusion_of(prior, fusion, beam_size)
    from priormatch.decoding.tuning import finite
    from priormatch.pipeline import transcribe as work
    from priormatch.pipeline.transcribe import Transcribed
    from priormatch.recognizers.decode import plain_search, search_with_prior
    from priormatch.recognizers.formats import Origin
    from priormatch.recognizers.transcribing import cutting_for
    from priormatch.runs.stage import fingerprint

    found = work.find_recordings(recordings)
    if out is None and len(found) > 1 and wanted[0] in SUBTITLES:
        raise UserError(
            f"{wanted[0]} of {len(found)} recordings cannot be printed together: pass a folder as --out"
        )
    recognizer, judge = work.load_models(model, prior, device, threads, language)
    search = plain_search(beam_size or 1) if judge is None else search_with_prior(judge, fused)
    cutting = cutting_for(recognizer, longest, pause=pause)
    if batch_seconds is not None and batch_seconds < cutting.longest:
        raise UserError(
            f"--batch-seconds {batch_seconds:g} is below the maximum segment length, {cutting.longest:g} s:"
            " lower --longest too"
        )

    def origin_of(path: Path) -> Origin:
        return Origin(str(path), str(model), None if prior is None else str(prior))

    if out is None:
        put = printed(wanted[0], len(found) > 1, origin_of)
    else:
        transcribed = Transcribed(
            out,
            {
                "model": fingerprint(model),
                "prior": None if prior is None else fingerprint(prior),
                "search": {"beam_size": beam_size or 1} if prior is None else finite(fused),
                "cutting": cutting,
                **({"language": language} if language else {}),
            },
        )
        files = work.missing_files(work.places_in(out, found, recordings), wanted, transcribed, overwrite)
        found, put = list(files), work.write_files(files, transcribed, origin_of)
    if found and work.transcribe(recognizer, found, search, cutting, batch_seconds, put):
        sys.exit(SOME_FAILED)


def printed(form: Format, several: bool, origin_of: "OriginOf") -> "Put":
    """Print transcriptions: one line each for JSON; text below the file names if there are several."""
    from priormatch.recognizers.formats import FORMATS, to_json_line

    write = to_json_line if form is Format.json else FORMATS[form]

    def put(path: Path, found: "Transcription") -> None:
        if several and form is Format.txt:
            print(f"==> {path} <==")
        print(write(origin_of(path), found), end="", flush=True)

    return put
