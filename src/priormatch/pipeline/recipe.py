"""What the work of a stage depends on, as plain settings: change one of them, and the work is another."""

from typing import Any

from priormatch.config import FusionSettings, LanguageSettings, MatchingSettings, Settings, TrainingSettings
from priormatch.decoding.fusion import fusion_of_hypotheses
from priormatch.runs.stage import plain

COSMETIC = ("report_every", "checkpoint_seconds", "score_labels_on", "inspect_on")
"""Settings that change what is told, not what is learned."""
REMOVED = {"average": 0.999, "renewed": 1.0, "selected": 1.0, "selected_at_random": 0.25}
"""Settings of matching that older versions had, at the values that every run has now: part of older fingerprints."""
SCHEDULE = (
    "updates",
    "batch",
    "optimizer",
    "mixing",
    "combine",
    "loss_weight",
    "refresh_every",
    "start_counts",
)


def recipe_of_text(settings: Settings) -> dict[str, Any]:
    """What text depends on: how its language is written, which goes without saying for English."""
    return {} if settings.language == LanguageSettings() else {"language": settings.language}


def audible(settings: Settings) -> dict[str, Any]:
    """The settings of audio that change what a model hears."""
    return {"longest": settings.audio.longest, "shortest": settings.audio.shortest}


def learned(settings: TrainingSettings | MatchingSettings) -> dict[str, Any]:
    """The settings of a training that change what is learned."""
    return {name: value for name, value in plain(settings).items() if name not in COSMETIC}


def learned_by_matching(settings: MatchingSettings) -> dict[str, Any]:
    """The settings of matching that change what is learned; no baseline goes without saying."""
    values = learned(settings) | REMOVED
    return {name: value for name, value in values.items() if (name, value) != ("baseline", "none")}


def recipe_of_training(settings: Settings) -> dict[str, Any]:
    """What a supervised recognizer depends on."""
    return {"model": settings.model, "training": learned(settings.training), "audio": audible(settings)}


def recipe_of_schedule(settings: Settings) -> dict[str, Any]:
    """What pseudo-labels and longer supervised training depend on: matching's schedule, not its method."""
    matching = plain(settings.matching)
    return recipe_of_training(settings) | {"matching": {name: matching[name] for name in SCHEDULE}}


def recipe_of_fusion(fusion: FusionSettings) -> dict[str, Any]:
    """What a search with the prior depends on; that it is not centered goes without saying."""
    return {name: value for name, value in plain(fusion).items() if name != "centered" or value}


def recipe_of_matching(settings: Settings) -> dict[str, Any]:
    """What local prior matching depends on."""
    fusion = fusion_of_hypotheses(settings)
    searched = {} if fusion is None else {"fusion": recipe_of_fusion(fusion)}
    return recipe_of_training(settings) | {"matching": learned_by_matching(settings.matching)} | searched
