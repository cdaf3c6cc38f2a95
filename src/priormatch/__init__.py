"""Semi-supervised speech recognition by local prior matching.

    from priormatch import ConvPrior, SpeechRecognizer, match

The parts of the method can also be imported from here. They are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from priormatch.config import Settings as Settings
    from priormatch.config import load_settings as load_settings
    from priormatch.config import recipe_path as recipe_path
    from priormatch.data.batches import Batch as Batch
    from priormatch.data.tokenizer import Tokenizer as Tokenizer
    from priormatch.decoding.beam import Beam as Beam
    from priormatch.decoding.beam import Hypotheses as Hypotheses
    from priormatch.decoding.beam import beam_search as beam_search
    from priormatch.errors import UserError as UserError
    from priormatch.library import match as match
    from priormatch.matching.lpm import LengthFilter as LengthFilter
    from priormatch.matching.lpm import lpm_loss as lpm_loss
    from priormatch.matching.lpm import weigh as weigh
    from priormatch.models.objective import sequence_loss as sequence_loss
    from priormatch.recognizers.hf_prior import HuggingFacePrior as HuggingFacePrior
    from priormatch.recognizers.ngram_prior import NgramPrior as NgramPrior
    from priormatch.recognizers.prior import ConvPrior as ConvPrior
    from priormatch.recognizers.protocols import Prior as Prior
    from priormatch.recognizers.protocols import Recognizer as Recognizer
    from priormatch.recognizers.recognizer import SpeechRecognizer as SpeechRecognizer

_HOMES = {
    "Batch": "data.batches",
    "Beam": "decoding.beam",
    "ConvPrior": "recognizers.prior",
    "HuggingFacePrior": "recognizers.hf_prior",
    "Hypotheses": "decoding.beam",
    "LengthFilter": "matching.lpm",
    "NgramPrior": "recognizers.ngram_prior",
    "Prior": "recognizers.protocols",
    "Recognizer": "recognizers.protocols",
    "Settings": "config.settings",
    "SpeechRecognizer": "recognizers.recognizer",
    "Tokenizer": "data.tokenizer",
    "UserError": "errors",
    "beam_search": "decoding.beam",
    "load_settings": "config.load",
    "lpm_loss": "matching.lpm",
    "match": "library",
    "recipe_path": "config.load",
    "sequence_loss": "models.objective",
    "weigh": "matching.lpm",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'priormatch' has no attribute {name!r}")
    return getattr(import_module(f"priormatch.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
