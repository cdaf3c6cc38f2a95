"""Load settings from a YAML recipe and `key=value` overrides."""

import dataclasses
import difflib
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from priormatch.config.checks import check
from priormatch.config.settings import Settings, all_keys
from priormatch.errors import UserError
from priormatch.old_names import REMOVED_FROM_MATCHING
from priormatch.yaml_files import checked, read_yaml_text

REMOVED = {f"matching.{name}" for name in ("second_round", *REMOVED_FROM_MATCHING)}
"""Settings of older versions whose variants are gone: no setting that exists resembles them."""


def load_settings(recipe: Path | None, overrides: Sequence[str] = ()) -> Settings:
    """Load settings from the defaults, a YAML recipe and dotted overrides such as `matching.beam_size=8`."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    tree = OmegaConf.structured(Settings)
    where = f"{recipe}"
    try:
        if recipe is not None:
            if not os.path.isfile(recipe):
                raise UserError(
                    f"no recipe at {recipe}: provide a path, or one of {', '.join(recipe_names())}"
                )
            for each in with_bases(read_recipe(recipe), recipe):
                tree.merge_with(each)
        for where in overrides:
            tree.merge_with(parse_override(where))
        settings = cast(Settings, OmegaConf.to_object(tree))
    except (OmegaConfBaseException, YAMLError, ValueError, TypeError, OverflowError) as error:
        raise UserError(_explain(error, where)) from error
    check(settings)
    return settings


def read_recipe(path: Path) -> Any:
    """Read a recipe's own settings without those of its `base`."""
    from omegaconf import OmegaConf

    text = read_yaml_text(path)
    try:
        return OmegaConf.load(io.StringIO(text))
    except OSError as error:  # not a mapping, list or string
        raise UserError(f"{path} has no settings: write key: value lines") from error


def parse_override(override: str) -> Any:
    """Parse one `key=value` override."""
    from omegaconf import OmegaConf

    key, equals, value = override.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][\w.\-]*", key):
        raise UserError(f"{override!r} is not an override: write key=value, such as training.seed=3")
    if "${" in value:
        raise UserError(f"{override[:200]}: ${{...}} is not supported: write the value itself")
    if not is_text(key):
        checked(value, override[:200])
        return OmegaConf.from_dotlist([override])
    change = OmegaConf.create()  # take text literally: 007 is not a number, `a: b` not a mapping
    OmegaConf.update(change, key, value)
    return change


def changed(settings: Settings, overrides: Sequence[str]) -> Settings:
    """Apply dotted overrides to settings and check the result."""
    from omegaconf import OmegaConf

    tree = OmegaConf.merge(OmegaConf.structured(settings), *map(parse_override, overrides))
    new = cast(Settings, OmegaConf.to_object(tree))
    check(new)
    return new


def flat(tree: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten a tree of settings into values by dotted key; an empty branch is a value."""
    leaves: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{before}{name}"
        leaves |= flat(value, f"{key}.") if isinstance(value, dict) and value else {key: value}
    return leaves


def with_bases(given: Any, recipe: Path, before: tuple[Path, ...] = ()) -> list[Any]:
    """A recipe's settings, preceded by those of its `base`, of the base of that, and so on."""
    from omegaconf import OmegaConf

    if not OmegaConf.is_dict(given):
        raise UserError(f"{recipe} is a list, not settings: write key: value lines")
    name = given.pop("base", None)
    if name is None:
        return [given]
    path = recipe_path(str(name))
    if (
        not os.path.isfile(path) or path in before or path == recipe
    ):  # os.path.isfile accepts even invalid file names
        raise UserError(
            f"{recipe}: base={str(name)[:200]} is not another recipe: provide the name or path of one"
        )
    return [*with_bases(read_recipe(path), path, (*before, recipe)), given]


def _explain(error: Exception, where: str) -> str:
    """Describe an OmegaConf error in one sentence, and suggest the closest key for a misspelled one."""
    key = re.sub(r"\[\d+\]$", "", str(getattr(error, "full_key", "") or ""))  # drop a list index
    first = (str(error).splitlines() or [""])[0].rstrip(". ")[:200]
    where = where[:200]
    if "not a ListConfig" in first:
        first = "use a list in brackets, such as [1,4]"
    if mark := getattr(error, "problem_mark", None):
        first = f"line {mark.line + 1} is not YAML: {getattr(error, 'problem', first)}"
    if key == "model.ctc":
        return f"{where}: the setting model.ctc was replaced: set model.kind=hybrid for true, attention for false"
    if key in REMOVED:
        return f"{where}: the setting {key} no longer exists: remove it"
    if key and key not in all_keys():
        near = difflib.get_close_matches(key, all_keys(), n=1, cutoff=0.5) or [
            known for known in all_keys() if known.rpartition(".")[2] == key.rpartition(".")[2]
        ]
        hint = f": did you mean {near[0]}?" if near else ": `priormatch settings` lists them"
        return f"{where}: there is no setting {key}{hint}"
    return f"{where}: {key + ': ' if key else ''}{first}"


def is_text(key: str, kind: Any = Settings) -> bool:
    """Whether the setting with this dotted key is a string."""
    name, _, rest = key.partition(".")
    found = {each.name: each.type for each in dataclasses.fields(kind)}.get(name)
    if rest and dataclasses.is_dataclass(found):
        return is_text(rest, found)
    return found == (dict[str, str] if rest else str)


def to_yaml(settings: Any) -> str:
    """Write a tree of settings as YAML."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.structured(settings))


def recipe_folder() -> Path:
    """The folder of the built-in recipes: inside the installed package, or next to `src` in a clone."""
    inside = Path(__file__).parents[1] / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "recipes"


def recipe_names() -> list[str]:
    """Names of the built-in recipes."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def recipe_path(name: str) -> Path:
    """The path of a recipe given by path or by the name of a built-in one."""
    path = Path(name)
    if (
        os.path.isfile(path)
        or path.suffix not in ("", ".yaml")
        or (len(path.parts) > 1 and path.parts[0] != "recipes")
    ):
        return path
    known = recipe_folder() / f"{path.stem}.yaml"
    return known if os.path.isfile(known) else path
