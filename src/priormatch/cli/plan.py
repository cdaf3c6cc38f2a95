"""The verb `plan`."""

from typing import Annotated

import typer

from priormatch.cli.options import Json, Overrides, complete_recipe, settings_of


def plan(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe: a YAML file of settings, or the name of a built-in one.",
            autocompletion=complete_recipe,
        ),
    ],
    overrides: Overrides = None,
    *,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs to plan for.")] = 1,
    per_machine: Annotated[int, typer.Option("--per-machine", min=1, help="GPUs of a machine.")] = 8,
    bandwidth: Annotated[
        float, typer.Option("--bandwidth", min=0.01, help="GB per second that a machine sends to the others.")
    ] = 12.5,
    price: Annotated[
        float | None, typer.Option("--price", min=0.0, help="Price of a GPU for an hour.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a run takes on some GPUs: hours, memory, disk and money; nothing is trained or written.

    A few updates of each stage are measured on this machine, with noise as input and the share of each batch that one
    of the GPUs would have; so run it on one GPU of the kind to be used. The time of communication is modeled.

    Example: priormatch plan librilight-60kh --gpus 64 --price 2.50
    """
    wanted = settings_of(recipe, overrides)
    from priormatch.pipeline import plan as planning
    from priormatch.pipeline.estimate import Cluster

    found = planning.plan(wanted, Cluster(gpus, per_machine, bandwidth), price)
    planning.show_json(found) if as_json else planning.show(found)
