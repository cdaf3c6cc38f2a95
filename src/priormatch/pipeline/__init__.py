"""What the verbs do: stages of a run, and single jobs."""
