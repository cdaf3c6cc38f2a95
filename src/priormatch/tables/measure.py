"""What the columns of the paper's tables measure, of our systems."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from priormatch.data.text_files import read_sentences
from priormatch.device import find_device
from priormatch.evaluation.decoding import error_rates
from priormatch.evaluation.error_rates import word_error_rate_recovered
from priormatch.evaluation.perplexity import likelihoods, perplexity
from priormatch.evaluation.references import references_of, with_references
from priormatch.evaluation.transcripts import read_transcripts
from priormatch.matching.prior import Prior
from priormatch.runs.work import kept_copy
from priormatch.tables.paper import Row
from priormatch.tables.study import Study
from priormatch.tables.systems import System

RATE = re.compile(r"(?P<part>dev|test)_(?P<kind>clean|other)_(?P<rate>wer|cer)")
RECOVERED = re.compile(r"(?P<wer>test_(clean|other)_wer)r_pct")
LABELS = re.compile(r"train_(?P<kind>clean|other)_\d+_wer")
PERPLEXITY = re.compile(r"lm_ppl_dev_(?P<kind>clean|other)")
STRENGTH = "lm_token_ppl"  # of the prior itself
MOST_SENTENCES = 2000  # of the held-out text, to measure it on

Values = dict[str, float]
"""What was measured of a row, by column."""


def is_measured(column: str) -> bool:
    """Whether a column holds figures, and does not name a row."""
    return column == STRENGTH or any(each.fullmatch(column) for each in (RATE, RECOVERED, LABELS, PERPLEXITY))


def measure(study: Study, row: Row, system: System) -> Values:
    """The figures of one row, of those columns that are measured and do not follow from others."""
    values = {}
    for column in row:
        if match := RATE.fullmatch(column):
            with_prior = row.get("decode_lm", "None") != "None"
            transcripts = read_transcripts(study.decode(system, match["part"], with_prior)[_set_of(match)])
            values[column] = error_rates(transcripts)[match["rate"]]
        elif match := LABELS.fullmatch(column):
            said = references_of(study.parts[match["kind"]])
            heard = with_references(read_transcripts(labels_of(study, row, system)), said)
            values[column] = error_rates([each for each in heard if each.reference is not None])["wer"]
        elif match := PERPLEXITY.fullmatch(column):
            transcripts = read_transcripts(study.decode(system, "dev")[f"dev-{match['kind']}"])
            texts = [
                (each.reference if row["system"] == "GroundTruth" else each.hypothesis) or ""
                for each in transcripts
            ]
            values[column] = perplexity_of(study, study.prior, texts)
        elif column == STRENGTH:
            prior = kept_copy(study.prior, study.settings_of(system).matching.prior)
            held_out = islice(read_sentences(study.data.held_out_text), MOST_SENTENCES)
            values[column] = perplexity_of(study, prior, list(held_out))
    return values


def perplexity_of(study: Study, prior: Path, texts: Sequence[str]) -> float:
    """The perplexity of texts a piece."""
    judge = Prior.load(prior, find_device(study.settings.device))
    return perplexity(likelihoods(judge, texts), texts)


def _set_of(match: re.Match[str]) -> str:
    return f"{match['part']}-{match['kind']}"


def labels_of(study: Study, row: Row, system: System) -> Path:
    """What unlabelled speech is taught by: fixed labels, or the greedy transcripts of a proposal, first or last."""
    if system.kind == "pseudo_labels":
        return study.transcripts(system.labels[0], system.unlabelled)
    return study.greedy(system.unlabelled) if row["step"] == "0" else study.heard(system)


def with_recovered(rows: Sequence[Row], values: Sequence[Values]) -> list[Values]:
    """Add the recovered word error rates, between the rows of the supervised system and of the topline."""
    ends = {
        (row.get("decode_lm"), row["labeled_hours"]): found
        for row, found in zip(rows, values, strict=True)
        if row.get("method") == "Supervised" and row.get("source") == "this"
    }
    completed = []
    for row, found in zip(rows, values, strict=True):
        base, top = (ends.get((row.get("decode_lm"), hours), {}) for hours in ("100", "460"))
        recovered = {
            column: word_error_rate_recovered(base[match["wer"]], found[match["wer"]], top[match["wer"]])
            for column in row
            if (match := RECOVERED.fullmatch(column))
            and all(match["wer"] in each for each in (found, base, top))
        }
        completed.append(found | recovered)
    return completed
