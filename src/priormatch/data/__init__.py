"""Speech, text and word pieces, from files to batches."""

SAMPLE_RATE = 16_000
"""Sampling rate of all model input; other audio is resampled when it is loaded."""
