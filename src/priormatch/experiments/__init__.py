"""The paper's experiments: the figures of its tables, the systems of their rows, and our results."""
