"""The data of a run: the user's data, converted to manifests and sentences in the run's folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lhotse import CutSet

from priormatch.config import Settings
from priormatch.data.corpus import cut_text, read_cuts
from priormatch.data.manifest import SUFFIX, named_sets, summary
from priormatch.data.normalizer import normalizer_of
from priormatch.data.text_files import find_text_files, prepare_text, read_sentences
from priormatch.errors import UserError
from priormatch.files import replace_text, replacing
from priormatch.old_names import existing_manifest
from priormatch.pipeline.recipe import recipe_of_text
from priormatch.pipeline.work import transcripts_of
from priormatch.prepare.overview import overview
from priormatch.prepare.own import prepare_own, split_by_speaker
from priormatch.prepare.source import Intake
from priormatch.progress import say
from priormatch.runs.stage import Stage, Wanted

CONSECUTIVE = 10
"""The number of consecutive sentences held out together for a prior that reads the previous sentence."""


@dataclass(frozen=True)
class RunData:
    """Paths of a run's data: manifests of cuts, and files of sentences."""

    labeled: Path
    unlabeled: Path
    text: Path
    held_out_text: Path
    validation: dict[str, Path]
    test: dict[str, Path]
    topline: Path | None = None
    notes: list[str] = field(default_factory=list)
    stage: Stage | None = None  # the stage that made the data


def make_data(settings: Settings, folder: Path) -> RunData:
    """Make the built-in corpus, or convert the user's audio and text, unless that is done."""
    wanted = data_stage(settings)
    stage = Stage(folder / wanted.name, wanted.settings, wanted.inputs, keep_old=True)
    with stage.work() as todo:
        if todo:
            wanted.make(stage.folder)
    return replace(data_of(settings, folder), stage=stage)


def data_stage(settings: Settings) -> Wanted:
    """The stage of the data; raise an error for missing data."""
    return demo_stage(settings) if settings.corpus == "demo" else own_stage(settings)


def data_of(settings: Settings, folder: Path) -> RunData:
    """The paths of the data in a run's folder."""
    return demo_data(folder) if settings.corpus == "demo" else own_data(settings, folder)


def demo_stage(settings: Settings) -> Wanted:
    """The built-in corpus."""
    from priormatch.prepare.demo import VERSION, prepare_demo

    used = {"demo": settings.demo, "version": VERSION}
    return Wanted("data", used, {}, lambda out: prepare_demo(out, settings.demo.seed))


def demo_data(folder: Path) -> RunData:
    """The paths of the built-in corpus in a run's folder."""
    corpus = folder / "data"
    return RunData(
        labeled=existing_manifest(corpus, "labeled", SUFFIX),
        unlabeled=existing_manifest(corpus, "unlabeled", SUFFIX),
        text=corpus / "text.txt",
        held_out_text=corpus / "text-validation.txt",
        validation={name: corpus / f"{name}{SUFFIX}" for name in ("validation-seen", "validation-unseen")},
        test={name: corpus / f"{name}{SUFFIX}" for name in ("test-seen", "test-unseen")},
        topline=existing_manifest(corpus, "unlabeled-transcribed", SUFFIX),
    )


def own_stage(settings: Settings) -> Wanted:
    """The user's data, converted; raise an error for a path that is not set or does not exist."""
    named = {"labeled": settings.labeled, "unlabeled": settings.unlabeled, "text": settings.text}
    if not (settings.text or settings.needs_text):
        del named["text"]
    for name, value in named.items():
        if not value:
            raise UserError(
                f"{name} is not set: set {name}=PATH, a file or a folder (see `priormatch run --help`)"
            )
    given = {
        **named,
        **{name: str(path) for name, path in validation_sets(settings).items()},
        **{f"test/{name}": path for name, path in settings.test.items()},
        **({"topline": settings.topline} if settings.topline else {}),
    }
    wanted = {**recipe_of_speech(settings), "prior.validation_share": settings.prior.validation_share}
    if settings.prior.model.context:
        wanted["prior.model.context"] = True
    inputs = {name: existing(name, value) for name, value in given.items()}
    return Wanted("data", wanted, inputs, lambda out: write_own_data(settings, inputs, out))


def recipe_of_speech(settings: Settings) -> dict[str, Any]:
    """Settings that converted speech depends on."""
    segment = {"audio.segment": settings.audio.segment} if settings.audio.segment else {}
    return {
        "audio.max_bad_share": settings.audio.max_bad_share,
        "validation_share": settings.validation_share,
        "seed": settings.training.seed,
        **recipe_of_text(settings),
        **segment,
    }


def validation_sets(settings: Settings) -> dict[str, Path]:
    """The given validation sets by name."""
    return named_sets([Path(path) for path in settings.validation], "validation")


def own_data(settings: Settings, folder: Path) -> RunData:
    """The paths of the user's data, converted, in a run's folder."""
    data = folder / "data"
    sets = {name: data / f"{name}{SUFFIX}" for name in validation_sets(settings) or ["validation"]}
    tests = {name: data / f"test-{name}{SUFFIX}" for name in settings.test}
    notes = (
        []
        if tests
        else ["no test set was given: scored on the validation sets, which also selected the models"]
    )
    return RunData(
        existing_manifest(data, "labeled", SUFFIX),
        existing_manifest(data, "unlabeled", SUFFIX),
        data / "text.txt",
        data / "text-validation.txt",
        sets,
        tests or sets,
        data / f"topline{SUFFIX}" if settings.topline else None,
        notes,
    )


def write_own_data(settings: Settings, inputs: Mapping[str, Path], data: Path) -> None:
    """Convert every input to the run's manifests and sentences; incomplete files of an interrupted run are replaced."""
    cuts = {}
    for name, path in inputs.items():
        if name != "text":
            target = data / f"{name.replace('/', '-')}{SUFFIX}"
            cuts[name] = take_cuts(name, path, target, settings)
            say(f"{name}: {overview(cuts[name], normalizer_of(settings.language), settings.audio)}")
    if not settings.validation:
        hold_out_speakers(cuts["labeled"], data, settings)
    if "text" in inputs:
        take_text(inputs["text"], data, settings)


def hold_out_speakers(labeled: CutSet, data: Path, settings: Settings) -> None:
    """Split the transcribed labeled cuts by speaker into the labeled set and a validation set, and write both."""
    transcribed = [cut for cut in labeled if cut_text(cut)]
    if missing := len(labeled) - len(transcribed):
        say(f"labeled: {missing} of {len(labeled)} utterances have no transcript and are left out")
    share, seed = settings.validation_share, settings.training.seed
    train, validation = split_by_speaker(CutSet.from_cuts(transcribed), share, seed)
    for name, part in (("labeled", train), ("validation", validation)):
        with replacing(data / f"{name}{SUFFIX}") as temporary:
            part.to_file(temporary)
        say(f"{name} after the split: {summary(part)}")


def take_cuts(name: str, path: Path, target: Path, settings: Settings) -> CutSet:
    """Convert the user's audio to cuts in `target`; unlabeled speech may be long, and its transcripts may be bad."""
    heard_only = name == "unlabeled"
    segment = settings.audio.segment if heard_only else 0.0
    intake = Intake(normalizer_of(settings.language), transcripts_needed=not heard_only, segment=segment)
    prepare_own(path, target, intake, max_bad_share=settings.audio.max_bad_share, overwrite=True)
    cuts = CutSet.from_cuts(read_cuts(target))
    if not heard_only and not any(map(cut_text, cuts)):
        raise UserError(f"{name}={path} contains no transcribed utterances: provide audio with transcripts")
    return cuts


def take_text(path: Path, data: Path, settings: Settings) -> None:
    """Write normalized sentences for the prior, some held out, and report overlap with the transcripts."""
    spoken = [text for cuts in sorted(data.glob(f"*{SUFFIX}")) for text in transcripts_of(cuts)]
    whole = data / "text-all.txt"
    normalizer = normalizer_of(settings.language)
    files = find_text_files([path])
    say(str(prepare_text(files, whole, transcripts=spoken, overwrite=True, normalizer=normalizer)))
    sentences = list(read_sentences(whole))
    every = max(round(1 / settings.prior.validation_share), 2)
    together = CONSECUTIVE if settings.prior.model.context else 1
    if len(sentences) < every * together:
        raise UserError(f"{path} contains only {len(sentences)} sentences: provide more text for the prior")
    held_out = [sentence for i, sentence in enumerate(sentences) if i // together % every == 0]
    rest = [sentence for i, sentence in enumerate(sentences) if i // together % every != 0]
    for name, part in (("text-validation.txt", held_out), ("text.txt", rest)):
        replace_text(data / name, "".join(f"{line}\n" for line in part))
    whole.unlink()


def existing(name: str, value: str) -> Path:
    """The path of an input; raise an error if it does not exist."""
    path = Path(value)
    if not path.exists():
        raise UserError(f"{name}={value}: there is no such file or folder")
    return path
