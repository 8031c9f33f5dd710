"""Locks of folders: two processes never write to one at once, and a process that dies leaves no lock."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from foldbatch.errors import TrainingError

LOCKLESS: Final = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # of file systems
HELD: Final[set[int]] = set()  # open descriptors of folders, which forked processes close


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a folder for this process, within a ``with`` statement; the system lets go of it where it ends.

    The folder itself is locked, so no file is written. Where its file system has no such locks, as some
    network file systems, nothing is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name, locked(Path(name)):
    ...     try:
    ...         with locked(Path(name)):
    ...             pass
    ...     except TrainingError as error:
    ...         print(str(error).partition(": ")[2].partition(";")[0])
    expected a folder that no other training writes to, found one that does
    """
    handle = os.open(folder, os.O_RDONLY)
    HELD.add(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _let_go(handle)
        fix = "wait for it or end it, or name another folder"
        raise TrainingError(
            str(folder), "a folder that no other training writes to", "one that does", fix
        ) from None
    except OSError as error:
        if error.errno not in LOCKLESS:
            _let_go(handle)
            raise
    try:
        yield
    finally:
        with suppress(OSError):  # where there was no lock
            fcntl.flock(handle, fcntl.LOCK_UN)
        _let_go(handle)


def _let_go(handle: int) -> None:
    if handle in HELD:
        HELD.discard(handle)
        os.close(handle)


def _let_go_of_all() -> None:
    """Close, in a forked process, its parent's descriptors: else it would hold the lock after the parent."""
    for handle in list(HELD):
        _let_go(handle)


os.register_at_fork(after_in_child=_let_go_of_all)
