"""Corpora laid out as released become manifests."""

import json
import math
from dataclasses import astuple
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet, MonoCut

from priormatch.data.manifest import summary
from priormatch.errors import UserError
from priormatch.prepare.corpora import join_intervals, prepare_librilight, prepare_librispeech

RATE = 16_000


def write_audio(path: Path, seconds: float) -> Path:
    """Write a ramp that repeats each second, so that every cut shows where it was taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, (np.arange(round(seconds * RATE)) % RATE) / RATE - 0.5, RATE)
    return path


def read(manifest: Path) -> dict[str, MonoCut]:
    return {cut.id: cut for cut in CutSet.from_file(manifest)}


@pytest.fixture
def librispeech(tmp_path: Path) -> Path:
    corpus = tmp_path / "LibriSpeech"
    for subset, speaker, chapter in [("train-clean-5", 19, 198), ("train-clean-5", 26, 495), ("mine", 7, 1)]:
        folder = corpus / subset / str(speaker) / str(chapter)
        lines = []
        for i, text in enumerate(["HE SAID \"DON'T", "YES  AND NO"]):
            write_audio(folder / f"{speaker}-{chapter}-{i:04d}.flac", 0.5 + i)
            lines.append(f"{speaker}-{chapter}-{i:04d} {text}\n")
        (folder / f"{speaker}-{chapter}.trans.txt").write_text("".join(lines))
    (corpus / "README.TXT").write_text("not a subset")
    (corpus / "notes").mkdir()
    return corpus


def test_librispeech(librispeech: Path, tmp_path: Path) -> None:
    manifests = prepare_librispeech(librispeech, tmp_path / "out")
    assert manifests == {name: tmp_path / f"out/{name}.jsonl.gz" for name in ("mine", "train-clean-5")}
    cuts = read(manifests["train-clean-5"])
    assert list(cuts) == ["19-198-0000", "19-198-0001", "26-495-0000", "26-495-0001"]
    (supervision,) = cuts["26-495-0000"].supervisions
    assert (supervision.text, supervision.speaker, supervision.language) == (
        "he said \"don't",
        "26",
        "English",
    )
    assert cuts["19-198-0001"].load_audio().shape == (1, 24_000)
    assert astuple(summary(cuts.values())) == pytest.approx((4, 4 / 3600, 2, 4))
    assert not list((tmp_path / "out").glob("*.tsv")) and not list((tmp_path / "out").glob(".*"))


def test_librispeech_from_the_folder_above_or_one_subset(librispeech: Path, tmp_path: Path) -> None:
    assert set(prepare_librispeech(tmp_path, tmp_path / "a", ["mine"])) == {"mine"}
    assert set(prepare_librispeech(librispeech / "mine", tmp_path / "b")) == {"mine"}
    with pytest.raises(UserError, match=r"no part dev-clean: there are mine, train-clean-5"):
        prepare_librispeech(librispeech, tmp_path / "c", ["dev-clean"])
    assert not (tmp_path / "c").exists()


def test_librispeech_lists_audio_without_text_and_text_without_audio(
    librispeech: Path, tmp_path: Path
) -> None:
    chapter = librispeech / "mine/7/1"
    write_audio(chapter / "7-1-0002.flac", 1)
    (chapter / "._7-1-0001.flac").write_bytes(b"left by a file manager")
    with (chapter / "7-1.trans.txt").open("a") as file:
        file.write("7-1-0003 LOST\n7-1-0000\n")
    manifests = prepare_librispeech(librispeech, tmp_path / "out", ["mine"], max_bad_share=0.75)
    assert list(read(manifests["mine"])) == ["7-1-0001"]
    assert (tmp_path / "out/mine.bad.tsv").read_text().splitlines() == [
        "path\treason",
        f"{chapter}/7-1-0000.flac\thas an empty line in the .trans.txt",
        f"{chapter}/7-1-0002.flac\thas no line in the .trans.txt",
        f"{chapter}/7-1-0003.flac\tcannot be opened: No such file or directory",
    ]


def test_all_manifests_of_a_corpus_appear_or_none(librispeech: Path, tmp_path: Path) -> None:
    for path in (librispeech / "train-clean-5").rglob("*.flac"):
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(UserError, match=r"none of 4 files can be used \(see .*train-clean-5.bad.tsv\)"):
        prepare_librispeech(librispeech, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train-clean-5.bad.tsv"]


def write_chapter(path: Path, seconds: float, **description: object) -> None:
    write_audio(path, seconds)
    path.with_suffix(".json").write_text(json.dumps({"snr": 9.5, "book_meta": {"id": "1"}} | description))


def test_librilight(tmp_path: Path) -> None:
    book = tmp_path / "light/small/100/a_book_64kb"
    speech = [[0.5, 1.25], [1.5, 2.25], [3.0, 3.5], [4.0, 9.0]]
    write_chapter(book / "01_a.flac", 8, speaker="100", voice_activity=speech)
    write_chapter(book / "02_a.flac", 2, speaker=100, voice_activity=[[0, 1]])
    write_chapter(tmp_path / "light/medium/7/b/03.flac", 2, voice_activity=[[0.25, 1.75]])
    manifests = prepare_librilight(tmp_path / "light", tmp_path / "out", longest=2.0)
    assert set(manifests) == {"small", "medium"}
    cuts = read(manifests["small"])
    name = "100-a_book_64kb-01_a"
    spans = [(cut.start, cut.end) for key, cut in cuts.items() if key.startswith(name)]
    assert spans == [(0.5, 2.25), (3.0, 3.5), (4.0, 6.0), (6.0, 8.0)]
    assert list(cuts)[:2] == [f"{name}-0000", f"{name}-0001"]
    assert {cut.supervisions[0].speaker for cut in cuts.values()} == {"100"}
    assert all(cut.supervisions[0].text is None for cut in cuts.values())
    samples = cuts[f"{name}-0000"].load_audio()
    assert samples.shape == (1, 28_000)
    assert samples[0, 0] == pytest.approx(0.0, abs=1e-3)
    (cut,) = read(manifests["medium"]).values()
    assert (cut.supervisions[0].speaker, cut.start, cut.duration) == ("7", 0.25, 1.5)


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        (None, "cannot read bad.json next to it: No such file"),
        ("{", "no voice_activity"),
        ("[]", "no voice_activity"),
        ('{"speaker": "1"}', "no voice_activity"),
        ('{"voice_activity": [[1]]}', "no voice_activity"),
        ('{"voice_activity": [["a", "b"]]}', "no voice_activity"),
        ('{"voice_activity": []}', "contains no speech"),
        ('{"voice_activity": [[NaN, 1], [-Infinity, 1], [5, 6], [0.5, 0.5]]}', "contains no speech"),
    ],
)
def test_librilight_lists_chapters_it_cannot_cut(
    tmp_path: Path, description: str | None, reason: str
) -> None:
    book = tmp_path / "small/1/b"
    write_chapter(book / "good.flac", 1, voice_activity=[[0, 1]])
    write_audio(book / "bad.flac", 1)
    if description is not None:
        (book / "bad.json").write_text(description)
    manifests = prepare_librilight(tmp_path / "small", tmp_path / "out")
    assert list(read(manifests["small"])) == ["1-b-good-0000"]
    assert reason in (tmp_path / "out/small.bad.tsv").read_text()


@pytest.mark.parametrize("longest", [0.0, -1.0, math.nan, math.inf])
def test_librilight_refuses_a_senseless_length(tmp_path: Path, longest: float) -> None:
    with pytest.raises(UserError, match="longest must be"):
        prepare_librilight(tmp_path, tmp_path / "out", longest)


@pytest.mark.parametrize("prepare", [prepare_librispeech, prepare_librilight])
def test_missing_and_empty_corpora(tmp_path: Path, prepare: type) -> None:
    with pytest.raises(UserError, match="nowhere does not exist"):
        prepare(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(UserError, match="contains no audio"):
        prepare(tmp_path, tmp_path / "out")


def test_joining_by_hand() -> None:
    assert join_intervals([], 10) == []
    assert join_intervals([(0, 3), (4, 8), (9, 11)], 10) == [(0, 8), (9, 11)]
    assert join_intervals([(0, 25)], 10) == [(0, 8), (8, 16), (16, 25)]
    assert join_intervals([(0, 2), (3, 18), (19, 21)], 10) == [(0, 10), (10, 18), (19, 21)]
    assert join_intervals([(5, 9), (0, 6), (7, 8)], 10) == [(0, 9)]


INTERVALS = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 120)).map(lambda pair: (pair[0], sum(pair)))
)


@given(INTERVALS, st.integers(1, 60))
def test_joined_segments_fit_and_cover_all_speech(intervals: list[tuple[int, int]], longest: int) -> None:
    segments = join_intervals(intervals, longest)
    assert all(0 < end - start <= longest for start, end in segments)
    assert all(before[1] <= after[0] for before, after in pairwise(segments))
    covered = {t for start, end in segments for t in range(start, end)}
    assert covered >= {t for start, end in intervals for t in range(start, end)}
    edges = [edge for start, end in intervals if start < end for edge in (start, end)]
    assert not segments or (segments[0][0], segments[-1][1]) == (min(edges), max(edges))
