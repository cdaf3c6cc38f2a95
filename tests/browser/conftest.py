"""Chromium for the tests of pages, in light or dark, wide or narrow; a page that complains fails its test."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--disable-quic", "--no-first-run"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def launch() -> Iterator[Any]:
    """Factory: `with launch(flag, ...)` runs Chromium as the system has it, or as the variable CHROMIUM names it."""
    library = pytest.importorskip(
        "playwright.sync_api", reason="needs the extra `browser`: make test-browser"
    )
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs Chromium: make test-browser")
    with library.sync_playwright() as playwright:

        @contextmanager
        def run(*flags: str) -> Iterator[Any]:
            chromium = playwright.chromium.launch(executable_path=found, args=[*FLAGS, *flags])
            yield chromium
            chromium.close()

        yield run


@pytest.fixture(scope="session")
def browser(launch: Any) -> Iterator[Any]:
    """Chromium without further flags."""
    with launch() as chromium:
        yield chromium


@pytest.fixture
def make_page(browser: Any) -> Iterator[Any]:
    """Factory: `make_page(width=..., dark=...)` opens an empty page, which at the end must have had no errors."""
    complaints: list[str] = []
    contexts = []

    def make(width: int = 1200, height: int = 900, dark: bool = False) -> Any:
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield make
    for context in contexts:
        context.close()
    assert complaints == []
