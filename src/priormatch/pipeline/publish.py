"""`priormatch push`: check a model, complete its card, and upload it to the Hub."""

from dataclasses import replace
from pathlib import Path

from priormatch.data.normalizer import LANGUAGE_FILE
from priormatch.data.tokenizer import MODEL_FILE
from priormatch.errors import UserError
from priormatch.pipeline.cards import plain_card, usage, with_license
from priormatch.progress import say
from priormatch.recognizers.card import CARD, read_card, write_card
from priormatch.recognizers.folder import SETTINGS, WEIGHTS
from priormatch.recognizers.hub import require_name, upload
from priormatch.recognizers.load import load_model

FILES = [WEIGHTS, SETTINGS, MODEL_FILE, LANGUAGE_FILE, CARD]
"""The files of a model folder that are uploaded."""


def publish(
    folder: Path, name: str, private: bool = False, revision: str | None = None, license: str = ""
) -> None:
    """Load a model to check that it is intact, complete its card unless it was edited, and upload it."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: give the folder of a trained model")
    require_name(name)
    model = load_model(folder)
    card = read_card(folder)
    if card is None and not (folder / CARD).exists():
        card = plain_card(name.partition("/")[2], model)
    if card is not None:
        card = with_license(card, license) if license else card
        write_card(folder, replace(card, sections=card.sections | {"Use": usage(model, name)}))
        if "license" not in card.facts:
            say(
                f"{folder / CARD} names no license: give --license; without one, others may not use the model"
            )
    elif license:
        raise UserError(f"{folder / CARD} has been edited: add `license: {license}` to it yourself")
    files = [folder / file for file in FILES if (folder / file).is_file()]
    size = sum(file.stat().st_size for file in files)
    say(f"{folder}: pushing {size / 1e6:,.1f} MB to {name} ...")
    say(f"pushed to {upload(folder, FILES, name, private, revision)}")
