"""Read Lhotse manifests safely: every field is checked first, and nothing in them is run, fetched or imported.

Lhotse acts on the contents of a manifest: it runs commands, fetches URLs, and loads impulse responses, arrays and
features. All manifests are therefore read here and not by Lhotse, and only audio in files is accepted:

- Audio sources must be files. Commands, URLs, archives and sources with video are refused.
- Only transforms with numeric arguments are allowed: resampling, speed and volume.
- Features are dropped, as nothing uses them; `custom` stays plain data, whatever it describes.
- Only cuts of one channel of one recording are read: mixtures may contain all of the above in many places.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from lhotse import MonoCut, Recording, SupervisionSegment
from lhotse.audio import AudioSource
from lhotse.augmentation import AudioTransform, Speed
from lhotse.supervision import AlignmentItem

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import FASTEST, LONGEST_FILE, MOST_CHANNELS, SLOWEST, why_not_resampled
from priormatch.data.corpus import ALTERNATIVES
from priormatch.data.text_files import read_lines
from priormatch.errors import UserError
from priormatch.json_text import parse_object

LONGEST = 1e9
"""Seconds, 30 years; a longer recording is a mistake."""
MONO = ("MonoCut", "Cut")  # the latter is its name before Lhotse 0.8
COMPOSITE = ("MultiCut", "MixedCut", "PaddingCut")
OF_A_CUT = {
    *("id", "type", "start", "duration", "channel"),
    *("supervisions", "features", "recording", "custom"),
}
OF_A_RECORDING = {"id", "sources", "sampling_rate", "num_samples", "duration", "channel_ids", "transforms"}
OF_A_SOURCE = {"type", "channels", "source", "video"}
OF_A_SUPERVISION = {
    *("id", "recording_id", "start", "duration", "channel", "text"),
    *("language", "speaker", "gender", "custom", "alignment"),
}
SLOWED, HASTENED = 0.1, 10.0  # all speed transforms of a recording together
TRANSFORMS: dict[str, dict[str, tuple[float, float]]] = {
    "Resample": {"source_sampling_rate": (SLOWEST, FASTEST), "target_sampling_rate": (SLOWEST, FASTEST)},
    "Speed": {"factor": (SLOWED, HASTENED)},
    "Volume": {"factor": (-100, 100)},
}
"""The transforms of a recording that are allowed, with the range of each argument."""
MOST_TRANSFORMS = 8

Item: TypeAlias = MonoCut | Recording | SupervisionSegment


class Refused(ValueError):
    """A cut or recording that Lhotse could use but priormatch refuses, with the reason and its `id`."""

    id = ""


def read_items(path: Path) -> Iterator[tuple[int, Item | Refused]]:
    """Yield the items of a manifest with their line numbers; raise `UserError` for a line without an item."""
    for number, line in enumerate(read_lines(path), 1):
        if line:
            yield number, item_on(path, number, line)


def cut_on(path: Path, number: int, line: str) -> MonoCut:
    """Parse the cut on a line of a manifest; raise `UserError` unless it is one of audio in files."""
    item = item_on(path, number, line)
    if isinstance(item, Refused):
        raise UserError(f"line {number}: {item.id} is not used: {item}")
    if not isinstance(item, MonoCut):
        raise UserError(f"line {number} is a {type(item).__name__}: prepare it first")
    return item


def item_on(path: Path, number: int, line: str) -> Item | Refused:
    """Parse the item on a line of a manifest; raise `UserError` for a line without one."""
    try:
        item = parse_object(line)
        try:
            return item_of(item)
        except Refused as refused:
            refused.id = str(item.get("id"))[:100]
            return refused
    except ValueError as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        raise UserError(f"{path}, line {number}: not a Lhotse cut ({what}); fix the line.") from error


def item_of(item: dict[str, Any]) -> Item:
    """Build the cut, recording or supervision that a line describes."""
    if "sources" in item:
        return recording_of(item)
    return cut_of(item) if "type" in item else supervision_of(item)


def cut_of(item: dict[str, Any]) -> MonoCut:
    """Build the cut that a manifest entry describes; raise `ValueError` if it is none, `Refused` if not allowed."""
    if type(item) is not dict:
        raise ValueError(f"{shown(item)} is not a cut")
    kind = item.get("type")
    if kind not in MONO:
        if kind in COMPOSITE:
            raise Refused(f"the cut is a {kind}, not a MonoCut")
        raise ValueError(f"type is {shown(kind)}, not MonoCut")
    _known(item, OF_A_CUT)
    recording = item.get("recording")
    supervisions = item.get("supervisions")
    if supervisions is not None and type(supervisions) is not list:
        raise ValueError(f"supervisions is {shown(supervisions)}, not a list")
    return MonoCut(
        id=_name(item, "id"),
        start=_number(item, "start", -LONGEST, LONGEST),
        duration=_number(item, "duration", 0, LONGEST),
        channel=_integer(item, "channel", 0, MOST_CHANNELS),
        supervisions=[supervision_of(each) for each in supervisions or []],
        recording=None if recording is None else recording_of(recording),
        custom=_custom(item),
    )


def recording_of(item: dict[str, Any]) -> Recording:
    """Build the recording that a manifest entry describes; its audio must be in files."""
    if type(item) is not dict:
        raise ValueError(f"recording is {shown(item)}, not an object")
    _known(item, OF_A_RECORDING)
    sources = item.get("sources")
    if type(sources) is not list or not sources:
        raise ValueError(f"sources is {shown(sources)}, not a list of files")
    rate = _integer(item, "sampling_rate", SLOWEST, FASTEST)
    if reason := why_not_resampled(rate):
        raise Refused(reason)
    channels, transforms = item.get("channel_ids"), item.get("transforms")
    return Recording(
        id=_name(item, "id"),
        sources=[_source_of(each) for each in sources],
        sampling_rate=rate,
        num_samples=_integer(item, "num_samples", 1, LONGEST_FILE),
        duration=_number(item, "duration", 0, LONGEST),
        channel_ids=None if channels is None else _channels(channels),
        transforms=None if transforms is None else _transforms(transforms, rate),
    )


def supervision_of(item: dict[str, Any]) -> SupervisionSegment:
    """Build the supervision that a manifest entry describes."""
    if type(item) is not dict:
        raise ValueError(f"{shown(item)} is not a supervision")
    _known(item, OF_A_SUPERVISION)
    channel = item.get("channel", 0)
    alignment = item.get("alignment")
    return SupervisionSegment(
        id=_name(item, "id"),
        recording_id=_name(item, "recording_id"),
        start=_number(item, "start", -LONGEST, LONGEST),
        duration=_number(item, "duration", 0, LONGEST),
        channel=_channels(channel)
        if type(channel) is list
        else _integer(item, "channel", 0, MOST_CHANNELS, 0),
        text=_text(item, "text"),
        language=_text(item, "language"),
        speaker=_text(item, "speaker"),
        gender=_text(item, "gender"),
        custom=_custom(item),
        alignment=None if alignment is None else _alignment(alignment),
    )


def why_refused(recording: Recording) -> str | None:
    """Return why the audio of a recording made in Python is refused, or None if it is accepted."""
    for source in recording.sources:
        if reason := _why_not_a_file(source.type, source.source, source.has_video):
            return reason
    names = [
        each["name"] if isinstance(each, dict) else type(each).__name__ for each in recording.transforms or []
    ]
    if strange := next((name for name in names if name not in TRANSFORMS), None):
        return f"its transform {strange} is not one of {', '.join(TRANSFORMS)}"
    return None


def _source_of(item: Any) -> AudioSource:
    if type(item) is not dict:
        raise ValueError(f"{shown(item)} is not an audio source")
    _known(item, OF_A_SOURCE)
    kind, source = item.get("type"), item.get("source")
    if type(kind) is not str or type(source) is not str or not source:
        raise ValueError("an audio source has no type or no path")
    if reason := _why_not_a_file(kind, source, item.get("video") is not None):
        raise Refused(reason)
    return AudioSource(type=kind, channels=_channels(item.get("channels")), source=source)


def _why_not_a_file(kind: str, source: Any, video: bool) -> str | None:
    if kind != "file":
        return f"its audio is a {kind}, but must be a file"
    if "://" in str(source):
        return "its audio is at a URL, but must be a file: download it"
    return "its audio is part of a video, but must be a file: extract it" if video else None


def _transforms(items: Any, rate: int) -> list[AudioTransform]:
    if type(items) is not list or len(items) > MOST_TRANSFORMS:
        raise ValueError(f"transforms is {shown(items)}, not a short list")
    found = [_transform(each, rate) for each in items]
    speed = math.prod(each.factor for each in found if isinstance(each, Speed))
    if not SLOWED <= speed <= HASTENED:
        raise Refused(f"its transforms change the speed by {speed:.3g}, not by {SLOWED:g} to {HASTENED:g}")
    return found


def _transform(item: Any, rate: int) -> AudioTransform:
    if type(item) is not dict or type(name := item.get("name")) is not str:
        raise ValueError(f"{shown(item)} is not a transform")
    if (wanted := TRANSFORMS.get(name)) is None:
        raise Refused(f"its transform {name[:40]} is not one of {', '.join(TRANSFORMS)}")
    numbers = item.get("kwargs")
    if type(numbers) is not dict or numbers.keys() != wanted.keys():
        raise ValueError(f"the transform {name} must have {', '.join(wanted)}")
    for key, (least, most) in wanted.items():
        if name == "Resample" and type(numbers[key]) is not int:
            raise ValueError(f"{key} is {shown(numbers[key])}, not an integer")
        _number(numbers, key, least, most)
    if name == "Resample" and (reason := why_not_resampled(*(numbers[key] for key in wanted))):
        raise Refused(reason)
    if name == "Speed":
        for each in (rate, SAMPLE_RATE):  # the transform may come before or after resampling
            if reason := why_not_resampled(round(each * numbers["factor"]), each):
                raise Refused(f"a speed of {numbers['factor']}: {reason}")
    return AudioTransform.from_dict({"name": name, "kwargs": numbers})


def _alignment(items: Any) -> dict[str, list[AlignmentItem]]:
    if type(items) is not dict or not all(type(each) is list for each in items.values()):
        raise ValueError("alignment is not an object of lists")
    return {name: [_aligned(each) for each in listed] for name, listed in items.items()}


def _aligned(item: Any) -> AlignmentItem:
    values = list(item.values()) if type(item) is dict else item
    if type(values) is not list or not 3 <= len(values) <= 4 or type(values[0]) is not str:
        raise ValueError(f"{shown(item)} is not part of an alignment")
    for place, what in ((1, "start"), (2, "duration")):
        _number({what: values[place]}, what, -LONGEST, LONGEST)
    if len(values) == 4 and type(values[3]) not in (int, float, type(None)):
        raise ValueError(f"the score of an alignment is {shown(values[3])}")
    return AlignmentItem(*values)


def _custom(item: dict[str, Any]) -> dict[str, Any] | None:
    custom = item.get("custom")
    if custom is None:
        return None
    if type(custom) is not dict:
        raise ValueError(f"custom is {shown(custom)}, not an object")
    others = custom.get(ALTERNATIVES, [])
    if type(others) is not list or not all(type(each) is str for each in others):
        raise ValueError(f"{ALTERNATIVES} is not a list of texts")
    return custom


def _known(item: dict[str, Any], fields: set[str]) -> None:
    if not item.keys() <= fields:
        raise ValueError(f"unknown field {min(item.keys() - fields)[:40]!r}")


def _name(item: dict[str, Any], key: str) -> str:
    value = item.get(key)
    if type(value) is not str or not value:
        raise ValueError(f"{key} is {shown(value)}, not text")
    return value


def _text(item: dict[str, Any], key: str) -> str | None:
    value = item.get(key)
    if value is not None and type(value) is not str:
        raise ValueError(f"{key} is {shown(value)}, not text")
    return value


def _number(item: dict[str, Any], key: str, least: float, most: float) -> float:
    value = item.get(key)
    if type(value) not in (int, float) or not least <= value <= most:  # type: ignore[operator]
        raise ValueError(f"{key} is {shown(value)}, not a number from {least:g} to {most:g}")
    return value  # type: ignore[return-value]


def _integer(item: dict[str, Any], key: str, least: int, most: int, absent: int | None = None) -> int:
    value = item.get(key, absent)
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{key} is {shown(value)}, not an integer from {least} to {most}")
    return value


def _channels(value: Any) -> list[int]:
    if type(value) is not list or not 0 < len(value) <= MOST_CHANNELS:
        raise ValueError(f"channels is {shown(value)}, not a list of numbers")
    if not all(type(each) is int and 0 <= each <= MOST_CHANNELS for each in value):
        raise ValueError(f"channels are not integers from 0 to {MOST_CHANNELS}")
    return value


def shown(value: Any) -> str:
    """Show a value in a few characters; a list or an object only by its type."""
    if isinstance(value, dict | list):
        return {"dict": "an object", "list": "a list"}[type(value).__name__]
    return "missing" if value is None else repr(value)[:40]
