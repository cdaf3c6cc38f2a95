"""A corpus like LibriSpeech made from text: passages of books, read by espeak-ng in clean and in other voices."""

from priormatch.prepare.synthetic.corpus import SyntheticOptions, prepare_synthetic
from priormatch.prepare.synthetic.voices import VERSION

__all__ = ["VERSION", "SyntheticOptions", "prepare_synthetic"]
