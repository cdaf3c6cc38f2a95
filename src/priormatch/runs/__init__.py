"""Runs on disk: stages that remember what made them, and the pipeline from data to a table of results."""
