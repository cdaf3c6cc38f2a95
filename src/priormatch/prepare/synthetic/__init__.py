"""A corpus like LibriSpeech generated from text: passages of books, read by espeak-ng in clean and other voices."""

from priormatch.prepare.synthetic.corpus import SyntheticOptions, prepare_synthetic
from priormatch.prepare.synthetic.voices import VERSION

__all__ = ["VERSION", "SyntheticOptions", "prepare_synthetic"]
