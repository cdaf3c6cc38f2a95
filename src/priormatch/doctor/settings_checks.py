"""Settings that are allowed, and fit each other badly."""

from collections.abc import Iterator

from priormatch.config import Settings
from priormatch.doctor.finding import Finding


def findings(settings: Settings) -> Iterator[Finding]:
    """What a recipe is likely to fail by."""
    augment, mels = settings.training.augment, settings.model.n_mels
    width = augment.frequency_width
    if augment.frequency_masks and 2 * width > mels:
        yield Finding(
            "warning",
            f"training.augment.frequency_width={width} may hide most of what model.n_mels={mels} hears",
            f"lower it to {mels // 4} or so",
        )
