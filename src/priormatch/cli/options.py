"""Options that verbs of the command line share, and the settings they lead to."""

import glob
from pathlib import Path
from typing import Annotated, Any

import typer

from priormatch.config import FusionSettings, Settings
from priormatch.errors import UserError
from priormatch.recognizers.hub import model_folder


def model_option(name: str, help: str) -> Any:
    """An option that takes the folder of a model, or its name on the Hub, which is fetched."""
    return typer.Option(name, parser=model_folder, metavar="FOLDER|OWNER/NAME", help=help)


def model_argument(help: str) -> Any:
    """The same as an argument."""
    return typer.Argument(parser=model_folder, metavar="FOLDER|OWNER/NAME", help=help)


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes that a word may become: those that come along, and YAML files here."""
    from priormatch.config import recipe_names

    files = sorted(glob.glob(f"{glob.escape(incomplete)}*.yaml"))
    return [*(name for name in recipe_names() if name.startswith(incomplete)), *files]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Settings that a word may become, as `key=` with what it means, or as `key=value` where there is a choice."""
    from priormatch.config.reference import choices, meanings

    key, equals, _ = incomplete.partition("=")
    told = meanings()
    if equals:
        words = [(f"{key}={value}", told[key]) for value in choices(key)]
    else:
        words = [(f"{name}=", told[name]) for name in told]
    return [(word, meaning) for word, meaning in words if word.startswith(incomplete)]


Out = Annotated[Path, typer.Option("--out", help="Where the work goes.")]
Force = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE", help="Settings, such as training.seed=3.", autocompletion=complete_setting
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="A YAML file of settings, or the name of one that comes along.",
        autocompletion=complete_recipe,
    ),
]
Model = Annotated[Path, model_option("--model", "Folder of a recognizer.")]
TokenizerFolder = Annotated[Path, typer.Option("--tokenizer", help="Folder of a tokenizer, or of a model.")]
Labeled = Annotated[Path, typer.Option("--labeled", help="Cuts of transcribed speech.")]
Unlabeled = Annotated[Path, typer.Option("--unlabeled", help="Cuts of speech without transcripts.")]
Validation = Annotated[
    list[Path], typer.Option("--validation", help="Cuts to choose models by; may be repeated.")
]
BeamSize = Annotated[
    int, typer.Option("--beam-size", min=1, help="1 is greedy; above it the n-best are kept.")
]
PriorModel = Annotated[Path, model_option("--prior", "Folder of a prior.")]
FusedPrior = Annotated[
    Path | None,
    model_option("--prior", "Folder of a prior, to search with both by the settings fusion.*."),
]
Fusion = Annotated[Path | None, typer.Option("--fusion", help="What `priormatch tune` wrote, for --prior.")]
MatchingFusion = Annotated[
    Path | None,
    typer.Option(
        "--fusion",
        help="What `priormatch tune --for-matching` wrote, for matching.hypotheses=asr_lm; with matching.refresh=never,"
        " without --for-matching.",
    ),
]


Longest = Annotated[
    float | None,
    typer.Option(
        "--longest",
        min=1.0,
        max=240.0,
        help="Seconds of the longest segment; by default the longest the model has learned from, up to 20.",
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        max=1024,
        help="Of the CPU; 0 leaves it to PyTorch. Fewer are faster where other work takes some of the cores.",
    ),
]


def settings_of(
    recipe: str | None,
    overrides: list[str] | None,
    fusion: Path | None = None,
    prior: Path | None = None,
) -> Settings:
    """Settings for a verb; what `tune` wrote for a prior beats the recipe, and overrides beat both.

    The threads they ask for are used from now on.
    """
    if fusion is not None and prior is None:
        raise UserError(f"--fusion {fusion} tells how to decode with a prior: give --prior too")
    from priormatch.config import load_settings, recipe_path
    from priormatch.decoding.tuning import read_tuned

    tuned = read_tuned(fusion) if fusion is not None else []
    settings = load_settings(recipe_path(recipe) if recipe else None, [*tuned, *(overrides or [])])
    if settings.threads:
        from priormatch.device import use_threads

        use_threads(settings.threads)
    return settings


def matching_settings_of(
    recipe: str | None, overrides: list[str] | None, fusion: Path | None, prior: Path | None
) -> Settings:
    """The same for a verb of matching: what `tune` wrote is refused where it has no say, and asked for where it has.

    What it wrote for decoding is taken, with a warning.
    """
    settings = settings_of(recipe, overrides, fusion, prior)
    if fusion is not None and settings.matching.hypotheses == "asr":
        raise UserError(
            f"--fusion {fusion} tells how to search with the prior, and hypotheses are found without:"
            " give matching.hypotheses=asr_lm, or leave it out"
        )
    if prior is not None and settings.matching.hypotheses == "asr_lm":
        from priormatch.decoding.fusion import feeds_back, untuned
        from priormatch.decoding.tuning import is_for_decoding
        from priormatch.progress import say

        if fusion is None and settings.fusion == FusionSettings():
            say(f"{untuned(settings.fusion, feeds_back(settings.matching))} --fusion")
        elif fusion is not None and feeds_back(settings.matching) and is_for_decoding(fusion):
            say(
                f"--fusion {fusion} was tuned for decoding, and hypotheses by such values are no good to learn"
                " from (docs/variants.md): `priormatch tune --for-matching` finds others"
            )
    return settings


def fusion_of(prior: Path | None, fusion: Path | None, beam_size: int | None = None) -> FusionSettings:
    """How to search with a prior, for verbs that take no settings; that it is not tuned is told.

    A beam size beats that of the file.
    """
    wider = [] if beam_size is None else [f"fusion.beam_size={beam_size}"]
    found = settings_of(None, wider, fusion, prior).fusion
    if prior is not None and fusion is None:
        from priormatch.decoding.fusion import untuned
        from priormatch.progress import say

        say(f"{untuned(found)} --fusion")
    return found
