"""Files that appear whole: written beside their place, synced, then moved; and files opened only if they are files."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from priormatch.errors import UserError

TEMPORARY = ".tmp-"
"""How the names of files begin that are not yet whole."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, a full quota, and a file larger than the disk or the user's limits allow."""
_IN_WORDS = re.compile(
    "|".join([rf"os error ({'|'.join(map(str, FULL))})\b", *(re.escape(os.strerror(each)) for each in FULL)])
)
"""How libraries whose errors are no `OSError`, such as safetensors, report those numbers."""


class DiskFull(UserError):
    """A file could not be written for lack of space."""


@contextmanager
def replacing(path: Path, size: int = 0) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, which becomes `path` at the end and is removed on failure.

    Its name keeps the ending, by which libraries choose a format, and is always the same: what a kill leaves
    behind is written over the next time. Whatever writes it, those may read it whom the umask lets. The content is on
    the disk before the name is, so that a power cut leaves the old file or the new one. `size` is the number of bytes
    to be written, for the message when they do not fit.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with writing(path, size):
        try:
            mode = _mode_of_new(temporary)
            yield temporary
            if temporary.stat().st_mode != mode:  # safetensors lets the owner alone read
                temporary.chmod(mode)
            sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        with suppress(OSError):  # not every network file system syncs folders; the file is whole either way
            sync(path.parent)


@contextmanager
def writing(path: Path, size: int = 0) -> Iterator[None]:
    """Around what writes or appends to a file: a full disk becomes one sentence with the file and the space."""
    try:
        yield
    except UserError:
        raise  # a sentence already
    except Exception as error:
        if is_full(error):
            raise DiskFull(full_message(error, path, size)) from error
        raise


def is_full(error: BaseException) -> bool:
    """Whether an error, or one that led to it, says that there is no space."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    return any(
        each.errno in FULL if isinstance(each, OSError) and each.errno else _IN_WORDS.search(str(each))
        for each in chain
    )


def full_message(error: BaseException, path: Path | None = None, size: int = 0) -> str:
    """One sentence on a full disk: the file, the space it takes and the space there is, and what to do."""
    number = error.errno if isinstance(error, OSError) and error.errno in FULL else errno.ENOSPC
    takes = f"it takes {_size_text(size)}, and " if size else ""
    room = ""
    if path is not None:
        with suppress(OSError):
            free = shutil.disk_usage(path.parent).free
            room = f" ({takes}{_size_text(free)} are free on that disk)"
    what = f"{path} cannot be written" if path is not None else "a file cannot be written"
    return (
        f"{what}: {os.strerror(number)}{room}; free some space and run the same command again:"
        " what was written before is kept"
    )


def _size_text(size: int) -> str:
    """Write bytes as people say them: 12 kB, 1.9 GB."""
    exponent = min(max(len(str(size)) - 1, 3) // 3, 3)
    return f"{size / 1000**exponent:,.{0 if exponent == 1 else 1}f} {('kB', 'MB', 'GB')[exponent - 1]}"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


def read_text(path: Path) -> str:
    """The text of a regular file; an OSError or a ValueError where it cannot be read or is not UTF-8."""
    with open_regular(path) as file:
        return file.read().decode()


def replace_text(path: Path, text: str) -> None:
    """Write a text file at once: it is either the old one or the new one, whole."""
    with replacing(path, len(text)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _mode_of_new(path: Path) -> int:
    """The mode with which a file is born at a path, where none is left."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = path.stat().st_mode
    path.unlink()
    return mode


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free `NAME.1`, `NAME.2`, ..."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return path.rename(aside)
