"""Checks of the settings: every number is within its bounds, and no settings contradict each other."""

import math
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from typing import Any

from priormatch.config.settings import (
    ORACLE,
    ConvLMSettings,
    KeepSettings,
    ModelSettings,
    PriorSettings,
    Settings,
    TrainingSettings,
    all_keys,
)
from priormatch.errors import UserError

MOST_SIZE = 65_536  # of any dimension of a layer
MOST_LAYERS = 300  # building this many takes a few seconds

# A requirement in words, its test, and the keys it applies to; every entry of a list must pass.
BOUNDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "must be at least 1",
        lambda number: number >= 1,
        """
        training.updates matching.updates prior.updates
        training.report_every *.validate_every matching.refresh_every
        model.n_mels model.channels model.kernel model.size model.longest_output
        model.conformer.width model.conformer.layers model.conformer.heads model.conformer.kernel
        prior.model.embedding prior.model.width prior.model.head prior.model.kernel prior.batch_tokens
        matching.beam_size fusion.beam_size *.batch.accumulate pretrained.lora_rank
        """,
    ),
    (
        "must be 0 or more",
        lambda number: number >= 0,
        """
        threads audio.workers model.blocks *.batch.seconds *.batch.utterances *.batch.buckets training.augment.*_masks
        training.augment.*_width training.window_updates training.validate_on training.ctc_weight training.consistency
        matching.loss_weight matching.*_exponent matching.score_labels_on matching.inspect_on
        matching.length_normalization
        *.optimizer.decay_every *.optimizer.warm_up *.optimizer.weight_decay
        fusion.token_margin fusion.attention_jump fusion.beam_threshold prior.pieces
        """,
    ),
    (
        "must be positive",
        lambda number: number > 0,
        """
        audio.shortest audio.longest training.augment.speeds training.window_deviation
        training.checkpoint_seconds matching.max_proposal_cer *.optimizer.learning_rate *.optimizer.clip
        """,
    ),
    ("must be above 0 and below 1", lambda share: 0 < share < 1, "validation_share prior.validation_share"),
    (
        "must be at least 0 and below 1",
        lambda share: 0 <= share < 1,
        """
        model.dropout prior.model.dropout training.label_smoothing training.input_sampling
        training.piece_sampling *.optimizer.momentum
        """,
    ),
    (
        "must be from 0 to 1",
        lambda share: 0 <= share <= 1,
        "audio.max_bad_share audio.gpu_share model.ctc_weight",
    ),
    (
        "must be finite and 0 or more",
        lambda number: 0 <= number < math.inf,
        "fusion.lm_weight fusion.token_bonus",
    ),
    (
        "must be at least 1; otherwise no hypothesis could end",
        lambda number: number >= 1,
        "fusion.eos_threshold",
    ),
    (
        "must be above 0 and at most 1",
        lambda factor: 0 < factor <= 1,
        "*.optimizer.decay",
    ),
    (
        f"must be at most {MOST_SIZE:,}",
        lambda number: number <= MOST_SIZE,
        """
        model.channels model.kernel model.size model.longest_output model.conformer.width model.conformer.kernel
        prior.model.embedding prior.model.width prior.model.head prior.model.kernel
        """,
    ),
    ("must be 4 or 8", lambda factor: factor in (4, 8), "model.conformer.subsampling"),
    (f"must be at most {MOST_LAYERS:,}", lambda number: number <= MOST_LAYERS, "model.conformer.layers"),
    ("must be from 1 to 10", lambda order: 1 <= order <= 10, "prior.order"),
    ("must be at most 1,000", lambda number: number <= 1000, "model.n_mels"),
    ("must be at least 4, because three are control pieces", lambda pieces: pieces >= 4, "tokenizer.pieces"),
    ("must be 0 or more and below 2**31", lambda seed: 0 <= seed < 1 << 31, "training.seed demo.seed"),
)


def check(settings: Settings) -> None:
    """Raise an error for invalid or contradictory settings, before any work starts."""
    _check_bounds(settings, "")
    _check_names(settings)
    _check_kept(settings)
    _check_models(settings)
    _check_ngram(settings.prior)
    _check_pretrained(settings)
    _check_training(settings)


def check_model(model: ModelSettings | ConvLMSettings) -> None:
    """Raise an error for a network that cannot be built or is far too large, before it is built."""
    if isinstance(model, ModelSettings):
        settings, part = Settings(model=model), "model."
    else:
        settings, part = Settings(prior=PriorSettings(model=model)), "prior.model."
    _check_bounds(settings, part)
    _check_models(settings)


def _check_bounds(settings: Settings, part: str) -> None:
    """Check the bounds of every number whose key starts with `part`."""
    for what, holds, patterns in BOUNDS:
        for key in keys_of(patterns):
            if key.startswith(part):
                value = attrgetter(key)(settings)
                entries = value if isinstance(value, list) else [value]
                numbers = all(
                    isinstance(each, int | float) for each in entries
                )  # OmegaConf accepts lists in place of numbers
                _need(numbers and all(map(holds, entries)), key, value, what)


def keys_of(patterns: str) -> list[str]:
    """The keys that match any of the patterns, such as *.batch.seconds."""
    return [key for pattern in patterns.split() for key in all_keys() if fnmatchcase(key, pattern)]


def _check_names(settings: Settings) -> None:
    """Check names that become file or folder names."""
    for key, name in (("name", settings.name), *((f"test.{name}", name) for name in settings.test)):
        plain = name not in ("", ".", "..") and not {"/", "\\"} & set(name)
        _need(plain, key, name, "becomes a file or folder name: provide a plain name without / or \\")


def _check_kept(settings: Settings) -> None:
    """Check when and under which names copies are kept, and that matching starts from existing copies only."""
    copies = {"training": settings.training.keep, "prior": settings.prior.keep}
    for stage, kept in copies.items():
        for name, when in kept.items():
            key = f"{stage}.keep"
            _need((when.update > 0) != (when.score > 0), f"{key}.{name}", when, "set either update or score")
            updates = getattr(settings, stage).updates
            _need(when.update <= updates, f"{key}.{name}", when, f"training ends at update {updates}")
            _need(re.fullmatch(r"[\w.\-]+", name) is not None, key, name, "use a plain name for the copy")
        _check_moments(stage, kept, getattr(settings, stage))
    wanted = settings.matching
    starts = (("start", wanted.start, "training"), ("proposal", wanted.proposal, "training"))
    prior = "" if wanted.prior == ORACLE else wanted.prior
    for key, name, stage in (*starts, ("prior", prior, "prior")):
        known = list(copies[stage])
        _need(not name or name in known, f"matching.{key}", name, f"no such copy: {stage}.keep names {known}")


def _check_moments(
    stage: str, kept: dict[str, KeepSettings], training: TrainingSettings | PriorSettings
) -> None:
    """Check that no two copies are kept at the same validation, because they would be the same model."""
    moments: dict[int, str] = {}
    for name, when in kept.items():
        validations = -(-when.update // training.validate_every)
        moment = min(validations * training.validate_every, training.updates)
        other = moments.setdefault(moment, name) if when.update else name
        what = f"would be the same model as {other}, kept at the validation at update {moment}; change one of them"
        _need(other == name, f"{stage}.keep.{name}", when, what)


def _check_models(settings: Settings) -> None:
    model, need = settings.model, partial(_need_of, settings)
    stages = len(model.channels)
    need(
        "model.blocks",
        stages == len(model.blocks) > 0,
        f"use one number of blocks for each of the {stages} entries of model.channels",
    )
    need("model.kernel", model.kernel % 2 == 1, "must be odd")
    layers = len(model.blocks) + sum(model.blocks)
    need("model.blocks", layers <= MOST_LAYERS, f"use at most {MOST_LAYERS:,} blocks in total")
    conformer = model.conformer
    need(
        "model.conformer.width",
        conformer.width % (2 * conformer.heads) == 0,
        f"must be divisible by {2 * conformer.heads}, twice the number of heads",
    )
    need("model.conformer.kernel", conformer.kernel % 2 == 1, "must be odd")
    need(
        "model.ctc_weight",
        model.ctc_weight == 0 or model.kind == "hybrid",
        f"has no effect on model.kind={model.kind}; set model.kind=hybrid or model.ctc_weight=0",
    )
    bottlenecks = settings.prior.model.bottlenecks
    need(
        "prior.model.bottlenecks",
        all(map(_is_bottleneck, bottlenecks)),
        "use three positive numbers for each (inner width, outer width, number of blocks), such as [[64,128,2]]",
    )
    layers = sum(each[2] for each in bottlenecks)
    need("prior.model.bottlenecks", layers <= MOST_LAYERS, f"use at most {MOST_LAYERS:,} blocks in total")


def _is_bottleneck(entry: Any) -> bool:
    numbers = isinstance(entry, list) and all(isinstance(each, int) for each in entry)
    return numbers and len(entry) == 3 and min(entry) >= 1 and max(entry) <= MOST_SIZE


def _check_pretrained(settings: Settings) -> None:
    """Refuse copies of a prior that a run does not train, and a prior over the tokens of a pretrained recognizer."""
    prior, need = settings.prior, partial(_need_of, settings)
    need(
        "prior.keep",
        not (prior.pretrained and prior.keep),
        "has no effect with prior.pretrained, which is not trained; remove it",
    )
    trained = prior.kind == "conv" and not prior.pretrained
    need(
        "prior.pieces",
        not (settings.pretrained.recognizer and trained) or prior.pieces > 0,
        "a prior trained for pretrained.recognizer needs its own tokenizer; set prior.pieces to 1000, for"
        " example, or prior.kind=ngram",
    )


def _check_ngram(prior: PriorSettings) -> None:
    """Refuse copies and a tokenizer of an n-gram prior, which has neither."""
    for name, value in (("pieces", prior.pieces), ("keep", prior.keep)):
        what = "has no effect on prior.kind=ngram, which reads words and has no updates; remove it"
        _need(prior.kind == "conv" or not value, f"prior.{name}", value, what)


def _check_training(settings: Settings) -> None:
    training, matching, audio = settings.training, settings.matching, settings.audio
    need, kind = partial(_need_of, settings), settings.model.kind
    need("audio.longest", audio.shortest < audio.longest, "must be above audio.shortest")
    need(
        "audio.segment",
        audio.segment == 0 or 1 <= audio.segment <= audio.longest,
        f"must be 0 or from 1 to audio.longest={audio.longest:g}",
    )
    for key, batch in (("training.batch", training.batch), ("matching.batch", matching.batch)):
        need(key, (batch.seconds > 0) != (batch.utterances > 0), "set either seconds or utterances")
    need(
        "training.ctc_weight",
        training.ctc_weight == 0 or kind == "hybrid",
        f"has no effect on model.kind={kind}; set model.kind=hybrid or training.ctc_weight=0",
    )
    need(
        "training.consistency",
        training.consistency == 0 or kind != "attention",
        "has no effect on model.kind=attention; set model.kind=ctc or hybrid, or training.consistency=0",
    )
    need(
        "matching.mixing",
        len(matching.mixing) == 2 and min(matching.mixing) >= 1,
        "use two positive numbers, paired and unpaired, such as [1,4]",
    )
    bounds = matching.length_filter
    need(
        "matching.length_filter",
        bounds == [] or (len(bounds) == 2 and 0 <= bounds[0] <= bounds[1]),
        "use a lower and an upper bound, such as [0.95,1.05], or [] for no filter",
    )
    prior, context = settings.prior, matching.context
    need(
        "matching.context",
        not context or prior.model.context or prior.kind == "ngram" or prior.pretrained != "",
        "needs a prior trained with context; set prior.model.context=true, or prior.kind=ngram",
    )
    source = matching.reference_lengths
    need(
        "matching.context",
        not context or source in ("greedy", "asr_lm"),
        f"matching.reference_lengths={source} has no text to use as context; set greedy or asr_lm",
    )
    need(
        "matching.context",
        not context or matching.prior_exponent != 0,
        "only affects the prior's weights, which are off; set matching.prior_exponent=1",
    )
    need(
        "matching.prior",
        matching.prior != ORACLE or (matching.hypotheses == "asr" and not context),
        "it supports neither shallow fusion nor context; set matching.hypotheses=asr and matching.context=false",
    )
    need(
        "matching.list_once",
        not matching.list_once or (matching.baseline == "none" and matching.refresh != "on_policy"),
        "needs a proposal that stays the same between refreshes: omit matching.baseline and"
        " matching.refresh=on_policy",
    )
    need(
        "matching.refresh",
        matching.baseline != "topipl" or matching.refresh == "better",
        "has no effect on the averaged proposal of matching.baseline=topipl; remove it",
    )
    need(
        "matching.combine",
        matching.combine == "sum" or matching.optimizer.kind == "sgd",
        "adamw would normalize the loss weight away in alternating updates; set matching.combine=sum",
    )


def _need_of(settings: Settings, key: str, holds: bool, what: str) -> None:
    _need(holds, key, attrgetter(key)(settings), what)


def _need(holds: bool, key: str, value: Any, what: str) -> None:
    if not holds:
        shown = str(value)
        raise UserError(f"{key}={shown if len(shown) <= 200 else shown[:200] + '...'}: {what}")
