"""Runs on disk: stages that record how they were made, locks of their folders, and the table of results."""
