"""Help output: verbs in groups, one per line, and options with plain type names."""

import re
from typing import Any

from typer.completion import install_callback, show_callback
from typer.core import TyperCommand, TyperGroup

from priormatch.errors import UserError

SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
PLAIN = {"str": "TEXT", "int": "NUMBER", "float": "NUMBER", "path": "PATH"}
"""Plain names for typer's types; choices are not changed."""


class Verbs(TyperGroup):
    """Lists verbs under the titles of their groups (typer's `rich_help_panel`); verbs with subcommands come first."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each group with the purpose of its verbs."""
        groups: dict[str, list[tuple[str, Any]]] = {}
        for name, verb in self.commands.items():
            panel = getattr(verb, "rich_help_panel", None)
            groups.setdefault(panel if isinstance(panel, str) else "Commands", []).append((name, verb))
        for title, verbs in groups.items():
            verbs.sort(key=lambda each: not isinstance(each[1], TyperGroup))
            with formatter.section(title):
                formatter.write_dl([(name, purpose(verb.help or "")) for name, verb in verbs])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Also accept a shell name after the completion options, which otherwise detect the shell."""
        if len(args) == 2 and args[0] in ("--show-completion", "--install-completion"):
            if args[1] not in SHELLS:
                raise UserError(f"no completion for {args[1]}: choose from {', '.join(SHELLS)}")
            (show_callback if "show" in args[0] else install_callback)(ctx, self.params[0], args[1])
        return super().parse_args(ctx, args)


class Verb(TyperCommand):
    """Shows plain type names in the help of a verb."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage without braces; only arguments in brackets are optional."""
        return [
            re.sub(r"^\{(.*?)(?:\.\.\.)?\}", lambda found: found[1].upper(), piece)
            for piece in super().collect_usage_pieces(ctx)
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for each in self.get_params(ctx):
            if record := each.get_help_record(ctx):
                name, meaning = record
                is_argument = each.param_type_name == "argument"
                shown = name.partition(" <")[0].upper() if is_argument else plain(name)
                sections["Arguments" if is_argument else "Options"].append((shown, meaning))
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def purpose(help: str) -> str:
    """The purpose of a verb: the first clause of its help."""
    return re.split(r"[.:;](?=\s|$)", " ".join(help.split()), maxsplit=1)[0]


def plain(option: str) -> str:
    """Replace the type of an option with its plain name: `--out <path>` becomes `--out PATH`."""

    def word(found: re.Match[str]) -> str:
        kind = found[1].removesuffix(" range")
        return PLAIN.get(kind.lower(), kind)

    return re.sub(r"<(?:list\[)?([^\]>]+)\]?>", word, option)
