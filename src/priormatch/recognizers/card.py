"""Model cards: the README.md of a model folder, with the metadata that the Hub indexes."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from priormatch.errors import UserError
from priormatch.files import replace_text
from priormatch.yaml_files import checked

CARD = "README.md"
MARK = re.compile(r"<!-- written by priormatch, which leaves an edited card alone: ([0-9a-f]{16}) -->\n\Z")
RULE = re.compile(r"^---\n", re.MULTILINE)  # a whole line, because a value may end in dashes too


@dataclass(frozen=True)
class Card:
    """The content of a card: metadata, a title, a summary of the model, and text sections by heading."""

    facts: dict[str, Any]
    title: str
    summary: str
    sections: dict[str, str]


def render(card: Card) -> str:
    """Render the card as Markdown; a hash in its last line reveals later edits."""
    front = yaml.safe_dump(card.facts, sort_keys=False, allow_unicode=True)
    parts = [
        f"# {card.title}",
        card.summary,
        *(f"## {name}\n\n{text}" for name, text in card.sections.items()),
    ]
    text = f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n\n"
    return f"{text}<!-- written by priormatch, which leaves an edited card alone: {_digest(text)} -->\n"


def parse(text: str) -> Card | None:
    """Parse the output of `render`; None if the text was edited or comes from elsewhere."""
    mark = MARK.search(text)
    if mark is None or mark[1] != _digest(text[: mark.start()]):
        return None
    parts = RULE.split(text[: mark.start()], maxsplit=2)
    if len(parts) != 3:
        return None
    _, front, body = parts
    try:
        facts = yaml.safe_load(checked(front, CARD))
    except (UserError, yaml.YAMLError, ValueError):
        return None
    if not isinstance(facts, dict):
        return None
    head, *sections = body.strip().split("\n\n## ")
    title, _, summary = head.removeprefix("# ").partition("\n\n")
    named = (section.partition("\n\n") for section in sections)
    return Card(facts, title, summary, {name: text for name, _, text in named})


def read_card(folder: Path) -> Card | None:
    """Read the card of a model folder; None if it is missing or edited."""
    file = folder / CARD
    return parse(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None


def write_card(folder: Path, card: Card) -> bool:
    """Write a card, unless the existing one was edited; return whether it was written."""
    if (folder / CARD).exists() and read_card(folder) is None:
        return False
    replace_text(folder / CARD, render(card))
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
