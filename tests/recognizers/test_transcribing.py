"""Clips of many recordings are heard in bounded batches, and each recording gets its own words back in order."""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from narrowing import of_type, present
from tiny_language import speak

from priormatch import SpeechRecognizer
from priormatch.config import FusionSettings
from priormatch.data.audio import BadAudio
from priormatch.data.batches import Batch
from priormatch.data.clips import Clip, Recording, open_samples
from priormatch.data.pauses import Cutting
from priormatch.data.tokenizer import Tokenizer
from priormatch.decoding.beam import Beam
from priormatch.decoding.tuning import write_tuned
from priormatch.errors import UserError
from priormatch.recognizers import transcribing
from priormatch.recognizers.decode import GREEDY, plain_search, search_with_prior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.transcribing import (
    Segment,
    Transcription,
    cutting_for,
    hear,
    transcribe,
    transcribe_all,
)


def clip(start: float, seconds: float) -> Clip:
    return Clip(start, np.zeros(round(seconds * 16_000), np.float32))


def talk(*texts: str) -> np.ndarray:
    """Sentences with half a second of quiet before each and at the end."""
    quiet = np.random.default_rng(0).normal(0, 0.001, 8000)
    return np.concatenate([part for text in texts for part in (quiet, speak(text))] + [quiet])


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[Clip]]:
    """Replace the hearing of batches by one that tells when each clip began, and remembers the batches."""
    heard: list[list[Clip]] = []

    def pretend(model: SpeechRecognizer, clips: list[Clip], search: Callable[..., Any]) -> list[Segment]:
        heard.append(list(clips))
        return [Segment(each.start, each.start + each.seconds, f"{each.start:g}", 0.5) for each in clips]

    monkeypatch.setattr(transcribing, "hear", pretend)
    return heard


def test_every_recording_gets_its_words_in_order_and_batches_are_bounded(
    batches: list[list[Clip]], tiny_recognizer: SpeechRecognizer
) -> None:
    random = np.random.default_rng(0)
    clips = [[clip(10 * i, random.uniform(0.2, 4)) for i in range(count)] for count in (30, 0, 1, 25)]
    sources = [partial(Recording, 300.0, iter(each)) for each in clips]
    done: list[float] = []
    outcomes = list(transcribe_all(tiny_recognizer, sources, seconds=8.0, advance=done.append))
    assert [of_type(Transcription, each).text.split() for each in outcomes] == [
        [f"{c.start:g}" for c in each] for each in clips
    ]
    assert all(max(each.seconds for each in batch) * len(batch) <= 8.0 for batch in batches)
    assert sum(map(len, batches)) == 56
    assert len(batches) < 30  # those alike in length are heard together, whatever recording they are of
    assert sum(done) == pytest.approx(1200.0)


def test_a_long_recording_is_not_read_ahead_of_what_is_heard(
    batches: list[list[Clip]], tiny_recognizer: SpeechRecognizer
) -> None:
    taken = 0

    def endless() -> Iterator[Clip]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            assert taken - sum(map(len, batches)) <= transcribing.POOLED * 10
            yield clip(number, 1.0)

    (outcome,) = transcribe_all(tiny_recognizer, [lambda: Recording(1000.0, endless())], seconds=10.0)
    assert len(of_type(Transcription, outcome).segments) == 1000


def test_a_bad_recording_stops_no_other(batches: list[list[Clip]], tiny_recognizer: SpeechRecognizer) -> None:
    def bad() -> Recording:
        raise BadAudio(Path("b.wav"), "the file is empty")

    def broken() -> Iterator[Clip]:
        yield clip(0, 1.0)
        raise BadAudio(Path("c.wav"), "truncated")

    good = partial(Recording, 5.0)
    sources = [
        lambda: good(iter([clip(1, 1.0)])),
        bad,
        lambda: good(broken()),
        lambda: good(iter([clip(2, 1.0)])),
    ]
    first, second, third, fourth = transcribe_all(tiny_recognizer, sources)
    assert [of_type(Transcription, each).text for each in (first, fourth)] == ["1", "2"]
    reasons = [of_type(BadAudio, each).reason for each in (second, third)]
    assert reasons == ["the file is empty", "truncated"]


def test_the_confidence_is_the_geometric_mean_of_the_pieces_and_the_end(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    samples = talk("monday at nine").astype(np.float32)
    waves, length = torch.from_numpy(samples)[None], torch.tensor([len(samples)])
    beam = tiny_recognizer.propose(Batch.of_audio(waves, length), 1)
    frames = tiny_recognizer.frames(Batch.of_audio(waves, length))
    for search in (GREEDY, search_with_prior(tiny_prior, FusionSettings(beam_size=2, lm_weight=2.0))):
        (segment,) = hear(tiny_recognizer, [Clip(0.0, samples)], search)
        best = search(tiny_recognizer, frames)
        labels = best.classes[0, 0, : int(best.lengths[0, 0])]
        with torch.no_grad():
            log_q = present(tiny_recognizer.decoder)(
                tiny_recognizer.attention_head.memory(frames), labels[None, None]
            ).log_softmax(-1)[0, 0]
        expected = sum(float(row[label]) for row, label in zip(log_q, labels, strict=True)) / len(labels)
        assert segment.confidence == pytest.approx(math.exp(expected), rel=1e-4)
        assert 0 < segment.confidence <= 1
    if bool(beam.ended[0]):
        assert hear(tiny_recognizer, [Clip(0.0, samples)], GREEDY)[0].confidence == pytest.approx(
            math.exp(float(beam.scores[0, 0]) / int(beam.lengths[0, 0])), rel=1e-4
        )


@pytest.mark.parametrize(("ended", "said"), [(False, "monday at nine"), (True, "monday at nine " * 3)])
def test_a_segment_that_was_broken_off_is_told_without_its_loop(
    tiny_recognizer: SpeechRecognizer, ended: bool, said: str
) -> None:
    def heard(rounds: int, ended: bool) -> Segment:
        tokenizer = tiny_recognizer.tokenizer
        classes = torch.tensor([[[*tokenizer.encode("monday at nine") * rounds, tokenizer.eos]]])
        lengths = torch.tensor([[classes.shape[-1]]])
        beam = Beam(classes, lengths, torch.zeros(1, 1), torch.tensor([ended]))
        clip = Clip(0.0, talk("ten").astype(np.float32))
        return hear(tiny_recognizer, [clip], lambda model, frames: beam)[0]

    segment, once = heard(3, ended), heard(1, True)
    assert segment.text == said.strip()
    assert (segment.confidence == pytest.approx(once.confidence)) == (not ended), "of what is told"


def test_recordings_are_heard_together_as_alone(tiny_recognizer: SpeechRecognizer) -> None:
    talks = [talk("monday at nine", "ten"), talk("doctor"), talk("with", "evening meeting at ten", "at")]
    sources = [partial(open_samples, each, 16_000, Cutting()) for each in talks]
    together = list(transcribe_all(tiny_recognizer, sources))
    for one, samples in zip(together, talks, strict=True):
        alone, segments = transcribe(tiny_recognizer, samples), of_type(Transcription, one).segments
        assert [each.text for each in segments] == [each.text for each in alone.segments]
        assert alone.text
        confidences = [each.confidence for each in alone.segments]
        assert [each.confidence for each in segments] == pytest.approx(confidences, rel=1e-3)


@pytest.mark.parametrize(("heard", "longest"), [(0.0, 20.0), (0.4, 1.0), (5.5, 5.5), (36.0, 20.0)])
def test_segments_are_no_longer_than_what_a_model_has_learned_from(
    tiny_recognizer: SpeechRecognizer, heard: float, longest: float
) -> None:
    tiny_recognizer.longest_heard = heard
    assert cutting_for(tiny_recognizer) == Cutting(longest)
    assert cutting_for(tiny_recognizer, longest=30.0, pause=0.6) == Cutting(30.0, pause=0.6)


def test_a_recognizer_cuts_for_itself(tiny_recognizer: SpeechRecognizer) -> None:
    tiny_recognizer.longest_heard = 1.2
    found = tiny_recognizer.transcribe(talk(" ".join(["monday at nine"] * 10)))
    assert len(found.segments) > 4
    assert max(each.end - each.start for each in found.segments) <= 1.2


def test_a_recognizer_transcribes_files_and_arrays(tiny_recognizer: SpeechRecognizer, tmp_path: Path) -> None:
    import soundfile

    samples = talk("monday at nine", "ten with doctor")
    soundfile.write(tmp_path / "talk.wav", samples, 16_000, subtype="FLOAT")
    tiny_recognizer.train()
    of_array = tiny_recognizer.transcribe(samples)
    assert tiny_recognizer.transcribe(tmp_path / "talk.wav") == of_array
    assert tiny_recognizer.transcribe(str(tmp_path / "talk.wav")) == of_array
    assert tiny_recognizer.transcribe(torch.from_numpy(samples), rate=16_000) == of_array
    assert tiny_recognizer.training
    assert of_array.text
    assert of_array.duration == len(samples) / 16_000


def test_a_recognizer_searches_with_a_prior(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, tmp_path: Path
) -> None:
    samples = talk("monday at nine", "ten with doctor", "evening meeting")
    fusion = FusionSettings(beam_size=3, lm_weight=3.0)
    write_tuned(tmp_path / "fusion.yaml", fusion, {})

    def expected(settings: FusionSettings) -> Transcription:
        return transcribe(tiny_recognizer, samples, search=search_with_prior(tiny_prior, settings))

    with_prior = partial(tiny_recognizer.transcribe, samples, prior=tiny_prior)
    assert with_prior() == expected(FusionSettings())
    assert with_prior(fusion=fusion) == expected(fusion) != tiny_recognizer.transcribe(samples)
    assert with_prior(fusion=tmp_path / "fusion.yaml") == expected(fusion)
    assert with_prior(fusion=str(tmp_path / "fusion.yaml"), beam_size=1) == expected(
        replace(fusion, beam_size=1)
    )
    wide = transcribe(tiny_recognizer, samples, search=plain_search(4))
    assert tiny_recognizer.transcribe(samples, beam_size=4) == wide
    short = tiny_recognizer.transcribe(samples, longest=1.0)
    assert max(each.end - each.start for each in short.segments) <= 1.0


def test_a_search_that_cannot_be_is_a_sentence(
    tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior, other_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    refused = partial(tiny_recognizer.transcribe, talk("ten"))
    with pytest.raises(UserError, match="pass prior too"):
        refused(fusion=FusionSettings())
    with pytest.raises(UserError, match="no fusion settings at"):
        refused(prior=tiny_prior, fusion=tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="beam_size=0"):
        refused(beam_size=0)
    with pytest.raises(UserError, match="load both on one"):
        refused(prior=copy.deepcopy(tiny_prior).to("meta"))


def test_silence_is_empty(tiny_recognizer: SpeechRecognizer) -> None:
    found = tiny_recognizer.transcribe(np.zeros(160_000))
    assert (found.text, found.segments, found.duration) == ("", [], 10.0)


def test_samples_may_come_in_a_pair_with_their_rate(tiny_recognizer: SpeechRecognizer) -> None:
    slow, transcribed = talk("monday at nine")[::2], tiny_recognizer.transcribe
    expected = transcribed(slow, rate=8000)
    assert expected.text
    assert transcribed((slow, 8000)) == transcribed((slow, 8000), 8000) == expected
    assert transcribed((slow, np.int64(8000))) == transcribed((torch.from_numpy(slow), 8000)) == expected
    assert transcribed((slow.tolist(), 8000)) == expected


@pytest.mark.parametrize(
    ("audio", "rate", "expected"),
    [
        ((16_000, np.zeros(9)), None, r"begins with a number: pass \(samples, rate\), in this order"),
        ((np.zeros(9), 8000), 16_000, "has the rate 8000, and rate=16000 is given too"),
        ((np.zeros(9), "8 kHz"), None, "rate='8 kHz': provide the sampling rate in Hz"),
        ((np.zeros((2, 9)), 8000), None, r"shape \(2, 9\) are not a recording"),
        ((np.zeros(9, np.uint8), 8000), None, "type uint8 are not audio"),
        ((np.zeros(9), None), None, "rate=None"),
        (([[0.1, 0.2], [0.3]], 8000), None, "that is no array is not a recording"),
        (None, None, "not a recording"),
    ],
)
def test_a_pair_that_is_no_recording_is_a_sentence(
    tiny_recognizer: SpeechRecognizer, audio: Any, rate: int | None, expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        tiny_recognizer.transcribe(audio, rate)


def test_a_bad_file_is_a_sentence(tiny_recognizer: SpeechRecognizer, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_text("no audio")
    with pytest.raises(UserError, match=r"a\.wav: cannot be opened"):
        tiny_recognizer.transcribe(tmp_path / "a.wav")
