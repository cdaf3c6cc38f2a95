"""Local prior matching from Python, in one call."""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from priormatch.config import FusionSettings, Settings
from priormatch.data.corpus import Corpus, cut_text, read_cuts
from priormatch.decoding.fusion import feeds_back, fusion_of_hypotheses, untuned
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.pipeline.match import MatchJob, heard_before, refuse_names
from priormatch.pipeline.recipe import recipe_of_matching
from priormatch.pipeline.work import thin
from priormatch.progress import say
from priormatch.recognizers.decode import greedy_transcripts
from priormatch.recognizers.hf_prior import HuggingFacePrior
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.kenlm_prior import KenlmPrior
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import Stage, digest, fingerprint

AnyPath = str | os.PathLike[str]
Cuts = AnyPath | Iterable[Any]
"""The path of a manifest, or Lhotse cuts."""


def match(
    model: Recognizer | AnyPath,
    prior: Prior | AnyPath,
    labeled: Cuts | None,
    unlabeled: Cuts,
    validation: Mapping[str, Cuts],
    out: AnyPath,
    *,
    lengths: Mapping[str, int] | None = None,
    settings: Settings | None = None,
    contexts: Mapping[str, str] | None = None,
) -> Recognizer:
    """Train a recognizer on unlabeled speech by local prior matching, and return the best model.

    The best model has the lowest mean CER on the validation sets. `model` itself is not changed. Without labeled speech
    (None), every update follows the prior. Checkpoints, metrics and the best model are saved in the folder `out`; an
    interrupted call resumes from there if the models have the same classes and weights.

    `lengths` maps the id of each unlabeled utterance to its estimated number of tokens. By default they come from
    greedy decoding or from the speaking rate of the labeled speech, depending on matching.reference_lengths.
    `contexts` maps ids to texts that the prior reads before those utterances. By default, if matching.context is set,
    they are the greedy transcripts of the previous utterances in the same recordings.

        better = match("exp/sup/model", "exp/prior/model", "train.jsonl.gz", "more.jsonl.gz",
                       {"dev": "dev.jsonl.gz"}, "exp/lpm", settings=load_settings(recipe_path("own")))
    """
    settings, out = settings or Settings(), Path(out)
    refuse_names(settings)
    if fusion_of_hypotheses(settings) == FusionSettings():
        say(f"{untuned(settings.fusion, feeds_back(settings.matching))} settings.fusion")
    device = find_device(settings.device)
    job = MatchJob(
        online=_recognizer(model, settings),
        prior=_prior(prior, settings),
        validation=_validation(validation, settings),
        labeled=None if labeled is None else _corpus(labeled, settings, "labeled", transcribed=True),
        unlabeled=_corpus(unlabeled, settings, "unlabeled"),
        settings=settings,
        out=out,
        log=out,
        reference_lengths=lengths,
        contexts=contexts,
    )
    _check_contexts(job)
    with Stage(out, recipe_of_matching(settings) | _identities(job), {}).work(together=True) as todo:
        if todo:
            _decoded(_on(device, job)).run()
    return type(job.online).load(out / "model", device)


def _recognizer(model: Recognizer | AnyPath, settings: Settings) -> Recognizer:
    """The recognizer at a path, or a copy of the given one."""
    if isinstance(model, str | os.PathLike):
        return load_recognizer(model, pretrained=settings.pretrained)
    return model.copy()


def _prior(prior: Prior | AnyPath, settings: Settings) -> Prior:
    """The prior at a path, or the given one."""
    if isinstance(prior, str | os.PathLike):
        return load_prior(prior, form=settings.prior.text_form)
    return prior


def _validation(sets: Mapping[str, Cuts], settings: Settings) -> dict[str, Corpus]:
    """The validation sets, thinned to training.validate_on utterances each; there must be one."""
    if not sets:
        raise UserError(
            "validation is empty: use at least one set of transcribed cuts to select the best model"
        )
    most = settings.training.validate_on
    return {name: thin(_corpus(cuts, settings, name, transcribed=True), most) for name, cuts in sets.items()}


def _check_contexts(job: MatchJob) -> None:
    """Refuse contexts that are of other utterances, or that the prior cannot read."""
    if job.contexts is not None and not any(cut.id in job.contexts for cut in job.unlabeled.cuts):
        raise UserError(
            "contexts contains no text for an utterance of unlabeled: use the ids of its cuts as keys"
        )
    if job.contexts is None and not job.settings.matching.context:
        return
    if isinstance(job.prior, ConvPrior):
        job.prior.require_context()
    if job.settings.matching.prior_exponent == 0:
        raise UserError(
            "contexts only affect the prior's weights, which are off: set matching.prior_exponent=1 or omit them"
        )


def _on(device: torch.device, job: MatchJob) -> MatchJob:
    """The job with its models on a device."""
    prior = job.prior
    if isinstance(prior, HuggingFacePrior) and prior.device != device:
        prior.to(device).probe()  # the precision depends on the device
    elif isinstance(prior, torch.nn.Module):
        prior = prior.to(device)
    return replace(job, online=job.online.to(device), prior=prior)


def _decoded(job: MatchJob) -> MatchJob:
    """The job with lengths and contexts from greedy decoding, where they are needed and not given."""
    matching, lengths, contexts = job.settings.matching, job.reference_lengths, job.contexts
    needs_lengths = lengths is None and matching.reference_lengths == "greedy"
    needs_contexts = contexts is None and matching.context
    if not (needs_lengths or needs_contexts):
        return job
    heard = greedy_transcripts(job.online, job.unlabeled)
    if needs_lengths:
        lengths = {each.id: each.pieces for each in heard}
    if needs_contexts:
        contexts = heard_before(job.unlabeled, heard)
    return replace(job, reference_lengths=lengths, contexts=contexts)


def _identities(job: MatchJob) -> dict[str, Any]:
    """What the results depend on besides the settings, hashed."""
    lengths, contexts = job.reference_lengths, job.contexts
    corpora = (job.labeled, job.unlabeled, *job.validation.values())
    return {
        "models": [_digest_of(job.online), _digest_of(job.prior)],
        "lengths": None if lengths is None else digest(dict(lengths)),
        "contexts": None if contexts is None else digest(dict(contexts)),
        "cuts": [
            digest([(cut.id, cut_text(cut)) for cut in each.cuts]) for each in corpora if each is not None
        ],
    }


def _corpus(cuts: Cuts, settings: Settings, name: str, transcribed: bool = False) -> Corpus:
    """Make a corpus from a manifest or from cuts, optionally only from those with a transcript."""
    found = read_cuts(Path(cuts)) if isinstance(cuts, str | os.PathLike) else list(cuts)
    kept = [cut for cut in found if not transcribed or cut_text(cut)]
    if not kept:
        raise UserError(
            f"{name} contains no {'transcribed ' if transcribed else ''}utterances: provide other cuts"
        )
    return Corpus(kept, settings.audio, name)


def _digest_of(model: object) -> str:
    """Hash the weights of a model, and what else changes its outputs or its training."""
    hashed = hashlib.sha256(_traits_of(model).encode())
    weights = model.state_dict() if isinstance(model, NgramPrior) else {}
    if isinstance(model, torch.nn.Module):
        weights = torch.nn.Module.state_dict(model)  # also weights that are never trained
    for name, value in sorted(weights.items()):
        hashed.update(name.encode())
        hashed.update(value.cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()[:16]


def _traits_of(model: object) -> str:
    """What distinguishes models with the same weights; "" for a network of this package, which has nothing else."""
    name = type(model).__qualname__
    match model:
        case HuggingFaceRecognizer():
            return f"{name} {model.prompt.tolist()} {sorted(model.frozen)}"
        case SpeechRecognizer() | ConvPrior():
            return ""
        case HuggingFacePrior():
            return f"{name} {model.form}"
        case NgramPrior():
            return f"{name} {model.normalizer}"
        case KenlmPrior(file=Path() as file):
            return f"{name} {fingerprint(file)}"
        case _:
            return name
