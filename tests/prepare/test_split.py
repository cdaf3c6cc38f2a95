"""Splits by lists of utterance ids."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from priormatch.cli.app import app
from priormatch.data.corpus import ALTERNATIVES, cut_texts, read_cuts
from priormatch.errors import UserError
from priormatch.prepare.split import read_ids, write_split

MakeCorpus = Callable[..., Path]


def write_ids(path: Path, *ids: str) -> Path:
    path.write_text("# a comment\n\n" + "\n".join(ids) + "\n")
    return path


def test_the_listed_cuts_come_in_the_order_of_the_list(tiny_corpus: MakeCorpus, tmp_path: Path) -> None:
    one, two = tiny_corpus(3, "one"), tiny_corpus(4, "two")
    out = tmp_path / "new" / "split.jsonl.gz"
    write_split([one, two], write_ids(tmp_path / "a.ids", "two-3", "one-0", "two-0", "one-0"), out)
    cuts = read_cuts(out)
    assert [cut.id for cut in cuts] == ["two-3", "one-0", "two-0"]
    assert cuts[1] == read_cuts(one)[0]


def test_transcripts_can_be_left_out(tiny_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus = tiny_corpus(2, "one")
    cuts = read_cuts(corpus)
    cuts[0].supervisions[0].custom = {ALTERNATIVES: ["at nine"]}
    out = tmp_path / "split.jsonl.gz"
    write_split([corpus], write_ids(tmp_path / "a.ids", "one-0", "one-1"), out, no_text=True)
    found = read_cuts(out)
    assert [cut_texts(cut) for cut in found] == [[], []]
    assert [cut.supervisions[0].speaker for cut in found] == [cut.supervisions[0].speaker for cut in cuts]


def test_what_cannot_be_split(tiny_corpus: MakeCorpus, tmp_path: Path) -> None:
    corpus, out = tiny_corpus(2, "one"), tmp_path / "split.jsonl.gz"
    missing = write_ids(tmp_path / "a.ids", "one-0", "one-7", "one-8")
    with pytest.raises(
        UserError, match=r"2 of 3 ids of .*a\.ids are in none of the manifests, such as one-7, one-8"
    ):
        write_split([corpus], missing, out)
    with pytest.raises(UserError, match=r"lists no utterance ids"):
        write_split([corpus], write_ids(tmp_path / "b.ids"), out)
    with pytest.raises(UserError, match=r"cannot read .*nowhere\.ids"):
        write_split([corpus], tmp_path / "nowhere.ids", out)
    with pytest.raises(UserError, match=r"must end in \.jsonl\.gz"):
        write_split([corpus], missing, tmp_path / "split.txt")
    assert not out.exists()
    write_split([corpus], write_ids(tmp_path / "c.ids", "one-0"), out)
    with pytest.raises(UserError, match=r"exists already"):
        write_split([corpus], tmp_path / "c.ids", out)


def test_the_verb(tiny_corpus: MakeCorpus, tmp_path: Path) -> None:
    ids, out = write_ids(tmp_path / "a.ids", "one-1"), tmp_path / "split.jsonl.gz"
    words = ["prepare", "split", str(tiny_corpus(2, "one")), "--ids", str(ids), "--out", str(out)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0
    assert "1 utterance" in done.output
    assert [cut.id for cut in read_cuts(out)] == ["one-1"]


PARTS = ("labeled", "unlabeled", "validation", "report")
SPLITS = Path(__file__).parents[2] / "recipes/splits"


@pytest.mark.parametrize("corpus", ["librispeech-small", "common-voice-small"])
def test_published_splits_share_no_utterance(corpus: str) -> None:
    parts = [{*read_ids(SPLITS / corpus / f"{name}.ids")} for name in PARTS]
    assert all(parts)
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_smaller_labeled_parts_are_nested() -> None:
    names = ("labeled-1h", "labeled-2.5h", "labeled-5h", "labeled")
    parts = [{*read_ids(SPLITS / "librispeech-small" / f"{name}.ids")} for name in names]
    assert all(small < large for small, large in pairwise(parts))
