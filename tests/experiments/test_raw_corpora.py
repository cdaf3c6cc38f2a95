"""From corpora as they are released to rows of tables, by the commands that the recipe of the paper's scale names."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from test_study import KEPT, TINY
from tiny_language import WORD_SECONDS, sentences, speak
from tiny_run import command

from priormatch.config import recipe_path
from priormatch.data.corpus import cut_text, read_cuts
from priormatch.experiments.scales import light_files, wanted_files
from priormatch.recognizers.recognizer import SpeechRecognizer

SUBSETS = "train-clean-100 train-clean-360 train-other-500 dev-clean dev-other test-clean test-other".split()  # noqa: SIM905
RATE, PAUSE = 16_000, 0.5


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """LibriSpeech, Libri-Light and the books of the language model, as they are unpacked, in the folder at work."""
    monkeypatch.chdir(tmp_path)
    for number, subset in enumerate(SUBSETS):
        for speaker in (100 + number, 200 + number):
            write_chapter(tmp_path / "LibriSpeech" / subset, speaker, 3000 + number)
    (tmp_path / "LibriSpeech/README.TXT").write_text("The LibriSpeech corpus\n")
    (tmp_path / "LibriSpeech/BOOKS.TXT").write_text(";ID   |TITLE\n84     | Read Aloud\n85 | Another\n")
    for number, subset in enumerate(("small", "medium", "large")):
        write_long_chapter(tmp_path / "libri-light" / subset, 300 + number)
    for book in (84, 1342, 2701):
        write_book(tmp_path / f"librispeech-lm-corpus/corpus/{book}/{book}.txt", book)
    return tmp_path


def write_chapter(subset: Path, speaker: int, chapter: int) -> None:
    """Utterances of a chapter of LibriSpeech, and their transcripts in capitals."""
    folder, lines = subset / str(speaker) / str(chapter), []
    folder.mkdir(parents=True)
    for number, text in enumerate(sentences(3, seed=speaker, most_words=3)):
        name = f"{speaker}-{chapter}-{number:04d}"
        soundfile.write(folder / f"{name}.flac", speak(text, RATE), RATE)
        lines.append(f"{name} {text.upper()}\n")
    (folder / f"{speaker}-{chapter}.trans.txt").write_text("".join(lines))


def write_long_chapter(subset: Path, speaker: int) -> None:
    """A chapter of Libri-Light, with the voice activity beside it."""
    folder, pause = subset / str(speaker) / "a_book_librivox_64kb_mp3", np.zeros(round(PAUSE * RATE))
    folder.mkdir(parents=True)
    sound, speech, at = [], [], 0.0
    for text in sentences(3, seed=speaker):
        seconds = WORD_SECONDS * len(text.split())
        speech.append([at, at + seconds])
        sound += [speak(text, RATE), pause]
        at += seconds + PAUSE
    soundfile.write(folder / "01_a_book_64kb.flac", np.concatenate(sound), RATE)
    about = {"speaker": str(speaker), "book_meta": {"id": "9"}, "snr": 11.2, "voice_activity": speech}
    (folder / "01_a_book_64kb.json").write_text(json.dumps(about))


def write_book(file: Path, number: int) -> None:
    """A book of the language model's corpus; the one that LibriSpeech reads says one sentence over and over."""
    texts = ["nine with ten"] * 9 if number == 84 else sentences(60, seed=number)
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(f"{text.capitalize()}." for text in texts) + "\n")


def documented() -> list[str]:
    """The commands in the head of the recipe, without what it says of them in brackets."""
    head = recipe_path("table-paper").read_text().split("\nname:")[0]
    return [re.sub(r"\s+\(.*\)$", "", line) for line in re.findall(r"^#   (\S.*)$", head, re.MULTILINE)]


def run(line: str) -> None:
    """Run a documented command, which succeeds."""
    if line.startswith("priormatch "):
        assert command(*shlex.split(line)[1:]) == 0, line
    else:
        subprocess.run(line, shell=True, check=True)


def test_the_documented_commands_lead_from_the_released_corpora_to_rows_of_tables(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = documented()
    assert {"librispeech", "librilight", "text"} <= {word for line in lines for word in line.split()}
    for line in lines:
        run(line)
    data = corpora / "data/librispeech"
    assert {each.name for each in data.iterdir()} == {*wanted_files("paper"), *light_files("paper")}
    spoken = {name: [cut_text(cut) for cut in read_cuts(data / f"{name}.jsonl.gz")] for name in SUBSETS}
    assert spoken["dev-other"] == [*sentences(3, 104, 3), *sentences(3, 204, 3)]
    validated = (data / "text-validation.txt").read_text().splitlines()
    assert validated == [*spoken["dev-clean"], *spoken["dev-other"]]
    assert len((data / "text.txt").read_text().splitlines()) == 2 * 60, "the book read aloud is left out"

    capsys.readouterr()
    words = ("2:13", "7:13", "--scale", "paper", "--data", "data/librispeech", *TINY, *KEPT)
    assert command("table", *words) == 0
    assert "not run" not in capsys.readouterr().err
    runs = corpora / "runs/table-paper"
    clean, light = sorted((runs / "seed-0/systems").iterdir())
    assert (clean.name, light.name.startswith("matched-light-")) == ("matched-clean", True)
    assert SpeechRecognizer.load(light / "lpm/model").settings.blocks == [2, 3, 6]
    page = (runs / "tab2_beam_mix-rows-13.tsv").read_text().splitlines()
    assert "NA" not in page[1]
    page = (runs / "tab7_main-rows-13.tsv").read_text().splitlines()
    measured = dict(zip(*(line.split("\t") for line in page), strict=True))
    assert float(measured["ours_test_other_wer_seed0"]) > 0
