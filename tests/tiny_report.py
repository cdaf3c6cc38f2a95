"""A run's folder as `priormatch run` leaves it, written by hand in no time: for the tests of the report."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import yaml
from lhotse import CutSet, Recording

from priormatch.data.manifest import utterance
from priormatch.matching.hypotheses import Hypothesis, Inspection
from priormatch.scoring.alignment import align
from priormatch.scoring.transcripts import Transcript, write_transcripts
from priormatch.training.inspected import Inspected, to_line

SAID = ["meeting at nine", "doctor at ten", "monday morning", "tuesday"]
HEARD = {
    "supervised": ["meeting at ten", "doctor with ten", "monday morning", "monday"],
    "lpm": ["meeting at nine", "doctor at ten", "monday morning", "monday"],
    "topline": SAID,
}
SCRIPT = "<script>alert(1)</script>"


def matching_lines(updates: int = 40) -> list[dict]:
    """Metrics of matching: three validations, the second of which refreshes the proposal."""
    reports = [
        {
            "stage": "lpm",
            "update": update,
            "loss": 5.0 - update / 10,
            "local_prior_entropy": 0.4,
            "survivors": 3.5,
            "share_without_survivor": 0.1,
            "length_ratio": 1.0,
            "skipped": 0.0,
        }
        for update in range(10, updates + 1, 10)
    ]
    decisions = [(0, 20.0, 20.0, False, 30.0), (20, 15.0, 15.0, True, 22.0), (40, 16.0, 15.0, False, None)]
    for update, online, proposal, taken, label_wer in decisions:
        line = {"stage": "lpm", "update": update, "validation_score": online, "proposal_cer": proposal}
        line |= {"validation": {"dev": {"wer": online * 2, "cer": online}}, "proposal_refreshed": taken}
        reports.append(line | ({} if label_wer is None else {"label_wer": label_wer}))
    return reports


def write_metrics(folder: Path, lines: list[dict]) -> None:
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def make_cut(folder: Path, number: int, seconds: float = 0.5, name: str = "u", speaker: str = "ann") -> Any:
    path = folder / "audio" / f"{number}.wav"
    path.parent.mkdir(parents=True, exist_ok=True)
    time = np.arange(round(seconds * 16_000)) / 16_000
    soundfile.write(path, 0.3 * np.sin(2 * np.pi * 440 * time), 16_000)
    recording = Recording.from_file(path, recording_id=f"{name}{number}")
    return utterance(recording.id, recording, None, speaker, "English")


def beam(name: str, said: str | None, texts: list[str], dropped: str | None = None) -> Inspection:
    """A beam whose first hypothesis has all the weight; the last is dropped where there is a reason."""
    hypotheses = [
        Hypothesis(
            rank,
            text,
            text.split(),
            -float(rank),
            -2.0 * rank,
            float(rank == 1),
            dropped if rank == len(texts) else None,
            None if said is None else align(said, text),
        )
        for rank, text in enumerate(texts, 1)
    ]
    return Inspection(name, said, None if said is None else -3.0, 4, True, hypotheses)


def write_inspected(folder: Path, utterances: int = 3) -> None:
    """Beams of some utterances, better at update 20 than at the start; the second has hostile texts."""
    lines = []
    for update, said_first in ((0, False), (20, True)):
        for number in range(utterances):
            said = SCRIPT if number == 1 else SAID[number % len(SAID)]
            texts = [f"{said} with", said, "at"]
            found = beam(f"u{number}", said, texts[1:] if said_first else texts, "too short, 2 for 4")
            lines.append(to_line(Inspected(update, make_cut(folder, number).to_dict(), found)))
    (folder / "lpm").mkdir(exist_ok=True)
    (folder / "lpm" / "inspected.jsonl").write_text("".join(lines))


def write_stage(folder: Path, name: str, finished: bool = True) -> None:
    stage = folder / name
    stage.mkdir(parents=True, exist_ok=True)
    record = {"finished": finished, "seconds": 61.0, "peak_memory_mb": 1234.0, "device": "CPU", "recipe": {}}
    (stage / "stage.json").write_text(json.dumps(record | {"versions": {"commit": "abc123"}}))


def make_run(folder: Path, name: str = "tiny", finished: bool = True) -> Path:
    """A run of which everything is there."""
    folder.mkdir(parents=True)
    settings = {"name": name, "training": {"seed": 7, "updates": 30}, "matching": {"beam_size": 4}}
    (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
    prior = [{"stage": "prior", "update": 10, "loss": 3.0, "perplexity": 8.0, "validation_score": 8.0}]
    write_metrics(folder, prior + matching_lines())
    write_inspected(folder)
    CutSet.from_cuts([make_cut(folder, 0), make_cut(folder, 1)]).to_file(folder / "unlabeled.jsonl.gz")
    (folder / "data").mkdir()
    (folder / "unlabeled.jsonl.gz").rename(folder / "data" / "unlabeled.jsonl.gz")
    tested = [make_cut(folder, i, name="t", speaker=("bea", "<carl>")[i % 2]) for i in range(len(SAID))]
    CutSet.from_cuts(tested).to_file(folder / "data" / "test.jsonl.gz")
    (folder / "data" / "text.txt").write_text("one\ntwo\nthree\n")
    for stage in ("data", "prior", "lpm"):
        write_stage(folder, stage)
    for system, heard in HEARD.items():
        rows = zip(heard, SAID, strict=True)
        transcripts = [Transcript(f"t{i}", text, 3, said, []) for i, (text, said) in enumerate(rows)]
        (folder / "decoded" / system).mkdir(parents=True)
        write_transcripts(folder / "decoded" / system / "test.jsonl", transcripts)
    if finished:
        results = {"finished": "2026-01-02T03:04:05Z", "peak_memory_mb": 2345.0, "notes": ["mind the gap"]}
        (folder / "results.json").write_text(json.dumps(results))
    return folder
