"""Check whether the models in a run's folder are complete and use the same pieces."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from priormatch.data.tokenizer import MODEL_FILE, Tokenizer
from priormatch.doctor.finding import Finding
from priormatch.errors import UserError
from priormatch.recognizers.folder import WEIGHTS
from priormatch.recognizers.load import load_model


def findings(folder: Path) -> Iterator[Finding]:
    """Run all checks of a run's models; no findings if there are none yet."""
    tokenizers: dict[str, Tokenizer] = {}
    if (folder / "tokenizer" / MODEL_FILE).is_file():
        tokenizers["tokenizer"] = Tokenizer.load(folder / "tokenizer")
    for place in sorted(file.parent for file in folder.rglob(WEIGHTS)):
        name = str(place.relative_to(folder))
        try:
            tokenizers[name] = load_model(place).tokenizer
        except UserError as error:
            yield Finding(
                "problem", f"{name}: {error}", f"remove {folder / name.split('/')[0]} and run again"
            )
    if tokenizers:
        yield from piece_findings(tokenizers, folder)


def piece_findings(tokenizers: Mapping[str, Tokenizer], folder: Path) -> Iterator[Finding]:
    """Check whether the tokenizer, the prior and the recognizers of a run have the same pieces."""
    first, *others = tokenizers
    agree = True
    for name in others:
        if tokenizers[name] != tokenizers[first]:
            agree = False
            what = (
                f"{folder / name} has other pieces ({tokenizers[name].classes} classes) than"
                f" {folder / first} ({tokenizers[first].classes} classes)"
            )
            advice = (
                f"remove {folder / name.split('/')[0]}; a run creates it again with one tokenizer for all"
            )
            yield Finding("problem", what, advice)
    if agree:
        what = f"{', '.join(tokenizers)} in {folder}: complete, with the same {tokenizers[first].classes} classes"
        yield Finding("ok", what)
