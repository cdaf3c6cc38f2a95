"""Measurements of our systems for the columns of the paper's tables."""

import re
from collections.abc import Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path

from priormatch.data.text_files import read_sentences
from priormatch.device import find_device
from priormatch.experiments.found import Found, Values
from priormatch.experiments.paper import Row
from priormatch.experiments.study import Study
from priormatch.experiments.systems import System
from priormatch.pipeline.work import kept_copy
from priormatch.recognizers.perplexity import in_order, likelihoods
from priormatch.recognizers.prior import ConvPrior
from priormatch.scoring.bootstrap import ScoredTexts
from priormatch.scoring.error_rates import (
    ErrorCounts,
    character_errors,
    word_error_rate_recovered,
    word_errors,
)
from priormatch.scoring.references import references_of, with_references
from priormatch.scoring.transcripts import Transcript, both_sides, read_transcripts

RATE = re.compile(r"(?P<part>dev|test)_(?P<kind>clean|other)_(?P<rate>wer|cer)")
RECOVERED = re.compile(r"(?P<wer>test_(clean|other)_wer)r(_(?P<top>\d+))?_pct")
BASE_HOURS, TOP_HOURS = (
    "100",
    "460",
)  # labeled hours of the supervised row and of the topline, for the recovered share
LABELS = re.compile(r"train_(?P<kind>clean|other)_\d+_wer")
PERPLEXITY = re.compile(r"lm_ppl_dev_(?P<kind>clean|other)")
STRENGTH = "lm_token_ppl"  # perplexity of the prior itself
MOST_SENTENCES = 2000  # of the held-out text, for that perplexity


def is_measured(column: str) -> bool:
    """Whether a column holds figures, not descriptions of rows."""
    return column == STRENGTH or any(each.fullmatch(column) for each in (RATE, RECOVERED, LABELS, PERPLEXITY))


def is_better_lower(column: str) -> bool:
    """Whether a column holds error rates or the prior's perplexities of transcripts."""
    return any(each.fullmatch(column) for each in (RATE, LABELS, PERPLEXITY))


def measure(study: Study, row: Row, system: System) -> Found:
    """Measure the figures of one row, except those that are computed from others."""
    errors, scored, values = {}, {}, {}
    decoded = cache(partial(study.decode, system))
    for column in row:
        if match := RATE.fullmatch(column):
            with_prior = row.get("decode_lm", "None") != "None"
            transcripts = read_transcripts(decoded(match["part"], with_prior)[_set_of(match)])
            errors[column] = errors_of(transcripts, match["rate"])
        elif match := LABELS.fullmatch(column):
            said = references_of(study.parts["clean" if match["kind"] == "clean" else "other"][1])
            heard = with_references(read_transcripts(labels_of(study, row, system)), said)
            errors[column] = errors_of([each for each in heard if each.reference is not None], "wer")
        elif match := PERPLEXITY.fullmatch(column):
            transcripts = read_transcripts(decoded("dev", False)[f"dev-{match['kind']}"])
            texts = [
                (each.reference if row["system"] == "GroundTruth" else each.hypothesis) or ""
                for each in transcripts
            ]
            scored[column] = scored_by(study, study.models.prior(), texts)
        elif column == STRENGTH:
            prior = kept_copy(study.models.prior(), study.settings_of(system).matching.prior)
            held_out = islice(read_sentences(study.data.held_out_text), MOST_SENTENCES)
            values[column] = scored_by(study, prior, list(held_out)).perplexity
    values |= {column: counts.rate for column, counts in errors.items()}
    values |= {column: texts.perplexity for column, texts in scored.items()}
    return Found(values, errors, scored)


def errors_of(transcripts: Sequence[Transcript], rate: str) -> ErrorCounts:
    """Word or character errors of transcripts with references."""
    count = word_errors if rate == "wer" else character_errors
    return count(*both_sides(transcripts))


def scored_by(study: Study, prior: Path, texts: Sequence[str]) -> ScoredTexts:
    """The prior's score of each text."""
    judge = ConvPrior.load(prior, find_device(study.settings.device))
    return in_order(likelihoods(judge, texts), texts)


def _set_of(match: re.Match[str]) -> str:
    return f"{match['part']}-{match['kind']}"


def labels_of(study: Study, row: Row, system: System) -> Path:
    """The labels of unlabeled speech: fixed labels, or the greedy transcripts of the first or last proposal."""
    if system.kind == "pseudo_labels":
        assert system.labels is not None
        return study.models.transcripts(system.labels, system.unlabeled)
    return study.models.greedy(system.unlabeled) if row["step"] == "0" else study.heard(system)


def ends_of(rows: Sequence[Row], row: Row, column: str) -> tuple[str, int, int] | None:
    """For a column of recovered rates: the column of WER, and the positions of the supervised row and the topline."""
    if not (match := RECOVERED.fullmatch(column)):
        return None
    found = {
        (each["labeled_hours"], each["decode_lm"]): position
        for position, each in enumerate(rows)
        if each["method"] == "Supervised" and each["source"] in ("this", "ours")
    }
    base, top = (found.get((hours, row["decode_lm"])) for hours in (BASE_HOURS, match["top"] or TOP_HOURS))
    return None if base is None or top is None else (match["wer"], base, top)


def with_recovered(rows: Sequence[Row], values: Sequence[Values]) -> list[Values]:
    """Add the recovered word error rates, between the supervised row and the topline."""
    completed = []
    for row, found in zip(rows, values, strict=True):
        more = {}
        for column in row:
            if (ends := ends_of(rows, row, column)) is not None:
                wer, base, top = ends
                three = [each.get(wer) for each in (values[base], found, values[top])]
                if None not in three:
                    more[column] = word_error_rate_recovered(*(each for each in three if each is not None))
        completed.append(found | more)
    return completed
