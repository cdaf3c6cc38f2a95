"""Recognizers and priors as complete objects: network, search, tokenizer and files."""
