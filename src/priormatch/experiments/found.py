"""Measurements of table rows, stored next to the systems, so that pages can be made without the models."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from priormatch.decoding.tuning import MATCHING_RULE
from priormatch.errors import UserError
from priormatch.experiments.rows import Line
from priormatch.experiments.study import Places
from priormatch.files import read_text, replace_text, set_aside
from priormatch.json_text import parse_json
from priormatch.old_names import OLD_COLUMNS, OLD_NAMES, with_names
from priormatch.pipeline.recipe import (
    recipe_of_fusion,
    recipe_of_matching,
    recipe_of_prior,
    recipe_of_tokenizer,
)
from priormatch.progress import say
from priormatch.runs.stage import digest, kept_aside, plain
from priormatch.scoring.bootstrap import ScoredTexts
from priormatch.scoring.error_rates import ErrorCounts

Values = dict[str, float]
"""The measurements of a row, by column."""


@dataclass(frozen=True)
class Found:
    """The measurements of a row with one seed, and their per-utterance data, by column.

    `errors` are those of error rates; `texts` are the prior's scores of transcripts, for perplexities.
    """

    values: Values = field(default_factory=dict)
    errors: dict[str, ErrorCounts] = field(default_factory=dict)
    texts: dict[str, ScoredTexts] = field(default_factory=dict)


def write_found(study: Places, table: str, line: Line, found: Found) -> None:
    """Write the measurements of a row, with the digest of their settings; differing old figures are kept as copies."""
    errors = {
        column: {"errors": each.errors.tolist(), "lengths": each.lengths.tolist()}
        for column, each in found.errors.items()
    }
    texts = {
        column: {"log_p": each.log_p.tolist(), "pieces": each.pieces.tolist()}
        for column, each in found.texts.items()
    }
    content = {"made_from": made_from(study, line), "values": found.values, "errors": errors}
    if texts:
        content["texts"] = texts
    file, text = file_of(study, table, line), json.dumps(content) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_file() and file.read_bytes() != text.encode():
        say(f"{file.name}: measured again; the old figures are kept as {set_aside(file)}")
    replace_text(file, text)


def read_found(study: Places, table: str, line: Line) -> Found:
    """Read the latest measurements of a row with these settings; empty if there are none.

    For a removed variant, whose settings no longer exist, the recorded figures are used.
    """
    file, wanted = file_of(study, table, line), made_from(study, line)
    recorded = line.system is not None and line.system.recorded != ""
    known = (read_content(each) for each in (file, *kept_aside(file)) if each.is_file())
    content = next((each for each in known if recorded or each["made_from"] == wanted), None)
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
    return Found(content["values"], errors, texts)


def read_content(file: Path) -> dict[str, Any]:
    """The content of a file of figures."""
    try:
        content: dict[str, Any] = parse_json(read_text(file))
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): remove it and run its table again") from error
    return content


def file_of(study: Places, table: str, line: Line) -> Path:
    """The file with the figures of a row."""
    assert line.system is not None
    return study.folder_of(line.system) / "figures" / f"{table}-{line.number}.json"


def made_from(study: Places, line: Line) -> str:
    """A digest of the settings of a row's figures; fusion settings count only if a search used the prior."""
    assert line.system is not None
    settings = study.settings_of(line.system)
    recipe = {name: plain(value) for name, value in recipe_of_matching(settings).items()}
    decoded_with = line.row.get("decode_lm", "None")
    fused = decoded_with != "None" or study.source_of(line.system) == "asr_lm"
    others = (recipe_of_prior(settings.prior), recipe_of_tokenizer(settings.tokenizer))
    searched = [recipe_of_fusion(settings.fusion)] if fused else []
    by_rule = study.is_tuned(line.system) and study.feeds_back(line.system)
    rule = [MATCHING_RULE] if by_rule else []
    used = with_names([recipe, *others, *searched], OLD_NAMES)
    return digest([*used, *rule, with_names(line.row, OLD_COLUMNS)])
