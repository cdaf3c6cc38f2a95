"""Read Lhotse manifests of cuts, or of recordings and supervisions."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from priormatch.data.audio import BadAudio, check_audio
from priormatch.data.corpus import cut_text, read_cuts
from priormatch.data.cuts import Item, Refused, read_items
from priormatch.data.ffmpeg import needs_ffmpeg
from priormatch.data.manifest import write_manifests
from priormatch.errors import UserError
from priormatch.prepare.source import BEYOND, ROUNDING, Intake, Utterance, locate

Kind = TypeVar("Kind")

RECORDINGS, SUPERVISIONS = "recordings", "supervisions"


@dataclass(frozen=True)
class Cuts:
    """Lhotse cuts; the paths of their audio are relative to one of the roots."""

    cuts: list[Cut | Refused]
    file: Path
    roots: Sequence[Path]

    def utterances(self) -> Iterator[Utterance]:
        """Yield the utterances without opening any audio."""
        for cut in self.cuts:
            if isinstance(cut, Refused):
                yield Utterance(partial(self._audio_of, cut), None, None, None)
                continue
            speaker = next((each.speaker for each in cut.supervisions if each.speaker), None)
            find = partial(self._audio_of, cut)
            yield Utterance(find, (cut_text(cut) or "").strip() or None, speaker, cut.duration)

    def _audio_of(self, cut: Cut | Refused, _: Path) -> Path:
        path = locate(audio_of(cut), self.roots)
        if needs_ffmpeg(path) and (reason := check_audio(path, decode=False)):  # as `write` refuses it
            raise BadAudio(path, reason)
        return path

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`; headers and ends are checked, and unusable audio is skipped and listed."""
        seen: set[str] = set()
        for cut in self.cuts:
            if cut.id in seen:
                raise UserError(f"{self.file}: two cuts have the id {cut.id}; give each its own id.")
            seen.add(cut.id)
        check_once = lru_cache(maxsize=1024)(check_audio)

        def cuts_of(cut: Cut | Refused) -> list[MonoCut]:
            audio = locate(audio_of(cut), self.roots).absolute()
            if reason := check_once(audio, decode=False):
                raise BadAudio(audio, reason)
            assert isinstance(cut, MonoCut)  # `audio_of` has refused all others
            return intake.parts(conform(cut, audio, intake), seen)

        write_manifests({out: self.cuts}, cuts_of, max_bad_share, overwrite)


def list_cuts(path: Path) -> Cuts:
    """List Lhotse cuts, or recordings and supervisions.

    `path` is a file of cuts, a file of recordings (`X_recordings_Y.jsonl.gz`) with its supervisions in the file of
    that name beside it, or the folder of one such pair. Without supervisions, every recording is an utterance.
    Paths of audio are relative to the working directory, or else to the manifest's folder. Audio from a command or a
    network is skipped and listed.
    """
    return Cuts(read_lhotse(path), path, (Path(), path if path.is_dir() else path.parent))


def read_lhotse(path: Path) -> list[Cut | Refused]:
    """Read the cuts of a manifest, or make them from recordings and supervisions; refused ones are included."""
    path = recordings_in(path) if path.is_dir() else path
    if ".jsonl" not in path.suffixes:
        return list(read_cuts(path))
    items = all_items(path)
    first = next((item for item in items if not isinstance(item, Refused)), None)
    if isinstance(first, Recording | SupervisionSegment):
        recordings, supervisions = (sibling(path, kind) for kind in (RECORDINGS, SUPERVISIONS))
        if not recordings.is_file():
            raise UserError(f"{path}: its recordings, {recordings.name}, are missing next to it.")
        return cuts_of_pair(recordings, supervisions)
    return [_of(path, item, MonoCut, Refused) for item in items]


def all_items(path: Path) -> list[Item | Refused]:
    """Read all items of a manifest; raise `UserError` if there are none."""
    items = [item for _, item in read_items(path)]
    if not items:
        raise UserError(f"{path} contains no cuts: prepare it again")
    return items


def _of(path: Path, item: Item | Refused, *kinds: type[Kind]) -> Kind:
    """Return an item of a manifest if it is of one of the expected kinds; else raise `UserError`."""
    if not isinstance(item, kinds):
        raise UserError(
            f"{path} is not a manifest of {kinds[0].__name__}s: it also contains a {type(item).__name__}."
        )
    return item


def recordings_in(folder: Path) -> Path:
    """Return the single file of recordings in a folder."""
    found = sorted(folder.glob(f"*{RECORDINGS}*.jsonl*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:3]) or "none"
        raise UserError(
            f"{folder} must contain one file of recordings, but has {names}: provide the file's path."
        )
    return found[0]


def sibling(path: Path, kind: str) -> Path:
    """Return the file of recordings or supervisions that belongs to either file."""
    return path.with_name(path.name.replace(RECORDINGS, kind).replace(SUPERVISIONS, kind))


def cuts_of_pair(recordings: Path, supervisions: Path) -> list[Cut | Refused]:
    """Make a cut for every supervision; without a file of supervisions, for every recording."""
    known = {each.id: _of(recordings, each, Recording, Refused) for each in all_items(recordings)}
    if not os.path.lexists(supervisions):
        return [each if isinstance(each, Refused) else each.to_cut() for each in known.values()]
    return [
        _cut_of_pair(_of(supervisions, each, SupervisionSegment), known, supervisions)
        for each in all_items(supervisions)
    ]


def _cut_of_pair(
    each: SupervisionSegment, known: Mapping[str, Recording | Refused], file: Path
) -> Cut | Refused:
    recording = known.get(each.recording_id)
    if recording is None:
        raise UserError(
            f"{file}: {each.id} belongs to the recording {each.recording_id}, which is not listed."
        )
    if isinstance(recording, Refused):
        return recording
    channel = each.channel[0] if isinstance(each.channel, list) else each.channel
    return MonoCut(each.id, each.start, each.duration, channel, [each], recording=recording)


def audio_of(cut: Cut | Refused) -> Path:
    """Return the file of a cut's audio."""
    if isinstance(cut, Refused):
        raise BadAudio(Path(cut.id), str(cut))
    if not isinstance(cut, MonoCut) or not cut.has_recording:
        what = "has no audio" if isinstance(cut, MonoCut) else f"is a {type(cut).__name__}, not a MonoCut"
        raise BadAudio(Path(cut.id), f"the cut {what}")
    source = next((each for each in cut.recording.sources if cut.channel in each.channels), None)
    if source is None:
        raise BadAudio(Path(cut.id), f"its recording has no channel {cut.channel}")
    return Path(source.source)


def conform(cut: MonoCut, audio: Path, intake: Intake) -> MonoCut:
    """Convert any cut to the form of the manifests here: one supervision, its text normalized or None."""
    length = cut.recording.duration
    if cut.start < 0 or cut.end > length + ROUNDING:
        reason = f"lasts {length:.2f} s, but the cut {cut.id} asks for {cut.start:g} to {cut.end:g}"
        raise BadAudio(audio, reason, BEYOND)
    duration = min(cut.duration, length - cut.start)
    transcript = (cut_text(cut) or "").strip()
    text = intake.usable(audio, transcript) if transcript else None
    first = next(iter(cut.supervisions), SupervisionSegment(cut.id, cut.recording_id, 0.0, duration))
    supervision = fastcopy(first, start=0.0, duration=duration, text=text)
    sources = [
        fastcopy(each, source=str(audio)) if cut.channel in each.channels else each
        for each in cut.recording.sources
    ]
    recording = fastcopy(cut.recording, sources=sources)
    return fastcopy(cut, duration=duration, supervisions=[supervision], recording=recording)
