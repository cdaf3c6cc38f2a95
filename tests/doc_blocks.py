"""The blocks of code in the README and in docs/: what is to be run, and what says why it is not."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL, PYTHON, SHOWN = "shell", "python", "shown"
KINDS = {"": SHELL, "bash": SHELL, "python": PYTHON, "text": SHOWN, "yaml": SHOWN}
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<reason>.+?) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, the line it begins at, what it is, and why it is not run, where it is not."""

    page: Path
    line: int
    kind: str
    code: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")),
            KINDS[found["language"]],
            found["code"],
            found["reason"],
        )
        for found in BLOCK.finditer(text)
    ]


def runnable(page: Path) -> list[Block]:
    """The blocks of a page that are commands or code, and give no reason against running them."""
    return [each for each in blocks(page) if each.kind != SHOWN and each.reason is None]


def prose(page: Path) -> str:
    """A page without its blocks."""
    return BLOCK.sub("", page.read_text(encoding="utf-8"))
