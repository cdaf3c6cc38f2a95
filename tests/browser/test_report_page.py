"""The report in Chromium: it needs no network, plays, switches by click and key, and fits phones and paper."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from tiny_language import sentences
from tiny_report import make_run

from priormatch.config import ModelSettings
from priormatch.data.tokenizer import train_tokenizer
from priormatch.recognizers.recognizer import SpeechRecognizer
from priormatch.report.page import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("report")
    one, other = make_run(folder / "one", "one"), make_run(folder / "other", "other")
    return {
        "single": write_report([one]).as_uri(),
        "several": write_report([one, other], folder / "both.html").as_uri(),
    }


def visible(page: Any) -> Any:
    return [panel.get_attribute("id") for panel in page.locator(".panel:visible").all()]


def test_nothing_is_asked_of_any_network(make_page: Any, report: Any) -> None:
    page, asked = make_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report["single"])
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith("data:")] == [report["single"]]


def test_the_audio_decodes(make_page: Any, report: Any) -> None:
    page = make_page()
    page.goto(report["single"])
    assert page.locator(".panel audio").count() == 3
    assert page.locator("details.worst audio").count() == 1
    page.wait_for_function("[...document.querySelectorAll('audio')].every(each => each.readyState > 0)")
    lengths = [audio.evaluate("audio => audio.duration") for audio in page.locator("audio").all()]
    assert all(0.4 < each < 0.8 for each in lengths), lengths


def test_the_player_plays_and_stops_when_another_utterance_is_chosen(make_page: Any, report: Any) -> None:
    page = make_page()
    page.goto(report["single"])
    audio = page.locator(".panel audio").first
    audio.evaluate("audio => { audio.loop = true; audio.muted = true; return audio.play(); }")
    assert not audio.evaluate("audio => audio.paused")
    page.get_by_role("tab").nth(1).click()
    assert audio.evaluate("audio => audio.paused")


@pytest.mark.parametrize("kind", ["single", "several"])
def test_the_inspector_switches_by_click(make_page: Any, report: Any, kind: str) -> None:
    page = make_page()
    page.goto(report[kind])
    first = [f"run{run}-utterance1" for run in ((1,) if kind == "single" else (1, 2))]
    assert visible(page) == first
    page.get_by_role("tab").nth(2).click()
    assert visible(page) == ["run1-utterance3", *first[1:]]
    assert page.get_by_role("tab", selected=True).first.get_attribute("id") == "run1-pick3"


def test_the_inspector_switches_by_key(make_page: Any, report: Any) -> None:
    page = make_page()
    page.goto(report["single"])
    page.get_by_role("tab").first.focus()
    shown = []
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft", "Home", "End", "ArrowUp"):
        page.keyboard.press(key)
        (panel,) = visible(page)
        shown.append(panel[-1])
        assert page.evaluate("document.activeElement.getAttribute('aria-controls')") == panel
    assert "".join(shown) == "2313132"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('.picker')") is None, "one tab is one stop"


def test_what_was_said_stays_text(make_page: Any, report: Any) -> None:
    page = make_page()
    page.on("dialog", lambda dialog: pytest.fail("a transcript was run"))
    page.goto(report["single"])
    page.get_by_role("tab").nth(1).click()
    assert "<script>alert(1)</script>" in page.locator(".panel:visible dd").first.inner_text()


def test_an_injected_script_would_not_run(report: Any, tmp_path: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto(report["single"])
    hostile = tmp_path / "hostile.html"
    injected = "<main><script>document.title = 'taken'</script>"
    hostile.write_text(page.content().replace("<main>", injected), encoding="utf-8")
    page.goto(hostile.as_uri())
    assert page.title() == "one – priormatch"
    page.close()


@pytest.mark.parametrize("kind", ["single", "several"])
@pytest.mark.parametrize(("width", "dark"), [(360, False), (360, True), (768, False), (1200, True)])
def test_it_fits_every_width_without_scrolling_sideways(
    make_page: Any, report: Any, kind: str, width: int, dark: bool
) -> None:
    page = make_page(width, 740, dark)
    page.goto(report[kind])
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_on_a_phone_no_column_is_cut_off(make_page: Any, report: Any) -> None:
    page = make_page(375)
    page.goto(report["single"])
    for details in page.locator("details").all():
        details.evaluate("each => each.open = true")
    tables = page.locator(".scroll").evaluate_all(
        "all => all.map(each => each.scrollWidth - each.clientWidth)"
    )
    assert len(tables) == 7 and set(tables) == {0}
    label = page.locator(".panel:visible .log-prior .label").first
    assert label.is_visible() and label.inner_html() == "log p<sub>y</sub> "


def test_legends_show_lines_as_they_are_drawn(make_page: Any, report: Any) -> None:
    page = make_page()
    page.goto(report["single"])
    dashes = "all => all.map(each => getComputedStyle(each).strokeDasharray)"
    for chart in page.locator(".chart:has(.legend)").all():
        drawn = chart.locator("svg[role=img] path").evaluate_all(dashes)
        assert drawn == chart.locator(".sample path").evaluate_all(dashes) != []
        assert len(set(drawn)) == len(drawn), "told apart without color"


def brightness(page: Any, selector: Any, name: Any) -> Any:
    color = page.locator(selector).first.evaluate(f"each => getComputedStyle(each)['{name}']")
    return sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3]))


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark(make_page: Any, report: Any, dark: bool) -> None:
    page = make_page(dark=dark)
    page.goto(report["single"])
    page_color, ink = brightness(page, "body", "backgroundColor"), brightness(page, "body", "color")
    assert (page_color < 200 and ink > 500) if dark else (page_color > 700 and ink < 200)
    assert (brightness(page, "svg text", "fill") > page_color) == dark


def test_on_paper_all_utterances_and_tables_are_shown_in_dark_ink(make_page: Any, report: Any) -> None:
    page = make_page(dark=True)
    page.goto(report["single"])
    page.emulate_media(media="print")
    assert len(visible(page)) == 3
    assert page.locator("audio:visible").count() == 0
    assert page.get_by_text("replaced", exact=True).is_visible()
    assert brightness(page, "body", "color") == 0
    broken = "each => getComputedStyle(each).breakInside"
    assert page.locator(".panel").first.evaluate(broken) == "auto", "utterances flow from page to page"
    assert page.locator(".beam").first.evaluate(broken) == "avoid"
    assert page.locator(".share").first.evaluate("each => getComputedStyle(each).printColorAdjust") == "exact"
    assert len(page.pdf()) > 10_000


def test_without_scripts_everything_is_there(browser: Any, report: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report["single"])
    assert page.locator(".panel:visible").count() == 3
    context.close()


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A report with audio on whose time axis words are: by attention, and by CTC."""

    folder, found = tmp_path_factory.mktemp("aligned"), {}
    tiny = ModelSettings(n_mels=20, channels=[2, 3], blocks=[1, 1], kernel=5, size=16)
    kinds: tuple[Literal["attention", "ctc"], ...] = ("attention", "ctc")
    for kind in kinds:
        run = make_run(folder / kind)
        model = SpeechRecognizer(replace(tiny, kind=kind), train_tokenizer(sentences(200), 31))
        model.save(run / "lpm" / "model")
        found[kind] = write_report([run]).as_uri()
    return found


def test_pictures_load_and_words_are_beside_their_axis(make_page: Any, aligned: Any) -> None:
    page = make_page()
    page.goto(aligned["attention"])
    shown = page.locator(".panel:visible .view img")
    assert shown.count() == 2
    assert all(each.evaluate("img => img.complete && img.naturalWidth > 0") for each in shown.all())
    tokens = page.locator(".panel:visible .tokens")
    picture = shown.nth(1)
    assert tokens.bounding_box()["height"] == pytest.approx(picture.bounding_box()["height"], abs=3)
    page.goto(aligned["ctc"])
    page.locator("details.worst summary").click()
    word = page.locator("details.worst .words span").first
    assert word.inner_text() == "monday"
    view = page.locator("details.worst .view.words").bounding_box()
    box = word.bounding_box()
    assert view["x"] <= box["x"] and box["x"] + box["width"] <= view["x"] + view["width"] + 1


READY = """audio => new Promise(done => {
    audio.muted = true;
    audio.readyState > 0 ? done() : audio.addEventListener("loadedmetadata", done);
})"""
PAST_THE_MIDDLE = """audio => new Promise(done => {
    const look = () => audio.currentTime >= 0.2 ? done() : requestAnimationFrame(look);
    look();
})"""


def test_a_click_on_the_spectrogram_plays_from_there(make_page: Any, aligned: Any) -> None:
    page = make_page()
    page.goto(aligned["attention"])
    audio = page.locator(".panel:visible audio")
    audio.evaluate(READY)
    spectrogram = page.locator(".panel:visible .view").first
    box = spectrogram.bounding_box()
    spectrogram.click(position={"x": 0.5 * box["width"], "y": 10})
    audio.evaluate(PAST_THE_MIDDLE)
    sound = page.locator(".panel:visible .sound")
    assert sound.evaluate("each => parseFloat(each.style.getPropertyValue('--now'))") >= 40


def test_speakers_and_kinds_of_errors_are_tables(make_page: Any, report: Any) -> None:
    page = make_page()
    page.goto(report["single"])
    page.get_by_text("word error rates of 2 speakers").click()
    table = page.get_by_role("region", name="Error rates by speaker, test")
    assert table.locator("tbody th").all_inner_texts() == ["<carl>", "bea"]
    kinds = page.get_by_role("region", name="Word errors by kind")
    assert kinds.locator("tr.ours td").all_inner_texts() == ["1", "0", "0"]
