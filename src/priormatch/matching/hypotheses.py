"""Beams of utterances as local prior matching uses them: scored, filtered and weighed (Table 1 of the paper)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from priormatch.data.corpus import Corpus
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam, Hypotheses
from priormatch.matching.lpm import SHORTEST, Weighing, first_spellings, proposer_of
from priormatch.progress import Meter
from priormatch.recognizers.decode import batches_of, evaluating, fitting
from priormatch.recognizers.protocols import Prior, Recognizer
from priormatch.scoring.alignment import AlignedWord, align


@dataclass(frozen=True)
class Hypothesis:
    """A hypothesis with log q(y|x), log p_y(y), its weight as a target, and why it was dropped, or None.

    `words` are aligned with the reference; None without a reference.
    """

    rank: int
    text: str
    pieces: list[str]
    log_q: float
    log_prior: float
    weight: float
    dropped: str | None
    words: list[AlignedWord] | None


@dataclass(frozen=True)
class Inspection:
    """The beam of an utterance, best first, with the reference transcript if it is known.

    `reference_length` is L including the end of sentence, 0 for unknown; `ended` is whether the search found an end of
    sentence.
    """

    id: str
    reference: str | None
    reference_log_prior: float | None
    reference_length: int
    ended: bool
    hypotheses: list[Hypothesis]


def inspect(
    model: Recognizer, prior: Prior, corpus: Corpus, beam_size: int, weighing: Weighing
) -> list[Inspection]:
    """The beams of a corpus, in its order, with a progress meter."""
    found: dict[str, Inspection] = {}
    corpus = fitting(corpus, model)
    with Meter(f"hypotheses of {corpus.name}", len(corpus)) as meter:
        for each in look_into(model, prior, corpus, beam_size, weighing):
            found[each.id] = each
            meter.advance()
    return [found[cut.id] for cut in corpus.cuts if cut.id in found]


@torch.no_grad()
def look_into(
    model: Recognizer, prior: Prior, corpus: Corpus, beam_size: int, weighing: Weighing
) -> Iterator[Inspection]:
    """The beams of a corpus in any order; unreadable utterances are reported and skipped."""
    proposer = proposer_of(model, prior, weighing.fusion)
    for batch in batches_of(model, corpus):
        with evaluating(model):
            beam = proposer.propose(batch, beam_size)
            log_q = beam.scores
            if weighing.fusion is not None:  # the scores include the prior
                log_q = model.log_prob(batch, Hypotheses(beam.classes, beam.lengths, model.tokenizer))
        for row, (name, text) in enumerate(zip(batch.ids, batch.texts, strict=True)):
            one = of_row(beam, row)
            yield inspect_beam(one, name, text, model.tokenizer, prior, weighing, log_q=log_q[row : row + 1])


def inspect_beam(
    beam: Beam,
    name: str,
    reference: str | None,
    tokenizer: Tokenizer,
    prior: Prior,
    weighing: Weighing,
    *,
    log_q: Tensor | None = None,
) -> Inspection:
    """Score, filter and weigh the beam of one utterance; log q defaults to the beam's scores."""
    device, given = beam.classes.device, Hypotheses(beam.classes, beam.lengths, tokenizer)
    pieces = weighing.reference_lengths.get(name, 0)
    length = pieces + 1 if pieces > 0 else 0
    (texts,) = given.texts
    dropped = reasons_to_drop(beam.lengths, length, texts, weighing)
    keep = torch.tensor([[reason is None for reason in dropped]], device=device)
    before = [weighing.contexts[name]] if name in weighing.contexts else None
    log_prior = prior.score(given, before).to(device)
    weights = weighing.weights(log_prior, keep, beam)
    log_q = beam.scores if log_q is None else log_q
    tensors = (beam.classes, beam.lengths, log_q, log_prior, weights)
    rows = zip(*(each[0].tolist() for each in tensors), texts, dropped, strict=True)
    hypotheses = [
        Hypothesis(
            rank,
            text,
            [tokenizer.pieces[each] for each in classes[: count - 1]],
            of_q,
            of_p,
            weight,
            reason,
            None if reference is None else align(reference, text),
        )
        for rank, (classes, count, of_q, of_p, weight, text, reason) in enumerate(rows, 1)
        if count > 0
    ]
    log_reference = None
    if reference is not None:
        log_reference = float(prior.score(Hypotheses.of_texts([[reference]], tokenizer).to(device), before))
    return Inspection(name, reference, log_reference, length, bool(beam.ended[0]), hypotheses)


def of_row(beam: Beam, row: int) -> Beam:
    """The beam of one utterance of a batch: a batch of one."""
    tensors = (beam.classes, beam.lengths, beam.scores, beam.ended)
    return Beam(*(each[row : row + 1] for each in tensors))


def reasons_to_drop(
    lengths: Tensor, reference: int, texts: Sequence[str], weighing: Weighing
) -> list[str | None]:
    """Why each hypothesis of an utterance is dropped, or None: lengths (1, k), reference length L, k texts."""
    inside = weighing.keep(lengths, torch.tensor([reference], device=lengths.device))
    first = first_spellings([texts], inside) if weighing.merge_spellings else inside
    columns = (lengths[0].tolist(), inside[0].tolist(), first[0].tolist())
    return [
        None if counts else "spelled otherwise above" if fits else why_outside(length, reference)
        for length, fits, counts in zip(*columns, strict=True)
    ]


def why_outside(length: int, reference: int) -> str:
    """Why the length filter drops a hypothesis; the length includes the end of sentence."""
    if length < SHORTEST:
        return "empty"
    if reference == 0:
        return "no reference length"
    return f"too {'short' if length < reference else 'long'}, {length} for {reference}"
