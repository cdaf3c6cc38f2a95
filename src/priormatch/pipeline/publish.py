"""`priormatch push`: check a model, complete its card, and upload it to the Hub."""

from dataclasses import replace
from pathlib import Path

from priormatch.data.normalizer import LANGUAGE_FILE
from priormatch.data.tokenizer import MODEL_FILE
from priormatch.errors import UserError
from priormatch.pipeline.cards import plain_card, usage, with_license
from priormatch.progress import say
from priormatch.recognizers.card import CARD, Card, read_card, render, write_card
from priormatch.recognizers.folder import SETTINGS, WEIGHTS
from priormatch.recognizers.hf_files import files_written, is_huggingface
from priormatch.recognizers.hub import require_name, upload
from priormatch.recognizers.load import load_model

FILES = [WEIGHTS, SETTINGS, MODEL_FILE, LANGUAGE_FILE, CARD]
"""The files of a model folder that are uploaded, unless it lists its own."""


def publish(
    folder: Path, name: str, private: bool = False, revision: str | None = None, license: str = ""
) -> None:
    """Load a model to check that it is intact, and upload it; its card, unless edited, is completed on success."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: provide the folder of a trained model")
    require_name(name)
    card = completed_card(folder, name, license)
    texts = {} if card is None else {CARD: render(card)}
    listed = [*files_written(folder), SETTINGS, CARD] if is_huggingface(folder) else FILES
    files = [folder / file for file in listed if file not in texts and (folder / file).is_file()]
    size = sum(file.stat().st_size for file in files) + sum(map(len, texts.values()))
    say(f"{folder}: pushing {size / 1e6:,.1f} MB to {name} ...")
    say(f"pushed to {upload(folder, listed, name, private, revision, texts=texts)}")
    if card is not None:
        write_card(folder, card)


def completed_card(folder: Path, name: str, license: str) -> Card | None:
    """The card of a model under its name on the Hub; None if the user edited it."""
    model = load_model(folder)
    card = read_card(folder)
    if card is None and (folder / CARD).exists():
        if license:
            raise UserError(f"{folder / CARD} has been edited: add `license: {license}` to it yourself")
        return None
    card = card or plain_card(name.partition("/")[2], model)
    card = with_license(card, license) if license else card
    if "license" not in card.facts:
        say(f"{folder / CARD} names no license: pass --license; without one, others may not use the model")
    return replace(card, sections=card.sections | {"Use": usage(model, name)})
