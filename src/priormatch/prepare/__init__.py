"""Corpora in many formats, the demo and synthetic speech, turned into cuts."""
