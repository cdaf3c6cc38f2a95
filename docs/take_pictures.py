"""Take the pictures of a report that the documentation shows: python docs/take_pictures.py runs/demo/report.html

Needs the extra `browser` and Chromium (`make test-browser` gets both).
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
# name, width, height, colours, the section at the top
PICTURES = (
    ("report-light", 1200, 1000, "light", "results"),
    ("report-dark", 1200, 1000, "dark", "teaching"),
    ("report-inspector", 1200, 1000, "light", "inspector"),
    ("report-phone", 360, 740, "light", "inspector"),
)


def main(report: Path) -> None:
    """Write `docs/images/report-*.png`."""
    IMAGES.mkdir(exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, width, height, colours, section in PICTURES:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
            page.emulate_media(color_scheme=colours, reduced_motion="reduce")
            page.goto(report.resolve().as_uri())
            page.evaluate(f"document.getElementById('run1-{section}').scrollIntoView()")
            if section == "results":
                page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(300)  # until the players know their lengths
            page.screenshot(path=IMAGES / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
