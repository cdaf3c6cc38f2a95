"""A folder of all kinds of recordings in the demo's domain, transcribed by a recognizer that the demo has trained."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.signal import butter, resample_poly, sosfilt
from tiny_run import command

from priormatch import SpeechRecognizer
from priormatch.scoring.error_rates import word_errors

pytest.importorskip("espeakng_loader")

RATE = 16_000
MOST_ERRORS = {"hour": 12.0, "phone": 60.0, "talk": 18.0, "stereo": 18.0}
"""The highest word error rates in percent; no telephone was heard in training."""


class Speakers:
    """People who say sentences that the demo's corpus does not have, with pauses between them."""

    def __init__(self, corpus: Path) -> None:
        from priormatch.prepare.demo_grammar import draw_sentences

        known = {line for name in ("text", "text-validation") for line in (corpus / f"{name}.txt").open()}
        drawn = draw_sentences(12_000, random.Random("recordings"))
        self.sentences = iter([each for each in drawn if f"{each}\n" not in known])
        self.rng = np.random.default_rng(0)

    def talk(self, seconds: float) -> tuple[np.ndarray, str]:
        """Samples at 16 kHz for so many seconds, and what is said in them."""
        from priormatch.prepare.demo import SEEN, SEEN_VOICES, record

        parts: list[np.ndarray] = []
        said: list[str] = []
        while sum(map(len, parts)) < seconds * RATE:
            turn = [next(self.sentences) for _ in range(5)]
            voice = SEEN_VOICES[len(said) % len(SEEN_VOICES)]
            parts += record(turn, voice, replace(SEEN, pause=(0.3, 0.8)), self.rng)
            said += turn
        return np.concatenate(parts) / 32768, " ".join(said)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's corpus, and the recognizer it trains on its labeled part."""
    root = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        demo = ("--recipe", "demo")
        assert command("prepare", "demo", "--out", "data") == 0
        assert command("tokenizer", "--text", "data/text.txt", "--out", "tokenizer", *demo) == 0
        sets = ("--labeled", "data/labeled.jsonl.gz", "--validation", "data/validation-seen.jsonl.gz")
        assert command("train", *sets, "--tokenizer", "tokenizer", "--out", "sup", *demo) == 0
    return root


@pytest.fixture(scope="module")
def spoken(trained: Path) -> dict[str, str]:
    """The folder `speech`, and what is said in its recordings."""
    folder, speakers = trained / "speech", Speakers(trained / "data")
    (folder / "more").mkdir(parents=True)
    hour, phone, talk, stereo = (speakers.talk(seconds) for seconds in (3600, 120, 120, 120))
    soundfile.write(folder / "hour.wav", hour[0], RATE)
    band = butter(4, [300, 3400], "bandpass", fs=8000, output="sos")
    soundfile.write(folder / "phone.wav", sosfilt(band, resample_poly(phone[0], 1, 2)), 8000, subtype="ULAW")
    soundfile.write(folder / "more/talk.mp3", talk[0], RATE)
    wide = resample_poly(stereo[0], 441, 160)
    soundfile.write(folder / "stereo.flac", np.stack([0.2 * wide, 0.8 * wide], axis=1), 44_100)
    soundfile.write(folder / "silent.wav", np.random.default_rng(0).normal(0, 1e-3, 60 * RATE), RATE)
    (folder / "text.wav").write_text("this is no audio\n")
    (folder / "empty.wav").write_bytes(b"")
    return {"hour": hour[1], "phone": phone[1], "talk": talk[1], "stereo": stereo[1], "silent": ""}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_folder_of_all_kinds_of_recordings(
    trained: Path, spoken: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(trained)
    formats = ("--format", "json", "--format", "srt")
    assert command("transcribe", "sup/model", "speech", "--out", "out", *formats) == 1
    said = capsys.readouterr().err
    assert "5 recordings transcribed, 1 of them without speech" in said
    assert "2 recordings could not be read:" in said
    assert "  speech/text.wav: cannot be opened: Format not recognised\n" in said
    assert "  speech/empty.wav: the file is empty\n" in said

    found = {path.stem: json.loads(path.read_text()) for path in Path("out").rglob("*.json")}
    assert found.keys() == spoken.keys()
    assert found["silent"]["segments"] == []
    rates = {name: word_errors([spoken[name]], [found[name]["text"]]).rate for name in MOST_ERRORS}
    assert all(rates[name] <= most for name, most in MOST_ERRORS.items()), rates
    assert found["hour"]["duration"] >= 3600
    assert Path("out/hour.srt").read_text().count(" --> ") >= len(found["hour"]["segments"]) > 600


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("phone.wav", 0),
        ("more/talk.mp3", 0),
        ("stereo.flac", 0),
        ("silent.wav", 0),
        ("text.wav", 1),
        ("empty.wav", 1),
        ("absent.wav", 2),
    ],
)
def test_the_exit_code_of_each(
    trained: Path,
    spoken: dict[str, str],
    name: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(trained)
    assert command("transcribe", "sup/model", f"speech/{name}") == code
    expected = code == 0 and name != "silent.wav"
    assert bool(capsys.readouterr().out) == expected


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_same_from_python(trained: Path, spoken: dict[str, str]) -> None:
    model = SpeechRecognizer.load(trained / "sup/model")
    found = model.transcribe(trained / "speech/more/talk.mp3")
    assert word_errors([spoken["talk"]], [found.text]).rate <= MOST_ERRORS["talk"]
    samples, rate = soundfile.read(trained / "speech/more/talk.mp3")
    assert model.transcribe(samples, rate).text == found.text
