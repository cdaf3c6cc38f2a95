"""Loading of models by the kind of their folder."""

import os
from pathlib import Path

import torch

from priormatch.config import PretrainedSettings
from priormatch.models.arpa import is_arpa
from priormatch.recognizers.folder import NGRAM, kind_of
from priormatch.recognizers.hf_files import is_huggingface
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.hub import model_folder
from priormatch.recognizers.kenlm_prior import KenlmPrior, is_kenlm
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior
from priormatch.recognizers.recognizer import SpeechRecognizer


def load_model(folder: Path) -> SpeechRecognizer | ConvPrior | NgramPrior:
    """Load the recognizer or prior in a folder."""
    match kind_of(folder):
        case "prior":
            return ConvPrior.load(folder)
        case "ngram":
            return NgramPrior.load(folder)
        case _:
            return load_recognizer(folder)


def load_recognizer(
    given: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    pretrained: PretrainedSettings | None = None,
) -> SpeechRecognizer:
    """Load a recognizer of any kind from its folder or from the Hub (`owner/name[@revision]`), ready to use.

    `pretrained` says what of a Hugging Face model is trained; it has no effect on our own.
    """
    if is_huggingface(model_folder(given)):
        return HuggingFaceRecognizer.load(given, device, pretrained)
    return SpeechRecognizer.load(given, device)


def load_prior(given: str | os.PathLike[str], device: str | torch.device = "cpu") -> Prior:
    """Load a prior of any kind, ready to score: from its folder, the Hub (`owner/name[@revision]`) or an ARPA file."""
    if is_arpa(Path(given)):
        return NgramPrior.load(given)
    if is_kenlm(Path(given)):
        return KenlmPrior.load(given)
    folder = model_folder(given)
    return NgramPrior.load(folder) if kind_of(folder) == NGRAM else ConvPrior.load(folder, device)
