"""Take the pictures that the documentation shows, of a demo run: python docs/take_pictures.py runs/demo

Needs the extras `browser` and `page`, and Chromium (`make test-browser` gets them).
"""

import os
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import soundfile
from lhotse import CutSet
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent / "images"
PORT = 7871
# name, width, height, colors, the section at the top
PICTURES = (
    ("report-light", 1200, 1000, "light", "results"),
    ("report-dark", 1200, 1000, "dark", "teaching"),
    ("report-inspector", 1200, 1500, "light", "inspector"),
    ("report-phone", 360, 740, "light", "inspector"),
)


def main(run: Path) -> None:
    """Write `docs/images/*.png`."""
    IMAGES.mkdir(exist_ok=True)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        take_report(browser, run / "report.html")
        take_page(browser, run)
        browser.close()


def take_report(browser: Browser, report: Path) -> None:
    """The report, part by part."""
    for name, width, height, colors, section in PICTURES:
        page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colors)
        page.emulate_media(color_scheme=colors, reduced_motion="reduce")
        page.goto(report.resolve().as_uri())
        page.evaluate(f"document.getElementById('run1-{section}').scrollIntoView()")
        if section == "results":
            page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(300)  # until the players know their lengths
        page.screenshot(path=IMAGES / f"{name}.png")
        page.close()


def take_page(browser: Browser, run: Path) -> None:
    """The page of `priormatch serve` with a recording of three sentences, and the beam of the second."""
    address = f"http://127.0.0.1:{PORT}/"
    models = [f"{run}/lpm/model", "--prior", f"{run}/prior/model", "--compare", f"{run}/supervised/model"]
    serve = ["priormatch", "serve", *models, "--port", str(PORT)]
    with TemporaryDirectory() as folder:
        recording = Path(folder) / "recording.wav"
        soundfile.write(recording, three_sentences(run), 16_000)
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            while address not in server.stdout.readline():
                if server.poll() is not None:
                    sys.exit("priormatch serve did not start")
            page = browser.new_page(viewport={"width": 1000, "height": 1000})
            page.goto(address)
            page.locator("input[type=file]").set_input_files(recording)
            page.get_by_label("Segment").click()
            page.get_by_role("option").nth(1).click()
            page.locator("table.beam caption", has_text="0:04").wait_for()
            page.wait_for_timeout(1000)  # until nothing moves
            page.screenshot(path=IMAGES / "page.png", full_page=True)
        finally:
            server.terminate()
            server.wait()


def three_sentences(run: Path) -> np.ndarray:
    """Utterances of the test set of other voices with pauses between them, at 16 kHz."""
    cuts = islice(CutSet.from_file(run / "data" / "test-unseen.jsonl.gz"), 1, 4)
    pause = np.random.default_rng(0).normal(0, 1e-4, 12_000)
    return np.concatenate([pause, *(part for cut in cuts for part in (cut.load_audio()[0], pause))])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
