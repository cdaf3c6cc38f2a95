"""Packed corpora: each utterance is read once and stored as 16-bit samples in a few large WAV files."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from lhotse import CutSet, MonoCut
from lhotse.cut import Cut
from lhotse.utils import fastcopy

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import recording_at
from priormatch.data.manifest import SUFFIX, list_bad, map_in_threads
from priormatch.data.recordings import PART_OF, place_of
from priormatch.data.waveforms import one_thread, read_samples, to_int16, wav_header, why_unreadable
from priormatch.errors import UserError
from priormatch.files import read_text, replace_text, replacing
from priormatch.json_text import parse_json
from priormatch.progress import Meter, say

SHARD_SAMPLES = 1 << 27
"""Maximum samples in a shard: 2.3 hours, 256 MiB."""

Packed = tuple[np.ndarray, int] | str
"""An utterance's samples (N,) int16 and the number of clipped ones, or why it cannot be read."""


@dataclass(frozen=True)
class Shard:
    """A WAV file and the cuts to store in it."""

    file: Path
    cuts: Sequence[Cut]

    @property
    def ids(self) -> list[str]:
        """The ids of the cuts."""
        return [cut.id for cut in self.cuts]

    @property
    def record(self) -> Path:
        """The file that is written once the shard is complete."""
        return self.file.with_suffix(".json")


@dataclass(frozen=True)
class Record:
    """Result of writing a shard: samples of each cut, or why it is left out; and the number of clipped samples."""

    cuts: list[int | str]
    clipped: int

    @property
    def samples(self) -> int:
        """Number of samples in the shard."""
        return sum(each for each in self.cuts if isinstance(each, int))


def pack(
    cuts: Sequence[Cut],
    folder: Path,
    name: str,
    *,
    max_bad_share: float = 0.05,
    shard_samples: int = SHARD_SAMPLES,
) -> Path:
    """Write the audio of cuts into shards in `folder`, and their manifest `NAME.jsonl.gz` beside them.

    The new cuts refer to the shards: 16-bit WAV files NAME-00000.wav and so on, at 16 kHz with one channel. They keep
    the ids, texts, speakers and all other fields of the old cuts, their order, and their place in the old recordings.

    - 16-bit audio at 16 kHz is copied bit by bit. Other audio is resampled and rounded to 16 bits; samples louder than
      full scale are clipped and counted.
    - Unreadable utterances are skipped and listed with their reasons in `NAME.bad.tsv`; more than `max_bad_share` of
      them raise `UserError` at the end.
    - Interrupted packing resumes: complete shards are kept, unless an utterance left out of them can now be read.
    """
    out, shards = folder / f"{name}{SUFFIX}", plan_shards(cuts, folder, name, shard_samples)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        records = _write_shards(shards, partial(read_packed, most=shard_samples), f"packing {name}")
        bad = [
            (cut.id, each)
            for shard, record in zip(shards, records, strict=True)
            for cut, each in zip(shard.cuts, record.cuts, strict=True)
            if isinstance(each, str)
        ]
        list_bad(out, bad, len(cuts), max_bad_share, "id")
        with replacing(out) as temporary, CutSet.open_writer(temporary, overwrite=True) as writer:
            for cut in chain.from_iterable(map(packed_cuts, shards, records)):
                writer.write(cut)
        for shard in shards:
            shard.record.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write to {folder}: {error.strerror}; free some space or choose another folder."
        ) from error
    if clipped := sum(record.clipped for record in records):
        say(f"{name}: {clipped:,} samples were louder than full scale and were clipped")
    return out


def plan_shards(cuts: Sequence[Cut], folder: Path, name: str, most: int) -> list[Shard]:
    """Split the cuts into shards of at most `most` samples, in order."""
    starts, filled = [0], 0
    for position, cut in enumerate(cuts):
        samples = samples_of(cut) if samples_of(cut) <= most else 0  # a longer one is left out
        if filled + samples > most:
            starts.append(position)
            filled = 0
        filled += samples
    ends = [*starts[1:], len(cuts)]
    return [
        Shard(folder / f"{name}-{number:05d}.wav", cuts[start:end])
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def samples_of(cut: Cut) -> int:
    """Return the number of samples of a cut at 16 kHz, possibly one too many."""
    return int(cut.duration * SAMPLE_RATE) + 1


def read_packed(cut: Cut, most: int) -> Packed:
    """Read a cut of at most `most` samples as int16, or return why it cannot be read."""
    if samples_of(cut) > most:
        return f"lasts {cut.duration / 3600:.1f} hours, more than a shard holds: cut it into utterances"
    try:
        return to_int16(read_samples(cut))
    except Exception as error:  # a damaged file raises whatever its decoder does
        return why_unreadable(cut, error)


def packed_cuts(shard: Shard, record: Record) -> Iterable[MonoCut]:
    """Yield the cuts that refer to a shard's file."""
    recording = recording_at(shard.file.absolute(), record.samples)
    start = 0
    for cut, samples in zip(shard.cuts, record.cuts, strict=True):
        if isinstance(samples, str):
            continue
        supervisions = [fastcopy(each, recording_id=recording.id, channel=0) for each in cut.supervisions]
        yield MonoCut(
            id=cut.id,
            start=start / SAMPLE_RATE,
            duration=samples / SAMPLE_RATE,
            channel=0,
            supervisions=supervisions,
            recording=recording,
            custom={**(getattr(cut, "custom", None) or {}), PART_OF: list(place_of(cut))},
        )
        start += samples


def _write_shards(shards: Sequence[Shard], read: Callable[[Cut], Packed], description: str) -> list[Record]:
    """Write the missing shards, reading ahead in threads, and return the records of all."""
    kept = {shard.file: record for shard in shards if (record := _read_record(shard, read))}
    todo = [shard for shard in shards if shard.file not in kept]
    total = sum(len(shard.cuts) for shard in shards)
    with one_thread(), Meter(description, total, total - sum(len(shard.cuts) for shard in todo)) as meter:
        utterances = map_in_threads(read, chain.from_iterable(shard.cuts for shard in todo))
        for shard in todo:
            kept[shard.file] = _write_shard(shard, islice(utterances, len(shard.cuts)), meter)
    return [kept[shard.file] for shard in shards]


def _write_shard(shard: Shard, utterances: Iterable[Packed], meter: Meter) -> Record:
    cuts: list[int | str] = []
    clipped = 0
    with replacing(shard.file) as temporary, temporary.open("wb") as file:
        file.write(wav_header(0))
        for each in utterances:
            if isinstance(each, str):
                cuts.append(each)
            else:
                samples, louder = each
                file.write(np.ascontiguousarray(samples, "<i2").data)
                cuts.append(len(samples))
                clipped += louder
            meter.advance()
        record = Record(cuts, clipped)
        file.seek(0)
        file.write(wav_header(record.samples))
    replace_text(shard.record, json.dumps({"ids": shard.ids, "cuts": cuts, "clipped": clipped}))
    return record


def _read_record(shard: Shard, read: Callable[[Cut], Packed]) -> Record | None:
    """Return the record of a complete shard, or None if it must be written, as when a left-out cut can now be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        fields = parse_json(read_text(shard.record))
        record = Record(fields["cuts"], fields["clipped"])
        whole = shard.file.stat().st_size == len(wav_header(0)) + 2 * record.samples
        if not whole or fields["ids"] != shard.ids:
            return None
        left_out = [cut for cut, each in zip(shard.cuts, record.cuts, strict=True) if isinstance(each, str)]
        return record if all(isinstance(read(cut), str) for cut in left_out) else None
    return None
