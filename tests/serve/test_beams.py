"""The page: weights by hand, the same words as `transcribe`, and a message for all that cannot be decoded."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, cast

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from narrowing import present
from tiny_language import speak

from priormatch.config import FusionSettings, ModelSettings
from priormatch.data.audio import SUFFIXES as AUDIO_SUFFIXES
from priormatch.data.clips import Clip
from priormatch.data.pauses import Cutting
from priormatch.errors import UserError
from priormatch.matching.hypotheses import inspect_beam
from priormatch.matching.lpm import Weighing
from priormatch.recognizers.decode import plain_search, search_with_prior
from priormatch.recognizers.prior import ConvPrior
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import encode_clips, transcribe
from priormatch.serve import beams
from priormatch.serve.beams import PriorUse, Scored, Segment, Transcriber, Visit, decode_beams, weights

TABLE_1 = [Scored("as", -1.0, -9.0, -32.24), Scored("after", -1.5, -8.0, -34.14)]
TABLE_1 += [Scored("looked as", -2.0, -9.5, -33.10), Scored("looked after", -2.5, -10.0, -36.59)]
FUSION = FusionSettings(beam_size=3, lm_weight=0.3, token_bonus=0.2)


def quiet(seconds: float = 0.5) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.001, round(16_000 * seconds))


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    parts = [quiet(), speak("doctor ten"), quiet(), speak("meeting with doctor at ten"), quiet()]
    soundfile.write(tmp_path / "talk.wav", np.concatenate(parts), 16_000)
    return tmp_path / "talk.wav"


@pytest.fixture
def transcriber(tiny_recognizer: SpeechRecognizer, tiny_prior: ConvPrior) -> Transcriber:
    return Transcriber(tiny_recognizer, tiny_prior, 3, FUSION, Cutting(), 60.0)


@pytest.fixture
def ending_recognizer(tiny_recognizer: SpeechRecognizer) -> SpeechRecognizer:
    """One that finds ends of sentences, though it has learned nothing."""
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] += 3
    return tiny_recognizer


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (PriorUse.weights, [0.63, 0.09, 0.27, 0.01]),  # as in the paper
        (PriorUse.none, [0.46, 0.28, 0.17, 0.10]),
        (PriorUse.search, [0.21, 0.58, 0.13, 0.08]),
    ],
)
def test_weights_by_hand(use: Any, expected: list[float]) -> None:
    assert [round(each, 2) for each in present(weights(TABLE_1, use))] == expected


def test_without_a_prior_there_are_no_weights_of_its() -> None:
    alone = [replace(each, log_prior=None) for each in TABLE_1]
    assert weights(alone, PriorUse.weights) is None
    assert weights(alone, PriorUse.none) == weights(TABLE_1, PriorUse.none)


def test_the_priors_choice_is_the_heaviest() -> None:
    assert Segment(0.0, 1.0, TABLE_1).heaviest is TABLE_1[0]
    assert Segment(0.0, 1.0, TABLE_1[:0:-1]).heaviest is TABLE_1[2]
    assert Segment(0.0, 1.0, [replace(each, log_prior=None) for each in TABLE_1]).heaviest is None
    assert Segment(0.0, 1.0, []).heaviest is None


def test_every_kind_that_the_page_takes_is_read() -> None:
    assert set(beams.SUFFIXES) <= set(AUDIO_SUFFIXES)


def test_beams_are_those_that_matching_sees(
    ending_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    model = ending_recognizer
    clips = [Clip(3.0, speak("doctor ten").astype(np.float32)), Clip(9.0, speak("at").astype(np.float32))]
    found = decode_beams(model, tiny_prior, plain_search(3), clips)
    assert [(each.start, each.end) for each in found] == [(3.0, 3.4), (9.0, 9.2)]
    for clip, segment in zip(clips, found, strict=True):
        with torch.no_grad():
            beam = model.search(encode_clips(model, [clip]), 3)
        seen = inspect_beam(beam, "", None, model.tokenizer, tiny_prior, Weighing())
        assert segment.ended and seen.ended
        assert [each.text for each in segment.beam] == [each.text for each in seen.hypotheses]
        columns = zip(*((each.log_q, each.score, each.log_prior) for each in segment.beam), strict=True)
        expected = zip(*((each.log_q, each.log_q, each.log_prior) for each in seen.hypotheses), strict=True)
        for column, values in zip(columns, expected, strict=True):
            assert column == pytest.approx(values, abs=1e-3)
        assert weights(segment.beam, PriorUse.weights) == pytest.approx(
            [each.weight for each in seen.hypotheses], abs=1e-3
        )


def test_where_the_prior_searches_too_log_q_stays_the_recognizers(
    ending_recognizer: SpeechRecognizer, tiny_prior: ConvPrior
) -> None:
    clip = Clip(0.0, speak("doctor ten").astype(np.float32))
    (found,) = decode_beams(ending_recognizer, tiny_prior, search_with_prior(tiny_prior, FUSION), [clip])
    assert found.ended and len(found.beam) == 3
    for each in found.beam:
        pieces = (each.score - each.log_q - FUSION.lm_weight * present(each.log_prior)) / FUSION.token_bonus
        assert pieces == pytest.approx(round(pieces), abs=1e-3)
        assert (round(pieces) > 0) == bool(each.text)


def test_a_search_without_an_end_of_sentence_is_marked(tiny_recognizer: SpeechRecognizer) -> None:
    with torch.no_grad():
        present(tiny_recognizer.decoder).output.bias[tiny_recognizer.tokenizer.eos] -= 30
    clip = Clip(0.0, speak("doctor ten").astype(np.float32))
    (found,) = decode_beams(tiny_recognizer, None, plain_search(2), [clip])
    assert not found.ended


def test_a_loop_is_in_the_beam_and_not_in_the_transcript() -> None:
    loop = Scored("ten " * 5, -1.0, -1.0)
    assert Segment(0.0, 1.0, [loop], ended=False).text == "ten"
    assert Segment(0.0, 1.0, [loop]).text == loop.text


def test_each_segment_is_what_transcribe_hears_with_its_times(
    tiny_recognizer: SpeechRecognizer, tiny_model_settings: ModelSettings, talk: Path
) -> None:
    ctc = SpeechRecognizer(replace(tiny_model_settings, kind="ctc"), tiny_recognizer.tokenizer).eval()
    for model in (tiny_recognizer, ctc):
        found = Transcriber(model, None, 1, FUSION, Cutting(), 60.0).decode(talk, PriorUse.none)
        expected = transcribe(model, talk, cutting=Cutting()).segments
        assert [present(each.heard).text for each in found] == [each.text for each in expected]
        for segment, other in zip(found, expected, strict=True):
            ours = present(segment.heard)
            assert ours.confidence == pytest.approx(other.confidence, rel=1e-3)
            assert [(each.text, each.start, each.end) for each in ours.words] == [
                (each.text, each.start, each.end) for each in other.words
            ]
        assert any(each.words for each in expected) == (model is ctc)


def test_a_second_recognizer_hears_the_same_once(
    tiny_recognizer: SpeechRecognizer, tiny_model_settings: ModelSettings, talk: Path
) -> None:
    ctc = SpeechRecognizer(replace(tiny_model_settings, kind="ctc"), tiny_recognizer.tokenizer).eval()
    both = Transcriber(tiny_recognizer, None, 1, FUSION, Cutting(), 60.0, other=ctc)
    seen = Visit(talk).decoded(PriorUse.none, both, lambda done, total: None)
    alone = Transcriber(ctc, None, 1, FUSION, Cutting(), 60.0).decode(talk, PriorUse.none)
    assert present(seen.other) == alone
    assert seen.decoded(PriorUse.weights, both, lambda done, total: None) is seen
    with pytest.raises(UserError, match="no second recognizer: pass --compare"):
        Transcriber(ctc, None, 1, FUSION, Cutting(), 60.0).decode_other(talk, lambda done, total: None)


def test_the_words_are_those_of_transcribe(transcriber: Transcriber, talk: Path) -> None:
    done = []
    found = transcriber.decode(talk, PriorUse.none, lambda *seconds: done.append(seconds))
    assert len(found) == 2
    expected = transcribe(transcriber.model, talk, search=plain_search(3))
    assert [(each.start, each.end, each.text) for each in found] == [
        (each.start, each.end, each.text) for each in expected.segments
    ]
    assert done[-1][0] == pytest.approx(done[-1][1]) == sum(each.end - each.start for each in found)
    fused = transcribe(transcriber.model, talk, search=search_with_prior(present(transcriber.prior), FUSION))
    assert [each.text for each in transcriber.decode(talk, PriorUse.search)] == [
        each.text for each in fused.segments
    ]


def test_a_page_without_a_prior_decodes_too(tiny_recognizer: SpeechRecognizer, talk: Path) -> None:
    transcriber = Transcriber(tiny_recognizer, None, 3, FUSION, Cutting(), 60.0)
    assert {
        each.log_prior for segment in transcriber.decode(talk, PriorUse.weights) for each in segment.beam
    } == {None}
    with pytest.raises(UserError, match="no prior to search with"):
        transcriber.decode(talk, PriorUse.search)


def test_silence_has_nothing_in_it(transcriber: Transcriber, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(16_000), 16_000)
    assert transcriber.decode(tmp_path / "silent.wav", PriorUse.none) == []


def test_what_cannot_be_decoded_gets_a_sentence_without_the_folder(
    transcriber: Transcriber, tmp_path: Path, talk: Path
) -> None:
    (tmp_path / "empty.wav").touch()
    (tmp_path / "text.wav").write_text("no audio at all")
    (tmp_path / "cut.wav").write_bytes(talk.read_bytes()[:-5000])
    soundfile.write(tmp_path / "long.wav", np.zeros(8000 * 61), 8000)
    soundfile.write(tmp_path / "nan.wav", np.full(16_000, math.nan), 16_000, subtype="FLOAT")
    for name, why in {
        "empty.wav": "the file is empty; provide a complete WAV",
        "text.wav": "cannot be opened: ",
        "cut.wav": "truncated: 5000 bytes",
        "long.wav": "lasts 1m01s, but at most 1m00s are allowed here",
        "nan.wav": "has samples that are not finite",
        "gone.wav": "has been deleted",
    }.items():
        with pytest.raises(UserError, match=f"^{name}: .*{why}|^{name}: {why}"):
            transcriber.decode(tmp_path / name, PriorUse.none)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"RIFF", b"fLaC", b"OggS", b"ID3", b"RIFF\x24\0\0\0WAVEfmt "]),
)
def test_any_bytes_are_decoded_or_get_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, data: DataObject, head: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "bytes.wav"
    path.write_bytes(head + data)
    try:
        clips = Transcriber(cast(SpeechRecognizer, None), None, 1, FUSION, Cutting(), 60.0).clips(path)
    except UserError as error:
        assert str(error).startswith("bytes.wav: ")
    else:
        assert all(clip.seconds <= 20 for clip in clips)


def test_a_visit_decodes_once_for_each_search(talk: Path) -> None:
    calls = []

    class Counting:
        other = None

        def decode(self, path: Any, use: Any, advance: Any) -> Any:
            calls.append((path, use))
            return [Segment(0.0, 1.0, [Scored(use.value, -1.0, -1.0)])]

    counting, visit = cast(Transcriber, Counting()), Visit(talk)
    for use in (PriorUse.weights, PriorUse.none, PriorUse.search, PriorUse.weights, PriorUse.search):
        visit = visit.decoded(use, counting, lambda *_: None)
        assert present(visit.result(use))[0].text == ("search" if use is PriorUse.search else "weights")
    assert calls == [(talk, PriorUse.weights), (talk, PriorUse.search)]
    assert Visit().decoded(PriorUse.none, counting, lambda *_: None) == Visit()
    assert Visit().result(PriorUse.none) is None


def test_one_recording_is_decoded_at_a_time(transcriber: Transcriber, talk: Path) -> None:
    plain, active, most = transcriber.plain, 0, 0

    def watched(model: Any, memory: Any) -> Any:
        nonlocal active, most
        active += 1
        most = max(most, active)
        assert transcriber.lock.locked()
        found = plain(model, memory)
        active -= 1
        return found

    transcriber.plain = watched
    with ThreadPoolExecutor(4) as users:
        found = list(users.map(lambda _: transcriber.decode(talk, PriorUse.none), range(8)))
    assert most == 1
    assert all(each == found[0] for each in found)


def test_closing_stops_decoding_after_the_batch_and_waits_for_it(
    transcriber: Transcriber, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beams, "batch_seconds", lambda device: 1.0)  # a segment a batch
    plain, searching, batches = transcriber.plain, Event(), []

    def watched(model: Any, memory: Any) -> Any:
        batches.append(memory)
        searching.set()
        assert transcriber.closed.wait(60)
        return plain(model, memory)

    transcriber.plain = watched
    with ThreadPoolExecutor(1) as user:
        found = user.submit(transcriber.decode, talk, PriorUse.none)
        assert searching.wait(60)
        transcriber.close()
        with pytest.raises(UserError, match="has been closed"):
            found.result()
    assert len(batches) == 1
    with pytest.raises(UserError, match="has been closed"):
        transcriber.decode(talk, PriorUse.none)


def test_what_takes_long_to_decode_is_refused_before_it_is(transcriber: Transcriber, tmp_path: Path) -> None:
    dense = tmp_path / "dense.flac"
    soundfile.write(dense, np.zeros((192_000 * 5, 8), np.int16), 192_000)
    assert transcriber.clips(dense) == []
    transcriber.most_seconds = 6.0
    with pytest.raises(UserError, match=r"dense\.flac: has 1,536,000 samples per second over all channels"):
        transcriber.clips(dense)


def test_a_request_that_computes_for_too_long_ends_with_a_sentence(
    transcriber: Transcriber, talk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beams, "batch_seconds", lambda _: 1.0)  # so that there are several batches
    monkeypatch.setattr(beams, "LONGEST_REQUEST", -1.0)
    with pytest.raises(UserError, match="to transcribe: provide a shorter"):
        transcriber.decode(talk, PriorUse.none)
    monkeypatch.undo()
    assert transcriber.decode(talk, PriorUse.none), "others are not kept waiting"
