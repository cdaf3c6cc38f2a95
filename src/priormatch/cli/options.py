"""Options shared by several verbs, and the settings they produce."""

import glob
from pathlib import Path
from typing import Annotated, Any

import typer

from priormatch.config import FusionSettings, Settings
from priormatch.errors import UserError
from priormatch.recognizers.hub import model_folder


def model_option(name: str, help: str) -> Any:
    """An option for a model: a folder, or a name on the Hub, which is downloaded."""
    return typer.Option(name, parser=model_folder, metavar="FOLDER|OWNER/NAME", help=help)


def model_argument(help: str) -> Any:
    """An argument for a model: a folder, or a name on the Hub, which is downloaded."""
    return typer.Argument(parser=model_folder, metavar="FOLDER|OWNER/NAME", help=help)


def complete_recipe(incomplete: str) -> list[str]:
    """Complete a recipe: built-in names, and YAML files in the current folder."""
    from priormatch.config import recipe_names

    files = sorted(glob.glob(f"{glob.escape(incomplete)}*.yaml"))
    return [*(name for name in recipe_names() if name.startswith(incomplete)), *files]


def complete_setting(incomplete: str) -> list[tuple[str, str]]:
    """Complete a setting to `key=` with its meaning, or to `key=value` if the values can be listed."""
    from priormatch.config.reference import choices, meanings

    key, equals, _ = incomplete.partition("=")
    told = meanings()
    if equals:
        words = [(f"{key}={value}", told[key]) for value in choices(key)]
    else:
        words = [(f"{name}=", told[name]) for name in told]
    return [(word, meaning) for word, meaning in words if word.startswith(incomplete)]


RecipeName = Annotated[
    str,
    typer.Argument(
        help="A recipe: a YAML file of settings, or the name of a built-in one.",
        autocompletion=complete_recipe,
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Output folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Force = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE",
        help="Settings to override, such as training.seed=3.",
        autocompletion=complete_setting,
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="A recipe: a YAML file of settings, or the name of a built-in one.",
        autocompletion=complete_recipe,
    ),
]
Model = Annotated[Path, model_option("--model", "Folder of a recognizer.")]
Labeled = Annotated[Path, typer.Option("--labeled", help="Cuts of transcribed speech.")]
Unlabeled = Annotated[Path, typer.Option("--unlabeled", help="Cuts of speech without transcripts.")]
Validation = Annotated[list[Path], typer.Option("--validation", help="Validation cuts; may be repeated.")]
BeamSize = Annotated[
    int, typer.Option("--beam-size", min=1, help="1 for greedy decoding; larger beams keep n-best lists.")
]
PriorModel = Annotated[Path, model_option("--prior", "Folder of a prior.")]
FusedPrior = Annotated[
    Path | None,
    model_option("--prior", "Folder of a prior, for shallow fusion with the settings fusion.*."),
]
Fusion = Annotated[Path | None, typer.Option("--fusion", help="File from `priormatch tune`, for --prior.")]
MatchingFusion = Annotated[
    Path | None,
    typer.Option(
        "--fusion",
        help="File from `priormatch tune --for-matching`, for matching.hypotheses=asr_lm; with matching.refresh=never,"
        " tune without --for-matching.",
    ),
]


Longest = Annotated[
    float | None,
    typer.Option(
        "--longest",
        min=1.0,
        max=240.0,
        help="Maximum segment length in seconds. Default: the length of the longest training utterance, at most 20.",
    ),
]
Language = Annotated[
    str, typer.Option("--language", help="Output language of a multilingual Whisper model, such as en.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1.")]
Threads = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        max=1024,
        help="CPU threads; 0 uses PyTorch's default. Use fewer if other programs occupy some of the cores.",
    ),
]


def settings_of(
    recipe: str | None,
    overrides: list[str] | None,
    fusion: Path | None = None,
    prior: Path | None = None,
) -> Settings:
    """Load the settings for a verb; a file of `tune` takes precedence over the recipe, and overrides over both.

    Also sets the number of CPU threads.
    """
    if fusion is not None and prior is None:
        raise UserError(f"--fusion {fusion} is for decoding with a prior: pass --prior too")
    from priormatch.config import load_settings, recipe_path
    from priormatch.decoding.tuning import is_worse_than_none, read_tuned
    from priormatch.progress import say

    tuned = read_tuned(fusion) if fusion is not None else []
    if fusion is not None and is_worse_than_none(fusion):
        say(
            f"--fusion {fusion} was worse on its validation sets than decoding without a prior: tune again, or omit it"
        )
    settings = load_settings(recipe_path(recipe) if recipe else None, [*tuned, *(overrides or [])])
    if settings.threads:
        from priormatch.device import use_threads

        use_threads(settings.threads)
    return settings


def matching_settings_of(
    recipe: str | None, overrides: list[str] | None, fusion: Path | None, prior: Path | None
) -> Settings:
    """Load the settings for a verb of matching; refuse a file of `tune` that is not used, and note a missing one.

    A file that was tuned for decoding is accepted with a warning.
    """
    settings = settings_of(recipe, overrides, fusion, prior)
    if fusion is not None and settings.matching.hypotheses == "asr":
        raise UserError(
            f"--fusion {fusion} has no effect, because hypotheses are found without the prior:"
            " set matching.hypotheses=asr_lm, or omit --fusion"
        )
    if prior is not None and settings.matching.hypotheses == "asr_lm":
        from priormatch.decoding.fusion import feeds_back, untuned
        from priormatch.decoding.tuning import is_for_decoding
        from priormatch.progress import say

        if fusion is None and settings.fusion == FusionSettings():
            say(f"{untuned(settings.fusion, feeds_back(settings.matching))} --fusion")
        elif fusion is not None and feeds_back(settings.matching) and is_for_decoding(fusion):
            say(
                f"--fusion {fusion} was tuned for decoding, which is unsuitable for matching (docs/variants.md):"
                " run `priormatch tune --for-matching` to find better values"
            )
    return settings


def fusion_of(prior: Path | None, fusion: Path | None, beam_size: int | None = None) -> FusionSettings:
    """The fusion settings for verbs without settings; prints a note if they are not tuned.

    `beam_size` takes precedence over that of the file.
    """
    wider = [] if beam_size is None else [f"fusion.beam_size={beam_size}"]
    found = settings_of(None, wider, fusion, prior).fusion
    if prior is not None and fusion is None:
        from priormatch.decoding.fusion import untuned
        from priormatch.progress import say

        say(f"{untuned(found)} --fusion")
    return found
