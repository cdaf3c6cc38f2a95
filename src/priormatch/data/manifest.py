"""Manifests of utterances: Lhotse cuts written one by one, with a list of the files that were left out."""

import csv
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path, PurePath
from typing import TypeVar

from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

from priormatch.data.audio import BadAudio
from priormatch.data.corpus import read_cuts
from priormatch.data.recordings import PART_OF
from priormatch.errors import UserError
from priormatch.files import replacing
from priormatch.progress import count_text, duration_text, say, track

Source = TypeVar("Source")
Result = TypeVar("Result")

SUFFIX = ".jsonl.gz"
IN_FLIGHT = 256
"""Files that the threads may read ahead of the writer."""


@dataclass(frozen=True)
class Summary:
    """Statistics of a manifest."""

    utterances: int
    hours: float
    speakers: int
    labeled: int

    def __str__(self) -> str:
        utterances = count_text(self.utterances, "utterance")
        speakers = count_text(self.speakers, "speaker") if self.speakers else "speakers unknown"
        labeled = {0: "none", self.utterances: "all"}.get(self.labeled, f"{self.labeled:,}")
        amount = f"{self.hours:,.2f} hours" if self.hours >= 1 else duration_text(3600 * self.hours)
        return f"{utterances}, {amount}, {speakers}, {labeled} transcribed"


def summary(cuts: Iterable[MonoCut]) -> Summary:
    """Count utterances, hours, speakers and transcripts in one pass."""
    utterances, seconds, labeled = 0, 0.0, 0
    speakers: set[str | None] = set()
    for cut in cuts:
        utterances += 1
        seconds += cut.duration
        labeled += any(each.text is not None for each in cut.supervisions)
        speakers.update(each.speaker for each in cut.supervisions)
    return Summary(utterances, seconds / 3600, len(speakers - {None}), labeled)


def existing_folder(folder: Path) -> Path:
    """Return the folder; raise `UserError` if it does not exist or is not a folder."""
    if not folder.is_dir():
        wrong = "is not a folder" if folder.exists() else "does not exist"
        raise UserError(f"{folder} {wrong}: check the path.")
    return folder


def name_of(path: PurePath) -> str:
    """Make an utterance's name from a path: a/b/c.wav becomes a-b-c."""
    return "-".join(part for part in path.with_suffix("").parts if part not in (path.anchor, ".."))


def distinct_names(names: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
    """Yield the names, with -2, -3 and so on appended to repeated and taken ones."""
    seen = set(taken)
    numbers: dict[str, Iterator[int]] = defaultdict(lambda: count(2))
    for name in names:
        distinct = name
        while distinct in seen:
            distinct = f"{name}-{next(numbers[name])}"
        seen.add(distinct)
        yield distinct


def utterance(
    name: str,
    recording: Recording,
    text: str | None,
    speaker: str | None,
    language: str | None = None,
    *,
    start: float = 0.0,
    duration: float | None = None,
    part_of: tuple[str, float] | None = None,
) -> MonoCut:
    """Make the cut of one utterance: the first channel of a recording or of a segment of it, in seconds.

    `part_of` gives the longer recording that this one was cut from, and its start there in seconds.
    """
    if any("\0" in each for each in (name, text, speaker, language) if each):
        raise BadAudio(
            Path(name.replace("\0", "?")), "its id, text or speaker contains a NUL character", "NUL character"
        )
    duration = round(recording.duration - start if duration is None else duration, 8)
    supervision = SupervisionSegment(
        id=name,
        recording_id=recording.id,
        start=0.0,
        duration=duration,
        channel=0,
        text=text,
        language=language,
        speaker=speaker,
    )
    return MonoCut(
        id=name,
        start=start,
        duration=duration,
        channel=0,
        supervisions=[supervision],
        recording=recording,
        custom=None if part_of is None else {PART_OF: list(part_of)},
    )


def write_manifests(
    sources: Mapping[Path, Sequence[Source]],
    cuts_of: Callable[[Source], list[MonoCut]],
    max_bad_share: float,
    overwrite: bool,
) -> None:
    """Write one manifest for each list of sources; all appear together, when all are complete.

    `cuts_of` runs in threads and raises `BadAudio` for a source that must be left out. Such sources are counted and
    listed with their reasons in `NAME.bad.tsv` beside `NAME.jsonl.gz`. A single bad source is never an error. More
    are a `UserError` if they exceed `max_bad_share` of all sources, and so is a manifest without any utterance.
    """
    for out in sources:
        if not out.name.endswith(SUFFIX):
            raise UserError(f"the name of the manifest {out} must end in {SUFFIX}.")
        if out.exists() and not overwrite:
            raise UserError(f"{out} exists already: delete it, choose another place, or add --overwrite.")
    try:
        with ExitStack() as until_all_are_complete:
            for out, items in sources.items():
                out.parent.mkdir(parents=True, exist_ok=True)
                temporary = until_all_are_complete.enter_context(replacing(out))
                bad = _write(temporary, out.name.removesuffix(SUFFIX), items, cuts_of)
                kinds = Counter(each.kind for each in bad)
                why = "; ".join(f"{kind}: {number:,}" for kind, number in kinds.most_common())
                list_bad(out, [(each.path, each.reason) for each in bad], len(items), max_bad_share, why=why)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}; choose another place.") from error


def _write(
    path: Path, name: str, sources: Sequence[Source], cuts_of: Callable[[Source], list[MonoCut]]
) -> list[BadAudio]:
    def try_cuts(source: Source) -> list[MonoCut] | BadAudio:
        try:
            return cuts_of(source)
        except BadAudio as bad:
            return bad

    bad = []
    with CutSet.open_writer(path, overwrite=True) as writer:
        results = map_in_threads(try_cuts, sources)
        for result in track(results, f"reading {name}", total=len(sources)):
            if isinstance(result, BadAudio):
                bad.append(result)
            else:
                for cut in result:
                    writer.write(cut)
    return bad


def join_manifests(parts: Sequence[Path], out: Path) -> None:
    """Write the cuts of several manifests into one, in order."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as temporary, CutSet.open_writer(temporary, overwrite=True) as writer:
        for path in parts:
            for cut in read_cuts(path):
                writer.write(cut)


def map_in_threads(function: Callable[[Source], Result], items: Iterable[Source]) -> Iterator[Result]:
    """Apply a function in threads and yield the results in order; libsndfile releases the GIL while it decodes."""
    ahead: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) == IN_FLIGHT:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def audio_folder(out: Path) -> Path:
    """The folder beside the manifest `out` for audio that had to be written."""
    return out.with_name(f"{out.name.removesuffix(SUFFIX)}.audio")


def bad_listing(out: Path) -> Path:
    """The file beside the manifest `out` that lists what was left out."""
    return out.with_name(f"{out.name.removesuffix(SUFFIX)}.bad.tsv")


def write_table(listing: Path, header: Sequence[str], rows: Sequence[Sequence[Path | str]]) -> None:
    """Write rows below a header, separated by tabs; without rows, remove the file."""
    if not rows:
        listing.unlink(missing_ok=True)
        return
    with (
        replacing(listing) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(header)
        table.writerows(rows)


def list_bad(
    out: Path,
    bad: Sequence[tuple[Path | str, str]],
    total: int,
    max_bad_share: float,
    what: str = "path",
    why: str = "",
) -> None:
    """List (path or id, reason) of what was left out beside the manifest `out`; raise `UserError` if too much."""
    listing = bad_listing(out)
    write_table(listing, (what, "reason"), bad)
    if not bad:
        return
    things = count_text(total, {"path": "file", "id": "utterance"}[what])
    why = why and f" ({why})"
    first = f"the first is {bad[0][0]} ({bad[0][1]})"
    if len(bad) == total:
        raise UserError(f"nothing is left for {out}: none of {things} can be used (see {listing}); {first}.")
    if len(bad) > max(1, max_bad_share * total):
        raise UserError(
            f"{len(bad):,} of {things} for {out} are unusable{why}, more than a share of {max_bad_share:g}: repair "
            f"those in {listing}, or raise --max-bad-share (in a run audio.max_bad_share); {first}."
        )
    say(f"{len(bad):,} of {total:,} skipped{why}, listed with reasons in {listing}")


def named_sets(paths: Sequence[Path], prefix: str = "") -> dict[str, Path]:
    """Name sets of cuts after their files, with `prefix` in front unless the name begins with it."""
    sets: dict[str, Path] = {}
    for path in paths:
        name = path.name.split(".")[0]
        name = name if name.startswith(prefix) else f"{prefix}-{name}"
        if name in sets:
            raise UserError(f"{sets[name]} and {path} would have the same name, {name}: rename one of them")
        sets[name] = path
    return sets
