"""The documentation as a site (Sphinx): `make docs` builds it into site/. Pages load nothing from other servers."""

import sys
from pathlib import Path
from textwrap import indent
from typing import Any

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "src"))

import priormatch  # noqa: E402 (after the path to this clone's sources)

CONTENTS = {
    "Getting started": (
        "install",
        "tutorial",
        "your-audio",
        "start-from",
        "low-resource",
        "any-recognizer",
        "troubleshooting",
    ),
    "Guides": ("stages", "report", "transcribe", "page", "scoring", "models", "scale", "export"),
    "Background": ("method", "variants", "diagnostics", "demo", "tables", "speed", "reliability", "security"),
    "Reference": ("settings", "api", "extend", "text-to-text"),
}

project = "priormatch"
version = release = priormatch.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_static", "_templates"]
myst_heading_anchors = 6  # links to headings, as code hosts resolve them

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
python_maximum_signature_line_length = 80
default_role = "code"  # docstrings are Markdown: `one` backtick

html_theme = "pydata_sphinx_theme"
html_title = "priormatch"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_search_summary = False  # would fetch pages, which browsers refuse from disk
html_context = {"default_mode": "auto"}
html_sidebars = {"**": ["contents.html"]}
templates_path = ["_templates"]
html_theme_options = {
    "navbar_center": [],
    "navbar_persistent": ["search-button-field"],
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the table of contents to the first page; its file stays readable on code hosts."""
    if page == "index":
        for title, pages in CONTENTS.items():
            source[0] += "\n".join(
                ["", "```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```", ""]
            )


def as_restructured_text(
    app: Sphinx, what: str, name: str, thing: object, options: Any, lines: list[str]
) -> None:
    """Convert a docstring: indented examples and aligned lists become blocks, and bars are no markup."""
    paragraphs = "\n".join(lines).strip("\n").split("\n\n")
    lines[:] = "\n\n".join(map(converted, paragraphs)).splitlines()


def converted(paragraph: str) -> str:
    """Convert one paragraph."""
    indented = [line.startswith(" ") for line in paragraph.splitlines()]
    if not any(indented):
        return paragraph.replace("|", "\\|")
    kind = "python" if all(indented) else "text"
    return f".. code-block:: {kind}\n\n{indent(paragraph, '   ')}"


def setup(app: Sphinx) -> None:
    """Register the two hooks."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-docstring", as_restructured_text)
