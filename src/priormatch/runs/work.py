"""The work behind the verbs: each trains or decodes into a folder, from files, under given settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lhotse.cut import Cut

from priormatch.config import Settings
from priormatch.data.batches import Corpus, cut_text, read_cuts
from priormatch.data.normaliser import ENGLISH, Normaliser
from priormatch.data.recordings import previous_in_recording
from priormatch.data.text_files import read_sentences
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.evaluation.decoding import (
    decode_to_file,
    mean_cer,
    plain_search,
    search_with_prior,
    validation_errors,
)
from priormatch.evaluation.hypotheses import Weighing
from priormatch.evaluation.transcripts import Transcript, read_transcripts, write_transcripts
from priormatch.matching.cache import CachedTargets
from priormatch.matching.context import contexts_of
from priormatch.matching.length_filter import LengthFilter, keep_all
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal, require_fit
from priormatch.matching.targets import BeamTargets, TargetsOf, given_labels
from priormatch.models.folder import WEIGHTS
from priormatch.models.recognizer import Recognizer
from priormatch.progress import say
from priormatch.runs.cards import PAPER, heard, leave_card, parameters, trained_card
from priormatch.runs.recipe import recipe_of_matching, recipe_of_schedule, recipe_of_training
from priormatch.runs.stage import fingerprint
from priormatch.training.inspected import FILE as INSPECTED
from priormatch.training.inspected import Inspector
from priormatch.training.loop import Schedule, fit
from priormatch.training.matching import Matching
from priormatch.training.prior import PriorTraining, Sentences
from priormatch.training.supervised import Supervised
from priormatch.training.wandb_log import wandb_plan


def make_tokenizer(
    sentences: Sequence[str], pieces: int, out: Path, normaliser: Normaliser = ENGLISH
) -> None:
    """Train a tokenizer into a folder and say how it spells."""
    tokenizer = train_tokenizer(sentences, pieces, normaliser)
    tokenizer.save(out)
    sample = sentences[:: max(len(sentences) // 10_000, 1)]
    per_word = tokenizer.pieces_per_word(sample)
    say(f"{out}: {tokenizer.classes} classes, {per_word:.2f} pieces a word")
    if per_word > 4:
        say("that is close to letters: more text, or fewer pieces, usually spells better")
    unlike = sum(normaliser(sentence) != sentence for sentence in sample)
    if unlike and normaliser != ENGLISH:  # LibriSpeech's transcripts keep apostrophes that ours strips
        say(
            f"{unlike:,} of {len(sample):,} sentences are not as the normaliser {normaliser.name} writes them:"
            " prepare the text with the same language.normalizer"
        )


def transcripts_of(cuts: Path) -> list[str]:
    """The transcripts of a manifest."""
    return [text for cut in read_cuts(cuts) if (text := cut_text(cut))]


def sentences_of(path: Path) -> list[str]:
    """The sentences of a file of text."""
    if sentences := list(read_sentences(path)):
        return sentences
    raise UserError(f"{path} holds no sentence: give a file of text, as `priormatch prepare text` writes it")


def train_prior(
    text: Sequence[str],
    held_out: Sequence[str],
    tokenizer: Tokenizer,
    settings: Settings,
    out: Path,
    log: Path,
) -> None:
    """Train the prior on sentences."""
    torch.manual_seed(settings.training.seed)
    prior = Prior(settings.prior.model, tokenizer).to(find_device(settings.device))
    sentences, validation = Sentences(text, tokenizer), Sentences(held_out, tokenizer)
    say(f"prior: {parameters(prior)} parameters, {len(sentences.flat):,} pieces of text")
    task = PriorTraining(prior, sentences, validation, settings.prior, settings.training.seed)
    schedule = Schedule(
        settings.prior.updates,
        settings.prior.optimizer,
        settings.training.seed,
        settings.prior.validate_every,
        report_every=settings.training.report_every,
        checkpoint_seconds=settings.training.checkpoint_seconds,
        keep=settings.prior.keep,
        wandb=wandb_plan(settings),
    )
    best = fit(task, schedule, out, log, out.name)
    leave_card(
        out / "model",
        trained_card(
            out.resolve().name,
            prior,
            "Trained on text.",
            [f"text: {len(text):,} sentences, {len(sentences.flat):,} word pieces"],
            f"perplexity a word piece on {len(held_out):,} held-out sentences: {best:.2f}",
            {"prior": settings.prior, "seed": settings.training.seed},
            settings.card,
        ),
    )


def load_validation(paths: Mapping[str, Path], settings: Settings) -> dict[str, Corpus]:
    """Validation sets, thinned to training.validate_on utterances each."""
    return {
        name: thin(Corpus.load(path, settings.audio, transcribed=True), settings.training.validate_on)
        for name, path in paths.items()
    }


def thin(corpus: Corpus, most: int) -> Corpus:
    """At most so many utterances of a corpus, always the same; all of them for 0."""
    if most == 0 or most >= len(corpus):
        return corpus
    kept = sorted(np.random.default_rng(0).permutation(len(corpus))[:most])
    return Corpus([corpus.cuts[index] for index in kept], corpus.audio, corpus.name)


def transcribed_sample(transcribed: Path, unlabelled: Corpus, settings: Settings) -> Corpus | None:
    """Of the unlabelled utterances whose transcripts are known, those to score a proposal's labels on, if any."""
    most = settings.matching.score_labels_on
    if most == 0:
        return None
    ids = {cut.id for cut in unlabelled.cuts}
    known = [cut for cut in read_cuts(transcribed) if cut.id in ids and cut_text(cut)]
    if not known:
        say(
            f"{transcribed} has no transcript of an utterance of {unlabelled.name}:"
            " the proposal's labels are not scored"
        )
        return None
    return thin(Corpus(known, settings.audio, str(transcribed)), most)


def train_supervised(
    labelled: Sequence[Path],
    validation: Mapping[str, Path],
    tokenizer: Tokenizer,
    settings: Settings,
    out: Path,
    log: Path,
    start: Path | None = None,
    updates: int | None = None,
) -> None:
    """Train a recogniser on transcribed speech, from scratch, or on from `start` under matching's schedule."""
    training, matching = settings.training, settings.matching
    device = find_device(settings.device)
    torch.manual_seed(training.seed)
    model = Recognizer(settings.model, tokenizer) if start is None else Recognizer.load(start)
    model.to(device)
    cuts = [cut for path in labelled for cut in Corpus.load(path, settings.audio, transcribed=True).cuts]
    corpus = Corpus(cuts, settings.audio, ", ".join(map(str, labelled)))
    say(f"{out.name}: {parameters(model)} parameters on {device}, {corpus.hours:.2f} labelled hours")
    if start is None:
        schedule = supervised_schedule(settings, updates or training.updates)
        size = training.batch
    else:
        schedule, size = matching_schedule(settings), matching.batch
        training = replace(training, window_updates=0)
    sets = load_validation(validation, settings)
    best = fit(Supervised(model, corpus, sets, training, size), schedule, out, log, out.name)
    recipe = recipe_of_training(settings) if start is None else recipe_of_schedule(settings)
    recipe |= {"updates": schedule.updates}
    speech = {"transcribed speech": corpus}
    leave_recogniser_card(out, model, "Trained on transcribed speech.", speech, sets, best, recipe, settings)


def supervised_schedule(settings: Settings, updates: int) -> Schedule:
    """How a recogniser is trained from scratch."""
    training = settings.training
    return Schedule(
        updates,
        training.optimizer,
        training.seed,
        training.validate_every,
        report_every=training.report_every,
        checkpoint_seconds=training.checkpoint_seconds,
        keep=training.keep,
        wandb=wandb_plan(settings),
    )


def matching_schedule(settings: Settings) -> Schedule:
    """How a trained recogniser is trained further."""
    training, matching = settings.training, settings.matching
    return Schedule(
        matching.updates,
        matching.optimizer,
        training.seed,
        matching.refresh_every,
        validate_first=True,
        start_counts=matching.start_counts,
        report_every=training.report_every,
        checkpoint_seconds=training.checkpoint_seconds,
        wandb=wandb_plan(settings),
    )


def match(
    model: Path,
    prior: Path | None,
    labelled: Path,
    unlabelled: Path,
    lengths: Path | None,
    validation: Mapping[str, Path],
    settings: Settings,
    out: Path,
    log: Path,
    proposal: Path | None = None,
    transcribed: Path | None = None,
) -> None:
    """Local prior matching from files: the model at `model` is the online model, and without another the proposal.

    The proposal's labels are scored on unlabelled utterances that `transcribed` has, with their transcripts.
    """
    device = find_device(settings.device)
    online = Recognizer.load(model, device)
    judge = None if prior is None else Prior.load(prior, device)
    if judge is not None:
        judge.require_tokenizer(online.tokenizer, str(model))
    heard = None if lengths is None else read_transcripts(lengths)
    speech = Corpus.load(unlabelled, settings.audio)
    match_corpora(
        online,
        judge,
        Corpus.load(labelled, settings.audio, transcribed=True),
        speech,
        None if heard is None else {each.id: each.pieces for each in heard},
        load_validation(validation, settings),
        settings,
        out,
        log,
        online if proposal is None else Recognizer.load(proposal, device),
        heard_before(speech, heard) if settings.matching.context else None,
        None if transcribed is None else transcribed_sample(transcribed, speech, settings),
    )


def match_corpora(
    online: Recognizer,
    prior: Prior | None,
    labelled: Corpus,
    unlabelled: Corpus,
    reference_lengths: Mapping[str, int] | None,
    validation: Mapping[str, Corpus],
    settings: Settings,
    out: Path,
    log: Path,
    first_proposal: Recognizer,
    contexts: Mapping[str, str] | None = None,
    transcribed: Corpus | None = None,
) -> None:
    """Local prior matching: the online model, with the best validation CER it had, ends up in `out/model`.

    The prior may be missing where matching.prior_exponent is 0, and reference lengths where there is no filter.
    `contexts` gives texts that the prior reads before utterances, by their ids; on `transcribed` utterances the
    proposal's labels are scored. Beams of a few unlabelled utterances, transcribed ones where there are any, are kept
    in `out/inspected.jsonl`.
    """
    matching = settings.matching
    require_inputs(prior, reference_lengths, settings)
    if prior is not None:
        prior.require_tokenizer(online.tokenizer, "the recogniser")
        if contexts is not None:
            prior.require_context()
    if first_proposal.tokenizer != online.tokenizer:
        raise UserError(
            "the proposal's tokenizer is not that of the online model: train both with one tokenizer"
        )
    cer = mean_cer(validation_errors(first_proposal, validation))
    require_fit(cer, matching.max_proposal_cer)
    proposal = Proposal(first_proposal, cer, matching.refresh, matching.average)
    lengths = reference_lengths or {}
    keep = LengthFilter(*matching.length_filter) if matching.length_filter else keep_all
    exponents = matching.prior_exponent, matching.proposal_exponent
    targets: TargetsOf = BeamTargets(
        proposal,
        prior,
        matching.beam_size,
        keep,
        lengths,
        matching.merge_spellings,
        exponents,
        contexts,
    )
    if matching.renewed < 1:
        targets = CachedTargets(targets, matching.renewed, online.tokenizer.eos)
    speech = with_lengths(unlabelled, lengths) if matching.length_filter else unlabelled
    say(f"{out.name}: {speech.hours:.2f} unlabelled hours, proposal's validation CER {cer:.2f} %")
    inspector = None
    if prior is not None and matching.inspect_on > 0:
        weighing = Weighing(prior, keep, lengths, matching.merge_spellings, contexts or {}, exponents)
        shown = thin(speech if transcribed is None else transcribed, matching.inspect_on)
        few = Corpus(shown.cuts, replace(settings.audio, workers=0), shown.name)
        inspector = Inspector(few, matching.beam_size, weighing, out / INSPECTED)
    task = Matching(
        online,
        labelled,
        speech,
        validation,
        targets,
        proposal,
        settings.training,
        matching,
        transcribed,
        inspector,
    )
    best = fit(task, matching_schedule(settings), out, log, out.name)
    proposal.model.save(out / "proposal")
    how = f"Trained further on untranscribed speech by {PAPER}."
    data = {"transcribed speech": labelled, "untranscribed speech": speech}
    recipe = recipe_of_matching(settings)
    leave_recogniser_card(out, online, how, data, validation, best, recipe, settings)


def refuse_names(settings: Settings) -> None:
    """Refuse settings that name what only a run knows, where models and lengths are given by their paths."""
    for name, nothing in (("start", ""), ("proposal", ""), ("prior", ""), ("reference_lengths", "greedy")):
        value = getattr(settings.matching, name)
        if value != nothing:
            raise UserError(
                f"matching.{name}={value} is for `priormatch run`: here give the path of what it names instead"
            )


def require_inputs(prior: object, lengths: object, settings: Settings) -> None:
    """Refuse to match without what the settings need."""
    matching = settings.matching
    if prior is None and matching.prior_exponent != 0:
        raise UserError(
            "there is no prior: give one, or leave it out of the weights (matching.prior_exponent=0)"
        )
    if lengths is None and matching.length_filter:
        raise UserError(
            "there are no reference lengths: give them, or switch the filter off (matching.length_filter=[])"
        )


def heard_before(corpus: Corpus, transcripts: Sequence[Transcript] | None) -> dict[str, str]:
    """What was heard before each utterance in its recording, for the prior to read; there must be something."""
    heard = {each.id: each.hypothesis for each in transcripts or []}
    if not any(heard.values()):
        raise UserError(
            "matching.context needs transcripts of the unlabelled speech, not lengths alone: give what"
            " `priormatch lengths` wrote, or match without (matching.context=false)"
        )
    require_recordings(corpus.cuts, corpus.name)
    found = contexts_of(corpus.cuts, heard)
    say(
        f"{corpus.name}: {len(found)} of {len(corpus)} utterances are judged after what was heard before them"
    )
    return found


def require_recordings(cuts: Sequence[Cut], name: str) -> None:
    """Refuse speech in which nothing comes before anything, where the prior is to read that."""
    if not previous_in_recording(cuts):
        raise UserError(
            f"matching.context: no utterance of {name} follows another in its recording: give cuts of longer"
            " recordings, or match without (matching.context=false)"
        )


def write_lengths(lengths: Mapping[str, int], out: Path) -> None:
    """Reference lengths as `match` reads them."""
    write_transcripts(out, [Transcript(name, "", pieces, None, []) for name, pieces in lengths.items()])


def kept_copy(model: Path, name: str) -> Path:
    """A copy of a model that its training kept, or the best one, at `model`, where no name is given."""
    copy = model.parent / "kept" / name
    if name and not (copy / WEIGHTS).is_file():
        raise UserError(f"{copy} does not exist: the training ended before that copy was due")
    return copy if name else model


def with_lengths(corpus: Corpus, lengths: Mapping[str, int]) -> Corpus:
    """Leave out utterances in which greedy decoding heard nothing, as the authors do."""
    kept = [cut for cut in corpus.cuts if lengths.get(cut.id, 0) > 0]
    if len(kept) == len(corpus):
        return corpus
    if not kept:
        raise UserError(
            f"no utterance of {corpus.name} has a reference length: make them of it with `priormatch lengths`"
        )
    without = len(corpus) - len(kept)
    say(f"{corpus.name}: {without} of {len(corpus)} utterances have no reference length: left out")
    return Corpus(kept, corpus.audio, corpus.name)


def train_on_pseudo_labels(
    model: Path,
    labelled: Path,
    pseudo_labelled: Path,
    validation: Mapping[str, Path],
    settings: Settings,
    out: Path,
    log: Path,
) -> None:
    """Train on from `model` on transcripts and fixed pseudo-labels, mixed and scheduled as in matching."""
    online = Recognizer.load(model, find_device(settings.device))
    paired = Corpus.load(labelled, settings.audio, transcribed=True)
    speech = Corpus.load(pseudo_labelled, settings.audio, transcribed=True)
    sets = load_validation(validation, settings)
    task = Matching(online, paired, speech, sets, given_labels, None, settings.training, settings.matching)
    best = fit(task, matching_schedule(settings), out, log, out.name)
    how = "Trained further on speech that another recogniser transcribed."
    data = {"transcribed speech": paired, "speech with pseudo-labels": speech}
    leave_recogniser_card(out, online, how, data, sets, best, recipe_of_schedule(settings), settings)


def leave_recogniser_card(
    out: Path,
    model: Recognizer,
    how: str,
    speech: Mapping[str, Corpus],
    validation: Mapping[str, Corpus],
    best: float,
    recipe: Mapping[str, Any],
    settings: Settings,
) -> None:
    """Describe a recogniser in its folder, `out/model`."""
    data = [heard(role, corpus) for role, corpus in speech.items()]
    score = f"mean CER on {', '.join(validation)}, by which it was chosen: {best:.2f} %"
    card = trained_card(out.resolve().name, model, how, data, score, recipe, settings.card)
    leave_card(out / "model", card)


def decode_to(
    model: Path, cuts: Path, settings: Settings, out: Path, beam_size: int = 1, prior: Path | None = None
) -> None:
    """Transcribe the cuts of a manifest into a file of JSON lines; with a prior, as settings.fusion tells."""
    device = find_device(settings.device)
    recognizer, search = Recognizer.load(model, device), plain_search(beam_size)
    key = f"{fingerprint(model)}, {fingerprint(cuts)}, beam {beam_size}"
    if prior is not None:
        judge = Prior.load(prior, device)
        judge.require_tokenizer(recognizer.tokenizer, str(model))
        search = search_with_prior(judge, settings.fusion)
        key = f"{fingerprint(model)}, {fingerprint(cuts)}, prior {fingerprint(prior)}, {settings.fusion}"
    decode_to_file(recognizer, Corpus.load(cuts, settings.audio), out, key, search)
