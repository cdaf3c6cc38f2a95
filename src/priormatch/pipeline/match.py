"""Local prior matching, and training on fixed pseudo-labels, from files or corpora into a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from lhotse.cut import Cut

from priormatch.config import Settings
from priormatch.data.corpus import Corpus
from priormatch.data.recordings import contexts_of, previous_in_recording
from priormatch.decoding.fusion import fusion_of_hypotheses
from priormatch.device import find_device
from priormatch.distributed import is_main, ranks
from priormatch.errors import Refused, UserError
from priormatch.matching.baselines import RENEWED, AveragedProposal, CachedTargets
from priormatch.matching.kept import TargetsOfProposal
from priormatch.matching.lpm import (
    BeamTargets,
    LengthFilter,
    Proposal,
    TargetsOf,
    Weighing,
    given_labels,
    keep_all,
    require_fit,
)
from priormatch.matching.reference_lengths import lengths_by_rate, pieces_a_second
from priormatch.pipeline.cards import KNOWN, PAPER, judged
from priormatch.pipeline.recipe import recipe_of_matching, recipe_of_schedule
from priormatch.pipeline.work import (
    leave_recognizer_card,
    load_validation,
    matching_schedule,
    require_letters,
    say_split,
    thin,
)
from priormatch.progress import duration_text, say
from priormatch.recognizers.decode import fitting, mean_cer, note_rescoring, validation_errors
from priormatch.recognizers.hf_prior import HuggingFacePrior, letters_of
from priormatch.recognizers.load import load_recognizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.protocols import Prior, Recognizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.scoring.transcripts import Transcript
from priormatch.training.inspected import FILE as INSPECTED
from priormatch.training.inspected import Inspector
from priormatch.training.loop import fit
from priormatch.training.matching_step import Matching


def weighing_of(
    settings: Settings, reference_lengths: Mapping[str, int], contexts: Mapping[str, str]
) -> Weighing:
    """The filter and the weights of beams, from the settings."""
    matching = settings.matching
    return Weighing(
        LengthFilter(*matching.length_filter) if matching.length_filter else keep_all,
        reference_lengths,
        matching.merge_spellings,
        (matching.prior_exponent, matching.proposal_exponent),
        contexts,
        fusion_of_hypotheses(settings),
        matching.length_normalization,
    )


@dataclass(frozen=True, kw_only=True)
class MatchJob:
    """One training by local prior matching: models, speech, settings and output folder.

    The online model is trained in place; its best version is saved in `out/model`. Without a `proposal`, the online
    model is also the first proposal. The prior may be missing if neither the weights nor the search use it. Without
    labeled speech every update is unpaired. `reference_lengths` are tokens per utterance; they may be missing if there
    is no length filter, or to use the speaking rate of the transcribed speech. `contexts` are the texts that the prior
    reads before utterances. The proposal is scored on `transcribed` utterances. Beams of a few utterances, transcribed
    ones if there are any, are written to `out/inspected.jsonl`. The model's card includes facts from the prior's card
    in `prior_folder`.
    """

    online: Recognizer
    labeled: Corpus | None
    unlabeled: Corpus
    validation: Mapping[str, Corpus]
    settings: Settings
    out: Path
    log: Path
    prior: Prior | None = None
    proposal: Recognizer | None = None
    reference_lengths: Mapping[str, int] | None = None
    contexts: Mapping[str, str] | None = None
    transcribed: Corpus | None = None
    prior_folder: Path | None = None

    def run(self) -> None:
        """Train; write the models, and the card of a recognizer of this package."""
        settings, matching, prior, out = self.settings, self.settings.matching, self.prior, self.out
        self._check()
        start, unlabeled = self.proposal or self.online, fitting(self.unlabeled, self.online)
        cer = mean_cer(validation_errors(start, self.validation))
        require_fit(cer, matching.max_proposal_cer)
        lengths = self._lengths()
        speech = with_lengths(unlabeled, lengths) if matching.length_filter else unlabeled
        say(
            f"{out.name}: {duration_text(3600 * speech.hours)} unlabeled, validation CER of the proposal {cer:.2f} %"
        )
        say_split(out.name, matching.batch)
        if prior is not None and matching.hypotheses == "asr" and matching.prior_exponent == 0:
            say(
                f"{out.name}: the prior has no effect; set matching.prior_exponent=1 to weigh hypotheses by it"
            )
        if isinstance(start, SpeechRecognizer) and prior is not None and matching.hypotheses != "asr":
            note_rescoring(start, prior)
        averaged = matching.baseline == "topipl"
        proposal = (AveragedProposal if averaged else Proposal)(start, cer, matching.refresh)
        weighing = weighing_of(settings, lengths, self.contexts or {})
        targets: TargetsOf = BeamTargets(proposal, prior, matching.beam_size, weighing)
        if matching.baseline == "slimipl":
            targets = CachedTargets(targets, RENEWED, self.online.tokenizer.eos)
        elif matching.list_once:
            targets = TargetsOfProposal(targets, self.online.tokenizer.eos, proposal)
        inspector = None
        if prior is not None and matching.inspect_on > 0 and is_main():
            shown = speech if self.transcribed is None else self.transcribed
            inspector = inspector_of(shown, prior, weighing, settings, out)
        task = Matching(
            self.online,
            self.labeled,
            speech,
            self.validation,
            targets=targets,
            training=settings.training,
            matching=matching,
            proposal=proposal,
            transcribed=self.transcribed,
            inspector=inspector,
        )
        best = fit(task, matching_schedule(settings), out, self.log)
        if is_main():
            proposal.model.save(out / "proposal")
        if not isinstance(self.online, SpeechRecognizer):
            return
        transcribed = {} if self.labeled is None else {"transcribed speech": self.labeled}
        leave_recognizer_card(
            out,
            self.online,
            f"Trained further on untranscribed speech by {PAPER}.",
            {**transcribed, "untranscribed speech": speech},
            self.validation,
            best=best,
            recipe=recipe_of_matching(settings),
            settings=settings,
            more=[judged(prior, self.prior_folder)] if isinstance(prior, KNOWN) else [],
        )

    def _check(self) -> None:
        """Refuse missing inputs and models that do not fit together."""
        require_inputs(self.prior, self.reference_lengths, self.settings)
        if isinstance(self.prior, ConvPrior) and self.contexts is not None:
            self.prior.require_context()
        for each in (self.labeled, *self.validation.values()):
            if each is not None:
                require_letters(self.online, each)
        require_compatible(self.online, self.prior, self.proposal)

    def _lengths(self) -> Mapping[str, int]:
        """The given reference lengths, or those from the speaking rate of the labeled or the validation speech."""
        if self.reference_lengths is None and self.settings.matching.reference_lengths == "speaking_rate":
            heard = self.validation.values() if self.labeled is None else [self.labeled]
            rate = pieces_a_second([cut for each in heard for cut in each.cuts], self.online.tokenizer)
            return lengths_by_rate(self.unlabeled.ids, self.unlabeled.durations, rate)
        return self.reference_lengths or {}


def inspector_of(
    speech: Corpus, prior: Prior, weighing: Weighing, settings: Settings, out: Path
) -> Inspector:
    """An inspector that records the beams of a few utterances during training; it reads audio in this process."""
    shown, matching = thin(speech, settings.matching.inspect_on), settings.matching
    few = Corpus(shown.cuts, replace(settings.audio, workers=0), shown.name)
    return Inspector(few, prior, matching.beam_size, weighing, out / INSPECTED)


def refuse_names(settings: Settings) -> None:
    """Refuse settings that only `priormatch run` can resolve, when models and lengths are given as paths."""
    nothing, known = ("",), ("greedy", "speaking_rate")
    allowed = {"start": nothing, "proposal": nothing, "prior": nothing, "reference_lengths": known}
    for name, values in allowed.items():
        value = getattr(settings.matching, name)
        if value not in values:
            raise UserError(
                f"matching.{name}={value} is for `priormatch run`: provide the path of what it names instead"
            )


def require_compatible(online: Recognizer, prior: Prior | None, proposal: Recognizer | None) -> None:
    """Refuse a prior that lacks many letters of the recognizer, and a proposal with another tokenizer."""
    if isinstance(prior, HuggingFacePrior):
        prior.require_letters(letters_of(online.tokenizer))
    if proposal is not None and proposal.tokenizer != online.tokenizer:
        raise UserError(
            "the proposal's tokenizer differs from that of the online model: train both with one tokenizer"
        )


def require_prior(prior: object, settings: Settings) -> None:
    """Refuse to match without a prior where the settings need one, and in several processes where they cannot."""
    matching = settings.matching
    if ranks() > 1 and (matching.list_once or matching.baseline == "slimipl"):
        keeping = "list_once=true" if matching.list_once else "baseline=slimipl"
        raise UserError(f"matching.{keeping} keeps targets in one process: run it without torchrun")
    if prior is None and matching.hypotheses == "asr_lm":
        raise UserError("there is no prior: provide one, or search without it (matching.hypotheses=asr)")
    if prior is None and matching.prior_exponent != 0:
        raise UserError(
            "there is no prior: provide one, or weigh hypotheses without it (matching.prior_exponent=0)"
        )


def require_inputs(prior: object, lengths: object, settings: Settings) -> None:
    """Refuse to match without the inputs that the settings need."""
    matching = settings.matching
    require_prior(prior, settings)
    if lengths is None and matching.length_filter and matching.reference_lengths != "speaking_rate":
        raise UserError(
            "there are no reference lengths: provide them, use the speaking rate of the labeled speech"
            " (matching.reference_lengths=speaking_rate), or disable the filter (matching.length_filter=[])"
        )


def heard_before(corpus: Corpus, transcripts: Sequence[Transcript] | None) -> dict[str, str]:
    """The transcript before each utterance in its recording, as context for the prior; there must be at least one."""
    heard = {each.id: each.hypothesis for each in transcripts or []}
    if not any(heard.values()):
        raise UserError(
            "matching.context needs transcripts of the unlabeled speech, not only lengths: provide the output of"
            " `priormatch decode`, or match without context (matching.context=false)"
        )
    require_recordings(corpus.cuts, corpus.name)
    found = contexts_of(corpus.cuts, heard)
    say(
        f"{corpus.name}: for {len(found)} of {len(corpus)} utterances the prior reads the previous transcript"
    )
    return found


def require_recordings(cuts: Sequence[Cut], name: str) -> None:
    """Refuse speech in which no utterance follows another in its recording, when the prior needs context."""
    if not previous_in_recording(cuts):
        raise UserError(
            f"matching.context: no utterance of {name} follows another in its recording: provide cuts of longer"
            " recordings, or match without context (matching.context=false)"
        )


def with_lengths(corpus: Corpus, lengths: Mapping[str, int]) -> Corpus:
    """Leave out utterances with an empty greedy transcript, as the authors do."""
    known = np.fromiter((lengths.get(each, 0) > 0 for each in corpus.ids), np.bool_)
    if known.all():
        return corpus
    if not known.any():
        raise Refused(
            f"no utterance of {corpus.name} has a reference length: decode that speech with `priormatch decode`,"
            " and if its transcripts are empty, train the model for longer"
        )
    without = len(corpus) - int(known.sum())
    say(f"{corpus.name}: {without} of {len(corpus)} utterances have no reference length and are left out")
    return corpus.only(known)


def train_on_pseudo_labels(
    model: Path,
    labeled: Path,
    pseudo_labeled: Path,
    validation: Mapping[str, Path],
    *,
    settings: Settings,
    out: Path,
    log: Path,
) -> None:
    """Train `model` further on transcripts and fixed pseudo-labels, with the mixing and schedule of matching."""
    online = load_recognizer(model, find_device(settings.device), settings.pretrained)
    paired = Corpus.load(labeled, settings.audio, transcribed=True)
    speech = Corpus.load(pseudo_labeled, settings.audio, transcribed=True)
    sets = load_validation(validation, settings)
    task = Matching(
        online,
        paired,
        speech,
        sets,
        targets=given_labels,
        training=settings.training,
        matching=settings.matching,
    )
    best = fit(task, matching_schedule(settings), out, log)
    how = "Trained further on speech that another recognizer transcribed."
    data = {"transcribed speech": paired, "speech with pseudo-labels": speech}
    recipe = recipe_of_schedule(settings)
    leave_recognizer_card(out, online, how, data, sets, best=best, recipe=recipe, settings=settings)
