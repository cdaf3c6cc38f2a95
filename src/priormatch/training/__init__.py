"""One training loop, with a step each for recognizers, the prior and matching; checkpoints and metrics."""
