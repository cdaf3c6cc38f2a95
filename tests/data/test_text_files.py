import gzip
import lzma
from pathlib import Path

import pytest
from lhotse import CutSet

from priormatch.data import text_files
from priormatch.data.audio import recording_at
from priormatch.data.manifest import utterance
from priormatch.data.text_files import find_text_files, prepare_text, read_book_ids, read_sentences
from priormatch.errors import UserError

LONG = "one two three four five six seven eight nine ten"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    if path.suffix in (".gz", ".xz"):
        data = gzip.compress(data) if path.suffix == ".gz" else lzma.compress(data)
    path.write_bytes(data)
    return path


def test_plain_and_compressed_files_become_one_sentence_a_line(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "a.txt", "\ufeffIt was\r\n\r\na day. “Yes,”\r\nsaid I"),
        write(tmp_path / "b.txt.gz", "Mr. Hall\nleft! 12.\n"),
        write(tmp_path / "c.xz", "Good-bye."),
    ]
    report = prepare_text(files, tmp_path / "out" / "text.txt")
    sentences = ["it was a day", "yes said i", "mr hall left", "good bye"]
    assert (tmp_path / "out" / "text.txt").read_text() == "".join(f"{line}\n" for line in sentences)
    assert list(read_sentences(tmp_path / "out" / "text.txt")) == sentences
    assert (report.files, report.sentences, report.words, report.transcripts) == (3, 4, 12, 0)
    assert str(report) == "4 sentences, 12 words (files read: 3)"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["text.txt"]


@pytest.mark.parametrize("size", [1, 7, 20, 1000])
def test_chunks_do_not_cut_sentences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(text_files, "CHUNK_CHARACTERS", size)
    book = write(tmp_path / "book.txt", "The day was long.\nIt rained. We.\nStayed in.\nThe End.")
    prepare_text([book], tmp_path / "out.txt")
    expected = ["the day was long", "it rained", "we", "stayed in", "the end"]
    assert list(read_sentences(tmp_path / "out.txt")) == expected


def test_lines_are_sentences_when_said_or_when_there_is_no_stop(tmp_path: Path) -> None:
    verse = write(tmp_path / "verse.txt", "the day is\nlong. And so\nis the night.")
    prepare_text([verse], tmp_path / "said.txt", lines_are_sentences=True)
    assert list(read_sentences(tmp_path / "said.txt")) == ["the day is", "long and so", "is the night"]
    clean = write(tmp_path / "clean.txt", "the day is\nlong and so")
    prepare_text([clean], tmp_path / "seen.txt")
    assert list(read_sentences(tmp_path / "seen.txt")) == ["the day is", "long and so"]


def test_books_are_excluded_by_file_or_folder_name(tmp_path: Path) -> None:
    write(tmp_path / "corpus" / "84" / "part.txt", "In the folder.")
    write(tmp_path / "corpus" / "kept" / "85.txt.gz", "In the file.")
    write(tmp_path / "corpus" / "840" / "840.txt", "Kept.")
    listed = write(tmp_path / "BOOKS.TXT", "; id | title\n84   | Frankenstein | x\n\n85\n")
    report = prepare_text([tmp_path / "corpus"], tmp_path / "out.txt", exclude_books=read_book_ids(listed))
    assert list(read_sentences(tmp_path / "out.txt")) == ["kept"]
    assert (report.files, report.excluded_books) == (1, 2)
    with pytest.raises(UserError, match=r"no sentence is left of .*part\.txt.*3 files excluded"):
        prepare_text([tmp_path / "corpus"], tmp_path / "none.txt", exclude_books={"84", "85", "840"})
    assert not (tmp_path / "none.txt").exists()


def test_overlap_is_counted_and_dropped_on_request(tmp_path: Path) -> None:
    book = write(tmp_path / "book.txt", f"Hello there. And {LONG}. Hello there. One two three. Bye.")
    transcripts = ["HELLO THERE", "hello, there!", LONG, "never said"]
    report = prepare_text([book], tmp_path / "all.txt", transcripts=transcripts)
    assert (report.transcripts, report.overlapping_transcripts, report.overlapping_sentences) == (3, 1, 2)
    assert report.shared_ngrams == 100.0
    assert (report.sentences, report.dropped_sentences) == (5, 0)
    assert "1 of 3 distinct transcripts" in str(report) and "100.00 %" in str(report)
    report = prepare_text([book], tmp_path / "less.txt", transcripts=transcripts, drop_overlap=True)
    assert list(read_sentences(tmp_path / "less.txt")) == ["one two three", "bye"]
    assert (report.overlapping_sentences, report.dropped_sentences) == (2, 3)


def test_eight_words_in_a_row_are_found_across_sentences(tmp_path: Path) -> None:
    book = write(tmp_path / "book.txt", "One two. Three four five. Six seven eight. Nine.")
    report = prepare_text([book], tmp_path / "all.txt", transcripts=[LONG])
    assert report.shared_ngrams == pytest.approx(200 / 3)
    prepare_text([book], tmp_path / "less.txt", transcripts=[LONG], drop_overlap=True)
    assert list(read_sentences(tmp_path / "less.txt")) == ["one two", "three four five", "nine"]


def test_nothing_is_written_over_unasked(tmp_path: Path) -> None:
    book, out = write(tmp_path / "book.txt", "New."), write(tmp_path / "out.txt", "old\n")
    with pytest.raises(UserError, match=r"out\.txt exists already"):
        prepare_text([book], out)
    broken = write(tmp_path / "broken.txt", "")
    broken.write_bytes(b"Fine so far.\n\xff\xfe")
    with pytest.raises(UserError, match=r"broken\.txt is not UTF-8"):
        prepare_text([book, broken], out, overwrite=True)
    assert out.read_text() == "old\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.txt", "broken.txt", "out.txt"]
    prepare_text([book], out, overwrite=True)
    assert out.read_text() == "new\n"
    with pytest.raises(UserError, match="among the files to read"):
        prepare_text([out], out, overwrite=True)


def test_text_that_is_not_utf8_is_named_with_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt.gz"
    path.write_bytes(gzip.compress("plain\nÀ la carte, caf".encode() + b"\xe9\n"))
    with pytest.raises(UserError, match=r"latin\.txt\.gz is not UTF-8 text \(byte 22 is 0xe9\).*iconv"):
        list(read_sentences(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_damaged_archives_are_named(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"book{suffix}", "".join(f"line {i * i * 7919 % 10007}\n" for i in range(2000)))
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(UserError, match=rf"book{suffix} cannot be read"):
        list(read_sentences(path))
    path.write_bytes(b"no archive at all")
    with pytest.raises(UserError, match=rf"book{suffix} cannot be read"):
        list(read_sentences(path))


def test_missing_and_empty_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no text file .*missing\.txt"):
        prepare_text([tmp_path / "missing.txt"], tmp_path / "out.txt")
    with pytest.raises(UserError, match="contains no text"):
        find_text_files([tmp_path])
    empty = write(tmp_path / "empty.txt", "\n 12 ...\n")
    with pytest.raises(UserError, match=r"no sentence is left of .*empty\.txt"):
        prepare_text([empty], tmp_path / "out.txt")
    with pytest.raises(UserError, match="lists no book"):
        read_book_ids(write(tmp_path / "ids.txt", "; only a comment\n"))
    with pytest.raises(UserError, match="cannot be created"):
        prepare_text([empty], empty / "out.txt")
    with pytest.raises(UserError, match=r"should end in \.txt"):
        prepare_text([empty], tmp_path / "out.gz")


def test_transcripts_of_a_manifest_are_sentences_and_manifests_in_folders_are_ignored(tmp_path: Path) -> None:
    cuts = [
        utterance(name, recording_at(tmp_path / f"{name}.wav", 16_000), text, None, "English")
        for name, text in (("a", "one. two"), ("b", None), ("c", "three"))
    ]
    CutSet.from_cuts(cuts).to_file(tmp_path / "labeled.jsonl.gz")
    (tmp_path / "book.txt").write_text("four. five.\n")
    prepare_text([tmp_path / "labeled.jsonl.gz", tmp_path], tmp_path / "out" / "text.txt")
    assert (tmp_path / "out" / "text.txt").read_text().split("\n") == ["one two", "three", "four", "five", ""]
