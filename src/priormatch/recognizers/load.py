"""Loading of a model folder of either kind."""

from pathlib import Path

from priormatch.recognizers.folder import kind_of
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer


def load_model(folder: Path) -> SpeechRecognizer | ConvPrior:
    """Load the recognizer or prior in a folder."""
    return ConvPrior.load(folder) if kind_of(folder) == "prior" else SpeechRecognizer.load(folder)
