"""Check for settings that are valid but do not fit each other."""

from collections.abc import Iterator

from priormatch.config import Settings
from priormatch.doctor.finding import Finding


def findings(settings: Settings) -> Iterator[Finding]:
    """Warn about settings that are likely to fail."""
    augment, mels = settings.training.augment, settings.model.n_mels
    width = augment.frequency_width
    if augment.frequency_masks and 2 * width > mels:
        yield Finding(
            "warning",
            f"training.augment.frequency_width={width} may mask most of the model.n_mels={mels} mel bands",
            f"lower it to about {mels // 4}",
        )
