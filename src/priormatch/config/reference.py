"""The reference of all settings, generated from the comments in settings.py, their only source."""

import ast
import dataclasses
import difflib
import functools
import inspect
import io
import textwrap
import tokenize
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin

from priormatch.config.settings import Settings
from priormatch.errors import UserError

WIDTH = 100  # of comments on lines of their own
ENTRY = "NAME"  # placeholder for the name of an entry of a mapping


@dataclass(frozen=True)
class Group:
    """A group of settings: its dotted key (empty for the root), its class, and its values."""

    key: str
    kind: type
    values: Any

    @property
    def meaning(self) -> str:
        """The docstring of the class as one line."""
        return " ".join((self.kind.__doc__ or "").split())

    @property
    def indent(self) -> str:
        """The YAML indent of its settings."""
        return "  " * (self.key.count(".") + 1 if self.key else 0)

    @property
    def heading(self) -> str:
        """The YAML line above its settings."""
        return f"{self.indent[2:]}{self.key.rpartition('.')[2]}:"

    def leaves(self) -> "list[dataclasses.Field[Any]]":
        """The settings that are not groups."""
        return [each for each in dataclasses.fields(self.kind) if not dataclasses.is_dataclass(each.type)]

    def named(self, name: str) -> str:
        """The dotted key of one of its settings."""
        return f"{self.key}.{name}" if self.key else name


def groups(kind: type = Settings, values: Any = None, key: str = "") -> Iterator[Group]:
    """All groups in order, each before its subgroups; a mapping of groups contributes one entry."""
    group = Group(key, kind, kind() if values is None else values)
    yield group
    for each in dataclasses.fields(kind):
        if dataclasses.is_dataclass(each.type):
            inner = cast(type, each.type)
            yield from groups(inner, getattr(group.values, each.name), group.named(each.name))
        elif get_origin(each.type) is dict and dataclasses.is_dataclass(entry := get_args(each.type)[1]):
            yield from groups(cast(type, entry), key=f"{group.named(each.name)}.{ENTRY}")


def meanings() -> dict[str, str]:
    """The meaning of every setting by its dotted key."""
    return {
        group.named(each.name): comments(group.kind)[each.name]
        for group in groups()
        if not group.key.endswith(ENTRY)
        for each in group.leaves()
    }


def choices(key: str) -> list[str]:
    """The values that a setting accepts, if they can be listed."""
    kinds = {group.named(each.name): each.type for group in groups() for each in group.leaves()}
    kind = kinds.get(key)
    return ["true", "false"] if kind is bool else list(get_args(kind)) if get_origin(kind) is Literal else []


@functools.cache
def comments(kind: type) -> dict[str, str]:
    """The comment of each field of a dataclass: on the lines directly above it, within it or at its end."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    found = {
        token.start[0]: token.string.removeprefix("#").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    told = {}
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            while first - 1 in found and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            told[node.target.id] = " ".join(found[line] for line in range(first, last + 1) if line in found)
    return told


def type_text(kind: Any) -> str:
    """Describe a type: `one of sgd, adamw`, `list of whole number`."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(str, inside))}"
    if origin is list:
        return f"list of {type_text(inside[0])}"
    if origin is dict:
        return f"{type_text(inside[1])} by name"
    if dataclasses.is_dataclass(kind):
        return "settings"
    return {str: "text", bool: "true or false", int: "whole number", float: "number"}.get(kind, str(kind))


def yaml_text(value: Any) -> str:
    """Format a value as YAML on one line."""
    import yaml

    if isinstance(value, dict):
        value = {
            name: dataclasses.asdict(each) if dataclasses.is_dataclass(each) else each  # type: ignore[arg-type]
            for name, each in value.items()
        }
    text = yaml.safe_dump(
        [value], default_flow_style=True, width=float("inf"), allow_unicode=True, sort_keys=False
    )
    return str(text).strip()[1:-1]


def commented_yaml(settings: Settings, parts: Collection[str] = ()) -> str:
    """Settings as YAML, each with its meaning as a comment on the same line: all, or those of some groups and keys."""
    wanted, lines = keys_of(parts), []
    for group in groups(values=settings):
        if group.key.endswith(ENTRY):
            continue
        if group.key and any(key.startswith(f"{group.key}.") for key in wanted):
            lines.append(f"{group.heading}  # {group.meaning}")
        told = comments(group.kind)
        for each in group.leaves():
            if group.named(each.name) in wanted:
                value = yaml_text(getattr(group.values, each.name))
                lines.append(f"{group.indent}{each.name}: {value}  # {told[each.name]}")
    return "".join(f"{line}\n" for line in lines)


def keys_of(parts: Collection[str]) -> set[str]:
    """The keys of the settings in some groups, such as `matching`, or with some keys; all without any."""
    known = set(meanings())
    named = {part: {key for key in known if key == part or key.startswith(f"{part}.")} for part in parts}
    for part, keys in named.items():
        if not keys:
            near = difflib.get_close_matches(part, [*(group.key for group in groups()), *known], n=1)
            hint = f": did you mean {near[0]}?" if near else ": `priormatch settings` lists them"
            raise UserError(f"there is no setting or group of settings {part[:200]}{hint}")
    return set().union(*named.values()) if named else known


def commented_part(settings: Settings, keys: Collection[str]) -> str:
    """Some settings as YAML, in the order of the tree, each below its meaning as a comment, for editing by hand."""
    lines: list[str] = []
    for group in groups(values=settings):
        if group.key and any(key.startswith(f"{group.key}.") for key in keys):
            lines += ["", group.heading]
        told, begin = comments(group.kind), f"{group.indent}# "
        for each in group.leaves():
            if group.named(each.name) in keys:
                lines += textwrap.wrap(told[each.name], WIDTH, initial_indent=begin, subsequent_indent=begin)
                lines.append(f"{group.indent}{each.name}: {yaml_text(getattr(group.values, each.name))}")
    return "".join(f"{line}\n" for line in lines)


def reference() -> str:
    """The reference of all settings as Markdown, with a table for each group."""
    lines = [
        "# Settings",
        "",
        "This page lists all settings with their defaults, which follow the paper. Override a setting in a recipe, or",
        "on the command line as `key=value`, such as `matching.beam_size=8`. `priormatch settings --recipe NAME`",
        "prints the settings of a recipe.",
        "",
        "This page is generated by `priormatch settings --reference`.",
    ]
    for group in groups():
        told = comments(group.kind)
        lines += ["", f"## {f'`{group.key}`' if group.key else 'A run'}", "", group.meaning]
        if group.leaves():
            lines += ["", "| setting | type | default | meaning |", "|---|---|---|---|"]
        for each in group.leaves():
            cells = (
                f"`{group.named(each.name)}`",
                type_text(each.type),
                f"`{yaml_text(getattr(group.values, each.name))}`",
                told[each.name].replace("|", "\\|"),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "".join(f"{line}\n" for line in lines)
