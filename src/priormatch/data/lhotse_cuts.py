"""Lhotse's own manifests, of cuts or of recordings and supervisions."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.cut import Cut
from lhotse.serialization import deserialize_item
from lhotse.utils import fastcopy

from priormatch.data.audio import BadAudio, check_audio
from priormatch.data.batches import cut_text, read_cuts
from priormatch.data.intake import Intake
from priormatch.data.listed import BEYOND, ROUNDING, locate
from priormatch.data.manifest import write_manifests
from priormatch.data.source import Utterance
from priormatch.data.text_files import read_lines
from priormatch.errors import UserError

RECORDINGS, SUPERVISIONS = "recordings", "supervisions"


@dataclass(frozen=True)
class Cuts:
    """Lhotse's cuts; paths of their audio are relative to one of the roots."""

    cuts: list[Cut]
    file: Path
    roots: Sequence[Path]

    def utterances(self) -> Iterator[Utterance]:
        """What there is; no audio is opened."""
        for cut in self.cuts:
            speaker = next((each.speaker for each in cut.supervisions if each.speaker), None)
            find = partial(self._audio_of, cut)
            yield Utterance(find, (cut_text(cut) or "").strip() or None, speaker, cut.duration)

    def _audio_of(self, cut: Cut, _: Path) -> Path:
        return locate(audio_of(cut), self.roots)

    def write(self, out: Path, intake: Intake, max_bad_share: float, overwrite: bool) -> None:
        """Write the manifest `out`; headers and ends are checked, and unusable audio is skipped and listed."""
        seen: set[str] = set()
        for cut in self.cuts:
            if cut.id in seen:
                raise UserError(f"{self.file}: two cuts are called {cut.id}; give each an id of its own.")
            seen.add(cut.id)
        check_once = lru_cache(maxsize=1024)(check_audio)

        def cuts_of(cut: Cut) -> list[MonoCut]:
            audio = locate(audio_of(cut), self.roots).absolute()
            if reason := check_once(audio, decode=False):
                raise BadAudio(audio, reason)
            return intake.parts(conform(cut, audio, intake), seen)

        write_manifests({out: self.cuts}, cuts_of, max_bad_share, overwrite)


def list_cuts(path: Path) -> Cuts:
    """Lhotse's cuts, or its recordings and supervisions.

    `path` is a file of cuts, or one of recordings (`X_recordings_Y.jsonl.gz`) with its supervisions in the file of
    that name beside it, or the folder of one such pair. Recordings without supervisions are utterances as they are.
    Paths of audio are relative to the working directory, or else to the manifest's. Audio that would come of a command
    or from a network is not used.
    """
    return Cuts(read_lhotse(path), path, (Path(), path if path.is_dir() else path.parent))


def read_lhotse(path: Path) -> list[Cut]:
    """The cuts of a manifest, or those that recordings and supervisions make."""
    path = recordings_in(path) if path.is_dir() else path
    if ".jsonl" not in path.suffixes:
        return read_cuts(path)
    items = read_items(path)
    if isinstance(items[0], Recording | SupervisionSegment):
        recordings, supervisions = (sibling(path, kind) for kind in (RECORDINGS, SUPERVISIONS))
        if not recordings.is_file():
            raise UserError(f"{path}: its recordings, {recordings.name}, are not beside it.")
        spoken = read_items(supervisions) if supervisions.is_file() else None
        return cuts_of_pair(read_items(recordings), spoken, supervisions)
    if strange := next((item for item in items if not isinstance(item, Cut)), None):
        raise UserError(f"{path} is no manifest of cuts: it holds a {type(strange).__name__} among them.")
    return items


def read_items(path: Path) -> list[Any]:
    """What the lines of a manifest of Lhotse's describe; a mistake stops with its line."""
    items = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            if line:
                items.append(deserialize_item(json.loads(line)))
        except Exception as error:  # lhotse raises whatever its parsers do
            what = f"{type(error).__name__}: {error}".splitlines()[0][:100]
            raise UserError(f"{path}, line {number}: no cut of Lhotse's ({what}); mend the line.") from error
    if not items:
        raise UserError(f"{path} holds no cuts: prepare it again")
    return items


def recordings_in(folder: Path) -> Path:
    """The one file of recordings in a folder."""
    found = sorted(folder.glob(f"*{RECORDINGS}*.jsonl*"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found[:3]) or "none"
        raise UserError(f"{folder} must hold one file of recordings, and has {names}: give the file's path.")
    return found[0]


def sibling(path: Path, kind: str) -> Path:
    """The file of recordings or of supervisions that belongs to either."""
    return path.with_name(path.name.replace(RECORDINGS, kind).replace(SUPERVISIONS, kind))


def cuts_of_pair(
    recordings: Iterable[Recording], supervisions: Iterable[SupervisionSegment] | None, file: Path
) -> list[Cut]:
    """A cut for every supervision, or without any for every recording."""
    known = {recording.id: recording for recording in recordings}
    if supervisions is None:
        return [recording.to_cut() for recording in known.values()]
    cuts: list[Cut] = []
    for each in supervisions:
        if each.recording_id not in known:
            raise UserError(
                f"{file}: {each.id} is of the recording {each.recording_id}, which is not listed."
            )
        channel = each.channel[0] if isinstance(each.channel, list) else each.channel
        recording = known[each.recording_id]
        cuts.append(MonoCut(each.id, each.start, each.duration, channel, [each], recording=recording))
    return cuts


def audio_of(cut: Cut) -> Path:
    """The file that a cut's audio lies in."""
    if not isinstance(cut, MonoCut) or not cut.has_recording:
        what = "has no audio" if isinstance(cut, MonoCut) else f"is a {type(cut).__name__}, and no MonoCut"
        raise BadAudio(Path(cut.id), f"the cut {what}")
    source = next((each for each in cut.recording.sources if cut.channel in each.channels), None)
    if source is None:
        raise BadAudio(Path(cut.id), f"its recording has no channel {cut.channel}")
    if source.type != "file":
        raise BadAudio(Path(cut.id), f"its audio is a {source.type}, and must be a file")
    return Path(source.source)


def conform(cut: MonoCut, audio: Path, intake: Intake) -> MonoCut:
    """A cut of any origin as the manifests here have them: one supervision, its text normalised or None."""
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
