"""Implementation of the commands: the stages of a run, and single jobs."""
