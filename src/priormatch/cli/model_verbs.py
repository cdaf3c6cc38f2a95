"""The verbs that publish models: `push` to the Hub, `export` to ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import Force, model_argument
from priormatch.errors import UserError


def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a recognizer or a prior.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="Name of the model on the Hub.")],
    *,
    private: Annotated[
        bool, typer.Option("--private", help="Make it visible only to you and your organization.")
    ] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="Branch, created if it does not exist. Default: main.")
    ] = None,
    license: Annotated[
        str, typer.Option("--license", help="License for the model card, by its Hub name, such as cc-by-4.0.")
    ] = "",
) -> None:
    """Upload a model and its card to the Hugging Face Hub; `--model OWNER/NAME` then downloads it.

    The token comes from `hf auth login` or the environment variable HF_TOKEN.

    Example: priormatch push exp/lpm/model ann/meetings-lpm --private
    """
    from priormatch.pipeline.publish import publish

    publish(folder, name, private, revision, license)


def export(
    model: Annotated[Path, model_argument("Folder of a recognizer or an n-gram prior.")],
    *,
    out: Annotated[Path, typer.Option("--out", help="Folder for the exported files.")],
    overwrite: Force = False,
) -> None:
    """Export a recognizer to ONNX: encoder, tokens and, if there is one, decoder, checked with onnxruntime.

    An n-gram prior is written as an ARPA file, lm.arpa.

    Example: priormatch export exp/lpm/model --out exported
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, not a folder: choose another --out")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise UserError(f"{out} exists: choose another --out, or pass --overwrite")
    from priormatch.progress import say
    from priormatch.recognizers.folder import NGRAM, kind_of

    if kind_of(model) == NGRAM:
        from priormatch.recognizers.ngram_prior import export_arpa

        say(f"{export_arpa(model, out)}: done")
        return
    from priormatch.recognizers.export import check
    from priormatch.recognizers.export import export as write
    from priormatch.recognizers.hf_files import is_huggingface
    from priormatch.recognizers.hub import model_folder
    from priormatch.recognizers.recognizer import SpeechRecognizer

    if is_huggingface(model_folder(model)):
        raise UserError(
            f"{model} is a transformers model, which `priormatch export` does not support: export it with"
            " `optimum-cli export onnx`"
        )
    recognizer = SpeechRecognizer.load(model)
    if recognizer.decoder is not None and not recognizer.head.limited:
        say(
            "the CTC output is not exported: the exported model decodes by attention alone and may make more errors"
        )
    say(f"{out}: exporting; this takes a while ...")
    write(recognizer, out)
    worst = check(recognizer, out)
    say(f"{out}: done; log-probabilities under onnxruntime are within {worst:.1e} of the model's")
