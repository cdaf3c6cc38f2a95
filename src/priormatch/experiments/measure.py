"""What the columns of the paper's tables measure, of our systems."""

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
from priormatch.recognizers.prior import Prior
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
BASE_HOURS, TOP_HOURS = "100", "460"  # labeled speech at the ends of the recovered share
LABELS = re.compile(r"train_(?P<kind>clean|other)_\d+_wer")
PERPLEXITY = re.compile(r"lm_ppl_dev_(?P<kind>clean|other)")
STRENGTH = "lm_token_ppl"  # of the prior itself
MOST_SENTENCES = 2000  # of the held-out text, to measure it on


def is_measured(column: str) -> bool:
    """Whether a column holds figures, and does not name a row."""
    return column == STRENGTH or any(each.fullmatch(column) for each in (RATE, RECOVERED, LABELS, PERPLEXITY))


def is_better_lower(column: str) -> bool:
    """Whether a column holds error rates, or how unlikely the prior finds transcripts."""
    return any(each.fullmatch(column) for each in (RATE, LABELS, PERPLEXITY))


def measure(study: Study, row: Row, system: System) -> Found:
    """The figures of one row, of those columns that are measured and do not follow from others."""
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
            scored[column] = scored_by(study, study.models.prior, texts)
        elif column == STRENGTH:
            prior = kept_copy(study.models.prior, study.settings_of(system).matching.prior)
            held_out = islice(read_sentences(study.data.held_out_text), MOST_SENTENCES)
            values[column] = scored_by(study, prior, list(held_out)).perplexity
    values |= {column: counts.rate for column, counts in errors.items()}
    values |= {column: texts.perplexity for column, texts in scored.items()}
    return Found(values, errors, scored)


def errors_of(transcripts: Sequence[Transcript], rate: str) -> ErrorCounts:
    """Word or character errors of transcripts that know their references."""
    count = word_errors if rate == "wer" else character_errors
    return count(*both_sides(transcripts))


def scored_by(study: Study, prior: Path, texts: Sequence[str]) -> ScoredTexts:
    """How likely a prior finds texts, one by one."""
    judge = Prior.load(prior, find_device(study.settings.device))
    return in_order(likelihoods(judge, texts), texts)


def _set_of(match: re.Match[str]) -> str:
    return f"{match['part']}-{match['kind']}"


def labels_of(study: Study, row: Row, system: System) -> Path:
    """What unlabeled speech is taught by: fixed labels, or the greedy transcripts of a proposal, first or last."""
    if system.kind == "pseudo_labels":
        assert system.labels is not None
        return study.models.transcripts(system.labels, system.unlabeled)
    return study.models.greedy(system.unlabeled) if row["step"] == "0" else study.heard(system)


def ends_of(rows: Sequence[Row], row: Row, column: str) -> tuple[str, int, int] | None:
    """Of a column of recovered rates, that of the word error rates, and the positions of supervised row and topline."""
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
    """Add the recovered word error rates, between the rows of the supervised system and of a topline."""
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
