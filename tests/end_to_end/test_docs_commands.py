"""Every command and example of the README and of docs/, run as it is written, each page in a folder of its own.

What the pages name is there: a finished demo, recordings, a Hub. So that it takes minutes, trainings make few updates,
and what is no demo is tiny: the `priormatch` on the path adds the settings for that. Blocks that are not run tell why
on their page, and tests/test_docs.py lists them.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
from doc_blocks import PAGES, PYTHON, ROOT, Block, runnable
from hub_stub import TOKEN, Hub, Repository, running_hub
from lhotse import Recording, RecordingSet, SupervisionSegment, SupervisionSet
from tiny_language import speak
from tiny_run import make_folders

pytest.importorskip("espeakng_loader")

FEW = (
    "training.updates=100 prior.updates=50 matching.updates=20 matching.refresh_every=10"
    " matching.max_proposal_cer=1000 model.longest_output=20"
)
TINY = (
    "tokenizer.pieces=31 model.n_mels=20 model.channels=[4,6] model.blocks=[1,1] model.kernel=5 model.size=48"
    " prior.model.embedding=12 prior.model.width=8 prior.model.bottlenecks=[[4,8,1]] prior.model.head=10"
    " matching.length_filter=[] model.conformer.width=16 model.conformer.layers=2"
    " training.batch.seconds=30 matching.batch.seconds=30"
)
LENIENT = "from priormatch.pipeline import match; match.require_fit = lambda cer, most: None\n"
"""For examples in Python: after so few updates no recognizer is fit to propose."""
LAUNCHER = f"""#!/bin/sh
case $1 in
    demo | train | train-prior | match) set -- "$@" {shlex.join(FEW.split())} ;;
    run) set -- "$@" {shlex.join([*FEW.split(), *TINY.split()])} ;;
esac
exec {shlex.quote(sys.executable)} -c 'from priormatch.cli import main; main()' "$@"
"""


def lay_out_clone(root: Path) -> None:
    """What a clone has, its virtual environment reduced to our own Python."""
    shutil.copy(ROOT / "Makefile", root)
    shutil.copytree(ROOT / "recipes", root / "recipes")
    programs = root / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "priormatch").write_text(LAUNCHER)
    (programs / "priormatch").chmod(0o755)
    (programs / "activate").write_text('PATH="$PWD/.venv/bin:$PATH"\n')


def lay_out_speech(root: Path) -> None:
    """A, B and C, and an utterance in every format that is read."""
    import datasets

    make_folders(root / "own")
    for name, letter in (("labeled", "A"), ("unlabeled", "B")):
        (root / "own" / name).rename(root / letter)
    (root / "C").mkdir()
    (root / "own/text.txt").rename(root / "C/text.txt")

    for folder, text in (("recordings/ann", "Hello!"), ("deutsch", "Schöne Grüße")):
        (root / folder).mkdir(parents=True)
        soundfile.write(root / folder / "one.wav", speak("monday at ten with doctor"), 16_000)
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


def lay_out_talks(root: Path) -> None:
    """Recordings in the demo's domain, to be transcribed."""
    samples, rate = soundfile.read(
        next((root / "runs/demo/data/audio").glob("test-seen-*.wav")), frames=160_000
    )
    (root / "talks").mkdir()
    for name in ("talks/one.wav", "talks/two.flac", "talk.mp3", "speech.wav"):
        soundfile.write(root / name, samples, rate)


def run(
    home: Path, words: list[str], hub: Hub | None = None, code: str = ""
) -> subprocess.CompletedProcess[str]:
    """A program as a reader would start it: in the folder, with what `make` has set up on the path."""
    environment = {
        **os.environ,
        "PATH": f"{home / '.venv/bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHON": "true",  # `make` has nothing to set up
        "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9",
        "HF_HOME": str(home / ".cache"),
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",  # the Hub here knows plain uploads alone
        "HF_TOKEN": TOKEN,
    }
    return subprocess.run(words, cwd=home, env=environment, input=code, capture_output=True, text=True)


def run_block(home: Path, block: Block, hub: Hub) -> None:
    """Run a block, which must succeed and leave what its options `--out` name."""
    if block.kind == PYTHON:
        ended = run(home, [sys.executable, "-"], hub, LENIENT + block.code)
    else:
        ended = run(home, ["bash", "-eu", "-s"], hub, block.code)
    said = f"{block}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert ended.returncode == 0, said
    if block.kind != PYTHON:
        given = shlex.split(block.code, comments=True)
        promised = [given[at + 1] for at, word in enumerate(given) if word == "--out"]
        assert all((home / name).exists() for name in promised), said


def link_audio(source: str, target: str) -> None:
    """Copy a file, but share the large ones that nobody writes to."""
    if source.endswith(".wav"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A clone after `make demo`, with a second run, and with data of one's own beside them."""
    root = tmp_path_factory.mktemp("clone")
    lay_out_clone(root)
    lay_out_speech(root)
    ended = run(root, ["make", "demo"])
    assert ended.returncode == 0, ended.stderr[-3000:]
    shutil.copytree(root / "runs/demo", root / "runs/demo-1", copy_function=link_audio)
    lay_out_talks(root)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def home(laid_out: Path) -> Iterator[Path]:
    """A copy of it for one page."""
    folder = laid_out.with_name("home")
    shutil.copytree(laid_out, folder, copy_function=link_audio)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def hub(laid_out: Path) -> Iterator[Hub]:
    """A Hub to which somebody has pushed a prior."""
    with running_hub() as hub:
        files = {path.name: path.read_bytes() for path in (laid_out / "runs/demo/prior/model").iterdir()}
        hub.repositories["ann/meetings-prior"] = Repository(private=False)
        hub.repositories["ann/meetings-prior"].commit("main", files)
        yield hub


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_as_they_are_written(page: Path, home: Path, hub: Hub) -> None:
    for block in runnable(page):
        run_block(home, block, hub)
