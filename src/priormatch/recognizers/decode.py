"""Decoding of whole corpora, and validation error rates."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TypeGuard

import numpy as np
import torch

from priormatch.config import FusionSettings, load_settings
from priormatch.data import SAMPLE_RATE
from priormatch.data.batches import Batch, UtteranceReader, once, stack
from priormatch.data.clips import open_samples
from priormatch.data.corpus import Corpus
from priormatch.data.pauses import Cutting
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam
from priormatch.decoding.loops import without_loop
from priormatch.decoding.tuning import read_tuned
from priormatch.device import mixed_precision
from priormatch.distributed import from_all, from_main, is_main, rank, ranks
from priormatch.errors import UserError
from priormatch.progress import Meter, say
from priormatch.recognizers.heads import Frames, rescored_by
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.error_rates import character_errors, word_errors
from priormatch.scoring.transcripts import PartialTranscripts, Transcript, both_sides, write_transcripts

BATCH_SECONDS = 240.0
MORE_ON_GPU = 4
PART_SECONDS = 1800.0  # of audio that an interrupted decoding loses at most
MOST_KEPT = 1 << 30  # bytes of a validation set that are kept in memory: 9 hours in 16 bits


Search = Callable[[SpeechRecognizer, Frames], Beam]
"""A search: (recognizer, utterances it has encoded) -> the best hypotheses."""


def plain_search(beam_size: int) -> Search:
    """Search with the recognizer only; a beam size of 1 is greedy."""
    return lambda model, frames: model.search(frames, beam_size)


def takes_part(prior: Prior, model: Recognizer) -> TypeGuard[ConvPrior]:
    """Whether a prior can take part in the search of a recognizer; any other rescores its hypotheses."""
    return isinstance(prior, ConvPrior) and prior.tokenizer == model.tokenizer


def search_with_prior(prior: Prior, settings: FusionSettings) -> Search:
    """Search with the recognizer and the prior, by shallow fusion or rescoring; scores combine both."""
    lm = prior.for_search() if isinstance(prior, ConvPrior) else None

    def search(model: SpeechRecognizer, frames: Frames) -> Beam:
        if lm is not None and takes_part(prior, model):
            return model.search_with(lm, frames, settings)
        return rescored_by(prior, model.search(frames, settings.beam_size), model.tokenizer, settings)

    return search


def note_rescoring(model: SpeechRecognizer, prior: Prior) -> None:
    """Report a prior that cannot take part in the search of a recognizer."""
    if takes_part(prior, model):
        return
    why = "scores whole hypotheses"
    if isinstance(prior, ConvPrior):
        classes = f"{prior.tokenizer.classes} classes) than the recognizer ({model.tokenizer.classes}"
        why = f"has another tokenizer ({classes})"
    say(f"the prior {why}: it rescores the fusion.beam_size best hypotheses")


GREEDY = plain_search(1)


def search_of(
    model: SpeechRecognizer,
    prior: Prior | None = None,
    fusion: FusionSettings | str | PathLike[str] | None = None,
    beam_size: int | None = None,
) -> Search:
    """The search for a call from Python: greedy, with a beam, or with a prior and the settings in `fusion`."""
    if beam_size is not None and beam_size < 1:
        raise UserError(f"beam_size={beam_size}: use 1 or more")
    if prior is None:
        if fusion is not None:
            raise UserError("fusion is only used with a prior: pass prior too")
        return plain_search(beam_size or 1)
    if isinstance(prior, ConvPrior) and prior.device != model.device:
        raise UserError(
            f"the prior is on {prior.device}, the recognizer on {model.device}: load both on one device"
        )
    if isinstance(fusion, str | PathLike):
        fusion = load_settings(None, read_tuned(Path(fusion))).fusion
    fusion = fusion or FusionSettings()
    return search_with_prior(prior, fusion if beam_size is None else replace(fusion, beam_size=beam_size))


@dataclass(frozen=True)
class Encoded:
    """Encoded utterances with their names and, where known, transcripts."""

    ids: list[str]
    texts: list[str | None]
    frames: Frames

    def to(self, device: str | torch.device) -> "Encoded":
        """Move to another device."""
        return replace(self, frames=self.frames.to(device))


def batch_seconds(device: torch.device) -> float:
    """The maximum seconds of audio per batch."""
    return BATCH_SECONDS * (MORE_ON_GPU if device.type == "cuda" else 1)


@contextmanager
def evaluating(model: Recognizer) -> Iterator[None]:
    """Disable dropout inside the context and use the precision of the model's device."""
    training = model.training
    model.eval()
    try:
        with mixed_precision(model.device):
            yield
    finally:
        model.train(training)


def batches_of(model: Recognizer, corpus: Corpus, keep: bool = False) -> Iterator[Batch]:
    """The utterances of a corpus on the model's device; unreadable ones are reported and skipped.

    With `keep`, a corpus that is not too large is read once and stays in memory.
    """
    for batch in corpus.kept or read_batches(model, corpus, keep):
        yield batch.to(model.device)


def read_batches(model: Recognizer, corpus: Corpus, keep: bool) -> Iterator[Batch]:
    """Read a corpus batch by batch; with `keep`, remember the batches once all of them are read."""
    reader, read, size = UtteranceReader(corpus, model.tokenizer), list[Batch](), 0
    for batch in once(reader, batch_seconds(model.device), corpus.audio.workers):
        report_bad(corpus, batch)
        size += batch.waveforms.nbytes
        if len(batch):
            if keep and size <= MOST_KEPT:
                read.append(batch)
            yield batch
    if keep and size <= MOST_KEPT:
        corpus.kept = read


@torch.no_grad()
def encode(model: SpeechRecognizer, corpus: Corpus) -> Iterator[Encoded]:
    """Encode a corpus batch by batch; unreadable utterances are reported and skipped."""
    for batch in batches_of(model, corpus):
        with evaluating(model):
            frames = model.frames(batch)
        yield Encoded(batch.ids, batch.texts, frames)


@torch.no_grad()
def transcribe(model: SpeechRecognizer, batch: Encoded, search: Search) -> list[Transcript]:
    """Transcribe encoded utterances."""
    moved = batch.to(model.device)
    with mixed_precision(model.device):
        beam = search(model, moved.frames)
    return list(read_beam(beam, model.tokenizer, batch.ids, batch.texts))


def longest_of(model: Recognizer) -> float:
    """The seconds of audio that a recognizer takes as a whole."""
    return float(getattr(model, "longest_audio", math.inf))


def fitting(corpus: Corpus, model: Recognizer, speeds: Sequence[float] = ()) -> Corpus:
    """Leave out utterances that a recognizer cannot take as a whole, at the slowest of these speeds."""
    longest = longest_of(model) * min([1.0, *speeds])
    fits = corpus.durations <= longest
    if fits.all():
        return corpus
    way_out = f"cut them at their pauses (audio.segment={longest:g} or `priormatch prepare audio --segment`)"
    if not fits.any():
        raise UserError(
            f"{corpus.name}: all utterances are longer than {longest:g} s, and the recognizer takes no more: {way_out}"
        )
    left = len(corpus) - int(fits.sum())
    say(
        f"{corpus.name}: {left} of {len(corpus)} utterances are longer than {longest:g} s, the most that the recognizer"
        f" takes, and are left out: {way_out}"
    )
    return corpus.only(fits)


@torch.no_grad()
def transcripts_of(model: Recognizer, batch: Batch, beam_of: Callable[[Batch], Beam]) -> Iterator[Transcript]:
    """Transcribe a batch; an utterance that is too long for the recognizer is cut at pauses, and has one hypothesis."""
    longest = longest_of(model)
    if not bool((batch.samples > longest * SAMPLE_RATE).any()):
        yield from read_beam(beam_of(batch), model.tokenizer, batch.ids, batch.texts)
        return
    for row, (name, text) in enumerate(zip(batch.ids, batch.texts, strict=True)):
        own = batch.waveforms[row, : int(batch.samples[row])]
        clips = [clip.samples for clip in open_samples(own, SAMPLE_RATE, Cutting(longest)).clips]
        nothing: list[str | None] = [None] * len(clips)
        found: list[Transcript] = []
        if clips:
            samples = torch.tensor([len(clip) for clip in clips])
            pieces = Batch.of_audio(stack(clips), samples).to(model.device)
            found = [*read_beam(beam_of(pieces), model.tokenizer, pieces.ids, nothing)]
        yield joined(name, text, found)


def joined(name: str, reference: str | None, parts: Sequence[Transcript]) -> Transcript:
    """The transcript of an utterance from those of its parts, in order."""
    text = " ".join(each.hypothesis for each in parts if each.hypothesis)
    score = sum(each.score or 0.0 for each in parts)
    pieces, ended = sum(each.pieces for each in parts), all(each.ended for each in parts)
    return Transcript(name, text, pieces, reference, [(text, score)], ended)


@torch.no_grad()
def decode_greedily(model: Recognizer, corpus: Corpus, keep: bool = False) -> Iterator[list[Transcript]]:
    """The best hypothesis of each utterance, batch by batch, as `batches_of` gives them."""
    for batch in batches_of(model, corpus, keep):
        with evaluating(model):
            yield list(transcripts_of(model, batch, lambda part: model.propose(part, 1)))


def read_beam(
    beam: Beam, tokenizer: Tokenizer, ids: list[str], texts: list[str | None]
) -> Iterator[Transcript]:
    """Convert the hypotheses of a batch to text, without loops if the search gave up."""
    tensors = (beam.classes, beam.lengths, beam.scores, beam.ended)
    columns = (ids, texts, *(each.tolist() for each in tensors))
    for name, text, classes, lengths, scores, ended in zip(*columns, strict=True):
        found = [
            (*as_told(tokenizer, each[:length], ended), score)
            for each, length, score in zip(classes, lengths, scores, strict=True)
            if length > 0
        ]
        nbest = [(told, score) for told, _, score in found]
        best, spelled = found[0][:2] if found else ("", [])
        yield Transcript(name, best, max(len(spelled) - 1, 0), text, nbest, ended)


def as_told(tokenizer: Tokenizer, classes: list[int], ended: bool) -> tuple[str, list[int]]:
    """Convert a hypothesis to text, without its loop if the search gave up; also return the classes of the text."""
    text = tokenizer.decode(classes)
    told = text if ended else without_loop(text)
    return told, classes if told == text else [*tokenizer.encode(told), tokenizer.eos]


def decode_to_file(
    model: SpeechRecognizer,
    corpus: Corpus,
    out: Path,
    key: str,
    search: Search = GREEDY,
    *,
    words: bool = False,
) -> None:
    """Transcribe a corpus into a file and show progress; interrupted decoding resumes.

    The processes of a job share the work. `key` identifies the model, the search and the manifest. With `words`, texts
    are written as error rates compare them.
    """
    groups = groups_of(corpus.durations, PART_SECONDS)
    partial = PartialTranscripts(out, f"{key}, {digest_of_parts(corpus.durations)}")
    rest = partial.missing(len(groups))
    mine = rest[rank() :: ranks()]
    total = sum(len(groups[part]) for part in mine)
    with Meter(f"decoding {corpus.name}", total) as meter:
        decoded = decode(model, corpus, search, [groups[part] for part in mine], meter.advance)
        for part, transcripts in zip(mine, decoded, strict=True):
            told = [comparable(each, model.tokenizer) for each in transcripts] if words else transcripts
            write_transcripts(partial.file(part), told)
    from_all(None, patient=True)  # until all parts are there
    if is_main():
        ends = Counter(each.ended for each in partial.transcripts(len(groups)))
        check_share(len(corpus) - ends.total(), corpus)
        if ends[False]:
            say(
                f"{corpus.name}: no end of sentence found in {ends[False]} of {ends.total()} utterances;"
                " loops in them are removed"
            )
        write_transcripts(out, partial.transcripts(len(groups)))
        partial.remove()
    from_main(None)  # the others wait for the output


def digest_of_parts(durations: np.ndarray) -> str:
    """A text that changes when utterances of these durations (N,) would be split into other parts."""
    return f"{PART_SECONDS:g} s of {hashlib.sha256(durations.tobytes()).hexdigest()}"


def groups_of(durations: np.ndarray, seconds: float) -> list[np.ndarray]:
    """Split utterances, in their order, into groups of about `seconds` of audio: (N,) -> indices of each group."""
    parts = np.cumsum(durations) // seconds
    return np.split(np.arange(len(durations)), np.flatnonzero(np.diff(parts)) + 1)


@torch.no_grad()
def decode(
    model: SpeechRecognizer,
    corpus: Corpus,
    search: Search = GREEDY,
    groups: Sequence[np.ndarray] | None = None,
    advance: Callable[[int], None] = lambda utterances: None,
) -> Iterator[list[Transcript]]:
    """Transcribe a corpus, or groups of its utterances (indices), one group at a time and in its order.

    `advance` is called with the number of utterances of each batch. Unreadable utterances are reported and skipped.
    """
    groups = [np.arange(len(corpus))] if groups is None else groups
    reader, seconds = UtteranceReader(corpus, model.tokenizer), batch_seconds(model.device)
    batches = once(reader, seconds, corpus.audio.workers if groups else 0, groups)
    for group in groups:
        found, left = dict[str, Transcript](), len(group)
        while left:
            batch = next(batches)
            left -= len(batch) + len(batch.bad)
            report_bad(corpus, batch)
            if len(batch):
                moved = batch.to(model.device)
                with evaluating(model):
                    told = transcripts_of(model, moved, lambda part: search(model, model.frames(part)))
                    found |= {each.id: each for each in told}
            advance(len(batch) + len(batch.bad))
        names = [corpus.cuts[index].id for index in group]
        yield [found[name] for name in names if name in found]


def report_bad(corpus: Corpus, batch: Batch) -> None:
    """Name the utterances of a batch that cannot be read."""
    for cut, reason in batch.bad:
        say(f"{corpus.name}: {cut} cannot be read and is skipped ({reason})", everywhere=True)


def greedy_transcripts(model: Recognizer, corpus: Corpus) -> list[Transcript]:
    """Greedy transcripts of a corpus, for the reference lengths; shows progress."""
    found: list[Transcript] = []
    with Meter("reference lengths", len(corpus)) as meter:
        for transcripts in decode_greedily(model, corpus.own_part):
            found += transcripts
            meter.advance(len(transcripts))
    found = everyones(found, patient=True)
    check_share(len(corpus) - len(found), corpus)
    return found


def check_share(bad: int, corpus: Corpus) -> None:
    """Raise an error if too many utterances of a corpus could not be read."""
    if bad == len(corpus) or (bad > 1 and bad > corpus.audio.max_bad_share * len(corpus)):
        raise UserError(
            f"{corpus.name}: {bad} of {len(corpus)} utterances cannot be read:"
            f" fix them, or raise audio.max_bad_share (now {corpus.audio.max_bad_share:g})"
        )


def validation_transcripts(model: Recognizer, sets: Mapping[str, Corpus]) -> dict[str, list[Transcript]]:
    """Greedy transcripts of each validation set, with texts as error rates compare them; the sets are read once.

    The processes of a job share the work, and all get the same transcripts.
    """
    found = {}
    for name, corpus in sets.items():
        mine = decode_greedily(model, corpus.own_part, keep=True)
        compared = (comparable(each, model.tokenizer) for batch in mine for each in batch)
        found[name] = everyones(compared)
        check_share(len(corpus) - len(found[name]), corpus)
    return found


def comparable(transcript: Transcript, tokenizer: Tokenizer) -> Transcript:
    """A transcript with its texts as error rates compare them."""
    reference = transcript.reference
    return replace(
        transcript,
        hypothesis=tokenizer.comparable(transcript.hypothesis),
        reference=None if reference is None else tokenizer.comparable(reference),
        nbest=[(tokenizer.comparable(text), score) for text, score in transcript.nbest],
    )


def validation_errors(model: Recognizer, sets: Mapping[str, Corpus]) -> dict[str, dict[str, float]]:
    """WER and CER of greedy decoding on each validation set, in percent."""
    return {name: error_rates(each) for name, each in validation_transcripts(model, sets).items()}


def everyones(transcripts: Iterable[Transcript], patient: bool = False) -> list[Transcript]:
    """The transcripts of all processes of a job, each of which gives its own; `patient` as in `from_all`."""
    return [each for part in from_all(list(transcripts), patient) for each in part]


def error_rates(transcripts: Sequence[Transcript]) -> dict[str, float]:
    """WER and CER of transcripts with references, in percent."""
    sides = both_sides(transcripts)
    return {"wer": word_errors(*sides).rate, "cer": character_errors(*sides).rate}


def mean_rate(errors: Mapping[str, Mapping[str, float]], kind: str) -> float:
    """The unweighted mean over the sets of one kind of error rate."""
    return sum(each[kind] for each in errors.values()) / len(errors)


def mean_cer(errors: Mapping[str, Mapping[str, float]]) -> float:
    """The mean CER over the sets, used to select proposals and checkpoints."""
    return mean_rate(errors, "cer")
