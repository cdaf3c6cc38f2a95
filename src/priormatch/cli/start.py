"""The verbs for getting started: `new` writes a recipe, `doctor` checks it, `settings` explains all settings."""

from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import (
    Json,
    Language,
    Overrides,
    Recipe,
    RecipeName,
    complete_recipe,
    complete_setting,
    settings_of,
)
from priormatch.errors import UserError
from priormatch.json_text import to_json

MODEL = "FOLDER|OWNER/NAME"


def settings(
    *,
    recipe: Recipe = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GROUP|KEY=VALUE",
            help="A group such as matching, or a setting, to print only that; settings to override.",
            autocompletion=complete_setting,
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print a Markdown reference of all settings instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print all settings, or those of a group, with their meanings.

    Example: priormatch settings matching --recipe demo
    """
    import yaml

    from priormatch.config import reference as config_docs

    if reference and (recipe or words):
        raise UserError("--reference prints all defaults: omit --recipe, groups and key=value")
    if reference and as_json:
        raise UserError("--reference prints Markdown: omit --json")
    if reference:
        print(config_docs.reference(), end="")
        return
    parts = [word for word in words or [] if "=" not in word]
    found = settings_of(recipe, [word for word in words or [] if "=" in word])
    text = config_docs.commented_yaml(found, parts)
    print(text if not as_json else f"{to_json(yaml.safe_load(text) if parts else found)}\n", end="")


def new(
    file: Annotated[Path, typer.Argument(help="Recipe to write, NAME.yaml.")],
    *,
    labeled: Annotated[
        str,
        typer.Option("--labeled", help="Audio with transcripts, in any format that `prepare audio` reads."),
    ],
    unlabeled: Annotated[
        str, typer.Option("--unlabeled", help="Audio without transcripts, in the same formats.")
    ],
    text: Annotated[
        str,
        typer.Option(
            "--text", help="Text file or folder for the prior; not needed with --model and --prior."
        ),
    ] = "",
    test: Annotated[
        list[str] | None, typer.Option("--test", help="Test set as NAME=PATH; may be repeated.")
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            "--model", metavar=MODEL, help="Hugging Face recognizer to start from, such as Whisper or XLS-R."
        ),
    ] = "",
    prior: Annotated[
        str,
        typer.Option(
            "--prior", metavar=MODEL, help="Prior to use without training, such as a causal language model."
        ),
    ] = "",
    language: Language = "",
) -> None:
    """Write a commented recipe for your own data; its sizes fit the data and the machine.

    Example: priormatch new calls.yaml --labeled speech --unlabeled more-speech --text books --test calls=test.csv
    """
    tests = {}
    for each in test or []:
        name, equals, path = each.partition("=")
        if not (name and equals and path) or name in tests:
            raise UserError(f"--test {each}: each test set needs a unique name, such as --test calls={each}")
        tests[name] = path
    from priormatch.pipeline.new import Given, new_recipe

    new_recipe(file, Given(labeled, unlabeled, text, tests, model=model, prior=prior, language=language))


def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Recipe, by path or name, whose data and models are checked too.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    overrides: Overrides = None,
    *,
    as_json: Json = False,
) -> None:
    """Check the installation, machine, and a recipe's data and models; nothing is trained or written.

    The exit code is 1 if there is a problem.

    Example: priormatch doctor own labeled=speech unlabeled=more-speech text=books
    """
    from priormatch.doctor.findings import examine

    given = overrides or []
    if recipe is not None and "=" in recipe:  # the first word is a setting, not a recipe
        given, recipe = [recipe, *given], None
    if examine(recipe, given, as_json):
        raise SystemExit(1)


def plan(
    recipe: RecipeName,
    overrides: Overrides = None,
    *,
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="GPUs to plan for.")] = 1,
    per_machine: Annotated[int, typer.Option("--per-machine", min=1, help="GPUs per machine.")] = 8,
    bandwidth: Annotated[
        float,
        typer.Option("--bandwidth", min=0.01, help="GB per second that a machine can send to the others."),
    ] = 12.5,
    price: Annotated[float | None, typer.Option("--price", min=0.0, help="Price of a GPU per hour.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate what a run needs: hours, memory, disk space and money; nothing is trained or written.

    It measures a few updates of each stage on this machine, with noise as input and the share of each batch that one
    of the GPUs would have, so run it on one GPU of the kind that you will use. Communication time is modeled.

    Example: priormatch plan librilight-60kh --gpus 64 --price 2.50
    """
    wanted = settings_of(recipe, overrides)
    from priormatch.pipeline import plan as planning
    from priormatch.pipeline.estimate import Cluster

    found = planning.plan(wanted, Cluster(gpus, per_machine, bandwidth), price)
    print(to_json(found.as_json())) if as_json else planning.show(found)
