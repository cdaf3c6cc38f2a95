"""The verbs that send models on their way: `push` to the Hub, `export` to ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from priormatch.cli.options import Force, model_argument
from priormatch.errors import UserError


def push(
    folder: Annotated[Path, typer.Argument(help="Folder of a recognizer or of a prior.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="What to call it on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="For you and your organization alone.")] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="A branch of it, made if there is none; else main.")
    ] = None,
    license: Annotated[
        str, typer.Option("--license", help="For its card, by the Hub's name, such as cc-by-4.0.")
    ] = "",
) -> None:
    """Put a model and its card on the Hugging Face Hub; `--model OWNER/NAME` takes it from there.

    The token is that of `hf auth login` or of the environment variable HF_TOKEN.

    Example: priormatch push exp/lpm/model ann/meetings-lpm --private
    """
    from priormatch.pipeline.publish import publish

    publish(folder, name, private, revision, license)


def export(
    model: Annotated[Path, model_argument("Folder of a recognizer.")],
    out: Annotated[Path, typer.Option("--out", help="The folder of the ONNX files.")],
    overwrite: Force = False,
) -> None:
    """Write a recognizer as ONNX: encoder and decoder step, with its pieces, checked under onnxruntime.

    Example: priormatch export exp/lpm/model --out exported
    """
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, and a folder is wanted: give another --out")
    if out.exists() and any(out.iterdir()) and not overwrite:
        raise UserError(f"{out} exists: give another --out, or --overwrite")
    from priormatch.progress import say
    from priormatch.recognizers.export import check
    from priormatch.recognizers.export import export as write
    from priormatch.recognizers.recognizer import Recognizer

    recognizer = Recognizer.load(model)
    say(f"{out}: exporting, which takes a while ...")
    write(recognizer, out)
    worst = check(recognizer, out)
    say(f"{out}: done; log-probabilities under onnxruntime are within {worst:.1e} of the model's")
