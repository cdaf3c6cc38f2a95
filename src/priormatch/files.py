"""Atomic file writes (temporary file, fsync, rename), and reads restricted to regular files."""

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from priormatch.distributed import from_main, is_main
from priormatch.errors import UserError

TEMPORARY = ".tmp-"
"""Prefix of the names of incomplete files."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, a full quota, and a file larger than the disk or the user's limits allow."""
_IN_WORDS = re.compile(
    "|".join([rf"os error ({'|'.join(map(str, FULL))})\b", *(re.escape(os.strerror(each)) for each in FULL)])
)
"""The text of these errors in libraries that do not raise `OSError`, such as safetensors."""


class DiskFull(UserError):
    """A file could not be written because the disk is full."""


@contextmanager
def replacing(path: Path, size: int = 0) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; it replaces `path` on success and is removed on failure.

    The temporary name keeps the suffix, because libraries choose a format by it. It is always the same, so the next
    write overwrites a file left by a kill. The file gets the permissions of the umask, whichever library writes it. The
    content is synced before the rename, so a power cut leaves either the old file or the new one. `size` is the number
    of bytes to write, for the error message if they do not fit.
    """
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    with writing(path, size):
        try:
            mode = _mode_of_new(temporary)
            yield temporary
            if temporary.stat().st_mode != mode:  # safetensors makes files readable by the owner only
                temporary.chmod(mode)
            sync(temporary)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        with suppress(OSError):  # some network file systems cannot sync folders; the file is complete anyway
            sync(path.parent)


@contextmanager
def writing(path: Path, size: int = 0) -> Iterator[None]:
    """Turn a full-disk error while writing a file into a `DiskFull` that names the file and the free space."""
    try:
        yield
    except UserError:
        raise  # already has a message for the user
    except Exception as error:
        if is_full(error):
            raise DiskFull(full_message(error, path, size)) from error
        raise


def is_full(error: BaseException) -> bool:
    """Whether an error, or one in its chain, means that the disk is full."""
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
    """The message for a full disk: the file, the space it needs, the free space, and what to do."""
    number = error.errno if isinstance(error, OSError) and error.errno in FULL else errno.ENOSPC
    takes = f"it needs {_size_text(size)}; " if size else ""
    room = ""
    if path is not None:
        with suppress(OSError):
            free = shutil.disk_usage(path.parent).free
            room = f" ({takes}{_size_text(free)} free on that disk)"
    what = f"{path} cannot be written" if path is not None else "a file cannot be written"
    return (
        f"{what}: {os.strerror(number)}{room}; free some space and run the same command again:"
        " files already written are kept"
    )


def _size_text(size: int) -> str:
    """Format a number of bytes: 12 kB, 1.9 GB."""
    exponent = min(max(len(str(size)) - 1, 3) // 3, 3)
    return f"{size / 1000**exponent:,.{0 if exponent == 1 else 1}f} {('kB', 'MB', 'GB')[exponent - 1]}"


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file to read its bytes; raise OSError for anything else and for invalid names.

    A named pipe would block until something writes to it, and a device may never end.
    """
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except ValueError:
        raise OSError(errno.EINVAL, "not a valid file name", str(path)) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(number, "rb")


def read_text(path: Path) -> str:
    """Read a regular file as text; raise OSError if it cannot be read, ValueError if it is not UTF-8."""
    with open_regular(path) as file:
        return file.read().decode()


def replace_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path, len(text)) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _mode_of_new(path: Path) -> int:
    """The mode that a new file gets at a path; an existing file there is removed."""
    path.unlink(missing_ok=True)
    path.touch()
    mode = path.stat().st_mode
    path.unlink()
    return mode


def partial_folder(out: Path) -> Path:
    """The folder for the parts of an output that is not finished."""
    return out.with_name(f"{out.name}.partial")


def begin_parts(out: Path, key: str) -> Path:
    """Make or find the folder for the parts of an output, which interrupted work has left; return its path.

    `key` identifies the work: parts of other work are removed. The main process of a job does this for all.
    """
    folder = partial_folder(out)
    if is_main():
        named = folder / "key"
        if not (named.is_file() and named.read_bytes() == key.encode()):
            remove_parts(folder)
            folder.mkdir(parents=True)
            replace_text(named, key)
    from_main(None)  # the others wait for the folder
    return folder


def remove_parts(folder: Path) -> None:
    """Remove a folder of parts, or the file that earlier versions wrote in its place."""
    if folder.is_dir():
        shutil.rmtree(folder, ignore_errors=True)  # another process may still write into it
    else:
        folder.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free `NAME.1`, `NAME.2`, ..."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return path.rename(aside)
