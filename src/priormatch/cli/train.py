"""The verbs that train one stage each: `tokenizer`, `train-prior`, `train`, `match`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from priormatch.cli.options import (
    Labeled,
    MatchingFusion,
    Model,
    Out,
    Overrides,
    Recipe,
    Validation,
    matching_settings_of,
    model_option,
    settings_of,
)
from priormatch.config import Settings
from priormatch.errors import UserError

if TYPE_CHECKING:
    from priormatch.pipeline.match_files import MatchFiles


def tokenizer(
    *,
    out: Out,
    cuts: Annotated[
        list[Path] | None, typer.Option("--cuts", help="Cuts with transcripts to train on.")
    ] = None,
    text: Annotated[list[Path] | None, typer.Option("--text", help="Sentences to train on.")] = None,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Train a tokenizer of word pieces or characters.

    Example: priormatch tokenizer --cuts data/train-clean-100.jsonl.gz --out exp/tokenizer tokenizer.pieces=5000
    """
    wanted = settings_of(recipe, overrides)
    if not cuts and not text:
        raise UserError("the tokenizer has nothing to train on: pass --cuts or --text")
    from priormatch.data.normalizer import normalizer_of
    from priormatch.data.text_files import SentenceFiles
    from priormatch.pipeline import work
    from priormatch.pipeline.recipe import recipe_of_text, recipe_of_tokenizer
    from priormatch.runs.stage import Stage

    inputs = {f"input-{number}": path for number, path in enumerate([*(cuts or []), *(text or [])])}
    with Stage(
        out, {"tokenizer": recipe_of_tokenizer(wanted.tokenizer)} | recipe_of_text(wanted), inputs
    ).work() as todo:
        if todo:
            transcripts = [sentence for path in cuts or [] for sentence in work.transcripts_of(path)]
            sentences = SentenceFiles(text or [])
            work.make_tokenizer(
                [*transcripts, *sentences] if transcripts else sentences,
                wanted.tokenizer,
                out,
                normalizer_of(wanted.language),
            )


def train_prior(
    *,
    text: Annotated[
        Path, typer.Option("--text", help="Sentences, one per line, as `prepare text` writes them.")
    ],
    validation_text: Annotated[Path, typer.Option("--validation-text", help="Held-out sentences.")],
    out: Out,
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", help="Folder of a tokenizer; not needed with prior.kind=ngram."),
    ] = None,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Train the prior, a language model, on text: a convolutional network, or with prior.kind=ngram an n-gram model.

    Example: priormatch train-prior --text books.txt --validation-text dev.txt --tokenizer exp/tokenizer --out exp/prior
    """
    wanted = settings_of(recipe, overrides)
    from priormatch.data.tokenizer import Tokenizer
    from priormatch.pipeline import work
    from priormatch.pipeline.recipe import recipe_of_prior_stage
    from priormatch.runs.stage import Stage

    used, inputs = recipe_of_prior_stage(wanted), {"text": text, "validation_text": validation_text}
    if wanted.prior.kind == "ngram":
        with Stage(out, used, inputs).work() as todo:
            if todo:
                work.estimate_prior(text, validation_text, wanted, out)
        return
    if tokenizer is None:
        raise UserError("prior.kind=conv needs a tokenizer: pass --tokenizer, or set prior.kind=ngram")
    pieces = Tokenizer.load(tokenizer)
    with Stage(out, used, {**inputs, "tokenizer": tokenizer}).work(together=True) as todo:
        if todo:
            work.train_prior(text, validation_text, pieces, wanted, out, out)


def train(
    *,
    labeled: Labeled,
    validation: Validation,
    out: Out,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            "--tokenizer", help="Folder of a tokenizer or a model; not needed with pretrained.recognizer."
        ),
    ] = None,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Train a recognizer, new or pretrained, on transcribed speech.

    Example: priormatch train --labeled train.jsonl.gz --validation dev.jsonl.gz --tokenizer exp/tokenizer
    --out exp/sup
    """
    wanted = settings_of(recipe, overrides)
    from priormatch.data.manifest import named_sets
    from priormatch.pipeline import work
    from priormatch.pipeline.recipe import recipe_of_training
    from priormatch.recognizers.hub import model_folder
    from priormatch.recognizers.load import load_tokenizer
    from priormatch.runs.stage import Stage

    if wanted.pretrained.recognizer:
        tokenizer = model_folder(wanted.pretrained.recognizer)
    if tokenizer is None:
        raise UserError(
            "there is no tokenizer: pass --tokenizer, or set pretrained.recognizer=FOLDER|OWNER/NAME"
        )
    load_tokenizer(tokenizer, wanted.pretrained)  # before anything is written
    sets = named_sets(validation)
    inputs = {
        "labeled": labeled,
        "tokenizer": tokenizer,
        **{f"validation/{name}": path for name, path in sets.items()},
    }
    with Stage(out, recipe_of_training(wanted), inputs).work(together=True) as todo:
        if todo:
            work.train_supervised([labeled], sets, tokenizer, wanted, out, out)


UnlabeledSpeech = Annotated[
    Path,
    typer.Option("--unlabeled", help="Speech without transcripts: cuts, or any format of `prepare audio`."),
]
LabeledSpeech = Annotated[
    Path | None,
    typer.Option(
        "--labeled",
        help="Transcribed speech in the same formats; without it, every update follows the prior.",
    ),
]
ValidationSpeech = Annotated[
    list[Path] | None,
    typer.Option(
        "--validation",
        help="Validation speech; may be repeated. Default: some labeled speakers are held out.",
    ),
]
MatchingPrior = Annotated[
    Path | None,
    model_option(
        "--prior", "Folder of a prior; not needed with matching.prior_exponent=0 matching.hypotheses=asr."
    ),
]
Lengths = Annotated[
    Path | None,
    typer.Option(
        "--lengths",
        help="Greedy transcripts from `priormatch decode`, also for matching.context; not needed with"
        " matching.length_filter=[] or matching.reference_lengths=speaking_rate.",
    ),
]
FirstProposal = Annotated[
    Path | None, model_option("--proposal", "Folder of a different recognizer for the first proposal.")
]
Transcribed = Annotated[
    Path | None,
    typer.Option(
        "--transcribed",
        help="Cuts of --unlabeled with transcripts, to score the proposal's labels; not used for training.",
    ),
]
LabelsGiven = Annotated[
    bool,
    typer.Option("--labels-given", help="Train on the labels in --unlabeled, written by `priormatch label`."),
]


def match(
    *,
    model: Model,
    unlabeled: UnlabeledSpeech,
    out: Out,
    labeled: LabeledSpeech = None,
    validation: ValidationSpeech = None,
    prior: MatchingPrior = None,
    lengths: Lengths = None,
    fusion: MatchingFusion = None,
    proposal: FirstProposal = None,
    transcribed: Transcribed = None,
    labels_given: LabelsGiven = False,
    recipe: Recipe = None,
    overrides: Overrides = None,
) -> None:
    """Train a recognizer further by local prior matching; or, with the same schedule, on given labels.

    Speech that is not in cuts is converted in OUT/data. Without --validation, some of the labeled speakers are held
    out. Without --lengths, the unlabeled speech is decoded first if the length filter needs it.

    For a Hugging Face model, the default recipe is `pretrained`.

    Example: priormatch match --model exp/sup/model --prior exp/prior/model --labeled train.jsonl.gz
    --unlabeled more.jsonl.gz --validation dev.jsonl.gz --out exp/lpm
    """
    if labels_given and (prior or lengths or fusion or proposal or transcribed):
        raise UserError(
            "--labels-given does not use --prior, --lengths, --fusion, --proposal or --transcribed: omit them"
        )
    from priormatch.progress import say
    from priormatch.recognizers.hf_files import is_huggingface

    if not model.exists():
        raise UserError(
            f"--model {model} does not exist: pass the folder of a recognizer, or its name on the Hub"
        )
    if recipe is None and is_huggingface(model):
        recipe = "pretrained"
        say(f"{model} is a Hugging Face model: using --recipe pretrained")
    wanted = matching_settings_of(recipe, overrides, fusion, prior)
    from priormatch.data.manifest import named_sets
    from priormatch.pipeline.match import refuse_names, require_prior
    from priormatch.pipeline.match_files import MatchFiles
    from priormatch.pipeline.recipe import recipe_of_matching
    from priormatch.runs.stage import Stage

    refuse_names(wanted)
    files = MatchFiles(
        model=model,
        labeled=labeled,
        unlabeled=unlabeled,
        validation=named_sets(validation or []),
        prior=prior,
        lengths=lengths,
        proposal=proposal,
        transcribed=transcribed,
    )
    if labels_given:
        _train_on_given_labels(files, wanted, out)
        return
    require_prior(prior, wanted)
    files.check()
    with Stage(out, recipe_of_matching(wanted) | files.recipe(wanted), files.inputs).work(
        together=True
    ) as todo:
        if todo:
            files.prepared(wanted, out).job(wanted, out, log=out).run()


def _train_on_given_labels(files: "MatchFiles", wanted: Settings, out: Path) -> None:
    from priormatch.pipeline.match import train_on_pseudo_labels
    from priormatch.pipeline.recipe import recipe_of_schedule
    from priormatch.runs.stage import Stage

    if files.labeled is None or not files.validation:
        raise UserError("--labels-given needs --labeled and --validation: pass both")
    given = {"pseudo_labeled" if name == "unlabeled" else name: path for name, path in files.inputs.items()}
    with Stage(out, recipe_of_schedule(wanted), given).work(together=True) as todo:
        if todo:
            train_on_pseudo_labels(
                files.model,
                files.labeled,
                files.unlabeled,
                files.validation,
                settings=wanted,
                out=out,
                log=out,
            )
