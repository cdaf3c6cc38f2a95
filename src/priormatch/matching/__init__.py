"""Local prior matching: `lpm.py` is the method; baselines, filters, contexts and diagnostics are beside it."""
