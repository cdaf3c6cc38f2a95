"""`priormatch score`: rates, notes, comparisons and pages of hand-made transcripts."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lhotse import CutSet
from rich.cells import cell_len
from tiny_run import command, files

from priormatch.data.corpus import read_cuts
from priormatch.errors import UserError
from priormatch.pipeline.label import with_texts
from priormatch.pipeline.score import Scoring, perplexities, score
from priormatch.pipeline.score_files import found_sets, pairs_of
from priormatch.pipeline.score_page import alignment, as_json, page
from priormatch.recognizers.prior import ConvPrior
from priormatch.scoring.alignment import AlignedUtterance, AlignedWord
from priormatch.scoring.transcripts import Transcript, write_transcripts

SAID = ["monday at ten", "at nine", "with doctor"]
HEARD = ["monday at", "at ten", "with doctor"]  # one deletion and one substitution in seven words


def write(
    path: Path, hypotheses: Sequence[str], references: Sequence[str | None] = SAID, first: int = 0
) -> Path:
    rows = enumerate(zip(hypotheses, references, strict=True), first)
    write_transcripts(path, [Transcript(f"tiny-{i}", heard, 3, said, []) for i, (heard, said) in rows])
    return path


def text_of(scoring: Scoring, details: int | None = None, width: int = 110) -> str:
    return "\n".join(line.plain for line in page(scoring, details, width))


@pytest.fixture
def decoded(tmp_path: Path) -> Path:
    return write(tmp_path / "decoded.jsonl", HEARD)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return write(tmp_path / "bare.jsonl", HEARD, [None] * 3)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of two systems on two sets; the second run's lpm makes no errors."""
    for run, of_lpm in (("one", HEARD), ("two", SAID)):
        for system, heard in (("supervised", HEARD), ("lpm", of_lpm)):
            for test in ("clean", "noisy"):
                write(tmp_path / run / "decoded" / system / f"{test}.jsonl", heard)
    return tmp_path / "one", tmp_path / "two"


def test_a_score_by_hand(decoded: Path) -> None:
    (found,) = score([decoded]).scores
    assert (found.utterances, found.words, found.normalizer) == (3, 7, "none")
    assert found.wer == pytest.approx(200 / 7)
    assert found.cer == pytest.approx(100 * (4 + 3) / (13 + 7 + 11))  # " ten" is gone, "nine" is "ten"
    entry = json.loads(as_json(score([decoded]), None))["scores"][0]
    assert [entry[name] for name in ("substitutions", "deletions", "insertions")] == [1, 1, 0]
    assert "confusions" not in entry


def test_every_line_names_its_normalizer_and_both_sides_go_through_it(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", ["Hello, world", "it’s U.S. law"], ["hello WORLD!", "it's us law"])
    found = score([path], normalizers=["none", "basic", "english"])
    assert [round(each.wer) for each in found.scores] == [80, 40, 0]  # u s for us is one of each
    lines = [line for line in text_of(found, 1).splitlines() if "x.jsonl" in line]
    assert len(lines) == 3 + 1 + 3  # rates, a note on few utterances, details
    assert lines.pop(3).startswith(f"- {path}, normalizer none, basic, english: 2 utterances are too few")
    for number, line in enumerate(lines):
        name = ("none", "basic", "english")[number % 3]
        assert f" {name} " in line or f"normalizer {name}" in line


def test_a_note_on_many_files_stands_there_once(runs: tuple[Path, Path], tmp_path: Path) -> None:
    write(runs[1] / "decoded" / "lpm" / "clean.jsonl", ["", *HEARD[1:]])
    text = text_of(score(runs, normalizers=["none", "basic"]))
    assert text.count("too few to resample") == 1
    assert "- all 8 files, normalizer none, basic: 3 utterances are too few" in text
    assert f"- {runs[1]}/decoded/lpm/clean.jsonl, normalizer none, basic: hypotheses without words: 1" in text


def test_equal_systems_are_level(decoded: Path) -> None:
    line = text_of(score([decoded, decoded])).splitlines()[-1]
    assert "the second is equal to the first in WER (95 % 0.00 to 0.00, p = 1.0000); paired" in line


@pytest.mark.parametrize(
    ("heard", "said", "normalizer", "note"),
    [
        (["at", ""], ["at", "ten"], "none", "hypotheses without words: 1"),
        (
            ["at", "ten"],
            ["at", ""],
            "none",
            "references without words, where every word of the hypothesis is an insertion: 1",
        ),
        (["at", "?!"], ["at", "ten"], "basic", "hypotheses without words: 1"),
        (["at 9", "ten"], ["at nine", "ten"], "english", "utterances whose digits were deleted"),
        (["at", "ten"], ["at", "ten"], "none", "2 utterances are too few to resample"),
    ],
)
def test_what_a_reader_should_know_is_said(
    tmp_path: Path, heard: list[str], said: list[str], normalizer: str, note: str
) -> None:
    found = score([write(tmp_path / "x.jsonl", heard, said)], normalizers=[normalizer])
    assert f"- {tmp_path / 'x.jsonl'}, normalizer {normalizer}: {note}" in text_of(found)


def test_the_best_of_each_list_is_an_oracle(tmp_path: Path) -> None:
    lists = [
        ["a x c", "a b c", "a b"],
        ["d", "d e f"],
        ["", "g"],
    ]  # fewest errors of a b c, d e f g, g h: 0, 1, 1
    said = ["a b c", "d e f g", "g h"]
    found = [
        Transcript(f"u{number}", texts[0], 0, reference, [(text, -1.0) for text in texts])
        for number, (texts, reference) in enumerate(zip(lists, said, strict=True))
    ]
    write_transcripts(tmp_path / "a.jsonl", found)
    (scored,) = score([tmp_path / "a.jsonl"]).scores
    assert scored.wer == pytest.approx(100 * 6 / 9)
    (note,) = [each for each in scored.notes if "oracle" in each]
    assert note.startswith("n-best lists of 2.3 different texts on average")
    assert "would give 22.22 % WER" in note


def test_many_utterances_with_words_need_no_note(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", ["at 9"] * 10, ["at nine"] * 10)
    assert "Notes:" not in text_of(score([path], normalizers=["none", "basic"]))


def test_no_word_at_all_has_no_rate(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", ["at", ""], ["", ""])
    found = score([path, path])
    assert math.isnan(found.scores[0].wer)
    assert "|   n/a | n/a-n/a |" in text_of(found)
    assert "no reference has words, so there is nothing to compare" in text_of(found)
    entry = json.loads(as_json(found, 0))
    assert entry["scores"][0]["wer"] is None
    assert entry["comparisons"][0]["difference"] is None
    assert entry["comparisons"][0]["p_value"] == 1


def test_details_are_aligned_and_counted(tmp_path: Path) -> None:
    heard = ["we mete at ten today", "a|b at nine", "now at"]
    path = write(tmp_path / "x.jsonl", heard, ["we meet at ten", "b at nine", "at"])
    lines = text_of(score([path]), 2).splitlines()
    begin = lines.index(f"## {path}, normalizer none")
    assert lines[begin + 2 : begin + 14] == [
        "| count | substituted | count | deleted | count | inserted |",
        "| ----- | ----------- | ----- | ------- | ----- | -------- |",
        "| 1     | b → a\\|b    |       |         | 1     | now      |",
        "| 1     | meet → mete |       |         | 1     | today    |",
        "",
        "2 of the 3 utterances with errors, worst first (S substituted, D deleted, I inserted):",
        "",
        "tiny-0: errors 2 (1 S, 1 I), words 4",
        "",
        "    REF we meet at ten *****",
        "    HYP we mete at ten today",
        "           S           I",
    ]
    assert "tiny-1" not in "\n".join(lines)
    assert "tiny-1" in text_of(score([path]), 0), "0 lists all"
    entry = json.loads(as_json(score([path]), 1))["scores"][0]
    assert entry["worst"][0]["alignment"][1] == {
        "kind": "substitute",
        "reference": "meet",
        "hypothesis": "mete",
    }
    assert [(each["kind"], each["count"]) for each in entry["confusions"]] == [
        ("substitute", 1),
        ("insert", 1),
    ]


def test_errors_are_colored(decoded: Path) -> None:
    worst = score([decoded]).scores[0].misheard[0]
    (said, *_) = alignment(worst, 80)
    assert [said.plain[span.start : span.end] for span in said.spans if span.style == "red"] == ["nine"]


@given(st.integers(10, 60), st.lists(st.sampled_from(["a", "abcdef", "日本語", "e\u0301"]), min_size=1))
def test_folding_loses_nothing_and_keeps_to_the_width(width: int, words: list[str]) -> None:
    utterance = AlignedUtterance("u", [AlignedWord("heard", word) for word in words])
    lines = [line.plain for line in alignment(utterance, width)]
    said = [line.removeprefix("    REF ").split() for line in lines[::3]]
    assert [*chain.from_iterable(said)] == words
    assert [line.split() for line in lines[1::3]] == [["HYP", *["heard"] * len(row)] for row in said]
    assert [line.split() for line in lines[2::3]] == [["S"] * len(row) for row in said]
    for line, row in zip(lines[::3], said, strict=True):
        assert cell_len(line) <= width or len(row) == 1


def test_two_files_are_compared_on_what_they_share(tmp_path: Path, decoded: Path) -> None:
    second = write(tmp_path / "second.jsonl", ["at nine", "with doctor", "ten"], [*SAID[1:], "ten"], first=1)
    found = score([decoded, second], normalizers=["none", "basic"])
    assert [each.normalizer for each in found.comparisons] == ["none", "basic"]
    one = found.comparisons[0]
    assert (one.utterances, one.left_out, one.units) == (2, (1, 1), 2)
    assert one.test.difference == pytest.approx(25.0)
    line = next(line for line in text_of(found).splitlines() if line.startswith("- decoded and second"))
    assert line.startswith(
        "- decoded and second, normalizer none: on the 2 common utterances (left out: 1 only in the first,"
        " 1 only in the second) the second is 25.00 points of WER below the first (95 % 0.00 to 50.00, p = "
    )
    assert ", 100.0 % relative; paired bootstrap of 2 utterances; 2 utterances are too few" in line


@given(st.lists(st.tuples(*[st.sampled_from(["at", "at ten", ""])] * 2), min_size=1, max_size=4))
def test_a_system_against_itself_is_no_different(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.jsonl"
    hypotheses, references = zip(*pairs, strict=True)
    write(path, hypotheses, references)
    (found,) = score([path, path]).comparisons
    assert found.test.p_value == 1.0
    assert found.test.difference == 0.0 or not score([path]).scores[0].words
    assert len(score([path, path]).scores) == 1


def test_runs_are_compared_set_by_set(runs: tuple[Path, Path], tmp_path: Path) -> None:
    found = score(runs)
    assert [each.name for each in found.comparisons] == [
        f"{system}/{test}" for system in ("lpm", "supervised") for test in ("clean", "noisy")
    ]
    differences = [each.test.difference for each in found.comparisons]
    assert differences == pytest.approx([200 / 7, 200 / 7, 0, 0])
    assert len(found.scores) == 8
    systems = [runs[1] / "decoded" / system for system in ("supervised", "lpm")]
    assert [each.name for each in score(systems).comparisons] == ["clean", "noisy"]
    assert [each.name for each in score([each / "decoded" for each in runs]).comparisons] == [
        each.name for each in found.comparisons
    ]


def test_sets_without_a_counterpart_are_named_and_old_work_is_left_alone(runs: tuple[Path, Path]) -> None:
    one, two = runs
    (two / "decoded" / "lpm" / "noisy.jsonl").unlink()
    shutil.copytree(one / "decoded" / "lpm", one / "decoded" / "lpm.1")
    (one / "decoded" / "lpm" / ".tmp-noisy.jsonl").write_text("{half")
    found = score(runs)
    assert len(found.comparisons) == 3
    assert found.notes == [f"lpm/noisy: only in {one}, so not compared"]
    assert f"- lpm/noisy: only in {one}, so not compared" in text_of(found)


def test_what_cannot_be_compared_is_refused(runs: tuple[Path, Path], tmp_path: Path, decoded: Path) -> None:
    with pytest.raises(UserError, match=r"\(clean, noisy\) have no set name in common: provide two that do"):
        score([runs[0], runs[1] / "decoded" / "lpm"])
    with pytest.raises(UserError, match=r"decoded\.jsonl and .*other\.jsonl have no utterance in common"):
        score([decoded, write(tmp_path / "other.jsonl", ["at"], ["at"], first=9)])
    with pytest.raises(UserError, match=r"have different references, first for tiny-1: pass --ref"):
        score([decoded, write(tmp_path / "said.jsonl", HEARD, [SAID[0], "at night", SAID[2]])])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty contains no transcripts: provide a finished run"):
        score([tmp_path / "empty"])


def test_references_that_a_normalizer_makes_one_can_be_compared(tmp_path: Path, decoded: Path) -> None:
    loud = write(tmp_path / "loud.jsonl", SAID, [text.upper() for text in SAID])
    (found,) = score([decoded, loud], normalizers=["basic"]).comparisons
    assert found.test.difference == pytest.approx(200 / 7)


def test_an_utterance_that_stands_there_twice_is_refused(tmp_path: Path, decoded: Path) -> None:
    decoded.write_text(decoded.read_text() * 2)
    with pytest.raises(UserError, match="3 utterances occur more than once, the first is tiny-0: keep"):
        score([decoded])


def test_speakers_are_drawn_where_the_references_know_them(
    bare: Path, tiny_corpus: Callable[..., Path], tmp_path: Path
) -> None:
    cuts = tiny_corpus(SAID)  # ann says the first and the third, bob the second
    (found,) = score([bare], [cuts], resampled="speakers").scores
    assert (found.units, found.resampled) == (2, "speakers")
    assert found.interval == pytest.approx((100 / 5, 100 / 2))  # ann's one error in five, bob's one in two
    (of_utterances,) = score([bare], [cuts]).scores
    assert of_utterances.interval != found.interval
    assert of_utterances.wer == found.wer
    (compared,) = score([bare, bare], [cuts], resampled="recordings").comparisons
    assert (compared.units, compared.resampled) == (3, "recordings")
    assert "bootstrap samples of speakers" in text_of(score([bare], [cuts], resampled="speakers"))


def test_speakers_are_known_from_the_runs_own_data(
    runs: tuple[Path, Path], tiny_corpus: Callable[..., Path]
) -> None:
    one, two = runs
    (one / "data").mkdir()
    shutil.copy(tiny_corpus(SAID), one / "data" / "test-clean.jsonl.gz")
    shutil.copy(tiny_corpus(SAID[:1], "x"), one / "data" / "clean.jsonl.gz")
    path = one / "decoded" / "lpm" / "clean.jsonl"
    assert score([path], resampled="speakers").scores[0].units == 2
    with pytest.raises(UserError, match=r"the speakers of 3 utterances are not known, .* pass --references"):
        score([two / "decoded" / "lpm" / "clean.jsonl"], resampled="speakers")


def test_labels_of_a_manifest_are_scored_as_far_as_they_go(
    bare: Path, tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    cuts = tiny_corpus(SAID)
    labeled = tmp_path / "labeled.jsonl.gz"
    some = [with_texts(cut, [text]) for cut, text in zip(read_cuts(cuts), HEARD, strict=True)][1:]
    CutSet.from_cuts(some).to_file(labeled)
    found = score([bare, labeled], [cuts])
    assert [(each.utterances, round(each.wer, 2)) for each in found.scores] == [(3, 28.57), (2, 25.0)]
    assert not any("without a hypothesis" in note for note in found.scores[0].notes)
    assert found.scores[1].notes[0] == ("reference utterances without a hypothesis, not counted: 1")


def test_several_references_are_taken_together(tmp_path: Path, tiny_corpus: Callable[..., Path]) -> None:
    manifests = [tiny_corpus(SAID), tiny_corpus(["at ten", "at"], "more")]
    write_transcripts(tmp_path / "x.jsonl", [Transcript("more-0", "at ten", 2, None, [])])
    (found,) = score([tmp_path / "x.jsonl"], manifests).scores
    assert found.wer == 0
    assert found.notes[0].endswith("without a hypothesis, not counted: 1"), "of the cuts it is of"


def test_an_utterance_without_text_is_no_empty_reference(
    bare: Path, tmp_path: Path, tiny_corpus: Callable[..., Path]
) -> None:
    cuts = list(read_cuts(tiny_corpus(SAID)))
    cuts[1].supervisions[0].text = None
    CutSet.from_cuts(cuts).to_file(tmp_path / "some.jsonl.gz")
    with pytest.raises(UserError, match="3 utterances have no reference, the first is tiny-0: pass --ref"):
        score([bare])
    with pytest.raises(
        UserError, match="1 utterances have no reference, the first is tiny-1: provide references"
    ):
        score([bare], [tmp_path / "some.jsonl.gz"])
    with pytest.raises(UserError, match=r"none\.jsonl\.gz contains no transcribed utterance"):
        score([bare], [tiny_corpus(2, "none", transcribed=False)])


def test_a_priors_perplexity_of_hypotheses_and_references(
    bare: Path,
    tmp_path: Path,
    tiny_prior: ConvPrior,
    tiny_corpus: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny_prior.save(tmp_path / "prior")
    transcripts = [Transcript(f"u{i}", h, 3, r, []) for i, (h, r) in enumerate(zip(HEARD, SAID, strict=True))]
    ((of_heard, of_said),) = perplexities([transcripts], tmp_path / "prior")
    for texts, found in ((HEARD, of_heard), (SAID, of_said)):
        pieces = sum(len(tiny_prior.tokenizer.encode(text)) + 1 for text in texts)
        log_p = sum(float(tiny_prior.score_texts([text])[0]) for text in texts)
        assert found == pytest.approx(math.exp(-log_p / pieces), rel=1e-4)
    words = ("score", bare, "--references", tiny_corpus(SAID), "--prior", tmp_path / "prior")
    assert command(*words) == 0
    text = capsys.readouterr().out
    assert f"{of_heard:.2f}" in text
    assert f"{of_said:.2f}" in text
    assert command(*words, "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["scores"]
    assert entry["reference_perplexity"] == pytest.approx(of_said)


def test_the_verb_writes_what_it_shows(
    decoded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("score", decoded, "--details", 5, "--normalizer", "none,english")
    assert command(*words, "--out", tmp_path / "new" / "score.md") == 0
    assert (tmp_path / "new" / "score.md").read_text() == capsys.readouterr().out
    assert command(*words, "--json", "--out", tmp_path / "score.json") == 0
    assert (tmp_path / "score.json").read_text() == capsys.readouterr().out
    assert command(*words, "--out", tmp_path / "score.json", "--overwrite") == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "x.txt"), "--out x.txt: provide a file name that ends in .md or .json"),
        (("--out", "old.md"), "old.md already exists: choose another name, or use --overwrite"),
        (("--out", "old.md/x.md", "--overwrite"), "cannot write old.md/x.md"),
        (("--normalizer", "none,whisper"), "'whisper' is not a normalizer: choose from none, basic, english"),
        (("--normalizer", ""), "'' is not a normalizer"),
        (
            ("--resample", "words"),
            "'words' is not a unit to resample: choose from utterances, speakers, recordings",
        ),
        (("--resample", "speakers"), "the speakers of 3 utterances are not known"),
        (("--details", "-1"), "--details"),
        (("--prior", "nowhere"), "nowhere does not exist"),
        (("--references", "nowhere"), "no references at nowhere: provide cuts, or JSON lines"),
        (("nowhere",), "no transcripts at nowhere"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_the_verb_refuses(
    decoded: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.md").write_text("kept")
    before = files(tmp_path)
    assert command("score", decoded, *words) == 2
    assert said in capsys.readouterr().err
    assert files(tmp_path) == before


def write_lines(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize("said", ["kaldi", "data/test", "trn", "table.csv", "cuts"])
@pytest.mark.parametrize("heard", ["kaldi", "trn", "table.tsv", "text.jsonl", "whole.json", "transcribed"])
def test_text_from_elsewhere_is_scored_whatever_its_form(
    tmp_path: Path, tiny_corpus: Callable[..., Path], heard: str, said: str
) -> None:
    """Two errors in seven words, each side in each form."""
    ids = [f"tiny-{number}" for number in range(3)]
    pairs = list(zip(ids, HEARD, strict=True))
    write_lines(tmp_path / "heard/kaldi", *(f"{name} {text}" for name, text in pairs))
    write_lines(tmp_path / "heard/trn", ";; sclite", *(f"{text} ({name})" for name, text in pairs))
    write_lines(tmp_path / "heard/table.tsv", "file_name\thyp", *(f"x/{a}.wav\t{b}" for a, b in pairs))
    rows = [{"utt_id": name, "text": text} for name, text in pairs]
    write_lines(tmp_path / "heard/text.jsonl", *map(json.dumps, rows))
    write_lines(tmp_path / "heard/whole.json", json.dumps(rows))
    write_lines(tmp_path / "heard/transcribed/transcribed.jsonl", json.dumps({"file": "tiny-0.json"}))
    write_lines(tmp_path / "heard/transcribed/tiny-0.json", json.dumps({"file": "a.wav", "text": HEARD[0]}))
    for name, text in pairs[1:]:
        write_lines(tmp_path / f"heard/transcribed/{name}.txt", *text.split())  # a line for each segment
    pairs = list(zip(ids, SAID, strict=True))
    write_lines(tmp_path / "kaldi", *(f"{name}\t{text}" for name, text in pairs))
    write_lines(tmp_path / "data/test/text", *(f"{name} {text}" for name, text in pairs))
    write_lines(tmp_path / "trn", *(f"{text} ({name})" for name, text in pairs))
    write_lines(tmp_path / "table.csv", "ID;sentence;age", *(f'{name};"{text}";9' for name, text in pairs))
    references = tiny_corpus(SAID) if said == "cuts" else tmp_path / said
    (found,) = score([tmp_path / "heard" / heard], [references]).scores
    assert (found.utterances, found.words) == (3, 7)
    assert found.wer == pytest.approx(200 / 7)


def test_transcribed_recordings_are_scored_by_the_texts_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recordings, out = tmp_path / "recordings", tmp_path / "out"
    for place, word in ((recordings, "nine"), (out, "ten")):
        (place / "ann").mkdir(parents=True)
        (place / "ann" / "one.txt").write_text(f"monday at {word}")
    (recordings / "ann" / "one.wav").touch()
    (out / "more.txt").write_text("of a recording without a text")
    (out / "transcribed.jsonl").touch()
    assert command("score", out, "--references", recordings, "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["scores"]
    assert found["wer"] == pytest.approx(100 / 3)
    assert "recordings without a text file next to them, not counted: 1" in found["notes"]
    (recordings / "ann" / "one.txt").write_bytes("naïve".encode("latin1"))
    assert command("score", out, "--references", recordings) == 2
    assert "one.txt is not UTF-8 text: convert it with `iconv" in capsys.readouterr().err
    (recordings / "ann" / "one.txt").write_text("monday at nine")
    assert command("score", out, "--references", recordings, "--resample", "speakers") == 2
    assert "the speakers of 1 utterances are not known" in capsys.readouterr().err


def test_nemos_manifest_holds_both_sides(tmp_path: Path) -> None:
    rows = [{"audio_filepath": "/a/1.wav", "text": "at nine", "pred_text": "at ten"}]
    (found,) = score([write_lines(tmp_path / "nemo.json", *map(json.dumps, rows))]).scores
    assert found.wer == 50
    assert found.misheard[0].id == "1"


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("x.jsonl", ['{"id": "a", "txt": "at"}'], "x.jsonl, entry 1: no hypothesis in id, txt: name it hypo"),
        (
            "x.jsonl",
            ['{"hyp": "at"}', '{"id": 1'],
            "x.jsonl, line 1: no id in hyp: name it id or path; formats:",
        ),
        ("x.jsonl", ['{"id": 1, "hyp": "at"}', "{half"], "x.jsonl, line 2: not JSON"),
        ("x.jsonl", ['{"id": 1, "hyp": "at"}', "3"], "x.jsonl, line 2: not a JSON object"),
        ("x.csv", ["name,words", "a,at"], "x.csv, line 2: no id in name, words: name it id or"),
        ("x.csv", ["id,text", "a,at,ten"], "x.csv, line 2: 3 fields under 2 columns"),
        ("x.csv", ["id,text", 'a,"at'], "check the quotes"),
        ("x.csv", ["id,text", ",at"], "x.csv, line 2: no id in id, text"),
        ("x.txt", [], "x.txt is empty: provide JSON lines, a CSV or TSV table, Kaldi's `id words` or NIST's"),
        ("x.txt", ["we met at ten"], "no utterance of x.txt is in the references: its first is we, that"),
        ("x.txt", ["tiny-0 at", "more ten"], "x.txt: 1 utterances have no reference, the first is more"),
        ("x.txt", ["a at", "a ten"], "1 utterances occur more than once, the first is a"),
    ],
)
def test_what_is_missing_in_text_from_elsewhere_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    lines: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "said", "tiny-0 monday at ten")
    write_lines(tmp_path / name, *lines)
    assert command("score", name, "--references", "said") == 2
    assert said in capsys.readouterr().err


def test_references_that_contradict_each_other_or_are_no_text(
    tmp_path: Path, bare: Path, decoded: Path
) -> None:
    with pytest.raises(UserError, match="line 2: a occurs before with a different text"):
        score([bare], [write_lines(tmp_path / "said", "a one", "a two")])
    (tmp_path / "said").write_bytes(b"\xff\xfea\0")
    with pytest.raises(UserError, match="said is not UTF-8 text"):
        score([bare], [tmp_path / "said"])
    with pytest.raises(UserError, match="no reference in id, hypothesis, pieces: name it reference or text"):
        score([decoded], [bare])
    said = write_lines(tmp_path / "said", *(f"tiny-{i} {text}" for i, text in enumerate(SAID)))
    with pytest.raises(UserError, match="the speakers of 3 utterances are not known"):
        score([bare], [said], resampled="speakers")


def test_names_of_sets(runs: tuple[Path, Path]) -> None:
    assert list(found_sets(runs[0] / "decoded" / "lpm" / "clean.jsonl")) == ["clean"]
    assert list(found_sets(runs[0] / "decoded" / "lpm")) == ["clean", "noisy"]
    three = [found_sets(each) for each in (*runs, runs[0])]
    assert pairs_of([*runs, runs[0]], three) == ({}, []), "of three none is compared"
