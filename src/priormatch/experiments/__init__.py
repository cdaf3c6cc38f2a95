"""Everything the paper compares: its tables' figures, the systems behind their rows, and ours beside them."""
