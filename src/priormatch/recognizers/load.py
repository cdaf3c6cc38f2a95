"""Loading of models by the kind of their folder."""

import os
from pathlib import Path

import torch

from priormatch.recognizers.folder import kind_of
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior
from priormatch.recognizers.recognizer import SpeechRecognizer


def load_model(folder: Path) -> SpeechRecognizer | ConvPrior:
    """Load the recognizer or prior in a folder."""
    return ConvPrior.load(folder) if kind_of(folder) == "prior" else SpeechRecognizer.load(folder)


def load_prior(given: str | os.PathLike[str], device: str | torch.device = "cpu") -> Prior:
    """Load a prior of any kind from its folder or from the Hub (`owner/name[@revision]`), ready to score."""
    return ConvPrior.load(given, device)
