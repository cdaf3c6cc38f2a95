"""Manifests with too many cuts for memory are read from an index on disk, with the same result."""

import json
import multiprocessing
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from lhotse import CutSet

from priormatch.config import AudioSettings, BatchSettings
from priormatch.data import index
from priormatch.data.batches import Batch, BatchStream, UtteranceReader
from priormatch.data.corpus import Corpus, durations_of, ids_of, open_cuts, read_cuts, transcribed_ones
from priormatch.data.index import IndexedCuts, index_of
from priormatch.data.tokenizer import Tokenizer
from priormatch.errors import UserError

AUDIO = AudioSettings(shortest=0.3, longest=20.0)
TEXTS = ["monday at nine", "ten", "meeting at nine", "doctor", "tuesday at ten"]


@pytest.fixture
def manifest(tiny_corpus: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest with more cuts than may stay in memory, one of them without a transcript."""
    monkeypatch.setattr(index, "MOST_IN_MEMORY", 3)
    manifest = tiny_corpus(TEXTS)
    cuts = read_cuts(manifest)
    cuts[3].supervisions[0].text = None
    CutSet.from_cuts(cuts).to_file(manifest)
    return manifest


def test_an_index_has_the_cuts_and_columns_of_its_manifest(manifest: Path) -> None:
    cuts, found = read_cuts(manifest), open_cuts(manifest)
    assert isinstance(found, IndexedCuts)
    assert [each.to_dict() for each in found] == [each.to_dict() for each in cuts]
    assert found[-1].id == cuts[-1].id
    for column in (ids_of, durations_of, transcribed_ones):
        assert [*column(found)] == [*column(cuts)]
    with pytest.raises(IndexError):
        found[5]


def test_parts_of_an_index_are_parts_of_its_columns(manifest: Path) -> None:
    found = open_cuts(manifest)[1:]
    assert isinstance(found, IndexedCuts)
    part = found.only(np.array([True, False, False, True]))
    assert [each.id for each in part] == [*part.ids] == ["tiny-1", "tiny-4"]
    assert [*part.durations] == [each.duration for each in part]
    assert [*part.transcribed] == [True, True]
    assert found.only(np.ones(4, np.bool_)) is found


def test_a_pickled_index_names_its_folder_and_holds_no_cuts(manifest: Path) -> None:
    found = open_cuts(manifest)[1:3]
    again = pickle.loads(pickle.dumps(found))  # as a worker process gets it
    assert [each.id for each in again] == [each.id for each in found]


def test_small_manifests_stay_in_memory(tiny_corpus: Callable[..., Path]) -> None:
    manifest = tiny_corpus(TEXTS)
    assert isinstance(open_cuts(manifest), list)
    assert not index_of(manifest).exists()


def test_an_indexed_corpus_gives_the_same_batches(
    manifest: Path, tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(workers: int) -> list[Batch]:
        corpus = Corpus.load(manifest, AUDIO, transcribed=True)
        reader = UtteranceReader(corpus, tiny_tokenizer, 0.5, (0.9, 1.1))
        stream = BatchStream(reader, BatchSettings(seconds=1.5), 3, 2, workers=workers)
        try:
            return [part for _ in range(6) for part in stream.take()]
        finally:
            stream.close()

    indexed = batches(2)
    monkeypatch.setattr(index, "MOST_IN_MEMORY", 100)
    index_of(manifest).rename(manifest.with_name("elsewhere"))
    for ours, plain in zip(indexed, batches(0), strict=True):
        assert ours.ids == plain.ids
        assert torch.equal(ours.waveforms, plain.waveforms)
        assert torch.equal(ours.labels, plain.labels)


def test_a_changed_manifest_gets_a_new_index(manifest: Path, tiny_corpus: Callable[..., Path]) -> None:
    open_cuts(manifest)
    other = tiny_corpus(TEXTS[:4], name="other")
    os.replace(other, manifest)
    assert [*ids_of(open_cuts(manifest))] == ["other-0", "other-1", "other-2", "other-3"]
    assert {path.name for path in manifest.parent.glob("*tiny*")} == {
        "tiny",
        manifest.name,
        index_of(manifest).name,
    }


def test_an_unfinished_index_is_not_used_and_leaves_nothing(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        open_cuts(manifest)
    monkeypatch.undo()
    assert sorted(path.name for path in manifest.parent.iterdir()) == ["tiny", "tiny.jsonl.gz"]


def test_a_bad_line_is_named_and_leaves_no_index(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps(each.to_dict()) for each in read_cuts(manifest)]
    manifest = manifest.with_name("bad.jsonl")
    manifest.write_text("\n".join([*lines, "{}"]) + "\n")
    with pytest.raises(UserError, match=r"bad.jsonl is not a usable manifest of cuts: line 6"):
        open_cuts(manifest)
    assert not index_of(manifest).exists()


@pytest.mark.parametrize("damage", ["index.json", "lines.jsonl", "begins.npy", "durations.npy"])
def test_a_damaged_index_is_named(manifest: Path, damage: str) -> None:
    open_cuts(manifest)
    file = index_of(manifest) / damage
    file.write_bytes(b"\xff" * file.stat().st_size)
    with pytest.raises(UserError, match=r"tiny.jsonl.gz.index is damaged \(.*\): remove it"):
        open_cuts(manifest)[0]


def test_columns_of_different_lengths_are_damage(manifest: Path) -> None:
    open_cuts(manifest)
    np.save(index_of(manifest) / "durations.npy", np.ones(6))
    with pytest.raises(UserError, match=r"damaged \(its columns have different lengths\)"):
        open_cuts(manifest)


def test_an_index_that_lacks_a_file_is_made_again(manifest: Path) -> None:
    open_cuts(manifest)
    (index_of(manifest) / "lines.jsonl").unlink()
    assert [each.id for each in open_cuts(manifest)] == [f"tiny-{number}" for number in range(5)]


def test_a_folder_that_cannot_be_written_is_named(manifest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(UserError, match="put the manifest into a folder that can be written"):
        open_cuts(manifest)


def _number_of_cuts(manifest: Path, _: int) -> int:
    index.MOST_IN_MEMORY = 3
    return len(open_cuts(manifest))


def test_processes_that_begin_together_share_one_index(tiny_corpus: Callable[..., Path]) -> None:
    manifest = tiny_corpus(TEXTS)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.starmap(_number_of_cuts, [(manifest, each) for each in range(4)]) == [5] * 4
    assert sorted(path.name for path in manifest.parent.iterdir()) == [
        "tiny",
        "tiny.jsonl.gz",
        "tiny.jsonl.gz.index",
    ]
