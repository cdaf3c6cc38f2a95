"""`priormatch new`: write a commented recipe for a user's data, with sizes chosen for the data and the device."""

import os
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from priormatch.config import NormalizerKind, PretrainedSettings, load_settings, recipe_path
from priormatch.config.checks import keys_of
from priormatch.config.reference import WIDTH, commented_part
from priormatch.data.normalizer import ENGLISH, Normalizer, kind_for
from priormatch.data.tokenizer import CONTROL_PIECES, MARK
from priormatch.doctor.recipe import amount_findings
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.prepare.overview import Speech, letters, sample_speech, sample_text
from priormatch.progress import duration_text, say
from priormatch.recognizers.hf_folder import pretrained
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.load import load_prior

OWN, PRETRAINED = "own", "pretrained"
PIECES = 1000
UPDATES, UPDATES_AN_HOUR = 10_000, 1_000
CPU_UPDATES = 2_000
CPU_SECONDS = 40.0
MOST_WORKERS = 8
MANY_HOURS = 50  # hours of labeled speech from which the paper's model sizes may help
OF_THE_DEMO = """
    tokenizer.kind prior.pieces model.kind model.encoder
    model.n_mels model.channels model.blocks model.kernel model.size model.dropout
    prior.model.embedding prior.model.width prior.model.bottlenecks prior.model.head prior.batch_tokens
    training.batch.seconds training.batch.buckets training.optimizer.learning_rate
    prior.optimizer.learning_rate
    training.ctc_weight training.window_updates training.label_smoothing training.input_sampling
    training.augment.frequency_width training.augment.time_masks training.augment.speeds
    matching.batch.seconds matching.batch.buckets matching.optimizer.learning_rate matching.mixing
"""

# Settings that a user is likely to change, besides those chosen for the data.
SHOWN = """
    name labeled unlabeled text validation test topline device wandb
    audio.longest audio.workers language.normalizer language.alphabet tokenizer.kind
    model.kind model.encoder prior.pieces
    training.seed training.updates training.batch.seconds training.optimizer.learning_rate
    training.validate_every training.augment.speeds
    prior.updates prior.batch_tokens
    matching.updates matching.batch.seconds matching.optimizer.learning_rate matching.mixing
    matching.hypotheses matching.prior_exponent matching.proposal_exponent
    matching.beam_size matching.length_filter matching.refresh_every matching.max_proposal_cer
"""
SHOWN_PRETRAINED = """
    name labeled unlabeled text validation test topline device wandb
    audio.longest audio.workers language.normalizer
    pretrained.recognizer pretrained.train pretrained.gradient_checkpointing pretrained.language
    prior.kind prior.order prior.pretrained prior.text_form
    training.seed training.updates training.batch.seconds training.optimizer.learning_rate training.validate_every
    matching.updates matching.batch.seconds matching.optimizer.learning_rate matching.mixing
    matching.beam_size matching.length_filter matching.refresh_every matching.max_proposal_cer
"""


@dataclass(frozen=True)
class Rule:
    """Chosen values by key, and the reason."""

    why: str
    chosen: dict[str, Any]


@dataclass(frozen=True)
class Given:
    """What a recipe is written for: paths of data, and folders or names on the Hub of pretrained models."""

    labeled: str
    unlabeled: str
    text: str = ""
    tests: Mapping[str, str] = field(default_factory=dict)
    model: str = ""
    prior: str = ""
    language: str = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings with these values."""
        paths = {
            "labeled": self.labeled,
            "unlabeled": self.unlabeled,
            "text": self.text,
            "test": {**self.tests},
        }
        models = {"pretrained.recognizer": self.model, "prior.pretrained": self.prior}
        models["pretrained.language"] = self.language
        return paths | {key: value for key, value in models.items() if value}

    @property
    def base(self) -> str:
        """The recipe that has all other settings."""
        return PRETRAINED if self.model else OWN

    def require_models(self) -> None:
        """Refuse folders and names without a model, before any data are read."""
        if self.model:
            found = pretrained(self.model)
            HuggingFaceRecognizer.load(found.folder, settings=PretrainedSettings(language=self.language))
        if self.prior:
            load_prior(self.prior)


def new_recipe(file: Path, given: Given) -> None:
    """Examine the data and the models, and write the recipe; refuse if the file exists."""
    if file.exists():
        raise UserError(f"{file} already exists: choose another name, or remove it first")
    if not file.parent.is_dir():
        raise UserError(
            f"{file.parent} is not a folder: create it first, or choose another path for the recipe"
        )
    if not (given.text or (given.prior and given.model)):
        raise UserError("there is no text: pass --text, or both --model and --prior, which need none")
    given.require_models()
    speech = {"labeled": look(given.labeled, "labeled", transcribed=True)}
    speech["unlabeled"] = look(given.unlabeled, "unlabeled", transcribed=False)
    for name, path in given.tests.items():
        look(path, f"test {name}", transcribed=True)
    doubts = list(amount_findings(speech["labeled"], speech["unlabeled"]))
    for doubt in doubts:
        say(str(doubt))
    rules = rules_for(given, speech["labeled"])
    rules += [Rule(f"{doubt.what}; {doubt.advice}.", {}) for doubt in doubts]
    try:
        with replacing(file) as temporary:
            temporary.write_text(recipe_text(given, rules, speech, file), encoding="utf-8")
            load_settings(temporary)  # a recipe that does not load is not kept
    except OSError as error:
        raise UserError(f"cannot write {file} ({error.strerror}): choose another path") from error
    typed = shlex.quote(str(file))
    say(f"{file}: written; check it with `priormatch doctor {typed}`, run it with `priormatch run {typed}`")


def rules_for(given: Given, labeled: Speech) -> list[Rule]:
    """Choose the settings that depend on the data and on the machine."""

    def read(normalizer: Normalizer) -> Sequence[str]:
        return sample_text(Path(given.text), normalizer) if given.text else labeled.transcripts()

    sentences, language = read(ENGLISH), list[Rule]()
    if (kind := kind_for(letters(sentences))) != "english":
        sentences, language = read(Normalizer(kind)), [language_rule(kind)]
    gpu, cores = torch.cuda.is_available(), os.cpu_count() or 1
    if given.model:
        return [*language, tuning_rule(gpu, cores)]
    return [*language, *sizes_for(labeled.hours, pieces_for(sentences), gpu, cores)]


def look(path: str, name: str, transcribed: bool) -> Speech:
    """Examine and report the speech at a path; with `transcribed`, some of it must have transcripts."""
    found = sample_speech(Path(path))
    if transcribed and not found.transcribed:
        raise UserError(
            f"{name}: {path} contains no transcribed utterances: put NAME.txt next to NAME.wav, or"
            " provide a table or cuts"
        )
    say(f"{name}: {found}")
    return found


def pieces_for(sentences: Sequence[str]) -> int:
    """The number of word pieces: one per letter and per word that occurs at least three times."""
    words = Counter(word for sentence in sentences for word in sentence.split())
    fewest = len(letters(sentences)) + len(MARK) + CONTROL_PIECES
    return max(fewest, min(PIECES, fewest + sum(count > 2 for count in words.values())))


def sizes_for(hours: float, pieces: int, gpu: bool, cores: int) -> list[Rule]:
    """Choose settings for the hours of labeled speech, the number of word pieces, and the machine."""
    if not gpu:
        why = f"{pieces:,} word pieces: {PIECES:,}, or one per letter and per word that occurs at least three times."
        return [Rule(why, {"tokenizer.pieces": pieces}), cpu_rule()]
    rules = [gpu_rule(hours, cores)]
    if hours >= MANY_HOURS:
        why = f"From {MANY_HOURS} labeled hours, the larger models of recipes/librispeech-100h-360h.yaml may help."
        rules.append(Rule(why, {}))
    return rules


def language_rule(kind: NormalizerKind) -> Rule:
    """The normalizer for a language other than English."""
    why = f"The normalizer {kind}, because many letters of the text are not English."
    return Rule(why, {"language.normalizer": kind})


def gpu_rule(hours: float, cores: int) -> Rule:
    """The models of the base recipe, trained longer if there is more labeled speech."""
    updates = max(UPDATES, round(UPDATES_AN_HOUR * hours))
    workers = workers_for(cores)
    return Rule(
        f"{updates:,} updates: {UPDATES:,}, or {UPDATES_AN_HOUR:,} per labeled hour if that is more;"
        f" {workers} processes read audio: half of the cores, at most {MOST_WORKERS}.",
        schedule(updates, updates // 20) | {"audio.workers": workers},
    )


def workers_for(cores: int) -> int:
    """The number of processes that read audio for a GPU."""
    return min(max(cores // 2, 1), MOST_WORKERS)


def tuning_rule(gpu: bool, cores: int) -> Rule:
    """How a pretrained recognizer is read for; its schedule is that of the base recipe."""
    if gpu:
        workers = workers_for(cores)
        why = f"{workers} processes read audio: half of the cores, at most {MOST_WORKERS}."
        return Rule(why, {"audio.workers": workers})
    why = f"Batches of {CPU_SECONDS:g} s, because there is no GPU: try it on little speech first."
    sizes = {"training.batch.seconds": CPU_SECONDS, "matching.batch.seconds": CPU_SECONDS}
    return Rule(why, {**sizes, "audio.workers": 0})


def cpu_rule() -> Rule:
    """The small models of the demo, and a short training."""
    demo = load_settings(recipe_path("demo"))
    small = {key: attrgetter(key)(demo) for key in keys_of(OF_THE_DEMO)}
    return Rule(
        f"{CPU_UPDATES:,} updates of the demo's small models, because there is no GPU: enough to see it work. They are"
        " trained as in the demo, because the regularization that keeps larger models from overfitting keeps these from"
        " learning. For larger models, write the recipe on a machine with a GPU.",
        small | schedule(CPU_UPDATES, CPU_UPDATES // 10) | {"prior.updates": CPU_UPDATES, "audio.workers": 0},
    )


def schedule(updates: int, validate_every: int) -> dict[str, Any]:
    """Settings that depend on the number of updates."""
    return {
        "training.updates": updates,
        "training.optimizer.warm_up": updates // 20,
        "training.validate_every": validate_every,
        "matching.updates": updates,
    }


def recipe_text(given: Given, rules: Sequence[Rule], speech: Mapping[str, Speech], file: Path) -> str:
    """The recipe: comments that explain the choices, then every setting that was chosen or may be changed."""
    chosen = {"name": file.stem, **given.settings}
    chosen |= {key: value for rule in rules for key, value in rule.chosen.items()}
    settings, shown = load_settings(recipe_path(given.base)), SHOWN_PRETRAINED if given.model else SHOWN
    for key, value in chosen.items():
        *above, name = key.split(".")
        setattr(reduce(getattr, above, settings), name, value)
    heard = " and ".join(
        f"{duration_text(3600 * found.hours)} of {name} speech" for name, found in speech.items()
    )
    typed = shlex.quote(str(file))
    paragraphs = [
        f"Written by `priormatch new` for {heard}. Run it with `priormatch run {typed}`.",
        f"Settings not listed here are those of the recipe `{given.base}`; `priormatch settings --recipe {typed}`"
        " prints and explains every setting. Sizes were chosen by these rules:",
        *(f"- {rule.why}" for rule in rules),
    ]
    head = "".join(
        textwrap.indent(textwrap.fill(each, WIDTH, subsequent_indent="  " * each.startswith("-")), "# ")
        + "\n"
        for each in paragraphs
    )
    return f"{head}base: {given.base}\n{commented_part(settings, {*keys_of(shown), *chosen})}"
