"""What was measured of the rows of tables, in files beside the systems, so that a page can be made without them."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from priormatch.evaluation.error_rates import ErrorCounts
from priormatch.files import replace_text
from priormatch.runs.recipe import recipe_of_matching
from priormatch.runs.stage import digest, plain
from priormatch.tables.rows import Line
from priormatch.tables.study import Study

Values = dict[str, float]
"""What was measured of a row, by column."""


@dataclass(frozen=True)
class Found:
    """What was measured of a row with one seed, and the errors behind those figures that are error rates."""

    values: Values = field(default_factory=dict)
    errors: dict[str, ErrorCounts] = field(default_factory=dict)


def write_found(study: Study, table: str, line: Line, found: Found) -> None:
    """Put down what was measured of a row, with what it was made from."""
    errors = {
        column: {"errors": each.errors.tolist(), "lengths": each.lengths.tolist()}
        for column, each in found.errors.items()
    }
    content = {"made_from": made_from(study, line), "values": found.values, "errors": errors}
    file = file_of(study, table, line)
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_text(file, json.dumps(content) + "\n")


def read_found(study: Study, table: str, line: Line) -> Found:
    """What was measured of a row, nothing where that is not done, or was done with other settings."""
    file = file_of(study, table, line)
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    if content is None or content["made_from"] != made_from(study, line):
        return Found()
    errors = {
        column: ErrorCounts(np.array(each["errors"]), np.array(each["lengths"]))
        for column, each in content["errors"].items()
    }
    return Found(content["values"], errors)


def file_of(study: Study, table: str, line: Line) -> Path:
    """Where the figures of a row are put down."""
    assert line.system is not None
    return study.folder_of(line.system) / "figures" / f"{table}-{line.number}.json"


def made_from(study: Study, line: Line) -> str:
    """What tells figures from those of other settings; of fusion's only where the prior had a say in a search."""
    assert line.system is not None
    settings = study.settings_of(line.system)
    recipe = {name: plain(value) for name, value in recipe_of_matching(settings).items()}
    decoded_with = line.row.get("decode_lm", "None")
    fused = decoded_with != "None" or study.source_of(line.system) == "asr_lm"
    others = (settings.prior, settings.tokenizer, *([settings.fusion] if fused else []))
    return digest([recipe, *map(plain, others), line.row])
