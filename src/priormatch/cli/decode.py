"""The verbs that decode speech: `decode`, `tune`, `label`."""

from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import (
    BeamSize,
    Force,
    FusedPrior,
    Fusion,
    Model,
    Overrides,
    PriorModel,
    Recipe,
    Validation,
    model_option,
    settings_of,
)
from priormatch.errors import UserError


def decode(
    *,
    model: Model,
    cuts: Annotated[Path, typer.Option("--cuts", help="Cuts to transcribe.")],
    out: Annotated[Path, typer.Option("--out", help="Transcript file to write (JSON lines).")],
    beam_size: BeamSize = 1,
    overwrite: Force = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
    prior: FusedPrior = None,
    fusion: Fusion = None,
) -> None:
    """Transcribe cuts.

    Example: priormatch decode --model exp/lpm/model --cuts test.jsonl.gz --out exp/test.jsonl
    --prior exp/prior/model --fusion exp/fusion.yaml
    """
    if prior is not None and beam_size != 1:
        raise UserError(f"--beam-size has no effect with --prior: set fusion.beam_size={beam_size} instead")
    wanted = settings_of(recipe, overrides, fusion, prior)
    refuse_existing(out, overwrite)
    from priormatch.pipeline import work

    work.decode_to(model, cuts, wanted, out, beam_size, prior)


def tune(
    *,
    model: Model,
    prior: PriorModel,
    validation: Validation,
    out: Annotated[Path, typer.Option("--out", help="File for the tuned values (YAML).")],
    for_matching: Annotated[
        bool,
        typer.Option(
            "--for-matching",
            help="Tune for matching.hypotheses=asr_lm, with centered scores.",
        ),
    ] = False,
    overwrite: Force = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Tune shallow fusion with a prior: LM weight, bonus per token and limits.

    Tries the settings fusion.* and a few other starting points, and continues from the best. The beam size does not
    change. With --for-matching, it tries a list of LM weights, with and without limits, on centered log-probabilities,
    which need no bonus. It then takes two fifths of the best weight, because a model that is trained on its own
    hypotheses amplifies their errors.

    Example: priormatch tune --model exp/lpm/model --prior exp/prior/model --validation dev.jsonl.gz
    --out exp/fusion.yaml fusion.beam_size=16
    """
    wanted = settings_of(recipe, overrides)
    refuse_existing(out, overwrite)
    from priormatch.data.manifest import named_sets
    from priormatch.pipeline import tune as tuning

    tuning.tune(model, prior, named_sets(validation), wanted, out, for_matching)


def label(
    *,
    cuts: Annotated[Path, typer.Option("--cuts", help="Cuts to label.")],
    out: Annotated[Path, typer.Option("--out", help="Labeled cuts to write, NAME.jsonl.gz.")],
    model: Annotated[
        Path | None,
        model_option("--model", "Folder of a recognizer; its transcripts go to NAME.transcripts.jsonl."),
    ] = None,
    transcripts: Annotated[
        list[Path] | None,
        typer.Option(
            "--transcripts",
            help="Existing transcripts from `priormatch decode`, instead of --model; may be repeated.",
        ),
    ] = None,
    beam_size: BeamSize = 1,
    prior: FusedPrior = None,
    fusion: Fusion = None,
    ngram: Annotated[
        int,
        typer.Option("--ngram", min=1, help="Length in words of the sequences that are checked for loops."),
    ] = 2,
    most_repeats: Annotated[
        int,
        typer.Option("--most-repeats", min=0, help="How often a sequence may occur; 0 disables the check."),
    ] = 4,
    keep_best: Annotated[
        float,
        typer.Option(
            "--keep-best", min=0.0, max=1.0, help="Share of hypotheses to keep, ranked by score per token."
        ),
    ] = 1.0,
    keep_unended: Annotated[
        bool, typer.Option("--keep-unended", help="Also keep hypotheses without an end of sentence.")
    ] = False,
    overwrite: Force = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Make pseudo-labels from hypotheses; empty, unfinished, looping or uncertain ones are left out.

    With transcripts from several models, training draws one of them each time it uses an utterance.

    Example: priormatch label --model exp/sup/model --cuts more.jsonl.gz --out exp/labeled.jsonl.gz --keep-best 0.9
    """
    if (model is None) == (not transcripts):
        raise UserError("pass either --model, to transcribe the cuts, or --transcripts")
    if transcripts and (beam_size, prior, fusion) != (1, None, None):
        raise UserError("--beam-size, --prior and --fusion need --model: omit them with --transcripts")
    made = transcripts_beside(out)
    refuse_existing(out, overwrite)
    if model is not None:
        if made.exists() and not overwrite:
            raise UserError(f"{made} exists: use it with --transcripts, or replace it with --overwrite")
        decode(
            model=model,
            cuts=cuts,
            out=made,
            beam_size=beam_size,
            overwrite=overwrite,
            recipe=recipe,
            overrides=overrides,
            prior=prior,
            fusion=fusion,
        )
    from priormatch.matching.label_filters import LabelFilter
    from priormatch.pipeline.label import label_cuts

    keep = LabelFilter(ngram, most_repeats, keep_best, keep_unended)
    label_cuts(cuts, transcripts or [made], out, keep)


def transcripts_beside(cuts: Path) -> Path:
    """The file of transcripts for a manifest of labeled cuts."""
    suffix = ".jsonl.gz"
    if not cuts.name.endswith(suffix):
        raise UserError(f"the name of the manifest {cuts} must end in {suffix}")
    return cuts.with_name(f"{cuts.name.removesuffix(suffix)}.transcripts.jsonl")


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Raise an error if a file exists and may not be overwritten."""
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists: choose another --out, or pass --overwrite")
