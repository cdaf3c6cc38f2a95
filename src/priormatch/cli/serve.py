"""The verb `serve`: a web page to try a recognizer."""

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import (
    Device,
    Fusion,
    Language,
    Longest,
    Threads,
    fusion_of,
    model_argument,
    model_option,
)


def serve(
    model: Annotated[Path, model_argument("Folder of a recognizer.")],
    *,
    prior: Annotated[
        Path | None,
        model_option(
            "--prior", "Folder of a prior, for weights and for shallow fusion with the settings fusion.*."
        ),
    ] = None,
    compare: Annotated[
        Path | None,
        model_option("--compare", "Folder of a second recognizer to compare with, without the prior."),
    ] = None,
    fusion: Fusion = None,
    beam_size: Annotated[
        int, typer.Option("--beam-size", min=1, max=100, help="Beam size of the search without the prior.")
    ] = 8,
    longest: Longest = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; 0.0.0.0 opens the page to the whole network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 7860,
    most_minutes: Annotated[
        float,
        typer.Option(
            "--most-minutes", min=0.1, help="Maximum minutes of a recording; longer ones are refused."
        ),
    ] = 30.0,
    most_megabytes: Annotated[
        int,
        typer.Option(
            "--most-megabytes", min=1, help="Maximum megabytes of an upload; larger ones are refused."
        ),
    ] = 50,
    language: Language = "",
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Serve a web page on this machine: record or upload speech, read the transcript, inspect its beams.

    With --prior, hypotheses get the same weights as in matching, and the search can use the prior too. No data leave
    this machine. Uploads are deleted after an hour, or when the server stops.

    Example: priormatch serve runs/demo/lpm/model --prior runs/demo/prior/model --compare runs/demo/supervised/model
    """
    fused = fusion_of(prior, fusion)
    from priormatch.serve.server import require_free, require_gradio

    require_gradio()
    require_free(host, port)
    from priormatch.config import PretrainedSettings
    from priormatch.pipeline.transcribe import load_models
    from priormatch.progress import say
    from priormatch.recognizers.load import load_recognizer
    from priormatch.recognizers.transcribing import cutting_for
    from priormatch.serve.beams import Transcriber
    from priormatch.serve.server import serve as serve_page
    from priormatch.serve.views import head

    recognizer, judge = load_models(model, prior, device, threads, language)
    if not is_this_machine(host):
        say(
            f"WARNING: listening on {host} without a password: anyone who can reach this machine can use the page"
        )
    cutting = cutting_for(recognizer, longest)
    told = PretrainedSettings(language=language)
    other = None if compare is None else load_recognizer(compare, recognizer.device, told)
    most_seconds = 60 * most_minutes
    transcriber = Transcriber(recognizer, judge, beam_size, fused, cutting, most_seconds, other=other)
    about = head(model, prior, most_seconds, most_megabytes, compare)
    serve_page(transcriber, about, host, port, most_megabytes)


def is_this_machine(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
