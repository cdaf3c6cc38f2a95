"""The files that matching starts from; speech in other formats than cuts is converted first."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhotse import CutSet

from priormatch.config import ORACLE, Settings
from priormatch.data.corpus import Corpus, cut_text, read_cuts
from priormatch.data.manifest import SUFFIX
from priormatch.device import find_device
from priormatch.errors import UserError
from priormatch.matching.baselines import OraclePrior
from priormatch.pipeline.match import MatchJob, heard_before, require_compatible
from priormatch.pipeline.run_data import hold_out_speakers, recipe_of_speech, take_cuts
from priormatch.pipeline.work import decode_to, load_validation, thin
from priormatch.prepare.lhotse_cuts import list_cuts
from priormatch.prepare.own import recognize
from priormatch.progress import say
from priormatch.recognizers.load import load_prior, load_recognizer
from priormatch.recognizers.protocols import Prior
from priormatch.runs.stage import Stage
from priormatch.scoring.references import references_of
from priormatch.scoring.transcripts import read_transcripts

VALIDATION = "validation"


@dataclass(frozen=True, kw_only=True)
class MatchFiles:
    """The paths of models and speech; without validation sets, labeled speakers are held out.

    `lengths` are transcripts of the unlabeled speech, which give reference lengths and contexts. `transcribed` has the
    true transcripts of unlabeled utterances, on which the proposal's labels are scored.
    """

    model: Path
    labeled: Path | None
    unlabeled: Path
    validation: Mapping[str, Path] = field(default_factory=dict)
    prior: Path | None = None
    lengths: Path | None = None
    proposal: Path | None = None
    transcribed: Path | None = None

    @property
    def speech(self) -> dict[str, Path]:
        """The paths of the speech by name."""
        labeled = {} if self.labeled is None else {"labeled": self.labeled}
        sets = {f"{VALIDATION}/{name}": path for name, path in self.validation.items()}
        return {**labeled, "unlabeled": self.unlabeled, **sets}

    @property
    def inputs(self) -> dict[str, Path]:
        """All paths by name, but for `transcribed`, which changes no result."""
        models = {
            "model": self.model,
            "prior": self.prior,
            "lengths": self.lengths,
            "proposal": self.proposal,
        }
        return self.speech | {name: path for name, path in models.items() if path is not None}

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

    def recipe(self, settings: Settings) -> dict[str, Any]:
        """The settings that conversion depends on; none if nothing is converted."""
        return {"data": recipe_of_speech(settings)} if self._unfinished() else {}

    def prepared(self, settings: Settings, out: Path) -> "MatchFiles":
        """The same files with what is missing: speech as cuts in `out/data`, and greedy transcripts if needed."""
        if self._unfinished() and not (out / "data").exists():
            self._require_models(settings)
        files = self._converted(settings, out / "data")
        matching, heard = settings.matching, out / "lengths.jsonl"
        filtered = bool(matching.length_filter) and matching.reference_lengths == "greedy"
        if files.lengths is not None or not (filtered or matching.context):
            return files
        if not heard.exists():
            decode_to(files.model, files.unlabeled, settings, heard)
        return replace(files, lengths=heard)

    def job(self, settings: Settings, out: Path, log: Path) -> MatchJob:
        """Load the files."""
        device = find_device(settings.device)
        online = load_recognizer(self.model, device, settings.pretrained)
        prior: Prior | None = None
        if self.prior is not None:
            prior = load_prior(self.prior, device, settings.prior.text_form)
        heard = None if self.lengths is None else read_transcripts(self.lengths)
        unlabeled = Corpus.load(self.unlabeled, settings.audio)
        contexts = heard_before(unlabeled, heard) if settings.matching.context else None
        if settings.matching.prior == ORACLE:
            prior, contexts = OraclePrior(), transcripts_of_all(self.transcribed)
        labeled, proposal, transcribed = self.labeled, self.proposal, self.transcribed
        return MatchJob(
            online=online,
            labeled=None if labeled is None else Corpus.load(labeled, settings.audio, transcribed=True),
            unlabeled=unlabeled,
            validation=load_validation(self.validation, settings),
            settings=settings,
            out=out,
            log=log,
            prior=prior,
            proposal=None if proposal is None else load_recognizer(proposal, device, settings.pretrained),
            reference_lengths=None if heard is None else {each.id: each.pieces for each in heard},
            contexts=contexts,
            transcribed=None if transcribed is None else transcribed_sample(transcribed, unlabeled, settings),
            prior_folder=self.prior,
        )

    def _require_models(self, settings: Settings) -> None:
        """Refuse models that cannot be loaded or do not fit together, before anything is made for them."""
        require_compatible(
            load_recognizer(self.model, pretrained=settings.pretrained),
            None if self.prior is None else load_prior(self.prior, form=settings.prior.text_form),
            None if self.proposal is None else load_recognizer(self.proposal, pretrained=settings.pretrained),
        )

    def _converted(self, settings: Settings, folder: Path) -> "MatchFiles":
        """The same files with speech as cuts, converted and split in a folder where necessary."""
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
        raw = {name: path for name, path in self.speech.items() if not is_cuts(path)}
        if not self.validation and self.labeled is not None:
            raw["labeled"] = self.labeled
        return raw


def transcribed_sample(transcribed: Path, unlabeled: Corpus, settings: Settings) -> Corpus | None:
    """Unlabeled utterances with known transcripts, to score the proposal's labels on; None if there are none."""
    most = settings.matching.score_labels_on
    if most == 0:
        return None
    ids = set(unlabeled.ids)
    known = [cut for cut in read_cuts(transcribed) if cut.id in ids and cut_text(cut)]
    if not known:
        say(
            f"{transcribed} has no transcripts of utterances of {unlabeled.name}:"
            " the proposal's labels are not scored"
        )
        return None
    return thin(Corpus(known, settings.audio, str(transcribed)), most)


def transcripts_of_all(transcribed: Path | None) -> dict[str, str]:
    """The transcripts of the unlabeled speech by utterance, for a prior that knows them."""
    if transcribed is None:
        raise UserError(
            f"matching.prior={ORACLE} needs the transcripts of the unlabeled speech: set topline=CUTS"
        )
    return references_of(transcribed)


def is_cuts(path: Path) -> bool:
    """Whether a path is a manifest of cuts, which needs no conversion."""
    return path.is_file() and ".jsonl" in path.suffixes and recognize(path)[1] is list_cuts
