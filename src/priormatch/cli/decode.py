"""The verbs that let a recognizer hear speech: transcripts, reference lengths, pseudo-labels, values to decode with."""

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
    model: Model,
    cuts: Annotated[Path, typer.Option("--cuts", help="Cuts to transcribe.")],
    out: Annotated[Path, typer.Option("--out", help="The file of transcripts, JSON lines.")],
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
        raise UserError(f"with --prior the beam size is a setting: give fusion.beam_size={beam_size}")
    wanted = settings_of(recipe, overrides, fusion, prior)
    refuse_existing(out, overwrite)
    from priormatch.pipeline import work

    work.decode_to(model, cuts, wanted, out, beam_size, prior)


def tune(
    model: Model,
    prior: PriorModel,
    validation: Validation,
    out: Annotated[Path, typer.Option("--out", help="The file of tuned values, YAML.")],
    for_matching: Annotated[
        bool,
        typer.Option(
            "--for-matching",
            help="For matching.hypotheses=asr_lm: what the prior expects anyway then costs nothing.",
        ),
    ] = False,
    overwrite: Force = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Find good values for a search with a prior: its weight, the bonus a piece, and its limits.

    Tries the settings fusion.* and a few other starts, and goes on from the best; the beam stays as wide as it is. For
    matching it tries a list of weights, with and without limits, on log-probabilities that are centered and so need no
    bonus, and takes two fifths of the best one: a model that learns from hypotheses makes more of what is wrong with
    them.

    Example: priormatch tune --model exp/lpm/model --prior exp/prior/model --validation dev.jsonl.gz
    --out exp/fusion.yaml fusion.beam_size=16
    """
    wanted = settings_of(recipe, overrides)
    refuse_existing(out, overwrite)
    from priormatch.data.manifest import named_sets
    from priormatch.pipeline import tune as tuning

    tuning.tune(model, prior, named_sets(validation), wanted, out, for_matching)


def label(
    cuts: Annotated[Path, typer.Option("--cuts", help="Cuts to label.")],
    out: Annotated[Path, typer.Option("--out", help="The labeled cuts, NAME.jsonl.gz.")],
    model: Annotated[
        Path | None,
        model_option("--model", "Folder of a recognizer to transcribe with, into NAME.transcripts.jsonl."),
    ] = None,
    transcripts: Annotated[
        list[Path] | None,
        typer.Option("--transcripts", help="Or what `priormatch decode` wrote; may be repeated."),
    ] = None,
    beam_size: BeamSize = 1,
    prior: FusedPrior = None,
    fusion: Fusion = None,
    ngram: Annotated[int, typer.Option("--ngram", min=1, help="Words of a sequence that may loop.")] = 2,
    most_repeats: Annotated[
        int, typer.Option("--most-repeats", min=0, help="How often one may occur; 0 is any number.")
    ] = 4,
    keep_best: Annotated[
        float, typer.Option("--keep-best", min=0.0, max=1.0, help="Share to keep, by the score a piece.")
    ] = 1.0,
    keep_unended: Annotated[
        bool, typer.Option("--keep-unended", help="Keep also those of which the search found no end.")
    ] = False,
    overwrite: Force = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Turn hypotheses into transcripts to train on; those empty, broken off, looping or unsure are left out.

    Of several models' transcripts, training draws one at each visit of an utterance.

    Example: priormatch label --model exp/sup/model --cuts more.jsonl.gz --out exp/labeled.jsonl.gz --keep-best 0.9
    """
    if (model is None) == (not transcripts):
        raise UserError("give either --model, to transcribe with, or --transcripts that are made already")
    if transcripts and (beam_size, prior, fusion) != (1, None, None):
        raise UserError("--beam-size, --prior and --fusion are for --model, not for --transcripts")
    made = transcripts_beside(out)
    refuse_existing(out, overwrite)
    if model is not None:
        if made.exists() and not overwrite:
            raise UserError(
                f"{made} exists: label from it with --transcripts, or make it anew with --overwrite"
            )
        decode(model, cuts, made, beam_size, overwrite, recipe, overrides, prior, fusion)
    from priormatch.matching.label_filters import LabelFilter
    from priormatch.pipeline.label import label_cuts

    keep = LabelFilter(ngram, most_repeats, keep_best, keep_unended)
    label_cuts(cuts, transcripts or [made], out, keep)


def transcripts_beside(cuts: Path) -> Path:
    """The file of transcripts that labeled cuts are made of."""
    suffix = ".jsonl.gz"
    if not cuts.name.endswith(suffix):
        raise UserError(f"the manifest {cuts} must have a name that ends in {suffix}")
    return cuts.with_name(f"{cuts.name.removesuffix(suffix)}.transcripts.jsonl")


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Write over a file only when told to."""
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists: give another --out, or --overwrite")
