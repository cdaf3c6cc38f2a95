"""Recordings of the synthetic corpus: a passage read in one voice, with pauses, in one kind of noise."""

import hashlib
import json
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from priormatch.data import SAMPLE_RATE
from priormatch.data.waveforms import wav_header
from priormatch.files import replace_text, replacing, writing
from priormatch.json_text import parse_json
from priormatch.old_names import OLD_NAMES
from priormatch.prepare.spoken import FRAME, Request, amplitude, in_noise, in_parallel, rms, speak
from priormatch.prepare.synthetic.voices import VERSION, Speaker
from priormatch.progress import Meter

LEVEL = (-29.0, -21.0)
"""Level of the speech of a recording, in decibels relative to full scale."""
MARGIN = (0.05, 0.2)
"""Seconds of an utterance before and after its speech."""
PAUSE = (0.3, 1.0)
"""Seconds between utterances, and before the first and after the last."""
CHARACTER_SECONDS = 9.0
"""Seconds per character at one word per minute; voices differ by a few percent."""
JOURNAL = "recordings.jsonl"
"""Lists the complete recordings until all are complete."""

Span = tuple[int, int]
"""Start and duration of an utterance in its recording, in hundredths of a second."""


@dataclass(frozen=True)
class Reading:
    """A recording to make: a speaker and the sentences to read."""

    name: str
    speaker: Speaker
    sentences: tuple[str, ...]
    seed: int

    @property
    def digest(self) -> str:
        """A hash of everything the recording depends on."""
        return hashlib.sha256(json.dumps([VERSION, asdict(self)]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Recorded:
    """A complete recording: its utterances and its length, in hundredths of a second."""

    spans: list[Span]
    length: int


def expected_seconds(characters: int, utterances: int, speaker: Speaker) -> float:
    """Estimate the duration of a speaker's utterances in seconds from their total number of characters."""
    return CHARACTER_SECONDS * characters / speaker.rate + sum(MARGIN) * utterances


def record(readings: Sequence[Reading], folder: Path, jobs: int) -> list[Recorded]:
    """Make the recordings NAME.wav in a folder, in parallel, except those that are already complete.

    `recordings.jsonl` lists the complete ones, one per line, until the caller removes it.
    """
    journal = folder / JOURNAL
    whole = _read_journal(readings, folder)
    replace_text(
        journal, "".join(_journal_line(each, whole[each.name]) for each in readings if each.name in whole)
    )
    todo = [each for each in readings if each.name not in whole]
    with (
        Meter("recordings", len(readings), len(whole)) as meter,
        writing(journal),
        journal.open("a", encoding="utf-8") as file,
        in_parallel(partial(_record_one, folder), todo, jobs, apart=True) as results,
    ):
        for reading, recorded in zip(todo, results, strict=True):
            whole[reading.name] = recorded
            file.write(_journal_line(reading, recorded))
            file.flush()
            meter.advance()
    return [whole[each.name] for each in readings]


def read_aloud(reading: Reading) -> tuple[npt.NDArray[np.int16], list[Span]]:
    """Synthesize sentences one after the other; return samples at 16 kHz, (N,) int16, and the span of each sentence."""
    part, _, number = reading.name.rpartition("-")
    stream = f"{OLD_NAMES.get(part, part)}-{number}"  # the old names keep the corpus the same
    rng = np.random.default_rng([reading.seed, zlib.crc32(stream.encode())])
    manner = reading.speaker.manner
    spoken = speak(_requests(reading, rng))
    pieces, spans, end = [], [], 0
    for speech in spoken:
        pause = round(100 * rng.uniform(*PAUSE))
        before, after = (round(rng.uniform(*MARGIN) * SAMPLE_RATE) for _ in range(2))
        after += -(before + len(speech) + after) % FRAME
        pieces.append(np.pad(speech, (pause * FRAME + before, after)))
        spans.append((end + pause, (before + len(speech) + after) // FRAME))
        end = sum(spans[-1])
    pieces.append(np.zeros(round(100 * rng.uniform(*PAUSE)) * FRAME, np.float32))
    level = amplitude(rng.uniform(*LEVEL))
    clean = np.concatenate(pieces) * (level / rms(np.concatenate(spoken)))
    return in_noise(clean, level / amplitude(rng.uniform(*manner.snr)), rng), spans


def _requests(reading: Reading, rng: np.random.Generator) -> list[Request]:
    """Give each sentence a rate and a pitch near the speaker's."""
    speaker, manner, count = reading.speaker, reading.speaker.manner, len(reading.sentences)
    rates, pitches = (
        (mean + rng.integers(-stray, stray, count, endpoint=True)).tolist()
        for mean, stray in ((speaker.rate, manner.rate_stray), (speaker.pitch, manner.pitch_stray))
    )
    return [
        (sentence, speaker.voice, rate, pitch)
        for sentence, rate, pitch in zip(reading.sentences, rates, pitches, strict=True)
    ]


def _record_one(folder: Path, reading: Reading) -> Recorded:
    samples, spans = read_aloud(reading)
    with replacing(folder / f"{reading.name}.wav") as temporary:
        temporary.write_bytes(wav_header(len(samples)) + samples.astype("<i2").tobytes())
    return Recorded(spans, len(samples) // FRAME)


def _journal_line(reading: Reading, recorded: Recorded) -> str:
    return json.dumps({"name": reading.name, "digest": reading.digest, **asdict(recorded)}) + "\n"


def _read_journal(readings: Sequence[Reading], folder: Path) -> dict[str, Recorded]:
    """Read the complete recordings by name; incomplete lines and lines of another corpus are ignored."""
    wanted = {reading.name: reading.digest for reading in readings}
    whole = {}
    with suppress(FileNotFoundError):
        for line in (folder / JOURNAL).read_text(encoding="utf-8").splitlines():
            with suppress(OSError, ValueError, KeyError, TypeError):
                fields = parse_json(line)
                name = fields["name"]
                recorded = Recorded([(a, b) for a, b in fields["spans"]], fields["length"])
                size = len(wav_header(0)) + 2 * FRAME * recorded.length
                if fields["digest"] == wanted[name] and (folder / f"{name}.wav").stat().st_size == size:
                    whole[name] = recorded
    return whole
