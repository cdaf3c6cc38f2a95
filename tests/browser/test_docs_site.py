"""The documentation as a site, opened from disk: no errors, search, light and dark, copy buttons, phones."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.browser
pytest.importorskip("sphinx")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "--quiet", str(ROOT / "docs"), str(folder)]
    subprocess.run(build, check=True)
    return folder


@pytest.fixture
def make_page(browser: Any) -> Iterator[Any]:
    """Factory of pages, which must ask no network and have no errors or warnings; the theme logs what it does."""
    contexts: list[Any] = []
    complaints: list[str] = []
    asked: list[str] = []

    def make(width: int = 1200, dark: bool = False, **given: Any) -> Any:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **given)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda each: complaints.append(each.text) if each.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda each: None if each.url.startswith(("file:", "data:")) else complaints.append(each.url),
        )
        page.on("requestfailed", lambda each: complaints.append(f"failed: {each.url}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_no_page_has_an_error_or_asks_a_network(site: Path, make_page: Any) -> None:
    page = make_page()
    for file in sorted(site.glob("*.html")):
        page.goto(file.as_uri())
        page.wait_for_load_state("networkidle")


def test_search_finds_pages_from_disk(site: Path, make_page: Any) -> None:
    page = make_page()
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.keyboard.type("shallow fusion")
    page.keyboard.press("Enter")
    page.get_by_text("matching the search query").wait_for()
    page.locator("#search-results").get_by_role("link", name="Transcribing recordings").click()
    page.get_by_role("heading", name="Transcribing recordings").wait_for()


def test_light_and_dark_can_be_chosen_and_stay(site: Path, make_page: Any) -> None:
    page = make_page(dark=True)
    page.goto((site / "index.html").as_uri())

    def brightness() -> float:
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3]))

    assert brightness() < 200, "as the system has it"
    page.locator(".theme-switch-button:visible").click()
    page.get_by_role("button", name="Light").click()
    assert brightness() > 600
    page.goto((site / "settings.html").as_uri())
    assert brightness() > 600


def test_a_block_of_code_is_copied(site: Path, make_page: Any) -> None:
    page = make_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto((site / "tutorial.html").as_uri())
    block = page.locator("div.highlight").first
    block.hover()
    block.get_by_role("button", name="Copy").click()
    block.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").strip() == "make demo"


def test_all_pages_are_in_the_contents(site: Path, make_page: Any) -> None:
    page = make_page()
    page.goto((site / "page.html").as_uri())
    links = page.locator(".site-contents a")
    assert (
        links.count() == len([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*.rst")]) - 1
    )  # the first page
    assert page.locator(".site-contents .current > a").inner_text() == "Web page"


@pytest.mark.parametrize("width", [375, 320])
def test_no_page_is_wider_than_a_phone(site: Any, make_page: Any, width: int) -> None:
    page = make_page(width=width)
    wide = {}
    for file in sorted(site.glob("*.html")):
        page.goto(file.as_uri())
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide[file.name] = found
    assert wide == {}


def test_a_wide_table_scrolls_in_itself(site: Any, make_page: Any) -> None:
    page = make_page(width=375)
    page.goto((site / "settings.html").as_uri())
    reach = "table => [table.scrollWidth, table.clientWidth, getComputedStyle(table).overflowX]"
    held = [page.evaluate(reach, table) for table in page.query_selector_all("table")]
    assert any(whole > seen for whole, seen, _ in held)
    assert {how for _, _, how in held} == {"auto"}
