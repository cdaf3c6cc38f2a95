"""The page: what stands in it, that nothing in it is taken for markup, and where it is written."""

import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tiny_report import SCRIPT, make_run, write_metrics
from tiny_run import command

from priormatch.config import ModelSettings
from priormatch.errors import UserError
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.report.curves import refreshes
from priormatch.report.page import render, write_report
from priormatch.report.run_folder import read_run
from priormatch.scoring.transcripts import Transcript, write_transcripts

VOID = {"meta", "img"}


class Page(HTMLParser):
    """Collects tags, ids and what elements hold, and minds that they are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.ids: list[str] = []
        self.hrefs: list[str] = []
        self.open: list[str] = []
        self.headings: list[int] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.tags.append((tag, found))
        self.ids += [found["id"]] if "id" in found else []
        self.hrefs += [found["href"]] if "href" in found else []
        self.headings += [int(tag[1])] if re.fullmatch("h[1-6]", tag) else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attributes}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "tiny")


def test_a_page_holds_everything_of_its_run(run: Path) -> None:
    text = render([read_run(run)])
    for part in (
        "66.7 % of the gap to the topline closed",
        "local prior matching is 22.22 points of WER below supervised",
        "replaced 1 times in 2 decisions",
        "Latest proposal, taken at update 20",
        "Of 3 with a reference, 3 had a hypothesis",
        "test: character error rate, %",
        "dropped: too short, 2 for 4",
        '<del title="reference">monday</del>',
        "mind the gap",
        "training.updates",
        "abc123",
        "1m01s",
        "data:audio/mpeg;base64,",
        "No alarm",
        "Word errors by kind",
        "test: word error rates of 2 speakers",
        "&lt;carl&gt;",
        "test: the 1 utterance with the most errors of local prior matching",
        "without words, because matching has left no model yet",
    ):
        assert part in text, part


def test_the_page_is_well_formed_and_needs_nothing_else(run: Path) -> None:
    page = Page(render([read_run(run)]))
    assert len(set(page.ids)) == len(page.ids)
    assert {href[1:] for href in page.hrefs} <= set(page.ids), "links lead to places in the page"
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object")
        assert attributes.get("src", "data:").startswith("data:")
    assert page.headings[0] == 1
    assert all(later <= earlier + 1 for earlier, later in zip(page.headings, page.headings[1:], strict=False))
    seen = [each for tag, each in page.tags if tag in ("svg", "audio") and each.get("aria-hidden") != "true"]
    assert seen and all(each.get("aria-label") for each in seen)


def test_what_was_said_stays_text(run: Path) -> None:
    (run / "settings.yaml").write_text(f"name: '{SCRIPT}'\ntest: {{'<b>': '\"><script>'}}\n")
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "<script>", "update": 1, "loss": 1.0}\n')
    text = render([read_run(run)])
    page = Page(text)
    assert [tag for tag, _ in page.tags].count("script") == 1, "the page's own"
    assert "b" not in {tag for tag, attributes in page.tags if attributes}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert SCRIPT not in text


def test_the_script_is_the_one_the_policy_allows(run: Path) -> None:
    import base64
    import hashlib

    text = render([read_run(run)])
    (script,) = re.findall("<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = next(each["content"] for tag, each in Page(text).tags if each.get("http-equiv"))
    assert f"script-src 'sha256-{digest}'" in allowed


def test_an_unfinished_run_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("name: begun\n")
    text = render([read_run(tmp_path)])
    Page(text)
    for part in ("The run is not finished", "No test set has been decoded yet", "No beams were kept"):
        assert part in text


def test_alarms_are_shown(run: Path) -> None:
    write_metrics(run, [{"stage": "lpm", "update": 10, "length_ratio": 0.2}])
    text = render([read_run(run)])
    assert "outputs are getting shorter" in text.replace("\n", " ")
    assert "No alarm" not in text


def test_runs_side_by_side(tmp_path: Path) -> None:
    one, other = make_run(tmp_path / "one" / "run"), make_run(tmp_path / "other" / "run")
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "settings.yaml").write_text("name: begun\n")
    page = Page(render([read_run(each) for each in (one, other, begun)]))
    assert len(set(page.ids)) == len(page.ids)
    assert {"comparison", "run1", "run2", "run3", "run3-results"} <= set(page.ids)
    text = render([read_run(one), read_run(begun)])
    assert "Report of 2 runs" in text
    assert ">tiny</a>" in text
    assert '<th scope="rowgroup" colspan="4">local prior matching</th>' in text
    for name in ("training.seed", "matching.beam_size"):
        assert f"<code>{name}</code></th><td" in text.split('id="run1"')[0], "in the settings that differ"


def test_what_taught_nothing_is_not_passed_over_in_silence(run: Path) -> None:
    path = run / "lpm" / "inspected.jsonl"
    *others, last = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*others, last.replace('"weight": 1.0', '"weight": 0.0')]))
    text = " ".join(render([read_run(run)]).split())
    assert (
        "Of 3 with a reference, 2 had a hypothesis left after the filter in both the first and the last beam"
        in text
    )
    assert "The other 1 had none in one beam or both, and is not counted." in text


def test_the_history_of_the_proposal(run: Path) -> None:
    found = [
        (each.update, each.online, each.before, each.taken) for each in refreshes(read_run(run).matching)
    ]
    assert found == [(0, 20.0, None, False), (20, 15.0, 20.0, True), (40, 16.0, 15.0, False)]


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    path = write_report([run])
    before = path.read_bytes()
    assert write_report([run]) == path == run / "report.html"
    assert path.read_bytes() == before


def test_no_other_file_is_written_over(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.html"
    other.write_text("mine")
    with pytest.raises(UserError, match="exists and is not a priormatch report"):
        write_report([run], other)
    assert other.read_text() == "mine"
    with pytest.raises(UserError, match="is a folder"):
        write_report([run], tmp_path)
    with pytest.raises(UserError, match="given twice"):
        write_report([run, run / ".." / run.name], tmp_path / "new.html")
    assert not (tmp_path / "new.html").exists()


def test_the_verb(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("report", run, "--out", "deep/page.html") == 0
    assert "report: deep/page.html" in capsys.readouterr().err
    other = make_run(tmp_path / "other")
    assert command("report", run, other) == 0
    assert (tmp_path / "report.html").is_file()
    assert command("report", tmp_path) == 2
    assert "is not the folder of a run" in capsys.readouterr().err


def test_words_are_aligned_by_the_model_that_matching_left(
    run: Path, tiny_recognizer: SpeechRecognizer, tiny_model_settings: ModelSettings
) -> None:
    tiny_recognizer.save(run / "lpm" / "model")
    page = Page(text := render([read_run(run)]))
    assert "attention weights of the tokens of: meeting at nine" in text
    pictures = [each for tag, each in page.tags if tag == "img"]
    assert {each["class"] for each in pictures} == {"spectrogram", "weights"}
    assert all(each["src"].startswith("data:image/png;base64,") and each["alt"] for each in pictures)
    ctc = SpeechRecognizer(replace(tiny_model_settings, kind="ctc"), tiny_recognizer.tokenizer)
    shutil.rmtree(run / "lpm" / "model")
    ctc.save(run / "lpm" / "model")
    text = render([read_run(run)])
    Page(text)
    assert "where CTC aligns: monday" in text and "attention weights" not in text


def test_the_rows_of_many_tokens_have_no_names(run: Path, tiny_recognizer: SpeechRecognizer) -> None:
    tiny_recognizer.save(run / "lpm" / "model")
    write_transcripts(
        run / "decoded" / "lpm" / "test.jsonl", [Transcript("t0", "monday at nine " * 20, 3, "at", [])]
    )
    text = render([read_run(run)])
    assert re.search(r"<span class=\"axis\">\d\d+ tokens</span>", text)


def test_a_model_that_cannot_be_loaded_leaves_a_sentence(run: Path) -> None:
    (run / "lpm" / "model").mkdir()
    text = render([read_run(run)])
    assert re.search(r"without words, because \S*lpm/model cannot be loaded: ", text)


def test_pages_of_a_run_without_its_data_say_that_there_is_no_audio(run: Path) -> None:
    (run / "data" / "test.jsonl.gz").unlink()
    text = render([read_run(run)])
    assert "audio: not found in the data of the run" in text
    assert "speakers</summary>" not in text
