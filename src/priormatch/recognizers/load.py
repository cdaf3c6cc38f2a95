"""Loading of a model folder of either kind."""

from pathlib import Path

from priormatch.recognizers.folder import kind_of
from priormatch.recognizers.prior import Prior
from priormatch.recognizers.recognizer import Recognizer


def load_model(folder: Path) -> Recognizer | Prior:
    """Load the recognizer or prior in a folder."""
    return Prior.load(folder) if kind_of(folder) == "prior" else Recognizer.load(folder)
