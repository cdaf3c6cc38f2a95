"""The documentation as a site on a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Any:
    build = pytest.importorskip("mkdocs.commands.build")
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build.build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    return folder


@pytest.fixture
def make_page(browser: Any) -> Iterator[Any]:
    """Factory of pages that may complain: the theme's search cannot start from disk."""
    pages = []

    def make(width: Any) -> Any:
        pages.append(browser.new_page(viewport={"width": width, "height": 800}))
        return pages[-1]

    yield make
    for page in pages:
        page.close()


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
