"""The documentation as a site, and what it says of verbs, settings, files and blocks that are not run."""

import inspect
import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from doc_blocks import BLOCK, KINDS, PAGES, ROOT, SHELL, blocks, prose
from narrowing import present
from tiny_run import verbs

import priormatch
from priormatch.config import all_keys

DOCS = ROOT / "docs"
MAKEFILE = (ROOT / "Makefile").read_text()
MEASURED = sorted((ROOT / "results").rglob("*.md"))
NOT_RUN = {
    ("any-recognizer.md", "downloads"),
    ("any-recognizer.md", "needs the folder above"),
    ("scale.md", "needs several GPUs"),
    ("scale.md", "needs a cluster"),
    ("scale.md", "needs a GPU"),
    ("export.md", "the demo's model decodes by attention"),
    ("README.md", "installs"),
    ("README.md", "it is what runs this"),
    ("export.md", "installs"),
    ("index.md", "installs"),
    ("install.md", "builds an image"),
    ("install.md", "installs"),
    ("models.md", "asks for your token"),
    ("page.md", "installs"),
    ("security.md", "installs"),
    ("page.md", "it serves until it is stopped"),  # but by tests/browser/test_serve_page.py
}
FILES = {"language.yaml", "model.safetensors", "model.yaml", "tokenizer.model"}  # which are no settings
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
REMOTE = re.compile(r"^(?:https?:)?//")


class Fetched(HTMLParser):
    """What a page makes a browser fetch by itself: scripts, styles, pictures, fonts."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.addresses += [
            value for name, value in attributes if name in ("src", "srcset", "poster") and value
        ]
        if tag == "link" and given.get("rel") != "canonical":
            self.addresses.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it, in another folder; a warning, such as of a link to nowhere, is an error."""
    (recipe,) = re.findall(r"^\t\$\(BIN\)/python (-m sphinx .*) docs site$", MAKEFILE, re.MULTILINE)
    folder = tmp_path_factory.mktemp("site")
    build = [
        sys.executable,
        *recipe.split(),
        "--doctree-dir",
        str(folder / "doctrees"),
        str(DOCS),
        str(folder / "html"),
    ]
    ended = subprocess.run(build, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder / "html"


def test_a_link_to_nowhere_stops_the_build(tmp_path: Path) -> None:
    for name, text in {
        "conf.py": "extensions = ['myst_parser']",
        "index.md": "# A\n\n[b](nowhere.md)\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert "--fail-on-warning" in MAKEFILE
    build = [
        sys.executable,
        "-m",
        "sphinx",
        "--fail-on-warning",
        "--quiet",
        str(tmp_path),
        str(tmp_path / "html"),
    ]
    ended = subprocess.run(build, capture_output=True, text=True)
    assert ended.returncode != 0 and "nowhere.md" in ended.stderr


def test_every_public_name_is_on_the_page_of_the_api_with_its_docstring(site: Path) -> None:
    page = unescape(re.sub(r"<[^>]*>", "", (site / "api.html").read_text(encoding="utf-8")))
    words = " ".join(page.split())
    for name in set(dir(priormatch)) - {"__version__"}:
        first = present(inspect.getdoc(getattr(priormatch, name))).split(". ")[0].split("\n\n")[0]
        plain = " ".join(first.replace("`", "").replace("'", "’").rstrip(".").split())
        assert plain[:60] in words.replace("'", "’"), name


def test_search_works_without_a_server(site: Path) -> None:
    page = (site / "search.html").read_text(encoding="utf-8")
    assert re.search(r'<script src="searchindex\.js[^"]*"', page), "a script, which browsers load from disk"
    assert "fusion" in (site / "searchindex.js").read_text(encoding="utf-8")


def test_the_site_has_every_page_and_picture(site: Path) -> None:
    made = {str(path.relative_to(site)) for path in site.rglob("*")}
    assert {f"{page.stem}.html" for page in DOCS.glob("*.md")} <= made
    targets = [target for page in DOCS.glob("*.md") for target in LINK.findall(prose(page))]
    pictures = {Path(target).name for target in targets if target.endswith(".png")}
    assert pictures and pictures <= {Path(name).name for name in made}
    assert not [name for name in made if name.endswith((".py", ".md", ".ipynb"))]


def test_nothing_in_the_site_comes_from_another_server(site: Path) -> None:
    pages = list(site.glob("*.html"))
    fetched = {address for page in pages for address in Fetched(page).addresses}
    assert any(".css" in address for address in fetched)
    assert not [address for address in fetched if REMOTE.match(address)]
    for style in site.rglob("*.css"):
        named = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')]+)", style.read_text(encoding="utf-8"))
        assert not [address for address in named if REMOTE.match(address)]


@pytest.mark.parametrize("page", [*PAGES, *MEASURED], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if not re.match(r"https?://", target):
            assert (page.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert {found["language"] for found in BLOCK.finditer(text)} <= KINDS.keys()
    assert text.count("```") == 2 * len(blocks(page))
    assert text.count("<!-- not run:") == sum(each.reason is not None for each in blocks(page))
    assert not re.search(r"^(?: {4,}|\t)(?:\$ )?(?:priormatch|make|pip|python) ", prose(page), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_heading_begins_with_a_digit_over_which_the_scripts_of_the_theme_stumble(page: Path) -> None:
    assert re.findall(r"^#+ \d.*$", prose(page), re.MULTILINE) == []


def test_the_readme_says_first_who_it_is_for_then_its_needs_then_the_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    order = [
        "It is for you if",
        "It is not for you if",
        "no pretrained model",
        "It needs",
        "make demo",
        "make test",
    ]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert text.count("\n", 0, places[-1]) < 40, "the two commands are on the first screen"


def test_the_readme_explains_the_recovered_word_error_rate_where_it_first_occurs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.match(r"WERR, the word error rate recovered,\s+is the percentage", text[text.index("WERR") :])


def test_the_tutorial_has_the_figures_of_the_readme() -> None:
    figures = re.findall(
        r"^\| .*\d \(\d.*$", (DOCS / "tutorial.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(figures) == 4
    assert "\n".join(figures) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_blocks_that_are_not_run_are_these() -> None:
    assert {
        (each.page.name, each.reason) for page in PAGES for each in blocks(page) if each.reason
    } == NOT_RUN


def test_every_verb_is_told_of() -> None:
    told = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    words = " ".join(told.split())
    assert [verb for verb in verbs() if not re.search(rf"priormatch {verb}\b", words)] == []


def test_every_verb_that_is_told_of_exists() -> None:
    known = {verb.split()[0] for verb in verbs()} | {"VERB", "prepare"}
    for page in PAGES:
        commands = [each.code for each in blocks(page) if each.kind == SHELL]
        lines = "\n".join([*re.findall(r"`([^`]+)`", prose(page)), *commands])
        told = set(re.findall(r"^priormatch ([a-z][a-z-]*)", lines, re.MULTILINE))
        assert told <= known, page.name


def test_every_setting_that_is_told_of_exists() -> None:
    keys = all_keys()
    parts = {key.split(".")[0] for key in keys if "." in key}
    for page in PAGES:
        named = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:=[^`]*)?`", prose(page))
        told = {name for name in named if name.split(".")[0] in parts} - FILES
        unknown = [name for name in told if not any(f"{key}.".startswith(f"{name}.") for key in keys)]
        assert unknown == [], page.name


def test_files_of_the_repository_that_are_told_of_exist() -> None:
    for page in PAGES:
        named = re.findall(
            r"\b((?:recipes|benchmarks|docs|tests)/[\w./-]+\.\w+)", page.read_text(encoding="utf-8")
        )
        assert [name for name in named if not (ROOT / name).exists()] == [], page.name
