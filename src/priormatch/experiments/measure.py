"""Measurements of systems for the columns of tables, stored next to the systems; and the beams of Table 1.

Pages are made from the stored measurements, without the models.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from priormatch.data.corpus import Corpus
from priormatch.data.text_files import read_sentences
from priormatch.decoding.tuning import MATCHING_RULE
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.experiments.layout import Grid, Values
from priormatch.experiments.study import Places, Study
from priormatch.experiments.table import (
    LABEL_ERRORS,
    PERPLEXITY,
    RATE,
    STRENGTH,
    Cells,
    Row,
    System,
    system_of,
)
from priormatch.files import read_text, replace_text, set_aside
from priormatch.json_text import parse_json
from priormatch.matching.hypotheses import Inspection, inspect
from priormatch.matching.lpm import Weighing
from priormatch.old_names import OLD_COLUMNS, OLD_NAMES, with_names
from priormatch.pipeline.recipe import (
    recipe_of_fusion,
    recipe_of_matching,
    recipe_of_prior,
    recipe_of_tokenizer,
)
from priormatch.pipeline.show_hypotheses import marked
from priormatch.pipeline.work import kept_copy
from priormatch.progress import say
from priormatch.recognizers.load import load_prior
from priormatch.recognizers.perplexity import in_order, likelihoods
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.runs.stage import digest, kept_aside, plain
from priormatch.scoring.bootstrap import ScoredTexts
from priormatch.scoring.error_rates import ErrorCounts, character_errors, word_errors
from priormatch.scoring.references import references_of, units_of, with_references
from priormatch.scoring.transcripts import Transcript, both_sides, read_transcripts

MOST_SENTENCES = 2000  # of the held-out text, for the perplexity of the prior itself
UTTERANCES = 2  # in Table 1
SHOWN = system_of("matched clean")  # in Table 1, together with the supervised model


@dataclass(frozen=True)
class Found:
    """The measurements of a row with one seed, and their per-utterance data, by column.

    `errors` are those of error rates, `speakers` number the speaker of each utterance where all are known, and `texts`
    are the prior's scores of transcripts, for perplexities.
    """

    values: Values = field(default_factory=dict)
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    texts: dict[str, ScoredTexts] = field(default_factory=dict)
    speakers: dict[str, list[int]] = field(default_factory=dict)


def measure(study: Study, cells: Cells, system: System) -> Found:
    """Measure the figures of one row, except those that are computed from others."""
    errors, scored, speakers, values = {}, {}, {}, {}
    decoded = cache(partial(study.decode, system))
    for column in cells:
        if match := RATE.fullmatch(column):
            with_prior = cells.get("decode_lm", "None") != "None"
            part, name = match["part"], match["set"].replace("_", "-")
            transcripts = read_transcripts(decoded(part, with_prior)[name])
            errors[column] = errors_of(transcripts, match["rate"])
            speakers[column] = speakers_of(transcripts, study.sets(part)[name])
        elif match := LABEL_ERRORS.fullmatch(column):
            _, transcribed = study.parts["clean" if match["kind"] == "clean" else "other"]
            said = {} if transcribed is None else references_of(transcribed)
            heard = with_references(read_transcripts(labels_of(study, cells, system)), said)
            errors[column] = errors_of([each for each in heard if each.reference is not None], "wer")
        elif match := PERPLEXITY.fullmatch(column):
            transcripts = read_transcripts(decoded("dev", False)[match["set"].replace("_", "-")])
            texts = [
                (each.reference if cells["system"] == "GroundTruth" else each.hypothesis) or ""
                for each in transcripts
            ]
            scored[column] = scored_by(study, study.models.prior(), texts)
        elif STRENGTH.fullmatch(column):
            prior = kept_copy(study.models.prior(), study.settings_of(system).matching.prior)
            held_out = islice(read_sentences(study.data.held_out_text), MOST_SENTENCES)
            values[column] = scored_by(study, prior, list(held_out)).perplexity
    values |= {column: counts.rate for column, counts in errors.items()}
    values |= {column: texts.perplexity for column, texts in scored.items()}
    return Found(values, errors, scored, {column: each for column, each in speakers.items() if each})


def speakers_of(transcripts: Sequence[Transcript], cuts: Path) -> list[int]:
    """The speaker of each utterance as a number, in the order of their names; empty unless all are known."""
    known = units_of(cuts, "speakers")
    if not all(each.id in known for each in transcripts):
        return []
    numbers = {name: number for number, name in enumerate(sorted(set(known.values())))}
    return [numbers[known[each.id]] for each in transcripts]


def errors_of(transcripts: Sequence[Transcript], rate: str) -> ErrorCounts:
    """Word or character errors of transcripts with references."""
    count = word_errors if rate == "wer" else character_errors
    return count(*both_sides(transcripts))


def scored_by(study: Study, prior: Path, texts: Sequence[str]) -> ScoredTexts:
    """The prior's score of each text."""
    judge = load_prior(prior, find_device(study.settings.device))
    return in_order(likelihoods(judge, texts), texts)


def labels_of(study: Study, cells: Cells, system: System) -> Path:
    """The labels of unlabeled speech: fixed labels, or the greedy transcripts of the first or last proposal."""
    if system.labels is not None:
        return study.models.transcripts(system.labels, system.unlabeled)
    return study.models.greedy(system.unlabeled) if cells["step"] == "0" else study.heard(system)


def write_found(study: Places, table: str, row: Row, found: Found) -> None:
    """Write the measurements of a row, with the digest of their settings; differing old figures are kept as copies."""
    errors = {
        column: {"errors": each.errors.tolist(), "lengths": each.lengths.tolist()}
        for column, each in found.errors.items()
    }
    texts = {
        column: {"log_p": each.log_p.tolist(), "pieces": each.pieces.tolist()}
        for column, each in found.texts.items()
    }
    content = {"made_from": made_from(study, row), "values": found.values, "errors": errors}
    content |= {name: each for name, each in (("texts", texts), ("speakers", found.speakers)) if each}
    file, text = file_of(study, table, row), json.dumps(content) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_file() and file.read_bytes() != text.encode():
        say(f"{file.name}: measured again; the old figures are kept as {set_aside(file)}")
    replace_text(file, text)


def read_found(study: Places, table: str, row: Row) -> Found:
    """Read the latest measurements of a row with these settings; empty if there are none.

    For a removed variant, whose settings no longer exist, the recorded figures are used.
    """
    file, wanted = file_of(study, table, row), made_from(study, row)
    known = (read_content(each) for each in (file, *kept_aside(file)) if each.is_file())
    content = next((each for each in known if row.recorded or each["made_from"] == wanted), None)
    if content is None:
        return Found()
    errors = {
        column: ErrorCounts(np.array(each["errors"]), np.array(each["lengths"]))
        for column, each in content["errors"].items()
    }
    texts = {
        column: ScoredTexts(np.array(each["log_p"]), np.array(each["pieces"]))
        for column, each in content.get("texts", {}).items()  # missing in older files
    }
    return Found(content["values"], errors, texts, content.get("speakers", {}))


def read_content(file: Path) -> dict[str, Any]:
    """The content of a file of figures."""
    try:
        content: dict[str, Any] = parse_json(read_text(file))
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): remove it and run its table again") from error
    return content


def file_of(study: Places, table: str, row: Row) -> Path:
    """The file with the figures of a row."""
    assert row.system is not None
    return study.folder_of(row.system) / "figures" / f"{table}-{row.number}.json"


def made_from(study: Places, row: Row) -> str:
    """A digest of the settings of a row's figures; fusion settings count only if a search used the prior."""
    assert row.system is not None
    settings = study.settings_of(row.system)
    recipe = {name: plain(value) for name, value in recipe_of_matching(settings).items()}
    decoded_with = row.cells.get("decode_lm", "None")
    fused = decoded_with != "None" or study.source_of(row.system) == "asr_lm"
    others = (recipe_of_prior(settings.prior), recipe_of_tokenizer(settings.tokenizer))
    searched = [recipe_of_fusion(settings.fusion)] if fused else []
    by_rule = study.is_tuned(row.system) and study.feeds_back(row.system)
    rule = [MATCHING_RULE] if by_rule else []
    used = with_names([recipe, *others, *searched], OLD_NAMES)
    return digest([*used, *rule, with_names(row.cells, OLD_COLUMNS)])


def beams(study: Study) -> Grid:
    """Table 1: the reference, and each model's hypotheses with marked errors, log q, log p_y and weights."""
    device = find_device(study.settings.device)
    models = {"Supervised": study.models.supervised(), "LPM": study.train(SHOWN)}
    prior, size = load_prior(study.models.prior(), device), study.settings.matching.beam_size
    corpus = some_of(study.data.validation["dev-other"], study)
    found = {
        name: inspect(SpeechRecognizer.load(model, device), prior, corpus, size, Weighing())
        for name, model in models.items()
    }
    lines = []
    for number in range(len(corpus)):
        first = next(iter(found.values()))[number]
        reference = f"{first.reference_log_prior:.2f}" if first.reference_log_prior is not None else ""
        lines.append([str(number + 1), "Reference", "", "", reference, "", first.reference or ""])
        for name, inspections in found.items():
            lines += beam(str(number + 1), name, inspections[number])
    return [["utterance", "model", "rank", "log q(y)", "log p(y)", "weight", "hypothesis"], *lines]


def beam(number: str, model: str, inspection: Inspection) -> Grid:
    """The rows of one beam."""
    return [
        [
            number,
            model,
            str(each.rank),
            f"{each.log_q:.2f}",
            f"{each.log_prior:.2f}",
            f"{each.weight:.3f}",
            marked(each).plain,
        ]
        for each in inspection.hypotheses
    ]


def some_of(cuts: Path, study: Study) -> Corpus:
    """The first utterances of a set that are near the median duration."""
    corpus = Corpus.load(cuts, study.settings.audio, transcribed=True)
    middle = sorted(corpus.durations)[len(corpus) // 2]
    near = [cut for cut in corpus.cuts if 0.75 * middle <= cut.duration <= 1.5 * middle]
    return Corpus(near[:UTTERANCES], corpus.audio, corpus.name)
