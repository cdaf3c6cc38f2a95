"""Reading of untrusted YAML files; large or deep files and interpolation are refused."""

from pathlib import Path
from typing import Any

from priormatch.errors import UserError, one_line

MOST_BYTES = 1 << 18
MOST_DEPTH = 32  # settings have five levels; parsers recurse and crash at a few thousand
MOST_NODES = 10_000  # an alias counts as many nodes as its anchor


def read_yaml(path: Path) -> Any:
    """Read a YAML file as plain Python values."""
    import yaml

    text = read_yaml_text(path)
    try:
        return yaml.safe_load(text)
    # The last three occur for values such as day 99, or 5,000 digits.
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path} cannot be read ({one_line(error)}): correct or replace it") from error


def read_yaml_text(path: Path) -> str:
    """Read the text of a YAML file that is safe to parse: `checked`, UTF-8, and not too large."""
    if not path.is_file():  # a pipe or a device could block or never end
        raise UserError(f"{path} is not a file: provide a YAML file")
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UserError(
            f"{path} is larger than {MOST_BYTES >> 10} KB, too large for settings: use another file"
        )
    try:
        return checked(content.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}): correct or replace it") from error


def checked(text: str, where: str) -> str:
    """Return the text if it is YAML of limited depth and size without `${...}`; the check does not recurse."""
    import yaml

    sizes, anchors, names = [0], dict[str, int](), list[str | None]()  # nodes in each open collection
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            line = f"{where}: line {event.start_mark.line + 1}"
            if isinstance(event, yaml.CollectionStartEvent):
                sizes.append(1)
                names.append(event.anchor)
                if len(names) > MOST_DEPTH:
                    raise UserError(f"{line} is nested more than {MOST_DEPTH} levels deep: flatten it")
            elif isinstance(event, yaml.CollectionEndEvent):
                size, name = sizes.pop(), names.pop()
                sizes[-1] += size
                if name is not None:
                    anchors[name] = size
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in anchors:
                    raise UserError(
                        f"{line}: the alias {event.anchor} is not defined before it: write the value itself"
                    )
                sizes[-1] += anchors[event.anchor]
            elif isinstance(event, yaml.ScalarEvent):
                sizes[-1] += 1
                if event.anchor is not None:
                    anchors[event.anchor] = 1
                _check_scalar(event.value, line)
            if sizes[-1] > MOST_NODES:
                raise UserError(f"{line}: more than {MOST_NODES:,} values, too many for settings: shorten it")
    except yaml.MarkedYAMLError as error:
        number = f"line {error.problem_mark.line + 1} " if error.problem_mark else ""
        raise UserError(f"{where}: {number}is not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError) as error:  # characters that YAML does not allow
        raise UserError(f"{where} is not YAML: {one_line(error)}") from error
    return text


def _check_scalar(value: str, line: str) -> None:
    if "${" in value:
        raise UserError(f"{line}: ${{...}} is not supported: write the value itself")
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in value):
        raise UserError(f"{line} has an invalid character (\\0 or half a surrogate pair): remove it")
