"""Beam search, shallow fusion and its tuning."""
