"""Decoding whole corpora, and the validation score."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from priormatch.data.batches import Corpus, UtteranceReader, once
from priormatch.device import mixed_precision
from priormatch.errors import UserError
from priormatch.evaluation.error_rates import character_errors, word_errors
from priormatch.evaluation.transcripts import PartialTranscripts, Transcript, write_transcripts
from priormatch.models.recognizer import Recognizer
from priormatch.progress import Meter, say
from priormatch.search.beam import Beam

BATCH_SECONDS = 240.0


@torch.no_grad()
def decode(model: Recognizer, corpus: Corpus, beam_size: int = 1) -> Iterator[list[Transcript]]:
    """Transcribe a corpus batch by batch; an unreadable utterance is named and gives nothing."""
    reader = UtteranceReader(corpus, model.tokenizer)
    for batch in once(reader, BATCH_SECONDS, corpus.audio.workers):
        for cut, reason in batch.bad:
            say(f"{corpus.name}: {cut} cannot be read and is skipped ({reason})")
        if not len(batch):
            continue
        moved = batch.to(model.device)
        training = model.training
        model.eval()
        with mixed_precision(model.device):
            beam = model.propose(moved.waveforms, moved.samples, beam_size)
        model.train(training)
        yield list(read_beam(beam, model, batch.ids, batch.texts))


def read_beam(beam: Beam, model: Recognizer, ids: list[str], texts: list[str | None]) -> Iterator[Transcript]:
    """The hypotheses of a batch as text."""
    columns = (ids, texts, beam.classes.tolist(), beam.lengths.tolist(), beam.scores.tolist())
    for name, text, classes, lengths, scores in zip(*columns, strict=True):
        nbest = [
            (model.tokenizer.decode(each), score)
            for each, length, score in zip(classes, lengths, scores, strict=True)
            if length > 0
        ]
        yield Transcript(name, nbest[0][0] if nbest else "", max(lengths[0] - 1, 0), text, nbest)


def decode_to_file(model: Recognizer, corpus: Corpus, out: Path, key: str, beam_size: int = 1) -> None:
    """Transcribe a corpus into a file, showing progress; what a kill left undone is gone on with.

    `key` tells one model and search from another.
    """
    partial = PartialTranscripts(out, key)
    rest = [cut for cut in corpus.cuts if cut.id not in partial.found]
    with Meter(f"decoding {corpus.name}", len(corpus), len(corpus) - len(rest)) as meter:
        if rest:
            for transcripts in decode(model, Corpus(rest, corpus.audio, corpus.name), beam_size):
                partial.add(transcripts)
                meter.advance(len(transcripts))
    found = [partial.found[cut.id] for cut in corpus.cuts if cut.id in partial.found]
    check_share(len(corpus) - len(found), corpus)
    write_transcripts(out, found)
    partial.remove()


def greedy_lengths(model: Recognizer, corpus: Corpus) -> dict[str, int]:
    """Reference lengths by greedy decoding: the pieces of each utterance's best hypothesis."""
    lengths: dict[str, int] = {}
    with Meter("reference lengths", len(corpus)) as meter:
        for transcripts in decode(model, corpus):
            lengths |= {each.id: each.pieces for each in transcripts}
            meter.advance(len(transcripts))
    check_share(len(corpus) - len(lengths), corpus)
    return lengths


def check_share(bad: int, corpus: Corpus) -> None:
    """Stop when too much of a corpus could not be read."""
    if bad == len(corpus) or (bad > 1 and bad > corpus.audio.max_bad_share * len(corpus)):
        raise UserError(
            f"{corpus.name}: {bad} of {len(corpus)} utterances cannot be read:"
            f" mend them, or raise audio.max_bad_share (now {corpus.audio.max_bad_share:g})"
        )


def validation_errors(model: Recognizer, sets: Mapping[str, Corpus]) -> dict[str, dict[str, float]]:
    """WER and CER of greedy decoding for each validation set, in percent."""
    errors = {}
    for name, corpus in sets.items():
        transcripts = [each for batch in decode(model, corpus) for each in batch]
        check_share(len(corpus) - len(transcripts), corpus)
        references = [each.reference or "" for each in transcripts]
        hypotheses = [each.hypothesis for each in transcripts]
        errors[name] = {
            "wer": word_errors(references, hypotheses).rate,
            "cer": character_errors(references, hypotheses).rate,
        }
    return errors


def mean_cer(errors: Mapping[str, Mapping[str, float]]) -> float:
    """The unweighted mean of the sets' CER, by which proposals and checkpoints are chosen."""
    return sum(each["cer"] for each in errors.values()) / len(errors)
