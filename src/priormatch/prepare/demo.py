"""The demo corpus: sentences about appointments, synthesized by espeak-ng in many voices, in under a minute."""

import json
import os
import random
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from lhotse import MonoCut

from priormatch.data import SAMPLE_RATE
from priormatch.data.audio import recording_at
from priormatch.data.manifest import utterance
from priormatch.errors import UserError
from priormatch.files import read_text, replace_text, writing
from priormatch.json_text import parse_json
from priormatch.old_names import NEW_NAMES, OLD_NAMES, existing_manifest, with_names
from priormatch.prepare import spoken
from priormatch.prepare.demo_grammar import draw_sentences
from priormatch.progress import track

VERSION = 2
"""Increases with every change of the grammar, the voices and the conditions, since each gives another corpus."""

SEEN_VOICES = ("en-us+m3", "en-us+f2", "en-gb-x-rp+m7")
UNSEEN_VOICES = (
    *("en-gb-scotland+m1", "en-gb-scotland+f5", "en-029+m5", "en-029+f1", "en-gb-x-gbclan+m4"),
    *("en-gb-x-gbclan+f1", "en-gb-x-gbcwmd+m6", "en-gb-x-gbcwmd+Mike", "en-us-nyc+m2", "en-us-nyc+f5"),
    *("en+max", "en+f4", "en-us+robert", "en-us+steph"),
)
CUTS = ("labeled", "unlabeled", "validation-seen", "validation-unseen", "test-seen", "test-unseen")
TRANSCRIBED = "unlabeled-transcribed"
TEXTS = ("text.txt", "text-validation.txt")
Settings = dict[str, object]
SETTINGS = "demo.json"
UNFINISHED = ".unfinished"


@dataclass(frozen=True)
class Conditions:
    """The ranges from which the conditions of each utterance are drawn uniformly."""

    rate: tuple[int, int]  # words per minute
    pitch: tuple[int, int]  # from 0 to 99; 50 is the voice's default
    snr: tuple[float, float]  # signal-to-noise ratio in decibels
    level: tuple[float, float] = (-29.0, -21.0)  # of the speech, in decibels relative to full scale
    pause: tuple[float, float] = (0.05, 0.2)  # silence before and after the speech, in seconds


SEEN = Conditions(rate=(155, 185), pitch=(42, 58), snr=(20.0, 30.0))
UNSEEN = Conditions(rate=(145, 200), pitch=(38, 66), snr=(15.0, 30.0))


@dataclass(frozen=True)
class DemoSizes:
    """Number of utterances or sentences in each part of the corpus; an utterance lasts about 3 s."""

    labeled: int = 230
    unlabeled: int = 1800
    validation: int = 150
    test: int = 1000
    text: int = 7000
    text_validation: int = 1000


DEFAULT_SIZES = DemoSizes()


@dataclass(frozen=True)
class Part:
    """A set of utterances; its sentences are assigned to the voices in turn."""

    name: str
    voices: tuple[str, ...]
    conditions: Conditions
    sentences: Sequence[str]
    seed: int


def prepare_demo(
    out: Path, seed: int = 0, sizes: DemoSizes = DEFAULT_SIZES, processes: int | None = None
) -> None:
    """Generate the demo corpus in the folder `out`; do nothing if it already exists.

    The files are cuts (labeled, unlabeled, unlabeled-transcribed, validation-seen, validation-unseen,
    test-seen and test-unseen, each `.jsonl.gz`), sentences (text.txt, text-validation.txt), audio/*.wav, and
    demo.json, which is written last and contains the settings. No two utterances or lines have the same sentence.
    The same seed and sizes give the same corpus, whatever the number of processes (by default one per core).
    """
    _check(seed, sizes)
    out = out.resolve()
    settings: Settings = {"version": VERSION, "seed": seed, "sizes": asdict(sizes), "folder": str(out)}
    if _is_finished(out, settings):
        return
    spoken.check_installed()
    parts, texts = _deal(seed, sizes)
    try:
        _make(parts, texts, settings, out, processes or os.cpu_count() or 1)
    except OSError as error:
        raise UserError(f"cannot write the demo corpus to {out}: {error}; choose another folder.") from error


def _make(
    parts: Sequence[Part], texts: dict[str, list[str]], settings: Settings, out: Path, processes: int
) -> None:
    """Write all files to a folder inside `out`, then move them to their places."""
    work = out / UNFINISHED
    if work.exists():
        shutil.rmtree(work)
    (work / "audio").mkdir(parents=True)
    (out / SETTINGS).unlink(missing_ok=True)  # from here on the folder counts as unfinished
    cuts = _record_parts(parts, work, out, processes)
    cuts[TRANSCRIBED] = cuts["unlabeled"]
    cuts["unlabeled"] = [spoken.without_text(cut) for cut in cuts["unlabeled"]]
    for name, part_cuts in cuts.items():
        spoken.write_cuts(work / f"{name}.jsonl.gz", part_cuts)
    for name, sentences in texts.items():
        with writing(work / name):
            (work / name).write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
    _publish(work, out, settings)


def _check(seed: int, sizes: DemoSizes) -> None:
    """Raise `UserError` for invalid settings."""
    if seed < 0:
        raise UserError(f"The seed of the demo corpus is {seed}: use a whole number, at least 0.")
    for name, size in asdict(sizes).items():
        if size < 1:
            raise UserError(f"The size {name} of the demo corpus is {size}: use a whole number, at least 1.")


def _is_finished(out: Path, settings: Settings) -> bool:
    """Return whether `out` has the corpus with these settings; raise `UserError` if it has something else.

    A corpus that was moved is not finished, since its cuts refer to the old folder, nor is one with a missing file.
    """
    manifests = [existing_manifest(out, name, ".jsonl.gz") for name in (*CUTS, TRANSCRIBED)]
    outputs = [*(out / name for name in ("audio", *TEXTS)), *manifests]
    present = [path for path in outputs if path.exists()]
    if (out / SETTINGS).exists():
        found = _read_settings(out / SETTINGS)
        for name in ("version", "seed", "sizes"):
            if found.get(name) != settings[name]:
                raise UserError(
                    f"{out} holds a demo corpus whose {name} is {found.get(name)}, not {settings[name]}: "
                    "choose another folder, or delete this one first."
                )
        return found.get("folder") == settings["folder"] and len(present) == len(outputs)
    if present and not (out / UNFINISHED).exists():
        raise UserError(f"{present[0]} exists but was not made by the demo: choose another folder.")
    return False


def _read_settings(path: Path) -> Settings:
    try:
        settings = with_names(parse_json(read_text(path)), NEW_NAMES)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise UserError(f"{path} is damaged: delete the folder {path.parent}, and it will be created again.")
    return settings


def _deal(seed: int, sizes: DemoSizes) -> tuple[list[Part], dict[str, list[str]]]:
    """Draw all sentences of the corpus at once, all different, and assign them to its parts and texts."""
    counts = (sizes.labeled, sizes.unlabeled, *2 * [sizes.validation], *2 * [sizes.test])
    text_counts = (sizes.text, sizes.text_validation)
    deck = iter(draw_sentences(sum(counts + text_counts), random.Random(f"sentences {seed}")))
    parts = []
    for name, count in zip(CUTS, counts, strict=True):
        seen = name == "labeled" or name.endswith("-seen")
        voices, conditions = (SEEN_VOICES, SEEN) if seen else (UNSEEN_VOICES, UNSEEN)
        parts.append(Part(name, voices[:count], conditions, list(islice(deck, count)), seed))
    return parts, {name: list(islice(deck, count)) for name, count in zip(TEXTS, text_counts, strict=True)}


def _record_parts(parts: Sequence[Part], work: Path, out: Path, processes: int) -> dict[str, list[MonoCut]]:
    """Record every part, one file per voice; the cuts of a part alternate between its voices."""
    jobs = [(part, voice) for part in parts for voice in part.voices]
    with spoken.in_parallel(lambda job: _record_voice(job[0], job[1], work, out), jobs, processes) as results:
        recorded = iter(list(track(results, "Synthesizing the demo corpus", total=len(jobs))))
    cuts = {}
    for part in parts:
        by_voice = [next(recorded) for _ in part.voices]
        rounds = zip_longest(*by_voice)
        cuts[part.name] = [cut for one_round in rounds for cut in one_round if cut is not None]
    return cuts


def _record_voice(part: Part, voice: str, work: Path, out: Path) -> list[MonoCut]:
    """Record all sentences of one voice in a part, end to end in one file, and cut it into utterances."""
    sentences = part.sentences[part.voices.index(voice) :: len(part.voices)]
    name = f"{part.name}-{voice}"
    stream = f"{OLD_NAMES.get(part.name, part.name)}-{voice}"  # the old names keep the corpus the same
    rng = np.random.default_rng([part.seed, zlib.crc32(stream.encode())])
    utterances = record(sentences, voice, part.conditions, rng)
    audio = np.concatenate(utterances)
    file, content = work / "audio" / f"{name}.wav", spoken.wav_bytes(audio)
    with writing(file, len(content)):
        file.write_bytes(content)
    recording = recording_at(out / "audio" / f"{name}.wav", len(audio))
    cuts, start = [], 0
    for number, (text, samples) in enumerate(zip(sentences, utterances, strict=True)):
        begin, seconds = start / SAMPLE_RATE, len(samples) / SAMPLE_RATE
        cut_name = f"{name}-{number:04d}"
        cuts.append(utterance(cut_name, recording, text, voice, "en", start=begin, duration=seconds))
        start += len(samples)
    return cuts


def record(
    sentences: Sequence[str], voice: str, conditions: Conditions, rng: np.random.Generator
) -> list[npt.NDArray[np.int16]]:
    """Synthesize the sentences in one voice, each in its own conditions; 16 kHz, 16 bits, each (N,)."""
    drawn = [
        [int(rng.integers(*bounds, endpoint=True)) for bounds in (conditions.rate, conditions.pitch)]
        for _ in sentences
    ]
    requests = [(text, voice, rate, pitch) for text, (rate, pitch) in zip(sentences, drawn, strict=True)]
    return [_in_conditions(speech, conditions, rng) for speech in spoken.speak(requests)]


def _in_conditions(
    speech: spoken.Samples, conditions: Conditions, rng: np.random.Generator
) -> npt.NDArray[np.int16]:
    """Set the level and add pauses and noise, without clipping."""
    around = spoken.silence_around(speech, conditions.pause, rng)
    level = spoken.amplitude(rng.uniform(*conditions.level))
    noise_level = level / spoken.amplitude(rng.uniform(*conditions.snr))
    return spoken.in_noise(np.pad(speech * (level / spoken.rms(speech)), around), noise_level, rng)


def _publish(work: Path, out: Path, settings: Settings) -> None:
    """Move the finished files to their places; the settings, which mark the corpus as complete, come last."""
    for item in sorted(work.iterdir()):
        target = out / item.name
        if target.is_dir():  # left by a run that was stopped at this point
            shutil.rmtree(target)
        os.replace(item, target)
    replace_text(out / SETTINGS, json.dumps(settings, indent=2) + "\n")
    work.rmdir()
