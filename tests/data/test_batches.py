"""Batches: a plan for each (seed, epoch), a stream that starts anywhere, audio that is read right."""

import gc
import logging
import math
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut
from torch.utils.data._utils.pin_memory import pin_memory

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data import batches
from priormatch.data.batches import (
    HOST,
    Batch,
    BatchStream,
    UtteranceReader,
    collate,
    decode_corpus,
    once,
)
from priormatch.data.corpus import ALTERNATIVES, Corpus, cut_text, cut_texts, one_of, read_cuts
from priormatch.data.decoded import DecodedAudio, Part
from priormatch.data.plan import Plan, Request, Shape, Visit
from priormatch.data.tokenizer import Tokenizer
from priormatch.data.waveforms import _make_lhotse_strict, read_samples
from priormatch.errors import UserError

TEXTS = ["monday", "tuesday at nine", "with", "morning meeting at ten", "doctor evening", "nine", "at ten"]
TWO = BatchSettings(utterances=2)
THREE_SHAPES = BatchSettings(seconds=1.0, buckets=3)
AUDIO = AudioSettings()

MakeCorpus = Callable[..., Path]


def visits(*utterances: int, drawn: tuple[int, int] = (0, 0), speed: float = 1.0) -> Request:
    return Request([Visit(each, drawn, speed) for each in utterances])


class Echo(UtteranceReader):
    """A reader that gives the ids of what was asked, with its visit, and no audio."""

    def __init__(self, durations: Sequence[float]) -> None:
        self.corpus = Corpus([MonoCut(str(each), 0, each, 0) for each in durations], AUDIO)
        self.speeds = [1.0]

    def __getitems__(self, request: Request) -> Batch:
        ids = [f"{visit.drawn} {visit.utterance}" for visit in request.visits]
        return collate(ids, [None] * len(ids), [1] * len(ids), [[]] * len(ids), 3, [])


@given(count=st.integers(1, 12), size=st.integers(1, 5), position=st.integers(0, 40), seed=st.integers(0, 5))
def test_a_stream_goes_on_exactly_where_it_stood(count: int, size: int, position: int, seed: int) -> None:
    reader, settings = Echo(range(1, count + 1)), BatchSettings(utterances=size)
    through = BatchStream(reader, settings, seed)
    for _ in range(position):
        through.take()
    assert through.position == position
    resumed = BatchStream(reader, settings, seed, position=through.position)
    assert [through.take()[0].ids for _ in range(8)] == [resumed.take()[0].ids for _ in range(8)]


def test_a_stream_visits_everything_in_each_epoch() -> None:
    stream = BatchStream(Echo(range(1, 8)), BatchSettings(utterances=3), seed=5)
    for epoch in range(3):
        ids = [each for _ in range(3) for part in stream.take() for each in part.ids]
        assert sorted(ids) == [f"(5, {epoch}) {index}" for index in range(7)]


def same(one: Batch, other: Batch) -> bool:
    tensors = ("waveforms", "samples", "labels", "label_lengths")
    one, other = one.to(HOST), other.to(HOST)  # with a GPU at hand, a worker's waveforms are int16 until then
    return one.ids == other.ids and all(torch.equal(getattr(one, n), getattr(other, n)) for n in tensors)


@pytest.fixture
def reader(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> UtteranceReader:
    """Reads the seven texts, with sampled spellings and at three speeds."""
    corpus = Corpus.load(tiny_corpus(TEXTS), AUDIO, transcribed=True)
    return UtteranceReader(corpus, tiny_tokenizer, piece_sampling=0.5, speeds=[0.9, 1.1])


def test_workers_give_the_same_batches(reader: UtteranceReader) -> None:
    alone, helped = (
        BatchStream(reader, TWO, 1, position=3),
        BatchStream(reader, TWO, 1, position=3, workers=2),
    )
    for _ in range(6):
        assert same(alone.take()[0], helped.take()[0])
    assert [batch.ids for batch in once(reader, 1.0)] == [batch.ids for batch in once(reader, 1.0, workers=2)]


@pytest.mark.skipif(sys.platform != "linux", reason="others have no safe fork")
def test_workers_are_forked_where_processes_are_spawned(reader: UtteranceReader) -> None:
    """A spawned worker would import everything again: seconds at every validation of a table's systems."""
    others, usual = set(multiprocessing.active_children()), multiprocessing.get_start_method()
    multiprocessing.set_start_method("spawn", force=True)
    try:
        stream = BatchStream(reader, TWO, 1, workers=1)
        stream.take()
        (worker,) = set(multiprocessing.active_children()) - others
        assert type(worker).__name__ == "ForkProcess"
        stream.close()
        assert not worker.is_alive()
    finally:
        multiprocessing.set_start_method(usual, force=True)


def test_workers_end_with_their_stream(reader: UtteranceReader) -> None:
    others = set(multiprocessing.active_children())
    stream = BatchStream(reader, TWO, 1, workers=2)
    stream.take()
    assert len(set(multiprocessing.active_children()) - others) == 2
    gc.disable()  # the garbage collector would end them too, but in an order that makes it wait ten seconds
    try:
        del stream
        assert set(multiprocessing.active_children()) <= others
    finally:
        gc.enable()


def test_audio_and_labels_resume_with_the_stream(reader: UtteranceReader) -> None:
    through = BatchStream(reader, TWO, 1)
    taken = [through.take()[0] for _ in range(9)]
    resumed = BatchStream(reader, TWO, 1, position=5)
    assert all(same(batch, resumed.take()[0]) for batch in taken[5:])


def test_the_logging_of_others_is_left_alone(tiny_corpus: MakeCorpus) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["monday"]))
    root = logging.getLogger()
    before = (root.level, list(root.filters))
    _make_lhotse_strict.cache_clear()
    read_samples(cut)
    assert (root.level, root.filters) == before


def test_pinning_reaches_every_tensor_and_changes_no_value(
    reader: UtteranceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned: list[torch.Tensor] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        pinned.append(tensor.clone())
        return pinned[-1]

    monkeypatch.setattr(torch.Tensor, "pin_memory", pin)
    (batch,) = once(reader, 100.0)
    other = pin_memory(batch)  # as the DataLoader does it
    assert same(batch, other)
    assert (other.texts, other.bad) == (batch.texts, batch.bad)
    tensors = [each for each in vars(other).values() if isinstance(each, torch.Tensor)]
    assert len(tensors) == 5
    assert all(any(each is one for one in pinned) for each in tensors)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_workers_give_batches_that_a_gpu_can_fetch(reader: UtteranceReader) -> None:
    stream = BatchStream(reader, TWO, 1, workers=1)
    batch = stream.take()[0]
    assert batch.waveforms.is_pinned()
    assert batch.labels.is_pinned()
    moved = batch.to(torch.device("cuda"))
    assert moved.waveforms.is_cuda
    assert moved.waveforms.dtype == torch.float32
    here = batch.to(HOST)
    torch.testing.assert_close(
        moved.waveforms.cpu(), here.waveforms, atol=1e-5, rtol=0.0
    )  # sums in another order
    assert same(here, replace(moved.to(HOST), waveforms=here.waveforms))


def test_what_is_in_a_batch(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    reader = UtteranceReader(Corpus.load(tiny_corpus(TEXTS), AUDIO), tiny_tokenizer)
    batch = reader.__getitems__(visits(1, 0)).to(HOST)
    assert (batch.ids, batch.texts) == (["tiny-1", "tiny-0"], ["tuesday at nine", "monday"])
    assert batch.samples.tolist() == [9600, 3200]
    assert batch.waveforms.shape == (2, 9600)
    assert torch.all(batch.waveforms[1, 3200:] == 0)
    assert 0.2 < batch.waveforms[1, :3200].abs().max() < 0.4
    assert batch.seconds == pytest.approx(0.8)
    eos = tiny_tokenizer.eos
    first, second = tiny_tokenizer.encode("tuesday at nine"), tiny_tokenizer.encode("monday")
    assert batch.labels.tolist() == [[*first, eos], [*second, *[eos] * (len(first) + 1 - len(second))]]
    assert batch.label_lengths.tolist() == [len(first) + 1, len(second) + 1]
    assert batch.bad == []


def test_untranscribed_audio_has_no_labels(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    manifest = tiny_corpus(TEXTS, transcribed=False)
    batch = next(once(UtteranceReader(Corpus.load(manifest, AUDIO), tiny_tokenizer), 100.0))
    assert batch.texts == [None] * 7
    assert batch.label_lengths.tolist() == [0] * 7
    assert batch.labels.tolist() == [[tiny_tokenizer.eos]] * 7
    with pytest.raises(UserError, match="contains no transcribed utterance"):
        Corpus.load(manifest, AUDIO, transcribed=True)


def test_utterances_without_a_transcript_are_left_out_of_training(
    tiny_corpus: MakeCorpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cuts = [*CutSet.from_file(tiny_corpus(2, "said")), *CutSet.from_file(tiny_corpus(3, "heard", False))]
    cuts[1].supervisions[0].text = ""
    CutSet.from_cuts(cuts).to_file(tmp_path / "both.jsonl.gz")
    assert [cut_text(cut) is None for cut in cuts] == [False, True, True, True, True]
    corpus = Corpus.load(tmp_path / "both.jsonl.gz", AUDIO, transcribed=True)
    assert [cut.id for cut in corpus.cuts] == ["said-0"]


@pytest.fixture
def ensemble(tiny_corpus: MakeCorpus, tmp_path: Path) -> Corpus:
    """Utterances of which every second has three texts."""
    cuts = list(CutSet.from_file(tiny_corpus(TEXTS)))
    for cut in cuts[::2]:
        cut.supervisions[0].custom = {ALTERNATIVES: ["at nine", "with ten"]}
    CutSet.from_cuts(cuts).to_file(tmp_path / "ensemble.jsonl.gz")
    return Corpus.load(tmp_path / "ensemble.jsonl.gz", AUDIO)


def test_alternatives_come_behind_the_transcript(ensemble: Corpus) -> None:
    assert [cut_texts(cut) for cut in ensemble.cuts[:2]] == [["monday", "at nine", "with ten"], [TEXTS[1]]]
    assert [cut_text(cut) for cut in ensemble.cuts] == TEXTS
    ensemble.cuts[0].supervisions[0].text = None
    assert cut_texts(ensemble.cuts[0]) == []


def test_each_visit_draws_one_of_the_texts_and_always_the_same(
    ensemble: Corpus, tiny_tokenizer: Tokenizer
) -> None:
    def taught(epoch: int) -> list[str]:
        reader = UtteranceReader(ensemble, tiny_tokenizer)
        batch = reader.__getitems__(visits(*range(7), drawn=(0, epoch)))
        assert batch.texts == TEXTS
        return [tiny_tokenizer.decode(row) for row in batch.labels.tolist()]

    epochs = [taught(epoch) for epoch in range(60)]
    assert [taught(epoch) for epoch in range(60)] == epochs
    for index, drawn in enumerate(zip(*epochs, strict=True)):
        counts = {text: drawn.count(text) for text in cut_texts(ensemble.cuts[index])}
        assert sum(counts.values()) == 60
        assert min(counts.values()) > 10  # of 20 on the average, or of 60


def test_without_a_choice_nothing_is_drawn(ensemble: Corpus, tiny_tokenizer: Tokenizer) -> None:
    """So the spellings of other utterances are what they were before there were alternatives."""
    random, untouched = np.random.default_rng(0), np.random.default_rng(0)
    assert one_of([], random) == ""
    assert one_of(["at nine"], random) == "at nine"
    assert random.random() == untouched.random()
    reader = UtteranceReader(ensemble, tiny_tokenizer, piece_sampling=0.9)
    for index, text in ((1, TEXTS[1]), (3, TEXTS[3])):
        batch = reader.__getitems__(visits(index, drawn=(4, 2)))
        expected = tiny_tokenizer.encode(text, 0.9, np.random.default_rng([4, 2, index]))
        assert batch.labels[0, : batch.label_lengths[0] - 1].tolist() == expected


def test_once_gives_everything_once_the_longest_first(reader: UtteranceReader) -> None:
    batches = list(once(reader, 0.8))
    assert sorted(each for batch in batches for each in batch.ids) == [f"tiny-{n}" for n in range(7)]
    nominal = dict(zip((cut.id for cut in reader.corpus.cuts), reader.corpus.durations, strict=True))
    lengths = [nominal[each] for batch in batches for each in batch.ids]
    assert lengths == sorted(lengths, reverse=True)


def test_too_long_and_too_short_are_skipped_and_counted(tiny_corpus: MakeCorpus) -> None:
    manifest = tiny_corpus(TEXTS)  # seconds: 0.2, 0.6, 0.2, 0.8, 0.4, 0.2, 0.4
    corpus = Corpus.load(manifest, AudioSettings(shortest=0.4, longest=0.6))
    assert corpus.durations.tolist() == [0.6, 0.4, 0.4]
    assert corpus.skipped == 4
    assert corpus.hours == pytest.approx(1.4 / 3600)
    with pytest.raises(UserError, match=r"tiny\.jsonl\.gz contains no utterance between 5 and 9 s"):
        Corpus.load(manifest, AudioSettings(shortest=5, longest=9))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def cut_the_end_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 4])


def break_header(path: Path) -> None:
    path.write_bytes(b"nonsense" + path.read_bytes()[8:])


def fill_with_nan(path: Path) -> None:
    soundfile.write(path, np.full(3200, np.nan, np.float32), 16_000, subtype="FLOAT")


@pytest.mark.parametrize("suffix", ["wav", "flac"])
@pytest.mark.parametrize("damage", [truncate, cut_the_end_off, break_header, Path.unlink])
def test_unreadable_audio_is_skipped_and_counted(
    tiny_corpus: MakeCorpus,
    tiny_tokenizer: Tokenizer,
    suffix: str,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    corpus = Corpus.load(tiny_corpus(TEXTS, suffix=suffix), AUDIO)
    damage(Path(corpus.cuts[3].recording.sources[0].source))
    stream = BatchStream(UtteranceReader(corpus, tiny_tokenizer), TWO, 0)
    seen = [each for _ in range(8) for part in stream.take() for each in part.ids]
    assert set(seen) == {f"tiny-{n}" for n in (0, 1, 2, 4, 5, 6)}
    assert list(stream.bad) == ["tiny-3"]
    assert f"tiny-3.{suffix}: " in stream.bad["tiny-3"]
    assert len(stream.bad["tiny-3"]) < 250
    ((bad, reason),) = [each for batch in once(stream.reader, 100.0) for each in batch.bad]
    assert (bad, reason) == ("tiny-3", stream.bad["tiny-3"])
    assert not caplog.records  # lhotse stays as quiet as it is, so that nobody's logging need be turned down


def test_a_longer_file_than_the_manifest_says_is_read_as_the_manifest_says(tiny_corpus: MakeCorpus) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["monday at ten"]))
    assert len(read_samples(cut.truncate(offset=0.2, duration=0.3, preserve_id=True))) == 4800


def test_a_sound_file_that_is_shorter_than_its_manifest_says_is_bad(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer
) -> None:
    corpus = Corpus.load(tiny_corpus(["monday at ten"]), AUDIO)
    soundfile.write(corpus.cuts[0].recording.sources[0].source, np.zeros(3200), 16_000)
    batch = UtteranceReader(corpus, tiny_tokenizer).__getitems__(visits(0))
    ((bad, reason),) = batch.bad
    assert (len(batch), bad) == (0, "tiny-0")
    assert "number of declared samples" in reason
    assert len(reason) <= 200


def test_audio_that_is_not_a_number_is_bad(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    corpus = Corpus.load(tiny_corpus(["monday", "ten"]), AUDIO)
    fill_with_nan(Path(corpus.cuts[1].recording.sources[0].source))
    batch = UtteranceReader(corpus, tiny_tokenizer).__getitems__(visits(0, 1))
    assert batch.ids == ["tiny-0"]
    ((bad, reason),) = batch.bad
    assert bad == "tiny-1"
    assert "tiny-1.wav: has samples that are not finite numbers" in reason


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("texts", "damaged", "share"), [(7, 2, 0.2), (1, 1, 0.05), (3, 3, 1.0)])
def test_too_much_unreadable_audio_stops(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer, texts: int, damaged: int, share: float
) -> None:
    corpus = Corpus.load(tiny_corpus(TEXTS[:texts]), AudioSettings(max_bad_share=share))
    for cut in corpus.cuts[:damaged]:
        truncate(Path(cut.recording.sources[0].source))
    stream = BatchStream(UtteranceReader(corpus, tiny_tokenizer), TWO, 0)
    with pytest.raises(UserError, match=rf"{damaged} of {texts} utterances cannot be read.*max_bad_share"):
        for _ in range(50):
            stream.take()


def test_a_bearable_share_goes_on(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    corpus = Corpus.load(tiny_corpus(TEXTS), AudioSettings(max_bad_share=0.3))
    for cut in corpus.cuts[:2]:
        truncate(Path(cut.recording.sources[0].source))
    stream = BatchStream(UtteranceReader(corpus, tiny_tokenizer), BatchSettings(utterances=1), 0)
    assert {name for _ in range(20) for part in stream.take() for name in part.ids} == {
        f"tiny-{n}" for n in range(2, 7)
    }
    assert sorted(stream.bad) == ["tiny-0", "tiny-1"]


def pitch(wave: np.ndarray) -> float:
    """The loudest frequency of a waveform at 16 kHz."""
    return float(np.abs(np.fft.rfft(wave)).argmax() * 16_000 / len(wave))


@pytest.mark.parametrize("speed", [0.9, 1.0, 1.1])
def test_speed_changes_length_and_pitch(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer, speed: float
) -> None:
    corpus = Corpus.load(tiny_corpus(["evening"]), AUDIO)  # a tone of 1,150 Hz
    batch = UtteranceReader(corpus, tiny_tokenizer).__getitems__(visits(0, speed=speed)).to(HOST)
    assert batch.samples.tolist() == [batch.waveforms.shape[1]] == [math.ceil(round(3200 / speed, 6))]
    assert pitch(batch.waveforms[0].numpy()) == pytest.approx(1150 * speed, abs=6)


def test_a_batch_has_the_width_of_its_shape_at_every_speed(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer
) -> None:
    reader = UtteranceReader(Corpus.load(tiny_corpus(["evening"] * 3), AUDIO), tiny_tokenizer)
    drawn = [Visit(0, speed=0.9), Visit(1), Visit(2, speed=1.1)]
    batch = reader.__getitems__(Request(drawn, Shape(0.25, 3))).to(HOST)
    assert batch.waveforms.shape == (3, 4000)
    for visit, row, length in zip(drawn, batch.waveforms, batch.samples.tolist(), strict=True):
        assert torch.all(row[length:] == 0)
        alone = reader.__getitems__(Request([visit])).to(HOST).waveforms[0]
        torch.testing.assert_close(row[:length], alone)
    plain = reader.__getitems__(Request([Visit(1)], Shape(0.25, 3))).to(HOST)
    assert torch.equal(plain.waveforms[0], batch.waveforms[1])
    assert torch.equal(batch.to(HOST).waveforms, batch.waveforms), "speeds are changed once"


def test_decoded_audio_gives_the_same_batches(reader: UtteranceReader) -> None:
    """As on a GPU, where a corpus is decoded once."""
    truncate(Path(reader.corpus.cuts[3].recording.sources[0].source))
    audio = decode_corpus(reader.corpus, HOST)
    for request in islice(Plan(reader.corpus.durations, THREE_SHAPES, 3, reader.speeds).requests(0), 12):
        expected, found = reader.__getitems__(request), reader.read_decoded(request, audio)
        assert same(expected, found)
        assert (found.texts, found.bad, found.speeds) == (expected.texts, expected.bad, expected.speeds)
        assert found.waveforms.dtype == torch.int16


def store_as_floats(path: Path, loudness: float) -> None:
    samples, rate = soundfile.read(path, dtype="float32")
    soundfile.write(path, samples * np.float32(loudness), rate, subtype="FLOAT")


@pytest.mark.parametrize("rate", [8_000, 16_000])
@pytest.mark.parametrize("loudness", [1.0, 20_000.0])
def test_decoded_audio_gives_the_same_batches_of_every_format(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer, rate: int, loudness: float
) -> None:
    corpus = Corpus.load(tiny_corpus(TEXTS, rate=rate), AUDIO)
    for cut in corpus.cuts:
        store_as_floats(Path(cut.recording.sources[0].source), loudness)
    reader, audio = UtteranceReader(corpus, tiny_tokenizer), decode_corpus(corpus, HOST)
    expected, found = reader.__getitems__(visits(2, 0, 5)), reader.read_decoded(visits(2, 0, 5), audio)
    assert expected.waveforms.dtype == torch.int16
    assert same(expected, found)


def test_loud_audio_is_not_clipped(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    """Some tools write 16-bit integers unscaled as floats."""
    corpus = Corpus.load(tiny_corpus(["evening"]), AUDIO)
    path = Path(corpus.cuts[0].recording.sources[0].source)
    quiet = torch.from_numpy(soundfile.read(path, dtype="float32")[0])
    store_as_floats(path, 20_000.0)
    batch = UtteranceReader(corpus, tiny_tokenizer).__getitems__(visits(0)).to(HOST)
    torch.testing.assert_close(batch.waveforms[0], quiet / quiet.abs().max(), atol=1e-4, rtol=0)


def test_decoded_audio_may_be_longer_than_the_manifest_says() -> None:
    parts = [Part(torch.tensor([1, 2, 3], dtype=torch.int16), [2, "broken", 1])] * 2
    audio = DecodedAudio.of(parts, 4, HOST)
    assert audio.samples.tolist() == [1, 2, 3, 1, 2, 3]
    assert audio.rows([3, 2]).tolist() == [[1, 2], [3, 0]]


def test_audio_is_decoded_once_if_it_fits_and_freed_with_its_streams(
    reader: UtteranceReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, free, decoded = reader.corpus, 10_000_000, []

    def decode(of: Corpus, device: torch.device) -> DecodedAudio:
        decoded.append(device)
        return decode_corpus(of, HOST)

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 8 * free))
    monkeypatch.setattr(batches, "decode_corpus", decode)
    size = 2 * 16_000 * float(corpus.durations.sum())
    for share, times in ((0.99 * size / free, 0), (1.01 * size / free, 1)):
        corpus.audio = AudioSettings(gpu_share=share)
        streams = [BatchStream(reader, TWO, 1, device=torch.device("cuda")) for _ in range(2)]
        assert len(decoded) == times
        assert all((stream.audio is not None) == (times > 0) for stream in streams)
    expected = BatchStream(reader, TWO, 1)
    assert same(streams[0].take()[0], expected.take()[0])
    for stream in streams:
        stream.close()
    assert corpus.decoded is None
    assert all(stream.audio is None for stream in streams)
    assert same(streams[0].take()[0], expected.take()[0]), "from files again"


def test_a_transcript_can_be_too_long_at_one_speed_only(
    tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer
) -> None:
    corpus = Corpus.load(tiny_corpus(["ten"]), AUDIO)
    frames = round(100 * corpus.durations[0]) + 1
    text = " ".join(["ten"] * frames)
    while len(tiny_tokenizer.encode(text)) > frames:
        text = text[:-1]
    corpus.cuts[0].supervisions[0].text = text
    reader = UtteranceReader(corpus, tiny_tokenizer)
    assert [len(reader.__getitems__(visits(0, speed=speed))) for speed in (0.9, 1.0, 1.1)] == [1, 1, 0]
    ((_, reason),) = reader.__getitems__(visits(0, speed=1.1)).bad
    assert "too long for" in reason


def test_decoded_audio_of_a_damaged_corpus(tiny_corpus: MakeCorpus, tiny_tokenizer: Tokenizer) -> None:
    corpus = Corpus.load(tiny_corpus(["monday", "ten"]), AUDIO)
    for cut in corpus.cuts:
        truncate(Path(cut.recording.sources[0].source))
    reader = UtteranceReader(corpus, tiny_tokenizer)
    batch = reader.read_decoded(visits(0, 1), decode_corpus(corpus, HOST))
    assert (len(batch), [name for name, _ in batch.bad]) == (0, ["tiny-0", "tiny-1"])


@pytest.mark.parametrize("rate", [8_000, 22_050, 48_000])
def test_other_rates_become_16_khz(tiny_corpus: MakeCorpus, rate: int) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["evening"], rate=rate))
    wave = read_samples(cut)
    assert len(wave) == pytest.approx(3200, abs=1)
    assert pitch(wave) == pytest.approx(1150, abs=6)


def test_a_truncated_file_of_another_rate_is_bad(tiny_corpus: MakeCorpus) -> None:
    (cut,) = CutSet.from_file(tiny_corpus(["evening"], rate=8_000))
    truncate(Path(cut.recording.sources[0].source))
    with pytest.raises(Exception, match=r"\d"):
        read_samples(cut)


def test_a_batch_of_nothing_is_empty() -> None:
    batch = collate([], [], [], [], 3, [("a", "broken")])
    assert (len(batch), batch.seconds, batch.labels.shape) == (0, 0.0, (0, 1))


@settings(max_examples=20)
@given(labels=st.lists(st.lists(st.integers(0, 8), max_size=5), min_size=1, max_size=4))
def test_labels_end_with_eos_and_are_filled_with_it(labels: list[list[int]]) -> None:
    count = len(labels)
    batch = collate(["a"] * count, [""] * count, [2] * count, labels, 9, [])
    for row, length, each in zip(batch.labels.tolist(), batch.label_lengths.tolist(), labels, strict=True):
        assert row[:length] == [*each, 9]
        assert set(row[length:]) <= {9}


def test_manifests_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no cuts at .*nowhere.jsonl.gz"):
        read_cuts(tmp_path / "nowhere.jsonl.gz")
    for name, content in (("a.jsonl.gz", b"not gzip"), ("b.jsonl", b'{"id": 3}\n'), ("c.jsonl", b"\xff{")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name} is not a usable manifest of cuts"):
            read_cuts(tmp_path / name)
    (tmp_path / "d.jsonl").write_bytes(b"")
    with pytest.raises(UserError, match=r"d\.jsonl contains no cuts"):
        read_cuts(tmp_path / "d.jsonl")
