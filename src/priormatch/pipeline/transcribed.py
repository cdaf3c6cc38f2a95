"""A record of the models and settings that made the transcripts in a folder."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from priormatch.errors import UserError
from priormatch.files import writing
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, with_names
from priormatch.runs.stage import differences, plain

FILE = "transcribed.jsonl"


class Transcribed:
    """The record `transcribed.jsonl` of a folder: for each transcript its recording, models and settings.

    Lines that cannot be read, such as one cut off when the process was killed, are ignored.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any]) -> None:
        self.file = folder / FILE
        self.made_with = {name: plain(value) for name, value in made_with.items()}
        self.known: dict[str, dict[str, Any]] = {}
        lines = self.file.read_bytes().splitlines(keepends=True) if self.file.is_file() else []
        self.cut_off = bool(lines) and not lines[-1].endswith(b"\n")
        for line in lines:
            try:
                entry = with_names(parse_json(line), NEW_NAMES)
                self.known[entry.pop("file")] = entry
            except (ValueError, LookupError, TypeError, AttributeError):
                continue

    def require_same(self, transcript: Path, recording: Path) -> None:
        """Refuse an existing transcript that was made from another recording or with other models or settings."""
        known = self.known.get(self._name(transcript))
        if known is None:
            raise UserError(
                f"{transcript} exists, and {self.file} does not record how it was made: give another --out, or replace"
                " it with --overwrite"
            )
        if changed := differences(known, self._origin(recording)):
            raise UserError(
                f"{transcript} was made with another {' and '.join(changed)}: give another --out, or replace it with"
                " --overwrite"
            )

    def note(self, transcript: Path, recording: Path) -> None:
        """Record how a transcript is made; call this before it is written, while the file does not exist."""
        entry = {"file": self._name(transcript), **self._origin(recording)}
        with writing(self.file), self.file.open("a", encoding="utf-8") as record:
            record.write("\n" * self.cut_off + json.dumps(entry) + "\n")
        self.cut_off = False

    def _name(self, transcript: Path) -> str:
        return os.path.relpath(transcript, self.file.parent)

    def _origin(self, recording: Path) -> dict[str, Any]:
        return {"recording": os.path.realpath(recording), **self.made_with}
