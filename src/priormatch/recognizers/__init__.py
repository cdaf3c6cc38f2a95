"""Recognizers and priors as whole objects: network, search, tokenizer, files."""
