"""`priormatch plan` and `run --dry-run`: what a run takes, before anyone pays for it."""

import json
import random
import resource
import sys
import tempfile
import tracemalloc
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lhotse import CutSet

from priormatch.config import AudioSettings, Settings
from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import recording_at
from priormatch.data.corpus import Corpus
from priormatch.data.index import MOST_IN_MEMORY
from priormatch.data.manifest import SUFFIX, utterance
from priormatch.device import find_device
from priormatch.distributed import ranks
from priormatch.errors import UserError
from priormatch.json_text import to_json
from priormatch.pipeline.estimate import GB, Cluster, Line, bytes_kept, lines_of, name_of, show_lines, unit_of
from priormatch.pipeline.probe import SECONDS, Step, Work, utterances_of
from priormatch.pipeline.run import in_words, planned
from priormatch.prepare.overview import sample_speech
from priormatch.progress import count_text, duration_text, say
from priormatch.runs.results import START
from priormatch.runs.stage import name_of as name_of_stage

FLAC = 60e6  # bytes of an hour of speech
PLANNED = 40  # bytes of an utterance that stays on disk: its columns in the index, and its place in an epoch
IN_COLUMNS = 33  # bytes of an utterance in the columns of an index, and of its id
REFERENCE = 160  # bytes of a reference length with the id of its utterance
SAMPLE = 300  # utterances that stand for a corpus in memory
NOT_COUNTED = "preparing data, waiting for disks, tuning, validating the prior, and counting n-grams for one"


@dataclass(frozen=True)
class Amount:
    """Utterances, their hours in total, and whether both are only as published."""

    utterances: int
    hours: float
    published: bool = False


PUBLISHED = {
    "train-clean-100": Amount(28_539, 100.6, published=True),
    "train-clean-360": Amount(104_014, 363.6, published=True),
    "train-other-500": Amount(148_688, 496.7, published=True),
    "dev-clean": Amount(2_703, 5.4, published=True),
    "dev-other": Amount(2_864, 5.3, published=True),
    "test-clean": Amount(2_620, 5.4, published=True),
    "test-other": Amount(2_939, 5.1, published=True),
    "librilight-60kh": Amount(17_300_000, 57_706.4, published=True),  # in segments of about 12 seconds
}
"""Amounts by the name of the manifest."""
DEMO_SECONDS = 3.0
ROLES = ("labeled", "unlabeled", "validation", "test")

Amounts = Mapping[str, list[Amount]]
"""The sets of a recipe by role: labeled, unlabeled, validation, test; a role with an unknown set is missing."""


def amounts_of(settings: Settings) -> Amounts:
    """The amounts of speech of a recipe."""
    found = demo_amounts() if settings.corpus == "demo" else known_amounts(settings)
    if "labeled" in found and not settings.validation and "validation" not in found:
        (labeled,), share = found["labeled"], settings.validation_share
        held_out = Amount(round(share * labeled.utterances), share * labeled.hours, labeled.published)
        found["validation"] = [held_out]
    if "validation" in found and not settings.test:
        found.setdefault("test", found["validation"])
    return found


def known_amounts(settings: Settings) -> dict[str, list[Amount]]:
    """The amounts of the sets that a recipe names, of roles in which all are known."""
    named = {
        "labeled": [settings.labeled],
        "unlabeled": [settings.unlabeled],
        "validation": settings.validation,
        "test": settings.test.values(),
    }
    found = {role: known(paths) for role, paths in named.items()}
    return {role: amounts for role, amounts in found.items() if amounts}


def known(paths: Iterable[str]) -> list[Amount]:
    """The amount at each path; nothing if one of them is unknown."""
    found = [amount_at(path) for path in paths]
    amounts = [each for each in found if each is not None]
    return amounts if len(amounts) == len(found) else []


def amount_at(path: str) -> Amount | None:
    """The amount of speech at a path: counted if it exists, else as published for a manifest of this name."""
    if path and Path(path).exists():
        speech = sample_speech(Path(path))
        return Amount(len(speech.utterances), speech.hours)
    return PUBLISHED.get(Path(path).name.partition(".")[0])


def demo_amounts() -> dict[str, list[Amount]]:
    """The amounts of the built-in corpus."""
    from priormatch.prepare.demo import DEFAULT_SIZES as SIZES

    counts = {
        "labeled": [SIZES.labeled],
        "unlabeled": [SIZES.unlabeled],
        "validation": 2 * [SIZES.validation],
        "test": 2 * [SIZES.test],
    }
    return {
        role: [Amount(count, count * DEMO_SECONDS / 3600) for count in each] for role, each in counts.items()
    }


def of_run(settings: Settings, amounts: Amounts, done: Collection[str] = ()) -> list[Work]:
    """The trainings of a run, their validations, and the decoding of unlabeled and test speech, if it is known.

    The stages in `done` are left out.
    """
    training, matching = settings.training.updates, settings.matching.updates
    wanted: list[tuple[bool, str, Step, int]] = [
        (
            settings.prior.kind == "conv" and not settings.prior.pretrained,
            "prior",
            "prior",
            settings.prior.updates,
        ),
        (True, "supervised", "supervised", training),
        (settings.longer_supervised, "supervised-longer", "further", matching),
        (settings.pseudo_labels, "pseudo_label", "labels", matching),
        (True, "lpm", "matching", matching),
        (bool(settings.topline) or settings.corpus == "demo", "topline", "supervised", training + matching),
    ]
    there = {name: Work(name, step, times, settings) for due, name, step, times in wanted if due}
    trainings = [each for name, each in there.items() if name not in done]
    systems: list[str] = [name for name in ("supervised", "pseudo_label", "lpm", "topline") if name in there]
    systems += [START] if settings.longer_supervised else []
    heard = {
        "validations": (sum(each.validations for each in trainings), thinned(amounts, settings)),
        "lengths": (int("lengths" not in done), utterances_in(amounts.get("unlabeled", []))),
        "decoding of the test sets": (
            sum(f"decoded/{each}" not in done for each in systems),
            utterances_in(amounts.get("test", [])),
        ),
    }
    return trainings + [
        Work(name, "validation", times, settings, utterances)
        for name, (times, utterances) in heard.items()
        if times and utterances
    ]


def utterances_in(amounts: Sequence[Amount]) -> float:
    """Hours of speech, counted in utterances of the length that is measured."""
    return sum(each.hours for each in amounts) * 3600 / SECONDS


def thinned(amounts: Amounts, settings: Settings) -> float:
    """The size of a validation on all sets, counted in utterances of the length that is measured."""
    most = settings.training.validate_on
    return sum(
        utterances_in([each]) * (min(most / each.utterances, 1.0) if most else 1.0)
        for each in amounts.get("validation", [])
    )


@dataclass(frozen=True)
class Utterance:
    """The bytes of an utterance in the memory of a process, in a manifest, and in the index of a large manifest."""

    in_memory: float
    in_manifest: float
    in_index: float


def measured_utterance() -> Utterance:
    """Sizes of utterances like those of real corpora."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / f"sample{SUFFIX}"
        draw = random.Random(0).randrange  # names and lengths that compress as badly as real ones
        recordings = [
            recording_at(Path(f"{draw(10**4)}/{draw(10**6)}-{draw(10**6)}.wav"), draw(1, 30 * SAMPLE_RATE))
            for _ in range(SAMPLE)
        ]
        cuts = [utterance(each.id, each, None, each.id[:4]) for each in recordings]
        CutSet.from_cuts(cuts).to_file(manifest)
        tracemalloc.start()
        corpus = Corpus.load(manifest, AudioSettings(shortest=0.0))
        in_memory, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        line = sum(len(json.dumps(each.to_dict())) for each in cuts) / len(cuts)
        return Utterance(in_memory / len(corpus), manifest.stat().st_size / len(corpus), line + IN_COLUMNS)


@dataclass(frozen=True)
class Plan:
    """What a run takes on a cluster; `price` is that of a GPU for an hour."""

    name: str
    device: str
    cluster: Cluster
    amounts: Amounts
    lines: Sequence[Line]
    disk: Mapping[str, float]
    host_memory: float
    price: float | None = None

    @property
    def hours(self) -> float:
        """The hours of all stages, one after the other."""
        return sum(each.hours for each in self.lines)

    @property
    def gpu_hours(self) -> float:
        """The hours of all GPUs."""
        return self.cluster.gpus * self.hours

    @property
    def communication(self) -> float:
        """The share of the time that communication takes."""
        return sum(each.share * each.hours for each in self.lines) / self.hours if self.hours else 0.0

    @property
    def memory(self) -> int:
        """The peak of the memory of a GPU; 0 if none was measured."""
        return max((each.memory for each in self.lines), default=0)

    def as_json(self) -> dict[str, Any]:
        """The plan for scripts."""
        return {
            "name": self.name,
            "measured_on": self.device,
            "gpus": self.cluster.gpus,
            "machines": self.cluster.machines,
            "hours_of_data": {role: sum(each.hours for each in sets) for role, sets in self.amounts.items()},
            "stages": [each.as_json(self.cluster.gpus) for each in self.lines],
            "hours": self.hours,
            "gpu_hours": self.gpu_hours,
            "communication_share_modeled": self.communication,
            "money": None if self.price is None else self.price * self.gpu_hours,
            "gpu_memory_gb": self.memory / GB if self.memory else None,
            "host_memory_gb_per_process": self.host_memory / GB,
            "disk_gb": {what: size / GB for what, size in self.disk.items()},
        }


def plan(
    settings: Settings, cluster: Cluster, price: float | None = None, done: Collection[str] = ()
) -> Plan:
    """Measure a few updates of each stage of a run that is not done, and compute what it takes on a cluster."""
    if ranks() > 1:
        raise UserError("a plan measures one process: run it without torchrun, and pass --gpus")
    device = find_device(settings.device)
    amounts = amounts_of(settings)
    works = of_run(settings, amounts, done)
    note_idle(works, cluster)
    say(f"measuring updates on {name_of(device)}, with noise as input ...")
    lines, utterance = lines_of(works, cluster), measured_utterance()
    return Plan(
        settings.name,
        name_of(device),
        replace(cluster, unit=unit_of(device)),
        amounts,
        lines,
        disk_of(works, amounts, utterance),
        host_memory(amounts, utterance),
        price,
    )


def note_idle(works: Sequence[Work], cluster: Cluster) -> None:
    """Report stages whose updates have fewer utterances than there are GPUs."""
    for work in works:
        count = 0 if work.step == "validation" else utterances_of(work.step, work.settings)
        if 0 < count < cluster.gpus:
            say(
                f"{work.name}: {count_text(count, 'utterance')} per update, so {cluster.gpus - count} of {cluster.gpus}"
                " GPUs are idle: use fewer GPUs or larger batches"
            )


def sets_of_training(amounts: Amounts) -> list[Amount]:
    """The labeled and the unlabeled speech."""
    return [each for role in ("labeled", "unlabeled") for each in amounts.get(role, [])]


def host_memory(amounts: Amounts, utterance: Utterance) -> float:
    """The bytes that a process needs in the memory of its machine: those of this one, and those of the utterances."""
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    cuts = sum(
        each.utterances * (utterance.in_memory if each.utterances <= MOST_IN_MEMORY else PLANNED)
        for each in sets_of_training(amounts)
    )
    return here + cuts + REFERENCE * sum(each.utterances for each in amounts.get("unlabeled", []))


def disk_of(works: Sequence[Work], amounts: Amounts, utterance: Utterance) -> dict[str, float]:
    """The bytes on disk, by what they are."""
    hours = sum(each.hours for sets in amounts.values() for each in sets)
    return {
        "speech as FLAC": FLAC * hours,
        "manifests": sum(
            each.utterances
            * (utterance.in_manifest + (utterance.in_index if each.utterances > MOST_IN_MEMORY else 0))
            for each in sets_of_training(amounts)
        ),
        "models and checkpoints": float(sum(map(bytes_kept, works))),
    }


def show_dry_run(settings: Settings, as_json: bool) -> None:
    """Print what `priormatch run` would do about each stage, and what the stages that are left take here."""
    found = planned(settings)
    done = {name_of_stage(each.folder) for each in found if each.finished}
    left = plan(settings, Cluster(), done=done)
    if as_json:
        print(to_json({"finished": sorted(done), **left.as_json()}))
        return
    for line in in_words(found):
        print(line)
    show(left)


def show(found: Plan) -> None:
    """Print a plan."""
    cluster = found.cluster
    for role, sets in found.amounts.items():
        said = ", as published" if any(each.published for each in sets) else ""
        print(f"{role}: {hours_text(sum(each.hours for each in sets))}{said}")
    show_lines(f"{found.name} on {cluster}; updates measured on {found.device}", found.lines, cluster)
    time = f"{duration_text(3600 * found.hours)} for one stage after the other"
    print(f"time: {time}, {found.gpu_hours:,.1f} {cluster.unit}-hours{money_text(found)}")
    if cluster.gpus > 1:
        print(
            f"communication: {100 * found.communication:.0f} % of the time, modeled for"
            f" {cluster.bandwidth:g} GB/s between machines, not measured"
        )
    memory = f"at least {found.memory / GB:.1f} GB of each GPU, " if found.memory else ""
    print(f"memory: {memory}{found.host_memory / GB:.1f} GB of the machine for each process and its readers")
    disk = ", ".join(f"{what} {size / GB:,.1f} GB" for what, size in found.disk.items())
    print(f"disk: {sum(found.disk.values()) / GB:,.1f} GB: {disk}")
    if missing := [role for role in ROLES if role not in found.amounts]:
        print(f"not counted, because its hours are unknown: {', '.join(missing)} speech")
    print(f"not counted: {NOT_COUNTED}")
    if cluster.unit != "GPU":
        print("measured without a GPU: to plan for GPUs, run this on a machine with one of the same kind")


def hours_text(hours: float) -> str:
    """An amount of speech, in hours unless it is less than one."""
    return f"{hours:,.1f} hours" if hours >= 1 else duration_text(3600 * hours)


def money_text(found: Plan) -> str:
    """The price of all GPU-hours, if one hour has a price."""
    return "" if found.price is None else f", {found.price * found.gpu_hours:,.2f} at {found.price:g} each"
