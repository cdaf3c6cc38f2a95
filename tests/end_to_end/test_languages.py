"""Languages other than English, from their own formats and letters to transcripts."""

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny_run import RECIPE, command

from priormatch.data.normalizer import Normalizer, normalizer_in
from priormatch.data.tokenizer import Tokenizer
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer

GERMAN = ["Grüße", "Straße", "größer", "Äpfel", "über", "schön"]
RUSSIAN = ["Ёлка", "мой", "день", "объём", "щи", "эхо"]


def sentences(words: list[str], count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words, random.integers(1, 5))) for _ in range(count)]


def speak(words: list[str], text: str) -> np.ndarray:
    """Each word is a tone of its own."""
    time = np.arange(3200) / 16_000
    return np.concatenate(
        [0.3 * np.sin(2 * np.pi * (250 + 400 * words.index(word)) * time) for word in text.split()]
    )


def write_kaldi(folder: Path, words: list[str], texts: list[str], transcribed: bool) -> None:
    folder.mkdir()
    names = [f"s{number % 4}-{number}" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        soundfile.write(folder / f"{name}.wav", speak(words, text), 16_000)
    (folder / "wav.scp").write_text("".join(f"{name} {name}.wav\n" for name in names))
    (folder / "utt2spk").write_text("".join(f"{name} {name[:2]}\n" for name in names))
    if transcribed:
        decomposed = (unicodedata.normalize("NFD", f"«{text}!»") for text in texts)
        lines = "".join(f"{name} {text}\n" for name, text in zip(names, decomposed, strict=True))
        (folder / "text").write_text(lines, encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "alphabet"),
    [(GERMAN, ""), (RUSSIAN, "абвгдеёжзийклмнопрстуфхцчшщъыьэюя")],
    ids=["german", "russian"],
)
def test_a_run(
    words: list[str],
    alphabet: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(RECIPE)
    write_kaldi(tmp_path / "labeled", words, sentences(words, 24, 1), True)
    write_kaldi(tmp_path / "unlabeled", words, sentences(words, 12, 2), False)
    foreign = "中文\n" if alphabet else ""
    Path("text.txt").write_text("".join(f"{text}\n" for text in sentences(words, 80, 3)) + foreign)
    overrides = [
        "language.normalizer=unicode",
        f"language.alphabet={alphabet}",
        "tokenizer.pieces=26",
        "training.updates=20",
        "prior.updates=10",
        "matching.updates=4",
    ]
    data = ("labeled=labeled", "unlabeled=unlabeled", "text=text.txt")
    assert command("run", "tiny.yaml", *data, *overrides) == 0
    said = capsys.readouterr().err
    assert "labeled: a Kaldi folder" in said
    assert bool(alphabet) == ("sentences with letters not in the alphabet left out: 1" in said)

    run = tmp_path / "runs/tiny"
    normalizer = Normalizer("unicode", alphabet)
    written = {normalizer(word) for word in words}
    assert {*(run / "data/text.txt").read_text().split()} <= written
    for folder in (run / "tokenizer", run / "prior/model", run / "lpm/model"):
        assert normalizer_in(folder) == normalizer
    tokenizer = Tokenizer.load(run / "tokenizer")
    assert all(tokenizer.decode(tokenizer.encode(word)) == word for word in written)
    assert SpeechRecognizer.load(run / "lpm/model").tokenizer.normalizer == normalizer
    assert ConvPrior.load(run / "prior/model").tokenizer == tokenizer

    (decoded,) = (run / "decoded/lpm").glob("*.jsonl")
    for line in decoded.read_text().splitlines():
        entry = json.loads(line)
        assert {*entry["reference"].split()} <= written
        assert {*entry["hypothesis"]} <= {*"".join(written), " "}


@pytest.mark.slow
@pytest.mark.parametrize(("voice", "words"), [("de", GERMAN), ("ru", RUSSIAN)])
def test_spoken_words_are_learned_and_written_in_their_own_letters(
    voice: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("espeakng_loader")
    from priormatch.prepare import spoken

    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(RECIPE)
    lines = []
    given = sentences(words, 120, 1)
    heard = spoken.speak([(text, voice, 170, 40 + number % 20) for number, text in enumerate(given)])
    for number, (text, samples) in enumerate(zip(given, heard, strict=True)):
        soundfile.write(tmp_path / f"{number}.wav", samples, 16_000)
        entry = {"audio_filepath": f"{number}.wav", "text": text, "speaker": f"s{number % 5}"}
        lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    Path("mine.jsonl").write_text("".join(lines), encoding="utf-8")
    Path("text.txt").write_text("".join(f"{text}\n" for text in sentences(words, 80, 3)))
    data = ("labeled=mine.jsonl", "unlabeled=mine.jsonl", "text=text.txt")
    longer = (
        "training.updates=1000",
        "training.validate_every=100",
        "model.n_mels=40",
        "tokenizer.pieces=26",
    )
    assert command("run", "tiny.yaml", *data, *longer, "language.normalizer=unicode") == 0
    results = json.loads((tmp_path / "runs/tiny/results.json").read_text())
    assert results["systems"]["supervised"]["validation"]["cer"] < 30
