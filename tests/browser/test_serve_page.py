"""`priormatch serve` in Chromium: uploads, the microphone, uses of the prior, broken files, phones; nothing leaves."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile
from doc_blocks import ROOT, blocks
from narrowing import present
from tiny_language import speak
from tiny_run import command, make_folders

from priormatch.config import FusionSettings
from priormatch.data.pauses import Cutting
from priormatch.recognizers.decode import plain_search
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.recognizers.transcribing import transcribe
from priormatch.serve.beams import SUFFIXES

pytestmark = pytest.mark.browser
pytest.importorskip("gradio", reason="needs the extra `page`: make test-browser")

SOURCE, DOCS_PAGE = ROOT / "src", ROOT / "docs/page.md"
SECONDS = 60_000  # milliseconds to wait for what takes a moment
TALKS = {"one": ["monday morning at nine"], "two": ["doctor ten", "meeting with doctor at ten"]}


def quiet(seconds: float = 0.5) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.001, round(16_000 * seconds))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained recognizer and prior, recordings, and files that are none."""
    root = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_folders(root)
        given = ("labeled=labeled", "unlabeled=unlabeled", "text=text.txt", "training.updates=250")
        assert command("run", "tiny.yaml", *given) == 0
    for name, texts in TALKS.items():
        parts = [part for text in texts for part in (speak(text), quiet())]
        soundfile.write(root / f"{name}.wav", np.concatenate([quiet(), *parts]), 16_000)
    soundfile.write(root / "silent.wav", np.zeros(16_000), 16_000)
    soundfile.write(root / "long.flac", np.zeros(16_000 * 70), 16_000)
    soundfile.write(root / "large.wav", np.zeros(16_000 * 40), 16_000)
    (root / "empty.wav").touch()
    (root / "<b>notes.m4a").write_bytes(b"mp4")
    (root / "<b>text.wav").write_text("no audio at all")
    return root


class Server:
    """`priormatch serve` in a process of its own, which keeps recordings in a folder that is ours."""

    def __init__(self, home: Path, *words: str, model: str = "runs/tiny/supervised/model") -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}/"
        self.uploads = home / f"uploads-{self.port}"
        self.uploads.mkdir()
        given = ("--port", str(self.port), "--beam-size", "4", "--longest", "20")
        words = ("serve", model, *given, *words)
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from priormatch.cli import main; main()", *words],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(SOURCE), "TMPDIR": str(self.uploads)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # a shell's background ignores it
        )
        self.printed = ""
        while self.address not in self.printed:
            line = present(self.process.stdout).readline()
            assert line, f"the page did not start: {self.printed}"
            self.printed += line

    def kept(self) -> list[str]:
        """The names of recordings that lie on disk."""
        return sorted(path.name for path in self.uploads.rglob("*") if path.suffix in (".wav", ".flac"))

    def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it; tells the exit code."""
        self.process.send_signal(how)
        try:
            self.printed += self.process.communicate(timeout=60)[0]
        finally:
            self.process.kill()
        return self.process.returncode


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Any]:
    limits = ("--most-minutes", "1", "--most-megabytes", "1")
    started = Server(home, "--prior", "runs/tiny/prior/model", *limits)
    yield started
    started.stop()


def test_the_docs_command_serves_as_it_is_written(home: Path) -> None:
    """Started by a shell where its page says, asked for the page, and stopped with Ctrl-C."""
    (written,) = (block.code for block in blocks(DOCS_PAGE) if "priormatch serve" in block.code)
    address = present(re.search(r"`(http://127\.0\.0\.1:\d+)`", DOCS_PAGE.read_text()))[1]
    with socket.socket() as taken:
        if taken.connect_ex(("127.0.0.1", urlsplit(address).port)) == 0:
            pytest.skip(f"something else listens at {address}")
    (home / "runs/demo").symlink_to(home / "runs/tiny")
    launcher = home / "bin/priormatch"
    launcher.parent.mkdir()
    launcher.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' -c 'from priormatch.cli import main; main()' \"$@\"\n"
    )
    launcher.chmod(0o755)
    process = subprocess.Popen(
        ["bash", "-c", f"exec {written}"],
        cwd=home,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "PATH": f"{launcher.parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        said = ""
        while address not in said:
            line = present(process.stdout).readline()
            assert line, f"the page did not start: {said}"
            said += line
        assert "priormatch" in urlopen(address, timeout=60).read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)
    finally:
        process.kill()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Factory: `open_page(server, width=...)` opens the page of a new user, and minds where it sends requests."""
    contexts, asked = [], set()

    def make(server: Server, width: int = 1000, dark: bool = False, chromium: Any = browser) -> Any:
        context = chromium.new_context(
            viewport={"width": width, "height": 800},
            color_scheme="dark" if dark else "light",
            permissions=["microphone"],
        )
        contexts.append(context)
        context.set_default_timeout(SECONDS)
        page = context.new_page()
        page.on("request", lambda request: asked.add(urlsplit(request.url)[:2]))
        page.on("dialog", lambda dialog: pytest.fail("a name was run"))
        page.goto(server.address)
        page.locator("input[type=file]").wait_for(state="attached")
        return page

    yield make
    for context in contexts:
        context.close()
    outside = {each for each in asked if each[0] in ("http", "https", "ws", "wss")}
    assert outside and {host.split(":")[0] for _, host in outside} == {"127.0.0.1"}


def upload(page: Any, path: Path) -> None:
    page.locator("input[type=file]").set_input_files(path)


def words(page: Any) -> list[str]:
    """The lines of the transcript, once it is there."""
    lines = page.get_by_role("status", name="Transcript").locator("p")
    lines.first.wait_for()
    return lines.all_inner_texts()


def column(page: Any, name: str) -> list[str]:
    return page.locator(f"table.beam td.{name}").all_inner_texts()


def expected(home: Path, name: str) -> list[str]:
    model = SpeechRecognizer.load(home / "runs/tiny/supervised/model")
    found = transcribe(model, home / f"{name}.wav", search=plain_search(4), cutting=Cutting(20.0))
    return [each.text for each in found.segments]


def test_an_upload_is_transcribed_and_its_beam_shown(open_page: Any, server: Any, home: Path) -> None:
    page = open_page(server)
    upload(page, home / "one.wav")
    assert words(page) == expected(home, "one")
    rows = page.locator("table.beam tbody tr")
    assert rows.count() == 4
    assert rows.first.locator(".words").inner_text() == words(page)[0]
    log_q = [float(each) for each in column(page, "log-q")]
    assert log_q == sorted(log_q, reverse=True) and log_q[0] < 0
    assert all(float(each) < 0 for each in column(page, "log-prior"))
    assert sum(map(float, column(page, "weight"))) == pytest.approx(1, abs=0.003)
    assert not page.get_by_label("Segment").is_visible(), "there is only one"


def test_the_prior_is_used_as_chosen(open_page: Any, server: Any, home: Path) -> None:
    page, fusion = open_page(server), FusionSettings()
    upload(page, home / "one.wav")
    words(page)
    seen = {}
    for name, note in (
        ("none", "Weights are q(y|x)"),
        ("in the search", f"log q + {fusion.lm_weight:g} log py + {fusion.token_bonus:g} per token"),
        ("in the weights", "local"),
    ):
        page.get_by_label(name, exact=True).check()
        page.locator(".note", has_text=note).wait_for()
        seen[name] = [float(each) for each in column(page, "weight")]
        assert sum(seen[name]) == pytest.approx(1, abs=0.005)
    assert seen["none"] != seen["in the weights"] != seen["in the search"]
    share = np.exp([float(each) for each in column(page, "log-prior")])
    assert seen["in the weights"] == pytest.approx(share / share.sum(), abs=0.01)


def test_the_beam_of_each_segment_can_be_chosen_by_key(open_page: Any, server: Any, home: Path) -> None:
    page = open_page(server)
    upload(page, home / "two.wav")
    lines = words(page)
    assert lines == expected(home, "two") and len(lines) == 2
    first = page.locator("table.beam caption").inner_text()
    page.get_by_label("Segment").focus()
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function(f"document.querySelector('table.beam caption').innerText !== {first!r}")
    assert page.locator("table.beam .words").first.inner_text() == lines[1]
    assert words(page) == lines


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty.wav", "empty.wav: the file is empty"),
        ("<b>text.wav", "text.wav: cannot be opened"),
        ("silent.wav", "No speech was found"),
        ("long.flac", "long.flac: lasts 1m10s, but at most 1m00s are allowed here"),
        ("large.wav", "large.wav: has 1.2 MB, but at most 1 MB are allowed here"),
        ("<b>notes.m4a", "notes.m4a: is not a supported type of file; provide a WAV"),
    ],
)
def test_a_broken_upload_gets_a_sentence_and_the_next_is_transcribed(
    open_page: Any, server: Any, home: Path, name: Any, sentence: Any
) -> None:
    page = open_page(server)
    upload(page, home / name)
    page.get_by_text(sentence).wait_for()
    assert "Traceback" not in page.locator("body").inner_text()
    assert page.locator("table.beam").count() == 0
    if page.get_by_label("Clear").is_visible():
        page.get_by_label("Clear").click()
        page.get_by_text(sentence).wait_for(state="hidden")
    else:
        assert list(server.uploads.rglob(f"*{name.removeprefix('<b>')}")) == [], "it was not sent"
    upload(page, home / "one.wav")
    assert words(page) == expected(home, "one")
    assert not page.get_by_text(sentence).is_visible()


def test_a_dropped_file_is_checked_too(open_page: Any, server: Any) -> None:
    page = open_page(server)
    page.locator("button", has_text="Drop Audio Here").evaluate(
        """area => {
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File(["words"], "notes.txt", { type: "text/plain" }));
            area.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer }));
        }"""
    )
    page.get_by_text("notes.txt: is not a supported type of file").wait_for()
    assert not page.get_by_text("Invalid file type").is_visible()


def test_files_are_offered_by_what_is_read(open_page: Any, server: Any) -> None:
    page = open_page(server)
    with page.expect_file_chooser():
        page.get_by_text("Click to Upload").click()
    assert page.locator("input[type=file]").get_attribute("accept").split(",") == list(SUFFIXES)


def test_the_page_names_what_is_served_and_the_transcript(open_page: Any, server: Any, home: Path) -> None:
    page = open_page(server)
    body = page.locator("body").inner_text()
    assert "runs/tiny/supervised/model" in body and "runs/tiny/prior/model" in body
    assert "at most 1 minute or 1 MB" in body
    upload(page, home / "one.wav")
    assert words(page) == expected(home, "one")
    rows = page.locator("table.beam tbody tr")
    assert rows.filter(has_text="transcript").locator(".words").all_inner_texts() == words(page)
    weights = [float(each) for each in column(page, "weight")]
    chosen = rows.nth(weights.index(max(weights)))
    assert chosen.get_by_text("the prior’s choice").is_visible()
    choice = page.get_by_role("status", name="The prior’s choice")
    assert choice.locator("p").inner_text() == chosen.locator(".words").inner_text()
    page.get_by_label("none", exact=True).check()
    choice.wait_for(state="hidden")


def test_two_users_do_not_mix(open_page: Any, server: Any, home: Path) -> None:
    users = {name: open_page(server) for name in TALKS}
    for name, page in users.items():
        upload(page, home / f"{name}.wav")
    shown = {name: words(page) for name, page in users.items()}
    assert shown == {name: expected(home, name) for name in TALKS}
    users["one"].get_by_label("none", exact=True).check()
    users["one"].locator(".note", has_text="Weights are q(y|x)").wait_for()
    assert words(users["one"]) == shown["one"]
    assert "local prior" in users["two"].locator(".note").inner_text()


def test_the_microphone(open_page: Any, server: Any, home: Path, launch: Any) -> None:
    with launch(
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={home / 'two.wav'}",
    ) as chromium:
        page = open_page(server, chromium=chromium)
        page.get_by_label("Record audio").click()
        page.get_by_role("button", name="Record", exact=True).click()
        page.wait_for_timeout(3000)  # of the recording that plays in a loop
        page.get_by_role("button", name="Stop", exact=True).click()
        assert any(words(page))
        page.context.close()


@pytest.mark.parametrize(("width", "dark"), [(320, False), (360, True), (768, False)])
def test_it_fits_every_width_without_scrolling_sideways(
    open_page: Any, server: Any, home: Path, width: Any, dark: Any
) -> None:
    page = open_page(server, width, dark)
    upload(page, home / "two.wav")
    words(page)
    page.locator("table.beam").wait_for()
    page.get_by_role("button", name="Play", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_a_prior_it_says_why_columns_are_empty_and_ctrl_c_deletes_and_ends_quietly(
    open_page: Any, home: Path
) -> None:
    server = Server(home)
    try:
        page = open_page(server)
        assert not page.get_by_label("none", exact=True).is_visible()
        upload(page, home / "one.wav")
        assert words(page) == expected(home, "one")
        assert {*column(page, "log-prior"), *column(page, "weight")} == {"no prior"}
        assert "this page has none" in page.locator(".note").inner_text()
        assert server.kept() == ["one.wav"]
    finally:
        code = server.stop(signal.SIGINT)
    assert code == 0
    assert re.search("the page is closed", server.printed) and "Traceback" not in server.printed, (
        server.printed
    )
    assert list(server.uploads.iterdir()) == []


@pytest.fixture(scope="module")
def timed(home: Path) -> Iterator[Any]:
    """A server whose recognizer also decodes by CTC, which gives times, beside the one that matching made."""
    model = SpeechRecognizer.load(home / "runs/tiny/supervised/model")
    model.settings = replace(model.settings, ctc_weight=0.5)
    model.save(home / "timed")
    started = Server(home, "--compare", "runs/tiny/lpm/model", model="timed")
    yield started
    started.stop()


def test_a_click_on_a_word_plays_from_there(open_page: Any, timed: Any, home: Path) -> None:
    page = open_page(timed)
    upload(page, home / "two.wav")
    words(page)
    spoken = page.get_by_role("status", name="Transcript").locator(".word")
    last = spoken.last
    at = float(last.get_attribute("data-at"))
    assert 1.0 < at < 3.5
    page.evaluate("document.getElementById('recording').muted = true")
    last.click()
    page.wait_for_function(f"document.getElementById('recording').currentTime >= {at} - 0.01")
    page.wait_for_function(
        "document.querySelectorAll('.word.now').length > 0 || document.getElementById('recording').ended"
    )
    page.evaluate("document.getElementById('recording').pause()")
    page.locator(".clock").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.getElementById('recording').currentTime < {at}")


def test_two_recognizers_are_side_by_side(open_page: Any, timed: Any, home: Path) -> None:
    page = open_page(timed)
    assert "Second recognizer: runs/tiny/lpm/model" in page.locator(".served").inner_text()
    upload(page, home / "two.wav")
    words(page)
    columns = page.locator("section.transcript")
    assert columns.count() == 2
    left, right = (columns.nth(number).bounding_box() for number in (0, 1))
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
    clocks = [columns.nth(number).locator(".clock").all_inner_texts() for number in (0, 1)]
    assert set(clocks[0]) & set(clocks[1])
    differing = [columns.nth(number).locator("mark").all_inner_texts() for number in (0, 1)]
    same = columns.nth(0).locator("p").all_inner_texts() == columns.nth(1).locator("p").all_inner_texts()
    assert any(differing) != same


def test_the_transcript_can_be_copied_and_downloaded(
    open_page: Any, server: Any, home: Path, tmp_path: Path
) -> None:
    page = open_page(server)
    upload(page, home / "two.wav")
    lines = words(page)
    assert page.locator(".word").count() == 0, "attention gives times of segments alone"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for button, begins in (("Copy text", lines[0]), ("Copy SRT", "1\n00:00:0")):
        page.get_by_role("button", name=button).click()
        page.get_by_role("status").filter(has_text="copied").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()").replace("\r\n", "\n")
        assert copied.startswith(begins)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download SRT").click()
    assert download.value.suggested_filename == "two.srt"
    download.value.save_as(tmp_path / "two.srt")
    assert (tmp_path / "two.srt").read_text() == copied


def test_what_the_browser_cannot_play_is_said(open_page: Any, server: Any, home: Path) -> None:
    samples, rate = soundfile.read(home / "one.wav")
    soundfile.write(home / "one.aiff", samples, rate)
    page = open_page(server)
    upload(page, home / "one.aiff")
    assert words(page) == expected(home, "one")
    page.get_by_text("This browser cannot play this kind of file").wait_for()
