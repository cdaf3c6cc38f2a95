"""The verb that makes a page of runs."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The file to write; else report.html, in the run's folder or, of several, here."
        ),
    ] = None,
) -> None:
    """Write one HTML file of what runs did: error rates, learning curves, and beams to look into and listen to.

    It needs no network and no other file. Runs that are not finished are told as far as they have got; several are
    set side by side.

    Example: priormatch report runs/demo
    """
    from priormatch.progress import say
    from priormatch.report.page import write_report

    say(f"report: {write_report(runs, out)}")
