"""The command line: verbs and their functions. Heavy imports are inside the verbs, so that help is fast."""

import errno
import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from priormatch import __version__
from priormatch.cli.decode import decode, label, tune
from priormatch.cli.help import Verb, Verbs
from priormatch.cli.model_verbs import export, push
from priormatch.cli.options import Overrides, RecipeName, settings_of
from priormatch.cli.prepare import check, pack, prepare
from priormatch.cli.results import compare, hypotheses, report, score, table
from priormatch.cli.serve import serve
from priormatch.cli.start import doctor, new, plan, settings
from priormatch.cli.train import match, tokenizer, train, train_prior
from priormatch.cli.transcribe import transcribe
from priormatch.distributed import is_main, joined, rank, ranks
from priormatch.errors import UserError
from priormatch.files import full_message, is_full
from priormatch.processes import explained_readers

app = typer.Typer(
    cls=Verbs,
    help="Semi-supervised speech recognition by local prior matching.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

STOPPED = 130  # the exit code after Ctrl-C
REFUSALS = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)
"""File system errors, raised by any code, that only the user can fix."""


PRIMITIVES = "64"
"""How many kernels oneDNN keeps. There is one for each shape, so few of its default of 1024 are used again: they leave
gaps between freed tensors, and memory and the time of an update on a CPU grow."""


def main() -> None:
    """Run the command line; an error that the user can fix prints one sentence and exits with code 2."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", PRIMITIVES)  # read by the first convolution
    threading.excepthook = tell_of_thread
    with noted_stops() as stops:
        try:
            with explained_readers(), joined():
                require_shared()
                code = app(standalone_mode=False)
            if code == STOPPED:
                raise KeyboardInterrupt  # typer has converted it to an exit code
        except (typer.Abort, KeyboardInterrupt):
            stop(stops)
        except Exception as error:
            if stops:
                stop(stops)
            explain(error)


def require_shared() -> None:
    """Refuse verbs that one process does, if there are several."""
    if ranks() > 1 and not any(" ".join(sys.argv[1:end]) in SHARED for end in (2, 3)):
        raise UserError(
            f"{ranks()} processes were started, but only these commands run in several processes:"
            f" {', '.join(sorted(SHARED))}; run this one without torchrun"
        )


@contextmanager
def noted_stops() -> Iterator[list[int]]:
    """Collect the signals of Ctrl-C and SIGTERM, and raise KeyboardInterrupt for each.

    Libraries may swallow the exception and fail with an error of their own; the list shows that it was an interrupt.
    """
    seen: list[int] = []

    def note(number: int, _: object) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    noted = [
        number for number, handler in usual.items() if signal.getsignal(number) is handler
    ]  # not if ignored
    for number in noted:
        signal.signal(number, note)
    try:
        yield seen
    finally:
        for number in noted:
            signal.signal(number, usual[number])


def stop(stops: list[int]) -> NoReturn:
    """Exit after Ctrl-C or SIGTERM, with a hint if the command can resume."""
    resumes = any(" ".join(sys.argv[1:end]) in RESUMES for end in (2, 3))
    again = own_command() if ranks() == 1 else "torchrun with the same arguments"
    how = f"; run the same command again to resume: {again}" if resumes else ""
    if is_main():
        print(f"\npriormatch: stopped{how}", file=sys.stderr)
    sys.exit(128 + stops[-1] if stops else STOPPED)


def own_command() -> str:
    """The command line of this process, as a shell takes it."""
    name = Path(sys.argv[0]).name
    return shlex.join(
        [*(("python", "-m", "priormatch") if name == "__main__.py" else (name,)), *sys.argv[1:]]
    )


def explain(error: Exception) -> NoReturn:
    """Print how the user can fix an error, or raise it again if it is a bug."""
    if isinstance(error, UserError):
        fail(str(error))
    if is_full(error):
        name = error.filename if isinstance(error, OSError) else None
        fail(full_message(error, Path(name) if isinstance(name, str) else None))
    if isinstance(error, OSError) and is_refusal(error):
        fail(
            f"{error.filename or 'a file'}: {error.strerror}; fix this or choose another path, and run it again"
        )
    if not (hasattr(error, "format_message") and hasattr(error, "exit_code")):
        raise error
    message = error.format_message()  # a usage error
    if message.startswith("Usage:"):
        print(message, file=sys.stderr)
        sys.exit(2)
    fail(f"{message} (see --help)")


def tell_of_thread(failed: threading.ExceptHookArgs) -> None:
    """Print the error of a thread, except a full disk, which the main thread also meets and explains."""
    if failed.exc_value is None or not is_full(failed.exc_value):
        threading.__excepthook__(failed)


def is_refusal(error: OSError) -> bool:
    """Whether the file system refused to write a file.

    /proc and similar file systems report ENOENT for a refused write, as for a missing file.
    """
    if error.errno != errno.ENOENT or not isinstance(error.filename, str):
        return error.errno in REFUSALS
    folder = os.path.dirname(os.path.abspath(error.filename))
    try:
        with tempfile.TemporaryFile(dir=folder):
            return False
    except OSError:
        return os.path.isdir(folder)


def fail(message: str) -> NoReturn:
    """Print an error and exit with code 2."""
    who = f"process {rank()}: " if ranks() > 1 else ""
    print(f"priormatch: {who}{message}", file=sys.stderr)
    sys.exit(2)


def version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(f"priormatch {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Semi-supervised speech recognition by local prior matching."""


ResultsAsJson = Annotated[
    bool, typer.Option("--json", help="Print results.json instead of a table, for scripts.")
]


def run(
    recipe: RecipeName,
    overrides: Overrides = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which stages are left and what they cost.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="Continue even if the checks before the run find problems."),
    ] = False,
    as_json: ResultsAsJson = False,
) -> None:
    """Run a recipe from data to a results table; finished stages are reused.

    Example: priormatch run own labeled=speech unlabeled=more-speech text=books
    """
    wanted = settings_of(recipe, overrides)
    if dry_run:
        from priormatch.pipeline.plan import show_dry_run

        show_dry_run(wanted, as_json)
        return
    from priormatch.pipeline.run import run as run_all
    from priormatch.pipeline.run_results import RESULTS

    if not as_json:
        run_all(wanted, force)
        return
    with redirect_stdout(sys.stderr):  # the table
        folder = run_all(wanted, force)
    if is_main():
        print((folder / RESULTS).read_text(encoding="utf-8"), end="")


def demo(overrides: Overrides = None, *, as_json: ResultsAsJson = False) -> None:
    """Run local prior matching on a small generated corpus; it takes about ten minutes.

    Example: priormatch demo
    """
    run("demo", overrides, as_json=as_json)


STAGES = "Stage by stage"
VERBS: dict[str, tuple[Callable[..., None], ...]] = {
    "Getting started": (demo, new, doctor, plan, run, report, settings),
    "Using models": (transcribe, serve, decode, tune, push, export),
    "Results": (score, compare, hypotheses, table),
    STAGES: (check, pack, tokenizer, train_prior, train, label, match),
}
PREPARE = """Convert corpora to manifests of cuts, and text to sentences.

Example: priormatch prepare audio speech --out speech.jsonl.gz
"""

RESUMES = {
    *("run", "demo", "table", "prepare synthetic", "pack", "train-prior", "train", "match"),
    *("label", "tune", "decode", "transcribe", "check"),
}
"""The verbs that resume after an interruption."""
SHARED = {"run", "demo", "train-prior", "train", "match", "tune", "decode", "check"}
"""The verbs that several processes, started by torchrun, share."""

app.add_typer(prepare, name="prepare", cls=Verbs, help=PREPARE, rich_help_panel=STAGES)
for each in prepare.registered_commands:
    each.cls = Verb
for title, verbs in VERBS.items():
    for verb in verbs:
        app.command(verb.__name__.replace("_", "-"), cls=Verb, rich_help_panel=title)(verb)
