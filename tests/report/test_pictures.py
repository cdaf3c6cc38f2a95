"""Pictures: valid PNGs with what is heard where it is heard, and words on the time axis."""

import struct
import zlib
from base64 import b64decode
from dataclasses import replace

import numpy as np
import pytest
import torch
from narrowing import present
from tiny_language import speak

from priormatch.config import ModelSettings
from priormatch.data.tokenizer import Tokenizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.report.aligned import align_text, place_of
from priormatch.report.pictures import png, shaded, spectrogram


def pixels(file: bytes) -> np.ndarray:
    """Decode a gray PNG, and check its checksums."""
    assert file[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(file):
        (length,) = struct.unpack(">I", file[at : at + 4])
        kind, data = file[at + 4 : at + 8], file[at + 8 : at + 8 + length]
        assert struct.unpack(">I", file[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += 12 + length
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    columns, rows = struct.unpack(">II", chunks[b"IHDR"][:8])
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(rows, columns + 1)
    assert not lines[:, 0].any(), "no filter"
    return lines[:, 1:]


def drawn(uri: str) -> np.ndarray:
    return pixels(b64decode(uri.removeprefix("data:image/png;base64,")))


def test_a_picture_holds_its_values() -> None:
    gray = np.arange(15, dtype=np.uint8).reshape(3, 5)
    assert np.array_equal(pixels(png(gray)), gray)
    assert drawn(shaded(np.array([[-1.0, 0.0, 0.5, 1.0, 2.0]]))).tolist() == [[255, 255, 128, 0, 0]]


def test_a_spectrogram_has_time_to_the_right_and_high_tones_at_the_top() -> None:
    time = np.arange(16_000) / 16_000
    low, high = (np.sin(2 * np.pi * hertz * time).astype(np.float32) for hertz in (300, 6000))
    found = drawn(spectrogram(np.concatenate([low, high])))
    rows, columns = found.shape
    assert columns == pytest.approx(100, abs=2), "50 a second"
    darkest = found.argmin(axis=0)
    assert (darkest[: columns // 2 - 2] > 0.6 * rows).all()
    assert (darkest[columns // 2 + 2 :] < 0.3 * rows).all()


@pytest.mark.parametrize("samples", [1, 400, 500, 1000])
def test_short_sounds_have_a_picture(samples: int) -> None:
    assert drawn(spectrogram(np.full(samples, 0.1, np.float32))).shape[1] >= 1


def test_attention_has_a_row_for_each_token_that_sums_to_one(tiny_recognizer: SpeechRecognizer) -> None:
    samples = speak("monday at nine").astype(np.float32)
    found = present(align_text(tiny_recognizer, samples, "monday at nine"))
    tokens = tiny_recognizer.tokenizer.encode("monday at nine")
    assert len(found.tokens) == len(tokens) + 1 and found.tokens[-1] == "end"
    assert "".join(found.tokens[:-1]).split() == ["monday", "at", "nine"]
    weights = drawn(found.weights)
    assert weights.shape[0] == len(found.tokens)
    assert (weights.min(axis=1) == 0).all(), "each row is relative to its largest weight"
    assert found.left >= 0 and found.left + found.width <= 100


def test_a_sound_shorter_than_a_frame_has_no_alignment(tiny_recognizer: SpeechRecognizer) -> None:
    assert align_text(tiny_recognizer, np.zeros(100, np.float32), "monday") is None


def test_the_drawn_weights_are_those_of_the_decoder(tiny_recognizer: SpeechRecognizer) -> None:
    decoder = present(tiny_recognizer.decoder)
    encoded, lengths = torch.randn(2, 7, 2 * decoder.size), torch.tensor([7, 4])
    memory, labels = decoder.memory(encoded, lengths), torch.randint(0, 9, (2, 3, 5))
    with torch.no_grad():
        weights = decoder.attention(memory, labels)
        context = (weights.flatten(1, 2) @ memory.values).unflatten(1, (3, 5))
        states = decoder._states(labels).unflatten(1, (3, 5))
        logits = decoder.output(states + context)
        assert torch.allclose(logits, decoder(memory, labels), atol=1e-5)
    assert weights[1, ..., 4:].abs().max() == 0
    assert torch.allclose(weights.sum(-1), torch.ones(2, 3, 5))


def test_ctc_puts_the_words_in_their_order(
    tiny_model_settings: ModelSettings, tiny_tokenizer: Tokenizer
) -> None:
    model = SpeechRecognizer(replace(tiny_model_settings, kind="ctc"), tiny_tokenizer).eval()
    samples = np.tile(speak("monday at nine").astype(np.float32), 3)
    found = present(align_text(model, samples, "monday at nine"))
    assert [each.text for each in found.words] == ["monday", "at", "nine"]
    starts = [each.left for each in found.words]
    assert starts == sorted(starts) and all(each.left + each.width <= 100.01 for each in found.words)
    assert align_text(model, samples, "") is None
    assert align_text(model, samples[:800], "monday at nine " * 9) is None, "more tokens than frames"


def test_places_stay_within_the_utterance() -> None:
    assert (place_of(-0.1, 1.0, 2.0, "a").left, place_of(1.5, 9.0, 2.0, "b").width) == (0.0, 25.0)
