"""The data of a run: whatever the user has, as manifests and sentences in the run's own folder."""

from dataclasses import dataclass, field
from pathlib import Path

from priormatch.config import Settings
from priormatch.data.manifest import SUFFIX, summary
from priormatch.errors import UserError
from priormatch.progress import say
from priormatch.runs.stage import Stage


@dataclass(frozen=True)
class RunData:
    """Where a run finds its data: manifests of cuts, and files of sentences."""

    labelled: Path
    unlabelled: Path
    text: Path
    held_out_text: Path
    validation: dict[str, Path]
    test: dict[str, Path]
    topline: Path | None = None
    notes: list[str] = field(default_factory=list)


def make_demo_data(settings: Settings, folder: Path) -> RunData:
    """The embedded corpus, made on the spot."""
    from priormatch.data.demo import prepare_demo

    stage = Stage(folder / "data", {"demo": settings.demo}, {}, keep_old=True)
    corpus = folder / "data"
    with stage.work() as todo:
        if todo:
            prepare_demo(corpus, settings.demo.seed)
    return RunData(
        labelled=corpus / f"labelled{SUFFIX}",
        unlabelled=corpus / f"unlabelled{SUFFIX}",
        text=corpus / "text.txt",
        held_out_text=corpus / "text-validation.txt",
        validation={name: corpus / f"{name}{SUFFIX}" for name in ("validation-seen", "validation-unseen")},
        test={name: corpus / f"{name}{SUFFIX}" for name in ("test-seen", "test-unseen")},
        topline=corpus / f"unlabelled-transcribed{SUFFIX}",
    )


def make_own_data(settings: Settings, folder: Path) -> RunData:
    """The user's cuts, folders and text; validation speakers are held out when no validation set is given."""
    named = {"labelled": settings.labelled, "unlabelled": settings.unlabelled, "text": settings.text}
    for name, value in named.items():
        if not value:
            raise UserError(f"{name} is not set: give {name}=PATH, of cuts or of a folder (see recipes/own.yaml)")
    given = {
        **named,
        **{f"validation-{i}": path for i, path in enumerate(settings.validation)},
        **{f"test/{name}": path for name, path in settings.test.items()},
        **({"topline": settings.topline} if settings.topline else {}),
    }
    inputs = {name: existing(name, value) for name, value in given.items()}
    wanted = {
        "audio.max_bad_share": settings.audio.max_bad_share,
        "validation_share": settings.validation_share,
        "prior.validation_share": settings.prior.validation_share,
        "seed": settings.training.seed,
    }
    stage = Stage(folder / "data", wanted, inputs, keep_old=True)
    data = folder / "data"
    with stage.work() as todo:
        if todo:
            write_own_data(settings, inputs, data)
    validation = sorted(data.glob(f"validation*{SUFFIX}"))
    sets = {path.name.removesuffix(SUFFIX): path for path in validation}
    tests = {name: data / f"test-{name}{SUFFIX}" for name in settings.test}
    notes = [] if tests else ["no test set was given: scored on the validation sets, which also chose the models"]
    topline = data / f"topline{SUFFIX}" if settings.topline else None
    return RunData(
        data / f"labelled{SUFFIX}",
        data / f"unlabelled{SUFFIX}",
        data / "text.txt",
        data / "text-validation.txt",
        sets,
        tests or sets,
        topline,
        notes,
    )


def write_own_data(settings: Settings, inputs: dict[str, Path], data: Path) -> None:
    """Turn every input into the run's own manifests and sentences; what a kill left half done is made again."""
    from lhotse import CutSet

    from priormatch.data.batches import cut_text
    from priormatch.data.split import split_by_speaker

    cuts = {}
    for name, path in inputs.items():
        if name != "text":
            target = data / f"{name.replace('/', '-')}{SUFFIX}"
            cuts[name] = take_cuts(path, target, settings)
            if name != "unlabelled" and not any(cut_text(cut) for cut in cuts[name]):
                raise UserError(f"{name}={path} holds no transcribed utterance: give audio with transcripts")
            say(f"{name}: {summary(cuts[name])}")
    if not settings.validation:
        train, validation = split_by_speaker(cuts["labelled"], settings.validation_share, settings.training.seed)
        for name, part in (("labelled", train), ("validation", validation)):
            CutSet.from_cuts(list(part)).to_file(data / f"{name}{SUFFIX}")
            say(f"{name}: {summary(part)}, speakers held apart")
    take_text(inputs["text"], data, settings)


def take_cuts(path: Path, target: Path, settings: Settings):  # type: ignore[no-untyped-def]
    """Cuts of a manifest or of a folder of audio, written to `target`."""
    from lhotse import CutSet

    from priormatch.data.batches import read_cuts
    from priormatch.data.own_audio import prepare_csv, prepare_folder

    if path.is_dir():
        prepare_folder(path, target, max_bad_share=settings.audio.max_bad_share, overwrite=True)
    elif path.suffix in (".csv", ".tsv"):
        prepare_csv(path, target, max_bad_share=settings.audio.max_bad_share, overwrite=True)
    else:
        CutSet.from_cuts(map(conform, read_cuts(path))).to_file(target)
    return CutSet.from_cuts(read_cuts(target))


def conform(cut):  # type: ignore[no-untyped-def]
    """A cut of any origin as the manifests here have them: one supervision, its text normalised or None."""
    from lhotse import SupervisionSegment
    from lhotse.utils import fastcopy

    from priormatch.data.batches import cut_text
    from priormatch.data.text import normalise_sentence

    text = normalise_sentence(cut_text(cut) or "") or None
    first = next(iter(cut.supervisions), SupervisionSegment(cut.id, cut.id, 0.0, cut.duration))
    return fastcopy(cut, supervisions=[fastcopy(first, start=0.0, duration=cut.duration, text=text)])


def take_text(path: Path, data: Path, settings: Settings) -> None:
    """Normalised sentences for the prior, some held out, with a word about overlap with the transcripts."""
    from priormatch.data.text_files import find_text_files, prepare_text, read_sentences
    from priormatch.runs.work import transcripts_of

    spoken = [text for cuts in sorted(data.glob(f"*{SUFFIX}")) for text in transcripts_of(cuts)]
    whole = data / "text-all.txt"
    say(str(prepare_text(find_text_files([path]), whole, transcripts=spoken, overwrite=True)))
    sentences = list(read_sentences(whole))
    every = max(round(1 / settings.prior.validation_share), 2)
    if len(sentences) < every:
        raise UserError(f"{path} holds only {len(sentences)} sentences: give more text for the prior")
    held_out = [sentence for i, sentence in enumerate(sentences) if i % every == 0]
    rest = [sentence for i, sentence in enumerate(sentences) if i % every != 0]
    for name, part in (("text-validation.txt", held_out), ("text.txt", rest)):
        (data / name).write_text("".join(f"{line}\n" for line in part), encoding="utf-8")
    whole.unlink()


def existing(name: str, value: str) -> Path:
    """The path of an input, or a word about what is missing."""
    path = Path(value)
    if not path.exists():
        raise UserError(f"{name}={value}: there is no such file or folder")
    return path
