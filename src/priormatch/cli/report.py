"""The verb `report`: an HTML page of runs."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write; by default report.html in the run's folder or, for several runs, the current one.",
        ),
    ] = None,
) -> None:
    """Write a report on runs as one HTML file: error rates, learning curves, and beams with their audio.

    The file needs no network and no other files. Unfinished runs are reported up to their last update; several runs
    are shown side by side.

    Example: priormatch report runs/demo
    """
    from priormatch.progress import say
    from priormatch.report.page import write_report

    say(f"report: {write_report(runs, out)}")
