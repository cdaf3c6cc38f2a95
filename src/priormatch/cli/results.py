"""The verbs for results: `score`, `hypotheses`, `table`, `compare`, `report`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import (
    Force,
    Json,
    MatchingFusion,
    Model,
    Overrides,
    PriorModel,
    Recipe,
    matching_settings_of,
    model_option,
)


def score(
    transcripts: Annotated[
        list[Path],
        typer.Argument(
            help="Runs, output of `decode`, `label` or `transcribe`, or text from other tools (docs/scoring.md). If"
            " there are two, the second is compared with the first, set by set."
        ),
    ],
    *,
    references: Annotated[
        list[Path] | None,
        typer.Option(
            "--references",
            help="Reference transcripts: cuts (which also name speakers), text, or a folder with NAME.txt next to"
            " NAME.wav; may be repeated.",
        ),
    ] = None,
    normalizer: Annotated[
        str,
        typer.Option(
            "--normalizer", help="none, basic, english, unicode, turkic, or several such as none,basic."
        ),
    ] = "none",
    resample: Annotated[
        str,
        typer.Option("--resample", help="What the bootstrap resamples: utterances, speakers or recordings."),
    ] = "utterances",
    details: Annotated[
        int | None,
        typer.Option(
            "--details", min=0, help="Show this many confusions and worst utterances, aligned; 0 shows all."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write the result to a .md or .json file.")
    ] = None,
    overwrite: Force = False,
    as_json: Json = False,
    prior: Annotated[
        Path | None,
        model_option(
            "--prior",
            "Folder of a prior, to show its perplexity per token, or per word if it is an n-gram prior.",
        ),
    ] = None,
) -> None:
    """Compute word and character error rates with 95 % intervals; two systems are compared with a paired bootstrap.

    Each line names the normalizer of hypotheses and references. none leaves the words unchanged, basic removes case
    and punctuation in any script, and english, unicode and turkic are those of `priormatch prepare`.

    Example: priormatch score exp/sup/test.jsonl exp/lpm/test.jsonl --normalizer none,english --details 10

    Another: priormatch score theirs.trn --references said.txt --normalizer basic
    """
    from priormatch.pipeline import score_page
    from priormatch.pipeline.score import score as score_all

    if out is not None:
        score_page.require_place(out, overwrite)
    found = score_all(transcripts, references or [], prior, normalizer.split(","), resample)
    if as_json:
        print(score_page.as_json(found, details))
    else:
        score_page.show(found, details)
    if out is not None:
        score_page.write(out, found, details)


def hypotheses(
    *,
    model: Model,
    prior: PriorModel,
    cuts: Annotated[Path, typer.Option("--cuts", help="Cuts to decode.")],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Id of an utterance; may be repeated.")
    ] = None,
    count: Annotated[
        int, typer.Option("--count", min=0, help="Number of random utterances; 0 shows all.")
    ] = 5,
    beam_size: Annotated[int, typer.Option("--beam-size", min=1, help="Hypotheses per utterance.")] = 4,
    lengths: Annotated[
        Path | None,
        typer.Option("--lengths", help="Greedy transcripts from `priormatch decode`, for the length filter."),
    ] = None,
    fusion: MatchingFusion = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON per utterance.")] = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Show the hypotheses of local prior matching: log q, log p_y, weight, filter and word errors.

    The weights are the local prior, or p_y^a · r^b with matching.prior_exponent and matching.proposal_exponent. With
    matching.hypotheses=asr_lm, the search and the q in the weights use both models, while the log q shown is that of
    the recognizer alone.

    Example: priormatch hypotheses --model exp/sup/model --prior exp/prior/model --cuts dev.jsonl.gz
    """
    wanted = matching_settings_of(recipe, overrides, fusion, prior)
    from priormatch.pipeline.show_hypotheses import inspect_files, print_json, show

    found = inspect_files(
        model, prior, cuts, wanted, lengths=lengths, beam_size=beam_size, ids=ids or [], count=count
    )
    print_json(found) if as_json else show(found)


def table(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[:ROWS] [KEY=VALUE]",
            help="Tables by number (2, A1, X1) or name, optionally with row numbers (2:1-5,11), and settings such as"
            " matching.updates=500.",
        ),
    ],
    *,
    scale: Annotated[str, typer.Option("--scale", help="demo, small or paper.")] = "demo",
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds, such as 0,1,2.")] = "0",
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the manifests of the scale.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Systems to train in parallel.")] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what the tables need: data, updates, hours.")
    ] = False,
    so_far: Annotated[
        bool, typer.Option("--so-far", help="Train nothing and show the results so far; needs no --data.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each table as one JSON object, for scripts.")
    ] = False,
) -> None:
    """Run tables of the paper and show our results next to the paper's; finished systems are reused.

    Example: priormatch table 2:1-5 4 --scale demo --seeds 0,1 --jobs 2
    """
    from priormatch.experiments.dry_run import tell
    from priormatch.experiments.run_tables import run_tables
    from priormatch.experiments.scales import make_request

    request = replace(make_request(words, scale, seeds, data, jobs, so_far), as_json=as_json)
    if dry_run:
        tell(request)
    else:
        run_tables(request)


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs of one recipe with different seeds.")],
    *,
    as_json: Json = False,
) -> None:
    """Show the word error rates of several runs as Markdown; with paired tests over all runs.

    Example: priormatch compare runs/demo-0 runs/demo-1 runs/demo-2
    """
    from priormatch.json_text import to_json
    from priormatch.pipeline.compare import compare_runs, markdown

    found = compare_runs(runs)
    print(to_json(found) if as_json else markdown(found))


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="File to write. Default: report.html in the run's folder, or in the current one for several runs.",
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
