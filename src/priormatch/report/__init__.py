"""The report of runs: one HTML file that needs nothing else."""
