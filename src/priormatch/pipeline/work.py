"""The work of the commands: training and decoding from files into a folder."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from priormatch.config import BatchSettings, PriorSettings, Settings, TokenizerSettings, TrainingSettings
from priormatch.data.corpus import Corpus, cut_text, joined, read_cuts
from priormatch.data.normalizer import ENGLISH, Normalizer, normalizer_of
from priormatch.data.sentences import Sentences
from priormatch.data.text_files import SentenceFiles
from priormatch.data.tokenizer import Tokenizer, train_tokenizer
from priormatch.device import find_device
from priormatch.distributed import is_main, ranks
from priormatch.errors import UserError
from priormatch.models.kneser_ney import FALLBACK, estimate
from priormatch.pipeline.cards import (
    Trained,
    called,
    heard,
    leave_card,
    parameters,
    size_in_words,
    title_of,
    trained_card,
)
from priormatch.pipeline.recipe import (
    recipe_of_prior_stage,
    recipe_of_reading,
    recipe_of_schedule,
    recipe_of_training,
    recipe_of_writing,
)
from priormatch.prepare.overview import letters
from priormatch.progress import count_text, duration_text, say, track
from priormatch.recognizers.decode import decode_to_file, note_rescoring, plain_search, search_with_prior
from priormatch.recognizers.folder import WEIGHTS
from priormatch.recognizers.frame_rate import frames_needed, way_to_fit
from priormatch.recognizers.hf_recognizer import HuggingFaceRecognizer
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.ngram_prior import NgramPrior
from priormatch.recognizers.perplexity import likelihoods, perplexity
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import fingerprint
from priormatch.scoring.transcripts import Transcript, write_transcripts
from priormatch.training.loop import Schedule, fit
from priormatch.training.prior_step import PriorTraining
from priormatch.training.supervised_step import Supervised
from priormatch.training.wandb_log import wandb_plan

EXAMINED = 10_000  # sentences or transcripts, about
MOST_LOST = 0.1  # share of the letters in transcripts that a recognizer may lack
SHOWN_LETTERS = 10
CER, PERPLEXITY = "validation CER {:.2f} %", "validation perplexity {:.2f}"
"""How the validation scores of recognizers and priors are shown."""
KEPT = "kept"  # the folder of the copies that training keeps


def make_tokenizer(
    sentences: Iterable[str], wanted: TokenizerSettings, out: Path, normalizer: Normalizer = ENGLISH
) -> None:
    """Train a tokenizer, save it into a folder, and report its tokens per word."""
    tokenizer = train_tokenizer(sentences, wanted.pieces, normalizer, wanted.kind)
    tokenizer.save(out)
    sample = [*islice(sentences, 0, None, max(sum(1 for _ in sentences) // EXAMINED, 1))]
    per_word = tokenizer.pieces_per_word(sample)
    say(f"{out}: {tokenizer.classes} classes, {per_word:.2f} {tokenizer.unit}s per word")
    if per_word > 4 and wanted.kind == "unigram":
        say("the pieces are close to single letters: more text or fewer pieces usually gives better ones")
    unlike = sum(normalizer(sentence) != sentence for sentence in sample)
    if unlike and normalizer != ENGLISH:  # LibriSpeech keeps apostrophes that our normalizer strips
        say(
            f"{unlike:,} of {len(sample):,} sentences are not normalized by {normalizer.name}:"
            " prepare the text with the same language.normalizer"
        )


def transcripts_of(cuts: Path) -> list[str]:
    """The transcripts of a manifest."""
    return [text for cut in read_cuts(cuts) if (text := cut_text(cut))]


def sentences_of(path: Path) -> list[str]:
    """The sentences of a text file."""
    return [*SentenceFiles([path])]


def train_prior(
    text: Path, held_out: Path, tokenizer: Tokenizer, settings: Settings, out: Path, log: Path
) -> None:
    """Train a convolutional prior on the sentences of a text file."""
    torch.manual_seed(settings.training.seed)
    prior = ConvPrior(settings.prior.model, tokenizer).to(find_device(settings.device))
    sentences = Sentences.of_file(text, tokenizer, out / "tokenized")
    validation = Sentences.of(sentences_of(held_out), tokenizer)
    say(f"prior: {parameters(prior)} parameters, {len(sentences.flat):,} {tokenizer.unit}s of text")
    task = PriorTraining(prior, sentences, validation, settings.prior, settings.training.seed)
    best = fit(task, schedule_of(settings.prior, settings.prior.updates, settings), out, log)
    if is_main():
        shutil.rmtree(out / "tokenized")
    amount = f"{len(sentences.lengths):,} sentences, {len(sentences.flat):,} {tokenizer.unit}s"
    trained = Trained(
        "Trained on text.",
        data=[f"text: {called(text, settings)} ({amount})"],
        score=f"perplexity per {tokenizer.unit} on {len(validation.lengths):,} held-out sentences: {best:.2f}",
        recipe=recipe_of_prior_stage(settings),
    )
    leave_card(out / "model", trained_card(title_of(out, settings), prior, trained, settings.card))


def estimate_prior(text: Path, held_out: Path, settings: Settings, out: Path) -> None:
    """Estimate an n-gram prior from the sentences of a text file."""
    normalizer = normalizer_of(settings.language)
    sentences = filter(None, map(normalizer, SentenceFiles([text])))
    model, fallen_back = estimate(track(sentences, "reading sentences"), settings.prior.order)
    if fallen_back:
        orders, used = (", ".join(map(str, each)) for each in (fallen_back, FALLBACK))
        say(f"prior: too little text to estimate the discounts of order {orders}: {used} are used")
    prior, validation = NgramPrior(model, normalizer), sentences_of(held_out)
    found = perplexity(likelihoods(prior, validation), validation)
    say(f"prior: {size_in_words(prior)}, perplexity per word {found:.2f} on held-out text")
    prior.save(out / "model")
    trained = Trained(
        "Estimated from text.",
        data=[f"text: {called(text, settings)}"],
        score=f"perplexity per word on {len(validation):,} held-out sentences: {found:.2f}",
        recipe=recipe_of_prior_stage(settings),
    )
    leave_card(out / "model", trained_card(title_of(out, settings), prior, trained, settings.card))


def load_validation(paths: Mapping[str, Path], settings: Settings) -> dict[str, Corpus]:
    """Validation sets, thinned to training.validate_on utterances each."""
    return {
        name: thin(Corpus.load(path, settings.audio, transcribed=True), settings.training.validate_on)
        for name, path in paths.items()
    }


def thin(corpus: Corpus, most: int) -> Corpus:
    """A fixed sample of at most `most` utterances of a corpus; 0 keeps all."""
    if most == 0 or most >= len(corpus):
        return corpus
    kept = sorted(np.random.default_rng(0).permutation(len(corpus))[:most])
    return Corpus([corpus.cuts[index] for index in kept], corpus.audio, corpus.name)


def train_supervised(
    labeled: Sequence[Path],
    validation: Mapping[str, Path],
    tokenizer: Path,
    settings: Settings,
    out: Path,
    log: Path,
    *,
    start: Path | None = None,
    updates: int | None = None,
) -> None:
    """Train a recognizer, new or pretrained, on transcribed speech, or `start` further with matching's schedule.

    Only a new one needs the tokenizer, in its folder.
    """
    training, matching = settings.training, settings.matching
    device = find_device(settings.device)
    torch.manual_seed(training.seed)
    if start is None:
        model = first_model(settings, tokenizer)
    else:
        model = load_recognizer(start, pretrained=settings.pretrained)
    model.to(device)
    corpus = joined([Corpus.load(path, settings.audio, transcribed=True) for path in labeled])
    say(
        f"{out.name}: {parameters(model)} parameters on {device}, {duration_text(3600 * corpus.hours)} labeled"
    )
    require_letters(model, corpus)
    report_misfits(model, corpus)
    if start is None:
        schedule, size = schedule_of(training, updates or training.updates, settings), training.batch
        schedule = replace(schedule, validate_first=bool(settings.pretrained.recognizer))
    else:
        schedule, size = matching_schedule(settings), matching.batch
        training = replace(training, window_updates=0)
    say_split(out.name, size)
    sets = load_validation(validation, settings)
    best = fit(Supervised(model, corpus, sets, training, size), schedule, out, log)
    recipe = recipe_of_training(settings) if start is None else recipe_of_schedule(settings)
    recipe |= {"updates": schedule.updates}
    speech = {"transcribed speech": corpus}
    leave_recognizer_card(
        out,
        model,
        "Trained on transcribed speech.",
        speech,
        sets,
        best=best,
        recipe=recipe,
        settings=settings,
    )


def first_model(settings: Settings, tokenizer: Path) -> SpeechRecognizer:
    """The recognizer that supervised training starts from: a new one, or the pretrained one."""
    if settings.pretrained.recognizer:
        return load_recognizer(settings.pretrained.recognizer, pretrained=settings.pretrained)
    return SpeechRecognizer(settings.model, Tokenizer.load(tokenizer))


def say_split(stage: str, size: BatchSettings) -> None:
    """Report how the batch of an update is split, if it is."""
    if (parts := ranks() * size.accumulate) == 1:
        return
    whole, unit = (size.utterances, " utterances") if size.utterances else (size.seconds, " s")
    say(
        f"{stage}: {whole:g}{unit} per update, in {count_text(ranks(), 'process', 'processes')} of"
        f" {count_text(size.accumulate, 'part')} each: {whole / parts:.3g}{unit} at a time"
    )


def require_letters(model: Recognizer, corpus: Corpus) -> None:
    """Refuse transcripts in a script that a Hugging Face recognizer cannot write, and report single letters."""
    if not isinstance(model, HuggingFaceRecognizer):
        return
    counts = letters([cut_text(cut) or "" for cut in corpus.cuts[:: max(len(corpus) // EXAMINED, 1)]])
    lost = model.tokenizer.unwritable(counts)
    share = sum(counts[each] for each in lost) / max(counts.total(), 1)
    shown = " ".join(lost[:SHOWN_LETTERS])
    if share > MOST_LOST:
        raise UserError(
            f"{100 * share:.0f} % of the letters in the transcripts of {corpus.name} are not in the recognizer's"
            f" vocabulary ({shown}): provide a recognizer of their language, or write the transcripts with its letters"
        )
    if lost:
        say(f"{corpus.name}: letters that the recognizer cannot write are left out of the labels: {shown}")


def report_misfits(model: SpeechRecognizer, corpus: Corpus) -> None:
    """Report transcripts that are too long for a search by attention, or for CTC; of many, every n-th is examined.

    CTC has no loss for more tokens than frames. If no transcript has fewer, CTC alone is refused.
    """
    tokenizer, longest = model.tokenizer, model.settings.longest_output
    own = not isinstance(model, HuggingFaceRecognizer)
    step = max(len(corpus) // EXAMINED, 1)
    spelled = [tokenizer.encode(cut_text(cut) or "") for cut in corpus.cuts[::step]]
    most = max(map(len, spelled))
    if model.head.limited and most > longest:
        cut_off = sum(len(each) > longest for each in spelled)
        way_out = f"raise model.longest_output={longest} above {most}" if own else "they teach nothing"
        say(
            f"{cut_off:,} of {len(spelled):,} transcripts have more {tokenizer.unit}s than a hypothesis can have:"
            f" {way_out}"
        )
    if model.ctc_head is None:
        return
    frames = np.ceil(corpus.durations[::step] / model.frame_seconds)
    if misfits := int((np.array(list(map(frames_needed, spelled))) > frames).sum()):
        way_out = (
            way_to_fit(model.settings, tokenizer.unit) if own else "check that they belong to their audio"
        )
        what = (
            f"{misfits:,} of {len(spelled):,} transcripts have more {tokenizer.unit}s than the encoder has frames,"
            f" and CTC cannot learn them: {way_out}"
        )
        if not model.head.limited and model.settings.kind == "ctc" and misfits == len(spelled):
            raise UserError(what)
        say(what)


def schedule_of(training: TrainingSettings | PriorSettings, updates: int, settings: Settings) -> Schedule:
    """The schedule of a recognizer or prior trained from scratch; `decay_every` scales with the updates."""
    decay_every = round(training.optimizer.decay_every * updates / training.updates)
    return Schedule(
        updates,
        replace(training.optimizer, decay_every=decay_every),
        settings.training.seed,
        training.validate_every,
        report_every=settings.training.report_every,
        checkpoint_seconds=settings.training.checkpoint_seconds,
        keep=training.keep,
        wandb=wandb_plan(settings),
        score=PERPLEXITY if isinstance(training, PriorSettings) else CER,
    )


def matching_schedule(settings: Settings) -> Schedule:
    """The schedule for further training of a recognizer."""
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
        score=CER,
    )


def write_lengths(lengths: Mapping[str, int], out: Path) -> None:
    """Write reference lengths in the format that `match` reads."""
    write_transcripts(out, [Transcript(name, "", pieces, None, []) for name, pieces in lengths.items()])


def copy_of(model: Path, name: str) -> Path:
    """Where training keeps the copy `name` of a model; the best model, at `model`, if no name is given."""
    return model.parent / KEPT / name if name else model


def kept_copy(model: Path, name: str) -> Path:
    """The copy `name` of a model, which must have been kept, or the best model if no name is given."""
    copy = copy_of(model, name)
    if name:
        require_kept(copy)
    return copy


def require_kept(copy: Path) -> None:
    """Refuse a copy that training did not keep."""
    if not (copy / WEIGHTS).is_file():
        raise UserError(
            f"{copy} does not exist: the training ended before this copy was due; choose another copy"
        )


def leave_recognizer_card(
    out: Path,
    model: SpeechRecognizer,
    how: str,
    speech: Mapping[str, Corpus],
    validation: Mapping[str, Corpus],
    *,
    best: float,
    recipe: Mapping[str, Any],
    settings: Settings,
    more: Sequence[str] = (),
) -> None:
    """Write a recognizer's card into `out/model`, with `more` lines about its data."""
    data = [*(heard(role, corpus, settings) for role, corpus in speech.items()), *more]
    if isinstance(model, HuggingFaceRecognizer):
        recipe = {name: value for name, value in recipe.items() if name != "model"}
    score = f"mean CER on {', '.join(validation)}, used to select the model: {best:.2f} %"
    trained = Trained(how, data, score, recipe)
    leave_card(out / "model", trained_card(title_of(out, settings), model, trained, settings.card))


def decode_to(
    model: Path,
    cuts: Path,
    settings: Settings,
    out: Path,
    beam_size: int = 1,
    prior: Path | None = None,
    *,
    words: bool = False,
) -> None:
    """Transcribe the cuts of a manifest into a JSON Lines file; with a prior, as set in settings.fusion.

    With `words`, texts are written as error rates compare them.
    """
    device = find_device(settings.device)
    recognizer, search = load_recognizer(model, device, settings.pretrained), plain_search(beam_size)
    key = f"{fingerprint(model)}, {fingerprint(cuts)}, beam {beam_size}"
    if prior is not None:
        judge = load_prior(prior, device, settings.prior.text_form)
        note_rescoring(recognizer, judge)
        search = search_with_prior(judge, settings.fusion)
        fusion = str(settings.fusion).replace("centered=", "centred=")  # as in the keys of older versions
        reading = "".join(f", {form}" for form in recipe_of_reading(settings.prior).values())
        key = f"{fingerprint(model)}, {fingerprint(cuts)}, prior {fingerprint(prior)}, {fusion}{reading}"
    key += "".join(f", {name} {value}" for name, value in recipe_of_writing(settings.pretrained).items())
    decode_to_file(recognizer, Corpus.load(cuts, settings.audio), out, key, search, words=words)
