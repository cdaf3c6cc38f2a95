"""The verbs of a first day: `new` writes a recipe, `doctor` looks for what may go wrong, `settings` explains."""

from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import Overrides, Recipe, complete_recipe, settings_of
from priormatch.errors import UserError


def settings(
    recipe: Recipe = None,
    overrides: Overrides = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference of all settings as Markdown instead.")
    ] = False,
) -> None:
    """Print every setting with its value and what it means.

    Example: priormatch settings --recipe demo
    """
    from priormatch.config import reference as config_docs

    if reference and (recipe or overrides):
        raise UserError("--reference tells the defaults: leave out the recipe and key=value")
    print(
        config_docs.reference() if reference else config_docs.commented_yaml(settings_of(recipe, overrides)),
        end="",
    )


def new(
    file: Annotated[Path, typer.Argument(help="The recipe to write, NAME.yaml.")],
    labeled: Annotated[
        str,
        typer.Option("--labeled", help="Audio with transcripts, in any form that `prepare audio` reads."),
    ],
    unlabeled: Annotated[str, typer.Option("--unlabeled", help="Audio alone, likewise.")],
    text: Annotated[str, typer.Option("--text", help="A file or folder of text for the prior.")],
    test: Annotated[
        list[str] | None, typer.Option("--test", help="A test set as NAME=PATH; may be repeated.")
    ] = None,
) -> None:
    """Write a commented recipe for your own data; its sizes are chosen by what is there.

    Example: priormatch new calls.yaml --labeled speech --unlabeled more-speech --text books --test calls=test.csv
    """
    tests = {}
    for each in test or []:
        name, equals, path = each.partition("=")
        if not (name and equals and path) or name in tests:
            raise UserError(
                f"--test {each}: give each test set a name of its own, such as --test calls={each}"
            )
        tests[name] = path
    from priormatch.pipeline.new import new_recipe

    new_recipe(file, labeled, unlabeled, text, tests)


def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe, by path or name, whose data and models to check too.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Check the installation, the machine, a recipe's data and models; trains and writes nothing.

    Exit code 1 tells that there is a problem.

    Example: priormatch doctor own labeled=speech unlabeled=more-speech text=books
    """
    from priormatch.doctor.checks import examine

    given = overrides or []
    if recipe is not None and "=" in recipe:  # settings without a recipe before them
        given, recipe = [recipe, *given], None
    if examine(recipe, given):
        raise SystemExit(1)
