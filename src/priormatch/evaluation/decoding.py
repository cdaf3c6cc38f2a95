"""Decoding whole corpora, and the validation score."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from priormatch.data.batches import Corpus, UtteranceReader, once
from priormatch.errors import UserError
from priormatch.evaluation.error_rates import character_errors, word_errors
from priormatch.models.folder import replace_text
from priormatch.models.recognizer import Recognizer
from priormatch.progress import Meter, say
from priormatch.training.device import mixed_precision

BATCH_SECONDS = 240.0


@dataclass(frozen=True)
class Transcript:
    """One decoded utterance: its best hypothesis, that one's length in pieces, and the n-best with scores."""

    id: str
    hypothesis: str
    pieces: int
    reference: str | None
    nbest: list[tuple[str, float]]


@torch.no_grad()
def decode(model: Recognizer, corpus: Corpus, beam_size: int = 1, workers: int = 0) -> Iterator[Transcript]:
    """Transcribe every utterance of a corpus; an unreadable one is named and gives nothing."""
    reader = UtteranceReader(corpus, model.tokenizer)
    training = model.training
    model.eval()
    for batch in once(reader, BATCH_SECONDS, workers):
        for cut, reason in batch.bad:
            say(f"{corpus.name}: {cut} cannot be read and is skipped ({reason})")
        if not len(batch):
            continue
        moved = batch.to(model.device)
        with mixed_precision(model.device):
            beam = model.propose(moved.waveforms, moved.samples, beam_size)
        rows = zip(beam.classes.tolist(), beam.lengths.tolist(), beam.scores.tolist(), strict=True)
        for index, (classes, lengths, scores) in enumerate(rows):
            nbest = [
                (model.tokenizer.decode(each), score)
                for each, length, score in zip(classes, lengths, scores, strict=True)
                if length > 0
            ]
            pieces = max(lengths[0] - 1, 0)
            yield Transcript(batch.ids[index], nbest[0][0] if nbest else "", pieces, batch.texts[index], nbest)
    model.train(training)


def decode_with_progress(
    model: Recognizer, corpus: Corpus, description: str, beam_size: int = 1, workers: int = 0
) -> list[Transcript]:
    """All transcripts of a corpus in its own order, showing progress."""
    found = {}
    with Meter(description, len(corpus)) as meter:
        for transcript in decode(model, corpus, beam_size, workers):
            found[transcript.id] = transcript
            meter.advance()
    check_share(len(corpus) - len(found), corpus)
    return [found[cut.id] for cut in corpus.cuts if cut.id in found]


def check_share(bad: int, corpus: Corpus) -> None:
    """Stop when too much of a corpus could not be read."""
    if bad > 1 and bad > corpus.audio.max_bad_share * len(corpus):
        raise UserError(
            f"{corpus.name}: {bad} of {len(corpus)} utterances cannot be read:"
            f" mend them, or raise audio.max_bad_share (now {corpus.audio.max_bad_share:g})"
        )


def validation_errors(model: Recognizer, sets: Mapping[str, Corpus], workers: int = 0) -> dict[str, dict[str, float]]:
    """WER and CER of greedy decoding for each validation set, in percent."""
    errors = {}
    for name, corpus in sets.items():
        transcripts = list(decode(model, corpus, workers=workers))
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


def write_transcripts(path: Path, transcripts: Sequence[Transcript]) -> None:
    """Write transcripts as JSON lines."""
    lines = []
    for each in transcripts:
        entry: dict[str, object] = {"id": each.id, "hypothesis": each.hypothesis, "pieces": each.pieces}
        if each.reference is not None:
            entry["reference"] = each.reference
        if len(each.nbest) > 1:
            entry["nbest"] = [{"text": text, "score": score} for text, score in each.nbest]
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(lines))


def read_transcripts(path: Path) -> list[Transcript]:
    """Read what `write_transcripts` wrote."""
    if not path.is_file():
        raise UserError(f"no transcripts at {path}: make them with `priormatch decode` or `priormatch lengths`")
    transcripts = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            entry = json.loads(line)
            nbest = [(each["text"], each["score"]) for each in entry.get("nbest", [])]
            transcripts.append(
                Transcript(
                    str(entry["id"]), entry["hypothesis"], entry.get("pieces", 0), entry.get("reference"), nbest
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}:{number}: not a transcript ({error}); decode again") from error
    if not transcripts:
        raise UserError(f"{path} holds no transcripts: decode again")
    return transcripts
