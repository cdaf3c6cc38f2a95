"""Semi-supervised speech recognition by local prior matching."""

__version__ = "0.1.0"
