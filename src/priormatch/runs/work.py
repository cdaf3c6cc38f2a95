"""The work behind the verbs: each trains or decodes into a folder, from files, under given settings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from priormatch.config import Settings
from priormatch.data.batches import Corpus, cut_text, read_cuts
from priormatch.data.text_files import read_sentences
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.evaluation.decoding import decode_to_file, mean_cer, validation_errors
from priormatch.evaluation.transcripts import read_transcripts
from priormatch.files import replacing
from priormatch.matching.length_filter import LengthFilter, keep_all
from priormatch.matching.prior import Prior
from priormatch.matching.proposal import Proposal, require_fit
from priormatch.matching.targets import LocalPriorTargets, given_labels
from priormatch.models.recognizer import Recognizer
from priormatch.progress import say
from priormatch.runs.stage import fingerprint
from priormatch.training.loop import Schedule, fit
from priormatch.training.matching import Matching
from priormatch.training.prior import PriorTraining, Sentences
from priormatch.training.supervised import Supervised


def make_tokenizer(sentences: Sequence[str], pieces: int, out: Path) -> None:
    """Train a tokenizer into a folder and say how it spells."""
    tokenizer = train_tokenizer(sentences, pieces)
    tokenizer.save(out)
    sample = sentences[:: max(len(sentences) // 10_000, 1)]
    per_word = tokenizer.pieces_per_word(sample)
    say(f"{out}: {tokenizer.classes} classes, {per_word:.2f} pieces a word")
    if per_word > 4:
        say("that is close to letters: more text, or fewer pieces, usually spells better")


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
    )
    fit(task, schedule, out, log, out.name)


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
    task = Supervised(model, corpus, load_validation(validation, settings), training, size)
    fit(task, schedule, out, log, out.name)


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
        report_every=training.report_every,
        checkpoint_seconds=training.checkpoint_seconds,
    )


def match(
    model: Path,
    prior: Path,
    labelled: Path,
    unlabelled: Path,
    lengths: Path,
    validation: Mapping[str, Path],
    settings: Settings,
    out: Path,
    log: Path,
) -> None:
    """Local prior matching from files: the model at `model` is both the online model and the first proposal."""
    device = find_device(settings.device)
    online, judge = Recognizer.load(model, device), Prior.load(prior, device)
    judge.require_tokenizer(online.tokenizer, str(model))
    reference_lengths = {each.id: each.pieces for each in read_transcripts(lengths)}
    match_corpora(
        online,
        judge,
        Corpus.load(labelled, settings.audio, transcribed=True),
        Corpus.load(unlabelled, settings.audio),
        reference_lengths,
        load_validation(validation, settings),
        settings,
        out,
        log,
    )


def match_corpora(
    online: Recognizer,
    prior: Prior,
    labelled: Corpus,
    unlabelled: Corpus,
    reference_lengths: Mapping[str, int],
    validation: Mapping[str, Corpus],
    settings: Settings,
    out: Path,
    log: Path,
) -> None:
    """Local prior matching: the online model, with the best validation CER it had, ends up in `out/model`."""
    matching = settings.matching
    cer = mean_cer(validation_errors(online, validation))
    require_fit(cer, matching.max_proposal_cer)
    proposal = Proposal(online, cer)
    targets = LocalPriorTargets(
        proposal,
        prior,
        matching.beam_size,
        LengthFilter(*matching.length_filter) if matching.length_filter else keep_all,
        reference_lengths,
        matching.merge_spellings,
    )
    speech = with_lengths(unlabelled, reference_lengths)
    say(f"{out.name}: {speech.hours:.2f} unlabelled hours, proposal's validation CER {cer:.2f} %")
    task = Matching(online, labelled, speech, validation, targets, proposal, settings.training, matching)
    fit(task, matching_schedule(settings), out, log, out.name)


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
    matching = settings.matching
    task = Matching(
        online,
        Corpus.load(labelled, settings.audio, transcribed=True),
        Corpus.load(pseudo_labelled, settings.audio, transcribed=True),
        load_validation(validation, settings),
        given_labels,
        None,
        settings.training,
        matching,
    )
    fit(task, matching_schedule(settings), out, log, out.name)


def decode_to(model: Path, cuts: Path, settings: Settings, out: Path, beam_size: int = 1) -> None:
    """Transcribe the cuts of a manifest into a file of JSON lines."""
    recognizer = Recognizer.load(model, find_device(settings.device))
    corpus = Corpus.load(cuts, settings.audio)
    key = f"{fingerprint(model)}, {fingerprint(cuts)}, beam {beam_size}"
    decode_to_file(recognizer, corpus, out, key, beam_size)


def write_pseudo_labels(cuts: Path, transcripts: Path, out: Path) -> None:
    """Cuts with the transcripts' hypotheses as their text; those with an empty one are left out."""
    from lhotse import CutSet
    from lhotse.utils import fastcopy

    found = {each.id: each.hypothesis for each in read_transcripts(transcripts)}
    labelled = []
    for cut in read_cuts(cuts):
        if text := found.get(cut.id):
            supervisions = [fastcopy(cut.supervisions[0], text=text)]
            labelled.append(fastcopy(cut, supervisions=supervisions))
    with replacing(out) as temporary:
        CutSet.from_cuts(labelled).to_file(temporary)


def parameters(model: torch.nn.Module) -> str:
    """The number of a model's parameters, as people say it."""
    count = sum(each.numel() for each in model.parameters())
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.0f} k"
