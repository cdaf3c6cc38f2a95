"""Files that appear whole, written beside their place and moved there; and files opened only where they are files."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp-"
"""How the names of files begin that are not yet whole."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, which becomes `path` at the end and is removed on failure.

    Its name keeps the ending, by which libraries choose a format, and is always the same: what a kill leaves
    behind is written over the next time. Whatever writes it, those may read it whom the umask lets.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        mode = _mode_of_new(temporary)
        yield temporary
        if temporary.stat().st_mode != mode:  # safetensors lets the owner alone read
            temporary.chmod(mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def open_regular(path: Path | str) -> BinaryIO:
    """Open a file to read its bytes; an OSError for all that is not a regular file, and for names no file can have.

    Opening a named pipe would wait for somebody to write to it, and a device may never end.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have such a name", str(path)) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(number, "rb")


def replace_text(path: Path, text: str) -> None:
    """Write a text file at once: it is either the old one or the new one, whole."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _mode_of_new(path: Path) -> int:
    """The mode with which a file is born at a path, where none is left."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = path.stat().st_mode
    path.unlink()
    return mode
