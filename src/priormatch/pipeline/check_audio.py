"""`priormatch check`: decode all audio of a manifest, and list the utterances that are good and those that are bad."""

import gzip
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from lhotse import MonoCut

from priormatch.data.batches import read_ahead
from priormatch.data.corpus import naming, require_manifest
from priormatch.data.cuts import cut_on
from priormatch.data.faults import fault_of
from priormatch.data.manifest import SUFFIX, bad_listing, write_table
from priormatch.data.text_files import read_lines
from priormatch.distributed import from_all, from_main, is_main, rank, ranks
from priormatch.errors import UserError
from priormatch.files import begin_parts, partial_folder, remove_parts, replacing
from priormatch.json_text import parse_json
from priormatch.progress import Meter, count_text, duration_text, say

CHUNK = 64
"""Lines of a manifest that are checked, and noted as checked, together."""


class Lines(NamedTuple):
    """A chunk of a manifest: its number, and its lines with their numbers."""

    chunk: int
    lines: list[tuple[int, str]]


class Bad(NamedTuple):
    """A bad utterance: its line in the manifest, its id, the kind of its fault and the reason."""

    line: int
    id: str
    fault: str
    reason: str


@dataclass
class Part:
    """What was found in a chunk; `refused` is why the manifest cannot be used at all."""

    chunk: int
    utterances: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    bad: list[Bad] = field(default_factory=list)
    refused: str = ""


@dataclass(frozen=True)
class Checked:
    """The result for a manifest: amounts, the bad utterances, and the two lists, None if one would be empty.

    The speeds are those of this call, in seconds of audio and in bytes per second.
    """

    cuts: Path
    utterances: int
    seconds: float
    bad: list[Bad]
    good_list: Path | None
    bad_list: Path | None
    took: float
    speed: float
    bytes_per_second: float

    @property
    def counts(self) -> dict[str, int]:
        """The number of bad utterances by kind, the most frequent first."""
        return dict(Counter(each.fault for each in self.bad).most_common())

    def __str__(self) -> str:
        amount = f"{count_text(self.utterances, 'utterance')}, {duration_text(self.seconds)} of audio"
        speed = f"{self.speed:,.0f} times real time, {self.bytes_per_second / 1e6:,.0f} MB/s"
        lines = [f"{self.cuts}: {amount}, checked in {duration_text(self.took)} ({speed})"]
        if self.bad:
            counts = ", ".join(f"{number:,} {kind}" for kind, number in self.counts.items())
            share = 100 * len(self.bad) / self.utterances
            lines.append(f"bad: {len(self.bad):,} ({share:.2g} %): {counts}; listed in {self.bad_list}")
            lines.append(f"the first is {self.bad[0].id} ({self.bad[0].reason})")
        lines.append(
            f"good: {self.utterances - len(self.bad):,}; listed in {self.good_list or 'no manifest'}"
        )
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The result for scripts, without the bad utterances themselves."""
        return asdict(self) | {"bad": self.counts, "good": self.utterances - len(self.bad)}


def check(cuts: Path, good: Path | None, processes: int, overwrite: bool = False) -> Checked:
    """Decode all utterances of a manifest; write a manifest of the good ones and a list of the bad ones.

    The processes of a job share the work. An interrupted call resumes.
    """
    require_manifest(cuts)
    good = good or cuts.with_name(f"{cuts.name.partition('.jsonl')[0]}-good{SUFFIX}")
    require_places(cuts, good, overwrite)
    began = time.monotonic()
    total, key = from_main(count_and_key(cuts) if is_main() else (0, ""))
    journal = Journal(good, key)
    before = journal.parts()
    mine = list(new_parts(cuts, total, before, processes, journal))
    new = list(chain.from_iterable(from_all(mine, patient=True)))
    took = time.monotonic() - began
    bad = sorted(each for part in (*before.values(), *new) for each in part.bad)
    if is_main():
        write_lists(cuts, good, bad, total)
        journal.remove()
    from_main(None)  # the others wait for the lists
    return Checked(
        cuts,
        total,
        sum(each.seconds for each in (*before.values(), *new)),
        bad,
        good if len(bad) < total else None,
        bad_listing(good) if bad else None,
        took,
        sum(each.seconds for each in new) / took,
        sum(each.bytes for each in new) / took,
    )


def cores() -> int:
    """The processor cores for each process of a job on this machine."""
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(every // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)


def require_places(cuts: Path, good: Path, overwrite: bool) -> None:
    """Refuse a list of good utterances that has a wrong name, or would replace another file."""
    if not good.name.endswith(SUFFIX):
        raise UserError(f"the name of the manifest {good} must end in {SUFFIX}.")
    if good.exists() and good.samefile(cuts):
        raise UserError(f"--out {good} is the manifest itself: choose another name")
    if is_main() and not (
        overwrite or partial_folder(good).exists()
    ):  # else a call may have ended between the two
        for file in (good, bad_listing(good)):
            if file.exists():
                raise UserError(
                    f"{file} exists already: delete it, choose another --out, or add --overwrite."
                )


def count_and_key(cuts: Path) -> tuple[int, str]:
    """The number of cuts in a manifest, and a hash of its content."""
    total, content = 0, hashlib.sha256()
    for line in read_lines(cuts):
        total += bool(line)
        content.update(line.encode() + b"\n")
    if not total:
        raise UserError(f"{cuts} contains no cuts: prepare it again")
    return total, content.hexdigest()


def chunks(cuts: Path) -> Iterator[Lines]:
    """The cuts of a manifest as text, in chunks."""
    lines = ((number, line) for number, line in enumerate(read_lines(cuts), 1) if line)
    for number, first in enumerate(lines):
        yield Lines(number, [first, *islice(lines, CHUNK - 1)])


def new_parts(
    cuts: Path, total: int, before: Mapping[int, Part], processes: int, journal: "Journal"
) -> Iterator[Part]:
    """Check this process's share of the chunks that were not checked before, and note each in the journal."""
    own = [number for number in range(rank(), -(-total // CHUNK), ranks()) if number not in before]
    if before:
        done = sum(each.utterances for each in before.values())
        say(f"resuming: {done:,} of {count_text(total, 'utterance')} were checked before")
    wanted = frozenset(own)
    todo = (lines for lines in chunks(cuts) if lines.chunk in wanted)
    with (
        Meter(f"checking {cuts.name}", sum(min(CHUNK, total - CHUNK * number) for number in own)) as meter,
        journal.open() as note,
    ):
        for part in read_ahead(Checker(cuts), todo, processes if processes > 1 else 0, pin=False):
            if part.refused:
                journal.remove()  # of no use once the manifest is mended
                raise UserError(part.refused)
            note(part)
            yield part
            meter.advance(part.utterances)


class Checker:
    """Checks chunks of a manifest; runs in processes of its own."""

    def __init__(self, cuts: Path) -> None:
        self.cuts = cuts

    def __getitems__(self, lines: Lines) -> Part:
        """Parse and decode the utterances of a chunk."""
        part = Part(lines.chunk)
        for number, line in lines.lines:
            try:
                with naming(self.cuts):
                    cut = cut_on(self.cuts, number, line)
            except UserError as error:  # as a value: the loader would make a traceback of it
                return Part(lines.chunk, refused=str(error))
            part.utterances += 1
            part.seconds += cut.duration
            part.bytes += bytes_of(cut)
            if fault := fault_of(cut):
                part.bad.append(Bad(number, cut.id, *fault))
        return part


def bytes_of(cut: MonoCut) -> float:
    """The bytes on disk of a cut: its share of its files; 0 if they do not exist."""
    with suppress(OSError, ZeroDivisionError):
        files = {each.source for each in cut.recording.sources}
        return sum(map(os.path.getsize, files)) * cut.duration / cut.recording.duration
    return 0.0


class Journal:
    """The parts checked by calls that were interrupted, in the folder `OUT.partial`: a file for each process.

    `key` identifies the manifest; the parts of another one are discarded.
    """

    def __init__(self, out: Path, key: str) -> None:
        self.folder = begin_parts(out, key)

    def parts(self) -> dict[int, Part]:
        """The parts by chunk, the same in all processes; lines that a kill has cut short are left out."""
        found = {}
        for file in sorted(self.folder.glob("*.jsonl")) if is_main() else []:
            for line in file.read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    part = Part(**parse_json(line))
                    part.bad = [Bad(*each) for each in part.bad]
                    found[part.chunk] = part
        return from_main(found)

    @contextmanager
    def open(self) -> Iterator[Callable[[Part], None]]:
        """A function that adds a part to this process's file."""
        with (self.folder / f"{rank()}.jsonl").open("a", encoding="utf-8") as file:

            def note(part: Part) -> None:
                file.write(json.dumps(asdict(part)) + "\n")
                file.flush()

            file.write("\n")  # what a kill has cut short ends here
            yield note

    def remove(self) -> None:
        """Remove all parts."""
        remove_parts(self.folder)


def write_lists(cuts: Path, good: Path, bad: Sequence[Bad], total: int) -> None:
    """Write the two lists, each as a whole; an empty one is removed."""
    write_table(
        bad_listing(good), ("id", "fault", "reason"), [(each.id, each.fault, each.reason) for each in bad]
    )
    if len(bad) == total:
        good.unlink(missing_ok=True)
        return
    left_out = {each.line for each in bad}
    with replacing(good) as temporary, gzip.open(temporary, "wt", 6, "utf-8", newline="\n") as file:
        for number, line in enumerate(read_lines(cuts), 1):
            if line and number not in left_out:
                file.write(line + "\n")
