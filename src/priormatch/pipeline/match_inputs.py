"""The speech that `priormatch match` is given: cuts are used as they are, other formats are converted first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhotse import CutSet

from priormatch.config import Settings
from priormatch.data.corpus import read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.errors import UserError
from priormatch.pipeline.run_data import hold_out_speakers, recipe_of_speech, take_cuts
from priormatch.pipeline.work import decode_to
from priormatch.prepare.lhotse_cuts import list_cuts
from priormatch.prepare.own import recognize
from priormatch.progress import say
from priormatch.runs.stage import Stage

VALIDATION = "validation"


@dataclass(frozen=True)
class Speech:
    """Labeled, unlabeled and validation speech; without validation sets, labeled speakers are held out."""

    labeled: Path | None
    unlabeled: Path
    validation: Mapping[str, Path] = field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, Path]:
        """The paths by name."""
        labeled = {} if self.labeled is None else {"labeled": self.labeled}
        sets = {f"{VALIDATION}/{name}": path for name, path in self.validation.items()}
        return {**labeled, "unlabeled": self.unlabeled, **sets}

    def check(self) -> None:
        """Refuse speech without transcripts to validate on; warn of matching without labels."""
        if self.labeled is not None:
            return
        if not self.validation:
            raise UserError(
                "there are no transcripts at all: pass --validation, a little transcribed speech to choose the best"
                " model by, or --labeled"
            )
        say(
            "no labeled speech: every update follows the prior. The model can forget words that the prior does not"
            " know, and drift toward fluent but wrong text; only the validation speech shows it, so use at least ten"
            " minutes of several speakers there, and compare the transcripts before and after"
        )

    @property
    def is_raw(self) -> bool:
        """Whether some of it must be converted or split."""
        return bool(self._unfinished())

    def recipe(self, settings: Settings) -> dict[str, Any]:
        """The settings that conversion depends on; none if nothing is converted."""
        return {"data": recipe_of_speech(settings)} if self.is_raw else {}

    def prepared(self, settings: Settings, folder: Path) -> "Speech":
        """The same speech as cuts, converted and split in a folder where necessary."""
        unfinished = self._unfinished()
        if not unfinished:
            return self
        targets = {name: folder / f"{name.replace('/', '-')}{SUFFIX}" for name in unfinished}
        with Stage(folder, recipe_of_speech(settings), unfinished).work() as todo:
            if todo:
                for name, path in unfinished.items():
                    if not is_cuts(path):
                        take_cuts(name, path, targets[name], settings)
                if not self.validation:
                    found = targets["labeled"] if targets["labeled"].exists() else unfinished["labeled"]
                    hold_out_speakers(CutSet.from_cuts(read_cuts(found)), folder, settings)
        sets = {name: targets.get(f"{VALIDATION}/{name}", path) for name, path in self.validation.items()}
        return replace(
            self,
            labeled=targets.get("labeled", self.labeled),
            unlabeled=targets.get("unlabeled", self.unlabeled),
            validation=sets or {VALIDATION: folder / f"{VALIDATION}{SUFFIX}"},
        )

    def _unfinished(self) -> dict[str, Path]:
        """What must be converted, or split to hold out speakers for validation."""
        raw = {name: path for name, path in self.inputs.items() if not is_cuts(path)}
        if not self.validation and self.labeled is not None:
            raw["labeled"] = self.labeled
        return raw


def greedy_lengths(model: Path, unlabeled: Path, settings: Settings, out: Path) -> Path | None:
    """Greedy transcripts of the unlabeled speech where matching needs them and none are given; None if it does not."""
    matching = settings.matching
    filtered = bool(matching.length_filter) and matching.reference_lengths == "greedy"
    if not (filtered or matching.context):
        return None
    if not out.exists():
        decode_to(model, unlabeled, settings, out)
    return out


def is_cuts(path: Path) -> bool:
    """Whether a path is a manifest of cuts, which needs no conversion."""
    return path.is_file() and ".jsonl" in path.suffixes and recognize(path)[1] is list_cuts
