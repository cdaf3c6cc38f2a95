"""Words with times and confidences, from the CTC output."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from tiny_language import speak

from priormatch.config import ModelSettings
from priormatch.data.clips import Clip
from priormatch.data.tokenizer import MARK, Tokenizer, train_tokenizer
from priormatch.recognizers.formats import Origin, cues_of, to_json
from priormatch.recognizers.heads import Frames
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import (
    Segment,
    Token,
    Transcription,
    Word,
    align_words,
    in_recording,
    words_of,
)


def test_words_last_from_the_end_of_the_previous_word_to_that_of_their_last_token() -> None:
    tokens = [Token(f"{MARK}do", 2, 3, 0.9), Token("ctor", 5, 6, 0.4), Token(f"{MARK}ten", 10, 12, 1.0)]
    doctor, ten = words_of(tokens, 0.04)
    assert (doctor.text, ten.text) == ("doctor", "ten")
    # Frame 2 lasts 20 ms on either side of the middle of its window, 92.5 ms.
    assert (doctor.start, doctor.end) == pytest.approx((0.0725, 0.2325))
    assert doctor.confidence == pytest.approx(math.sqrt(0.9 * 0.4))
    assert ten.start == doctor.end
    assert ten.end == pytest.approx(0.4725)
    assert ten.confidence == 1.0


def test_a_mark_of_its_own_belongs_to_the_start_of_the_next_word() -> None:
    tokens = [Token(piece, at, at + 1, 0.5) for at, piece in enumerate([MARK, "a", "t", MARK, MARK, "i"])]
    at, i = words_of(tokens, 0.08)
    assert (at.text, i.text) == ("at", "i")
    assert [at.start, at.end, i.start, i.end] == pytest.approx([0.0525, 0.2125, 0.2125, 0.4525])
    assert words_of([Token(MARK, 0, 1, 0.5)], 1.0) == words_of([], 1.0) == []


def test_no_word_begins_before_the_first_sample() -> None:
    (word,) = words_of([Token(f"{MARK}ten", 0, 1, 0.5)], 0.08)
    assert word.start == 0.0


def test_words_of_a_hand_made_alignment() -> None:
    tokenizer = train_tokenizer(["at ten"], 0, kind="characters")
    model = SpeechRecognizer(ModelSettings(n_mels=20, channels=[2, 3], blocks=[1, 1], kind="ctc"), tokenizer)
    emitted = [MARK, "a", "t", "", MARK, "", "t", "e", "", "n", "n", ""]  # "" is a blank
    classes = [tokenizer.pieces.index(piece) if piece else tokenizer.eos for piece in emitted]
    log_q = torch.nn.functional.one_hot(torch.tensor([classes]), tokenizer.classes).float() * 20
    labels = torch.tensor([[*tokenizer.encode("at ten"), tokenizer.eos]])
    model.ctc = cast(torch.nn.Linear, torch.nn.Identity())
    frames = Frames(log_q, torch.tensor([len(classes)]))
    ((at, ten),) = align_words(model, frames, labels, torch.tensor([labels.shape[1]]))
    assert (at.text, ten.text) == ("at", "ten")
    assert [at.start, at.end, ten.start, ten.end] == pytest.approx([0.0325, 0.1125, 0.1125, 0.4325])


def test_pauses_belong_to_no_word() -> None:
    tone = 0.1 * np.sin(np.arange(16_000 * 2) * 0.3)
    time = np.arange(len(tone)) / 16_000
    quiet = (time < 0.3) | ((time > 0.8) & (time < 0.86)) | ((time > 1.1) & (time < 1.4)) | (time > 1.7)
    samples = np.where(quiet, 1e-4, 1.0) * tone + np.random.default_rng(0).normal(0, 1e-4, len(tone))
    words = [Word(0.1, 0.83, "monday", 1.0), Word(0.83, 1.3, "at", 1.0), Word(1.3, 1.9, "nine", 1.0)]
    found = list(in_recording(words, Clip(10.0, samples.astype(np.float32))))
    times = [time for word in found for time in (word.start, word.end)]
    assert times == pytest.approx(
        [10.3, 10.83, 10.83, 11.1, 11.4, 11.7], abs=0.04
    )  # levels are averaged over 50 ms
    silence = Clip(10.0, np.zeros(32_000, np.float32))
    assert [each.end for each in in_recording(words, silence)] == pytest.approx([10.83, 11.3, 11.9])


def test_a_text_that_begins_within_a_word_has_it_too() -> None:
    assert [
        each.text for each in words_of([Token("ten", 0, 1, 0.5), Token(f"{MARK}at", 1, 2, 0.5)], 1.0)
    ] == ["ten", "at"]


Make = Callable[[str, float], SpeechRecognizer]


@pytest.fixture
def make(tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer) -> Make:
    def made(kind: Any, weight: float) -> SpeechRecognizer:
        torch.manual_seed(3)
        settings = replace(tiny_model_settings, kind=kind, ctc_weight=weight)
        return SpeechRecognizer(settings, tiny_tokenizer).eval()

    return made


@pytest.mark.parametrize(("kind", "weight"), [("ctc", 0.0), ("hybrid", 0.3)])
def test_segments_have_their_words_in_order_and_within_their_time(
    make: Make, kind: str, weight: float
) -> None:
    silence = np.zeros(16_000)
    sound = np.concatenate([silence, speak("monday at nine"), silence, speak("doctor ten"), silence])
    found = make(kind, weight).transcribe(sound.astype(np.float32))
    assert found.segments
    for segment in found.segments:
        assert " ".join(word.text for word in segment.words) == segment.text
        times = [time for word in segment.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert segment.start <= times[0] and times[-1] <= segment.end + 1e-9
        assert all(0 < word.confidence <= 1 for word in segment.words)


@pytest.mark.parametrize("kind", ["attention", "hybrid"])
def test_a_search_by_attention_gives_no_words(make: Make, kind: str) -> None:
    found = make(kind, 0.0).transcribe(speak("monday at nine").astype(np.float32))
    assert all(segment.words == () for segment in found.segments)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("encoder", ["conformer", "tds"])
def test_word_times_are_close_to_those_of_synthetic_speech(encoder: str) -> None:
    pytest.importorskip("espeakng_loader")
    benchmark = Path(__file__).parents[2] / "benchmarks/word_times.py"
    words = [sys.executable, str(benchmark), "--encoder", encoder, "--sentences", "80", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for edge in ("start", "end"):
        assert found[edge]["count"] > found["words"] / 2
        assert found[edge]["percent_within_80_ms"] >= 90


WORDS = (Word(1.0, 1.5, "hello", 0.75), Word(1.62, 2.25, "there", 0.5))


def test_json_has_words_where_they_are_known() -> None:
    segments = [Segment(0.5, 2.5, "hello there", 0.25, WORDS), Segment(3.0, 4.0, "bye", 0.5)]
    told = json.loads(to_json(Origin("a.wav", "m"), Transcription(5.0, segments)))
    assert told["segments"][0]["words"][1] == {"start": 1.62, "end": 2.25, "text": "there", "confidence": 0.5}
    assert "words" not in told["segments"][1]


def test_cues_last_from_their_first_word_to_their_last() -> None:
    (cue,) = cues_of(Transcription(5.0, [Segment(0.5, 2.5, "hello there", 0.25, WORDS)]))
    assert (cue.start, cue.end) == (1.0, 2.25)
    many = tuple(Word(float(n), n + 0.5, f"word{n}", 0.5) for n in range(40))
    text = " ".join(word.text for word in many)
    cues = list(cues_of(Transcription(60.0, [Segment(0.0, 50.0, text, 0.5, many)])))
    assert len(cues) > 2
    first = 0
    for cue in cues:
        count = len(cue.text.split())
        assert (cue.start, cue.end) == (many[first].start, many[first + count - 1].end)
        first += count
    assert first == 40
