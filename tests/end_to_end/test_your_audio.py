"""The commands of docs/your-audio.md, as they are written there, on audio laid out as it says."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from tiny_run import command

PAGE = Path(__file__).parents[2] / "docs" / "your-audio.md"
COMMANDS = re.findall(r"^priormatch .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    root = tmp_path_factory.mktemp("your-audio")
    for folder, text in (("recordings/ann", "Hello!"), ("deutsch", "Schöne Grüße")):
        (root / folder).mkdir(parents=True)
        soundfile.write(root / folder / "one.wav", np.zeros(16_000), 16_000)
        (root / folder / "one.txt").write_text(text, encoding="utf-8")
    wav = root / "recordings/ann/one.wav"
    (root / "buch.txt").write_text("Es war größer. Ende!", encoding="utf-8")
    (root / "calls.csv").write_text("path,text\nrecordings/ann/one.wav,Hello\n")
    (root / "kaldi/train").mkdir(parents=True)
    (root / "kaldi/train/wav.scp").write_text("one recordings/ann/one.wav\n")
    (root / "nemo.jsonl").write_text(json.dumps({"audio_filepath": "recordings/ann/one.wav", "duration": 1}))
    (root / "lhotse").mkdir()
    recording = Recording.from_file(wav, recording_id="one")
    RecordingSet.from_recordings([recording]).to_file(root / "lhotse/x_recordings_y.jsonl.gz")
    spoken = SupervisionSegment("u", "one", 0, 0.5, text="hello")
    SupervisionSet.from_segments([spoken]).to_file(root / "lhotse/x_supervisions_y.jsonl.gz")
    rows = datasets.Dataset.from_dict({"audio": [{"bytes": wav.read_bytes(), "path": "one.wav"}]})
    datasets.DatasetDict({"train": rows}).save_to_disk(root / "corpus")
    return root


def test_the_page_has_a_command_for_every_format():
    assert len(COMMANDS) == 8


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line, home, monkeypatch, capsys):
    monkeypatch.chdir(home)
    words = shlex.split(line)[1:]
    assert command(*words) == 0
    said = capsys.readouterr().out
    assert "utterance" in said or "sentences" in said
    assert Path(words[words.index("--out") + 1]).is_file()
