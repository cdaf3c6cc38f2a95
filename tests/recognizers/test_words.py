"""Words with times and confidences, from the CTC output."""

import json
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_language import speak

from priormatch.config import ModelSettings
from priormatch.data.tokenizer import MARK, Tokenizer
from priormatch.recognizers.formats import Origin, cues_of, to_json
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import Segment, Token, Transcription, Word, words_of


def test_pieces_are_grouped_into_words() -> None:
    tokens = [Token(f"{MARK}do", 2, 3, 0.9), Token("ctor", 5, 6, 0.4), Token(f"{MARK}ten", 10, 12, 1.0)]
    doctor, ten = words_of(tokens, 0.04)
    assert (doctor.text, doctor.start, doctor.end) == ("doctor", pytest.approx(0.08), pytest.approx(0.24))
    assert doctor.confidence == pytest.approx(math.sqrt(0.9 * 0.4))
    assert (ten.text, ten.start, ten.end, ten.confidence) == (
        "ten",
        pytest.approx(0.4),
        pytest.approx(0.48),
        1.0,
    )


def test_a_mark_of_its_own_belongs_to_no_word() -> None:
    tokens = [Token(piece, at, at + 1, 0.5) for at, piece in enumerate([MARK, "a", "t", MARK, MARK, "i"])]
    assert [(each.text, each.start, each.end) for each in words_of(tokens, 1.0)] == [
        ("at", 1, 3),
        ("i", 5, 6),
    ]
    assert words_of([Token(MARK, 0, 1, 0.5)], 1.0) == words_of([], 1.0) == []


def test_a_text_that_begins_within_a_word_has_it_too() -> None:
    assert [
        each.text for each in words_of([Token("ten", 0, 1, 0.5), Token(f"{MARK}at", 1, 2, 0.5)], 1.0)
    ] == ["ten", "at"]


@pytest.fixture
def make(tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer) -> Callable[[str], SpeechRecognizer]:
    def made(kind: str) -> SpeechRecognizer:
        torch.manual_seed(3)
        return SpeechRecognizer(replace(tiny_model_settings, kind=kind), tiny_tokenizer).eval()

    return made


@pytest.mark.parametrize("kind", ["ctc", "hybrid"])
def test_segments_have_their_words_in_order_and_within_their_time(
    make: Callable[[str], SpeechRecognizer], kind: str
) -> None:
    silence = np.zeros(16_000)
    sound = np.concatenate([silence, speak("monday at nine"), silence, speak("doctor ten"), silence])
    found = make(kind).transcribe(sound.astype(np.float32))
    assert found.segments
    for segment in found.segments:
        assert " ".join(word.text for word in segment.words) == segment.text
        times = [time for word in segment.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert segment.start <= times[0] and times[-1] <= segment.end + 1e-9
        assert all(0 < word.confidence <= 1 for word in segment.words)


def test_attention_gives_no_words(make: Callable[[str], SpeechRecognizer]) -> None:
    found = make("attention").transcribe(speak("monday at nine").astype(np.float32))
    assert all(segment.words == () for segment in found.segments)


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
