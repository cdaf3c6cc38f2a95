"""The settings that the results of each stage depend on; if one changes, the stage is run again."""

from typing import Any

from priormatch.config import (
    BatchSettings,
    FusionSettings,
    LanguageSettings,
    MatchingSettings,
    ModelSettings,
    PretrainedSettings,
    PriorSettings,
    Settings,
    TokenizerSettings,
    TrainingSettings,
)
from priormatch.decoding.fusion import fusion_of_hypotheses
from priormatch.old_names import REMOVED_FROM_MATCHING
from priormatch.runs.stage import plain

COSMETIC = ("report_every", "checkpoint_seconds", "score_labels_on", "inspect_on")
"""Settings that change what is reported, not what is learned."""
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
    """Settings that prepared text depends on: those of the language, omitted for English."""
    return {} if settings.language == LanguageSettings() else {"language": settings.language}


def audible(settings: Settings) -> dict[str, Any]:
    """The audio settings that change a model's input."""
    return {"longest": settings.audio.longest, "shortest": settings.audio.shortest}


def learned(settings: TrainingSettings | MatchingSettings) -> dict[str, Any]:
    """The training settings that change what is learned; `consistency` is omitted if 0, as older versions lack it."""
    values = {name: value for name, value in plain(settings).items() if name not in COSMETIC}
    if values.get("consistency") == 0:
        del values["consistency"]
    return values | {"batch": recipe_of_batch(settings.batch)}


def recipe_of_batch(batch: BatchSettings) -> dict[str, Any]:
    """The size of a batch; `buckets` is omitted if 0, as older versions lack it, and `accumulate` changes no result."""
    left_out = (("buckets", 0), ("accumulate", batch.accumulate))
    return {name: value for name, value in plain(batch).items() if (name, value) not in left_out}


def learned_by_matching(settings: MatchingSettings) -> dict[str, Any]:
    """The matching settings that change what is learned; those that older versions lack are omitted if they are off."""
    values = learned(settings) | REMOVED_FROM_MATCHING
    left_out = (("baseline", "none"), ("length_normalization", 0), ("list_once", False))
    return {name: value for name, value in values.items() if (name, value) not in left_out}


def recipe_of_training(settings: Settings) -> dict[str, Any]:
    """Settings that a supervised recognizer depends on."""
    pretrained = recipe_of_pretrained(settings.pretrained)
    return {
        **({"pretrained": pretrained} if pretrained else {}),
        **({} if settings.pretrained.recognizer else {"model": recipe_of_model(settings.model)}),
        "training": learned(settings.training),
        "audio": audible(settings),
    }


def recipe_of_pretrained(pretrained: PretrainedSettings) -> dict[str, Any]:
    """How a Hugging Face recognizer is trained, where that differs from the defaults, which older versions lack.

    The recognizer itself is an input of a stage.
    """
    names = ("train", "lora_rank", "language", "task")
    usual = plain(PretrainedSettings())
    return {name: value for name in names if (value := plain(pretrained)[name]) != usual[name]}


def recipe_of_writing(pretrained: PretrainedSettings) -> dict[str, Any]:
    """What a Hugging Face recognizer is told to write, where that differs from the defaults."""
    used = recipe_of_pretrained(pretrained)
    return {name: used[name] for name in ("language", "task") if name in used}


def recipe_of_model(model: ModelSettings) -> dict[str, Any]:
    """Settings that a recognizer's network depends on, as older versions wrote them where they had it.

    These knew two kinds, told apart by `ctc`, and one encoder.
    """
    values = {**plain(model), "ctc": model.kind == "hybrid"}
    unknown = {"encoder", "conformer"} if model.encoder == "tds" else set()
    if model.kind != "ctc":
        unknown |= {"kind"}
    if model.ctc_weight == 0:
        unknown |= {"ctc_weight"}
    return {name: value for name, value in values.items() if name not in unknown}


def recipe_of_tokenizer(tokenizer: TokenizerSettings) -> dict[str, Any]:
    """Settings that a tokenizer depends on; `kind` is omitted for word pieces."""
    return {name: value for name, value in plain(tokenizer).items() if (name, value) != ("kind", "unigram")}


def recipe_of_prior(prior: PriorSettings) -> dict[str, Any]:
    """Settings that the prior depends on; `pieces` is omitted if it has the recognizer's tokenizer.

    Older versions knew one kind only, without `order`.
    """
    if prior.kind == "ngram":
        return {"kind": prior.kind, "order": prior.order}
    left_out = [("pieces", 0), ("kind", prior.kind), ("order", prior.order)]
    left_out += [("pretrained", prior.pretrained), ("text_form", prior.text_form)]
    return {name: value for name, value in plain(prior).items() if (name, value) not in left_out}


def recipe_of_prior_stage(settings: Settings) -> dict[str, Any]:
    """Settings that the stage of the prior depends on: nothing is random in an n-gram model, but it normalizes text."""
    used = {"prior": recipe_of_prior(settings.prior)}
    if settings.prior.kind == "ngram":
        return used | recipe_of_text(settings)
    return used | {"seed": settings.training.seed}


def recipe_of_reading(prior: PriorSettings) -> dict[str, Any]:
    """How the prior reads text, omitted if it reads what the recognizer writes."""
    return {} if prior.text_form == "as_written" else {"text_form": prior.text_form}


def recipe_of_schedule(settings: Settings) -> dict[str, Any]:
    """Settings for training on pseudo-labels and longer supervised training: matching's schedule, not its method."""
    matching = learned(settings.matching)
    return recipe_of_training(settings) | {"matching": {name: matching[name] for name in SCHEDULE}}


def recipe_of_fusion(fusion: FusionSettings) -> dict[str, Any]:
    """Settings that a search with the prior depends on; `centered` is omitted if false."""
    return {name: value for name, value in plain(fusion).items() if name != "centered" or value}


def recipe_of_matching(settings: Settings) -> dict[str, Any]:
    """Settings that local prior matching depends on."""
    fusion = fusion_of_hypotheses(settings)
    searched = {} if fusion is None else {"fusion": recipe_of_fusion(fusion)}
    matching = {"matching": learned_by_matching(settings.matching)}
    return recipe_of_training(settings) | matching | searched | recipe_of_reading(settings.prior)
