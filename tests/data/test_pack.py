"""Packing: the same audio and the same cuts in other files, whole after a kill, and nothing lost in silence."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, MonoCut, Recording
from tiny_run import command, files

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data import pack as module
from priormatch.data.batches import BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus, read_cuts
from priormatch.data.manifest import utterance
from priormatch.data.pack import SHARD_SAMPLES, pack, plan_shards, samples_of
from priormatch.data.plan import Request, Visit
from priormatch.data.recordings import PART_OF
from priormatch.data.tokenizer import Tokenizer
from priormatch.data.waveforms import as_float, read_samples, read_with_lhotse, to_int16
from priormatch.errors import UserError
from priormatch.files import replacing

MakeCorpus = Callable[..., Path]
SECOND = 16_000


def source_of(cut: MonoCut) -> Path:
    return Path(cut.recording.sources[0].source)


@pytest.fixture
def cuts(tiny_corpus: MakeCorpus) -> list[MonoCut]:
    """Twelve utterances of 0.2 to 1.2 s in FLAC."""
    return read_cuts(tiny_corpus(12, suffix="flac"))


def packed(cuts: list[MonoCut], folder: Path, shard_samples: int = SHARD_SAMPLES) -> list[MonoCut]:
    return read_cuts(pack(cuts, folder, "tiny", shard_samples=shard_samples))


def test_16_bit_audio_stays_the_same_to_the_bit(cuts: list[MonoCut], tmp_path: Path) -> None:
    for old, new in zip(cuts, packed(cuts, tmp_path / "out", shard_samples=2 * SECOND), strict=True):
        assert read_samples(new).dtype == np.int16
        assert np.array_equal(read_samples(new), soundfile.read(source_of(old), dtype="int16")[0])
        assert np.array_equal(read_with_lhotse(new), read_with_lhotse(old))


def test_cuts_keep_all_but_their_place(cuts: list[MonoCut], tmp_path: Path) -> None:
    cuts[3].supervisions[0].custom = {"mood": "calm"}
    cuts[3].custom = {"source": "radio"}
    cuts[4].supervisions = []
    cuts[5].supervisions.append(cuts[6].supervisions[0])
    for old, new in zip(cuts, packed(cuts, tmp_path / "out", shard_samples=2 * SECOND), strict=True):
        assert (old.id, old.duration) == (new.id, new.duration)
        assert new.custom == {**(old.custom or {}), PART_OF: [old.recording_id, old.start]}
        assert len(old.supervisions) == len(new.supervisions)
        for before, after in zip(old.supervisions, new.supervisions, strict=True):
            after.recording_id = before.recording_id
            assert before == after


def test_shards_are_plain_wav_files_filled_in_order(cuts: list[MonoCut], tmp_path: Path) -> None:
    new = packed(cuts, tmp_path / "out", shard_samples=2 * SECOND)
    names = [f"tiny-{number:05d}.wav" for number in range(len({source_of(cut) for cut in new}))]
    assert len(names) > 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*names, "tiny.jsonl.gz"])
    sounds = [soundfile.read(tmp_path / "out" / name, dtype="int16") for name in names]
    assert all(rate == SECOND and len(samples) <= 2 * SECOND for samples, rate in sounds)
    expected = np.concatenate([read_samples(cut) for cut in cuts])
    assert np.array_equal(np.concatenate([samples for samples, _ in sounds]), expected)


def test_a_plan_fills_each_shard_as_far_as_it_goes(cuts: list[MonoCut], tmp_path: Path) -> None:
    most = 2 * SECOND
    shards = plan_shards(cuts, tmp_path, "tiny", most)
    assert [cut.id for shard in shards for cut in shard.cuts] == [cut.id for cut in cuts]
    sizes = [sum(map(samples_of, shard.cuts)) for shard in shards]
    assert max(sizes) <= most
    assert all(
        size + samples_of(after.cuts[0]) > most for size, after in zip(sizes, shards[1:], strict=False)
    )


def test_training_hears_the_same_batches(
    cuts: list[MonoCut], tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    new = packed(cuts, tmp_path / "out", shard_samples=2 * SECOND)
    streams = [
        BatchStream(
            UtteranceReader(Corpus(each, AudioSettings()), tiny_tokenizer), BatchSettings(seconds=2), 0
        )
        for each in (cuts, new)
    ]
    for _ in range(8):
        old, other = (stream.take()[0] for stream in streams)
        assert (old.ids, old.texts) == (other.ids, other.texts)
        assert old.waveforms.equal(other.waveforms)
        assert old.labels.equal(other.labels)


@pytest.mark.parametrize("rate", [8_000, 22_050])
def test_other_audio_is_resampled_and_rounded(tiny_corpus: MakeCorpus, tmp_path: Path, rate: int) -> None:
    cuts = read_cuts(tiny_corpus(4, rate=rate))
    for old, new in zip(cuts, packed(cuts, tmp_path / "out"), strict=True):
        assert new.sampling_rate == SECOND
        assert new.recording.transforms is None
        old_samples, new_samples = as_float(read_samples(old)), as_float(read_samples(new))
        assert len(old_samples) == len(new_samples)
        assert np.abs(old_samples - new_samples).max() <= 0.5 / 32768


def test_windows_and_channels_become_utterances(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(-3000, 3000, (SECOND, 2)).astype(np.int16)
    soundfile.write(tmp_path / "a.flac", noise, SECOND)
    recording = Recording.from_file(tmp_path / "a.flac")
    left, right = (utterance(name, recording, None, None, start=0.25, duration=0.5) for name in ("l", "r"))
    right.channel = right.supervisions[0].channel = 1
    new = packed([left, right], tmp_path / "out")
    assert [cut.supervisions[0].channel for cut in new] == [0, 0]
    for cut, samples in zip(new, noise[4000:12_000].T, strict=True):
        assert np.array_equal(read_samples(cut), samples)


def test_rounding_and_clipping_by_hand() -> None:
    loud = np.array([0.0, 0.4 / 32768, -0.6 / 32768, 1.0, -1.0, 1.5, -2.0], np.float32)
    samples, clipped = to_int16(loud)
    assert samples.tolist() == [0, 0, -1, 32767, -32768, 32767, -32768]
    assert clipped == 2
    every = np.arange(-32768, 32768).astype(np.int16)
    assert np.array_equal(to_int16(as_float(every))[0], every)


def test_what_was_clipped_is_told(
    cuts: list[MonoCut], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    loud = np.zeros(cuts[1].num_samples, np.float32)
    loud[:7] = 1.5
    path = tmp_path / "loud.wav"
    soundfile.write(path, loud, SECOND, subtype="FLOAT")
    cuts[1].recording.sources[0].source = str(path)
    new = packed(cuts, tmp_path / "out")
    assert read_samples(new[1])[:8].tolist() == [32767] * 7 + [0]
    assert "tiny: 7 samples were louder than full scale and were clipped" in capfd.readouterr().err


def test_unreadable_utterances_are_skipped_and_listed(cuts: list[MonoCut], tmp_path: Path) -> None:
    source_of(cuts[2]).write_bytes(b"nonsense")
    new = packed(cuts, tmp_path / "out", shard_samples=2 * SECOND)
    assert [cut.id for cut in new] == [cut.id for cut in cuts if cut.id != "tiny-2"]
    assert all(
        np.array_equal(read_samples(a), read_samples(b))
        for a, b in zip(new, cuts[:2] + cuts[3:], strict=True)
    )
    header, line = (tmp_path / "out/tiny.bad.tsv").read_text().splitlines()
    assert header == "id\treason"
    assert line == f"tiny-2\t{source_of(cuts[2])}: cannot be opened: Format not recognised"


def test_too_many_unreadable_ones_stop_and_mended_ones_are_taken_in(
    cuts: list[MonoCut], tmp_path: Path
) -> None:
    contents = {number: source_of(cuts[number]).read_bytes() for number in (2, 7, 8)}
    for number in contents:
        source_of(cuts[number]).write_bytes(b"")
    out = tmp_path / "out"
    with pytest.raises(
        UserError, match=r"3 of 12 utterances .* share of 0\.05: .* --max-bad-share .* tiny-2 \(.*is empty\)"
    ):
        pack(cuts, out, "tiny", shard_samples=2 * SECOND)
    assert not (out / "tiny.jsonl.gz").exists()
    for number in (2, 7):
        source_of(cuts[number]).write_bytes(contents[number])
    new = packed(cuts, out, shard_samples=2 * SECOND)
    assert [cut.id for cut in new] == [cut.id for cut in cuts if cut.id != "tiny-8"]
    assert np.array_equal(read_samples(new[7]), read_samples(cuts[7]))
    assert (out / "tiny.bad.tsv").read_text().count("\n") == 2


def test_an_utterance_beyond_the_size_of_a_shard_is_left_out(cuts: list[MonoCut], tmp_path: Path) -> None:
    lengths = sorted(map(samples_of, cuts))
    most = lengths[-1] - 1
    (longest,) = {cut.id for cut in cuts if samples_of(cut) > most} or {None}
    new = packed(cuts, tmp_path / "out", shard_samples=most)
    assert {cut.id for cut in cuts} - {cut.id for cut in new} == {longest}
    assert "more than a shard holds" in (tmp_path / "out/tiny.bad.tsv").read_text()


@pytest.fixture
def killed(cuts: list[MonoCut], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which packing was stopped in the middle of the third shard."""

    def stop_at_the_third(path: Path) -> AbstractContextManager[Path]:
        if path.name == "tiny-00002.wav":
            path.with_name(f".tmp-{path.name}").write_bytes(b"half a shard")
            raise KeyboardInterrupt
        return replacing(path)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(module, "replacing", stop_at_the_third)
        pack(cuts, tmp_path / "out", "tiny", shard_samples=2 * SECOND)
    return tmp_path / "out"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of all cuts that are read from now on."""
    ids: list[str] = []

    def listen(cut: MonoCut) -> np.ndarray:
        ids.append(cut.id)
        return read_samples(cut)

    monkeypatch.setattr(module, "read_samples", listen)
    return ids


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("tiny-*.wav")}


def test_after_a_kill_whole_shards_are_kept(
    cuts: list[MonoCut], killed: Path, heard: list[str], tmp_path: Path
) -> None:
    shards = plan_shards(cuts, killed, "tiny", 2 * SECOND)
    whole = contents(killed)
    assert sorted(whole) == ["tiny-00000.wav", "tiny-00001.wav"]
    new = packed(cuts, killed, shard_samples=2 * SECOND)
    assert sorted(heard) == sorted(cut.id for shard in shards[2:] for cut in shard.cuts)
    again = packed(cuts, tmp_path / "again", shard_samples=2 * SECOND)
    assert contents(killed) == contents(tmp_path / "again")
    assert [(a.id, a.start, a.duration) for a in new] == [(b.id, b.start, b.duration) for b in again]
    assert not list(killed.glob(".tmp-*"))
    assert not list(killed.glob("*.json"))


@pytest.mark.parametrize("damage", ["record gone", "record cut off", "record of others", "shard cut off"])
def test_a_shard_that_is_not_whole_is_made_again(
    cuts: list[MonoCut], killed: Path, heard: list[str], tmp_path: Path, damage: str
) -> None:
    shard, record = killed / "tiny-00001.wav", killed / "tiny-00001.json"
    if damage == "record gone":
        record.unlink()
    elif damage == "record cut off":
        record.write_text(record.read_text()[:-4])
    elif damage == "record of others":
        sizes = json.loads(record.read_text())["cuts"]
        record.write_text(json.dumps({"cuts": [sum(sizes)], "clipped": 0}))
    else:
        shard.write_bytes(shard.read_bytes()[:-2])
    packed(cuts, killed, shard_samples=2 * SECOND)
    shards = plan_shards(cuts, killed, "tiny", 2 * SECOND)
    assert sorted(heard) == sorted(cut.id for each in shards[1:] for cut in each.cuts)
    packed(cuts, tmp_path / "again", shard_samples=2 * SECOND)
    assert contents(killed) == contents(tmp_path / "again")


def test_a_place_that_cannot_be_written_to(cuts: list[MonoCut], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write to .*file/out: Not a directory"):
        pack(cuts, tmp_path / "file/out", "tiny")


def test_a_damaged_shard_is_found_by_those_who_read_it(
    cuts: list[MonoCut], tmp_path: Path, tiny_tokenizer: Tokenizer
) -> None:
    new = packed(cuts, tmp_path / "out")
    shard = source_of(new[0])
    shard.write_bytes(shard.read_bytes()[:-SECOND])
    reader = UtteranceReader(Corpus(new, AudioSettings()), tiny_tokenizer)
    batch = reader.__getitems__(Request([Visit(index) for index in range(len(new))]))
    assert dict(batch.bad)[new[-1].id] == f"{shard}: truncated: {SECOND} bytes are missing at the end"


def test_the_verb(tiny_corpus: MakeCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest, out = tiny_corpus(5, suffix="flac"), tmp_path / "out"
    words = ("pack", str(manifest), "--out", str(out))
    assert command(*words) == 0
    assert capsys.readouterr().out.startswith("tiny: 5 utterances, 3s, 2 speakers, all transcribed: ")
    assert [cut.id for cut in CutSet.from_file(out / "tiny.jsonl.gz")] == [f"tiny-{n}" for n in range(5)]
    before = files(out)
    assert command(*words) == 0
    assert "finished before, reused" in capsys.readouterr().err
    assert files(out) == before
    repacked = tmp_path / "repacked"
    assert command("pack", str(out / "tiny.jsonl.gz"), "--out", str(repacked)) == 0
    assert (repacked / "tiny-00000.wav").read_bytes() == (out / "tiny-00000.wav").read_bytes()


def test_the_verb_writes_over_nothing(
    tiny_corpus: MakeCorpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, other = tiny_corpus(2), tiny_corpus(2, "other")
    assert command("pack", str(manifest), "--out", str(tmp_path / "out")) == 0
    before, _ = files(tmp_path), capsys.readouterr()
    refused = [(other, "out"), (other, "tiny"), (other, "other.jsonl.gz")]
    for source, out in [*refused, (tmp_path / "none.jsonl.gz", "new"), (tmp_path / "tiny/tiny-0.wav", "new")]:
        assert command("pack", str(source), "--out", str(tmp_path / out)) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("priormatch: ")
    assert files(tmp_path) == before


def test_the_verb_explains_itself_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("pack", "--help") == 0
    assert "Example: priormatch pack" in " ".join(capsys.readouterr().out.split())
