"""The directory on disk that keeps compiled loops between runs: where, whose, what is in it, what leaves it.

The directory is ``$FOLDBATCH_CACHE``, or the one that `platformdirs` names: on Linux ``foldbatch`` below
``$XDG_CACHE_HOME`` (``~/.cache``). An empty ``FOLDBATCH_CACHE`` means none.

An *entry* is all files of one name: machine code behind a digest of it and of the name, ``NAME.o``; kernels
for a GPU, ``NAME.cubin``, with the compiler's log, ``NAME.log``; or such kernels compiled for the CPU,
``NAME.so``. The time of access of its `MAIN` file tells when it was last used. Processes may share the
directory: files are complete when they appear, and one that is removed while another process reads it does
no harm.

What is in the directory is run. So it is used where nobody but this user, and root, can change it: it and
what is in it belong to this user, nobody else may write there, nor exchange a directory or a link above it.
Windows does not tell that by numbers of users and modes: there the directory is used if it is below the home
of the user, which others cannot change.
"""

import contextlib
import errno
import os
import stat
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from foldbatch.errors import FoldbatchWarning, frames_inside

MAX_BYTES = 500_000_000  # bytes: some ten thousand entries
SHARE_AFTER_REMOVAL = 0.8  # of the limit, when it was passed and entries have been removed
MAIN = (".cubin", ".so", ".o")  # endings of the file that is touched when its entry is used
FORGOTTEN = 3600  # seconds after which a temporary file is taken for abandoned
OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
ENTERED = stat.S_IXGRP | stat.S_IXOTH
LINKS = 40  # that a path may lead through, as in Linux
NAME_ONE = "set FOLDBATCH_CACHE to a directory of yours alone, or to nothing"


class CacheWarning(FoldbatchWarning, RuntimeWarning):
    """Compiled loops are neither kept on disk nor read from there."""


def cache_directory() -> Path | None:
    """Return where compiled loops are kept between runs; None where there is no safe place."""
    directory, fault = place(make=True)
    if fault is not None:
        _warn(*fault.args)
        return None
    return directory


def place(*, make: bool = False) -> tuple[Path | None, CacheWarning | None]:
    """Return the directory that the user wants, and why it cannot be used; None where there is no such thing.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, {"FOLDBATCH_CACHE": "/some/where"}):
    ...     place()[0].as_posix()
    '/some/where'
    """
    from platformdirs import user_cache_path  # noqa: PLC0415 - `import foldbatch` need not wait for it

    named = os.environ.get("FOLDBATCH_CACHE")
    if named == "":
        return None, None
    try:
        usual = user_cache_path("foldbatch", appauthor=False)
        directory = (Path(named) if named else usual).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # there is no home, or no working directory
        return None, CacheWarning("cache", "a directory for compiled loops", str(error).rstrip("."), NAME_ONE)
    return directory, (_fault_once if make else _fault)(directory, make)


@cache
def _warn(*parts: str) -> None:
    warnings.warn(CacheWarning(*parts), stacklevel=frames_inside())


def _fault(directory: Path, make: bool) -> CacheWarning | None:  # noqa: FBT001 - it is cached
    """Return a warning where another user could change a directory of compiled loops, else None."""
    try:
        if hasattr(os, "geteuid"):
            where, actual = _on_the_way(directory, make)
            if not actual:
                where, actual = _within(where)
        else:
            where, actual = directory, _outside_of_home(directory, make)
    except FileNotFoundError:
        return None  # so it holds no files
    except OSError as error:
        where, actual = directory, error.strerror or str(error)
    expected = "a directory for compiled loops that this user, and nobody else, can change"
    fix = f"remove {directory} if nothing else is in it, or {NAME_ONE}"
    return CacheWarning(str(where), expected, actual, fix) if actual else None


_fault_once = cache(_fault)


def _on_the_way(path: Path, make: bool) -> tuple[Path, str]:  # noqa: FBT001 - as above
    """Return where a path leads, and ""; or the part of the way that another user could exchange, and why."""
    user, links = os.geteuid(), 0
    at, remaining = Path(), list(reversed(path.parts))
    while remaining:
        part = remaining.pop()
        at = at.parent if part == ".." else at / part
        if make and not os.path.lexists(at):
            with contextlib.suppress(FileExistsError):
                at.mkdir(0o700)
        status = at.lstat()
        if status.st_uid != user and (status.st_uid or not (remaining or stat.S_ISLNK(status.st_mode))):
            return at, f"what belongs to user {status.st_uid}"
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = at.readlink()
            remaining += reversed(target.parts)
            at = Path() if target.is_absolute() else at.parent
        elif not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        elif status.st_mode & OF_OTHERS and not (remaining and status.st_mode & stat.S_ISVTX):
            return at, f"one that others may write to (mode {stat.S_IMODE(status.st_mode):o})"
    return at, ""


def _outside_of_home(directory: Path, make: bool) -> str:  # noqa: FBT001 - as above
    """Return why a directory cannot be used where the system tells no owners; "" below the user's home."""
    if not directory.resolve().is_relative_to(Path.home().resolve()):
        return "one outside of the user's home, on a system that does not tell who may change it"
    if make:
        directory.mkdir(parents=True, exist_ok=True)
    elif not directory.is_dir():
        raise FileNotFoundError(directory)
    return ""


def _within(directory: Path) -> tuple[Path, str]:
    """Return a file of others in a directory, or one that they may write to, and why; else ""."""
    user = os.geteuid()
    entered = bool(directory.stat().st_mode & ENTERED)  # else modes of what is below say nothing
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as listed:
        for file in listed:
            status = file.stat(follow_symlinks=False)
            mode = status.st_mode
            if status.st_uid != user:
                return Path(file), f"what belongs to user {status.st_uid}"
            if entered and mode & OF_OTHERS and not stat.S_ISLNK(mode):
                return Path(file), f"what others may write to (mode {stat.S_IMODE(mode):o})"
    return directory, ""


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of an entry, in the place of what is there; where that is impossible, do nothing."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    with contextlib.suppress(OSError):
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_sealed(path: Path, content: bytes) -> None:
    """Write a content behind a digest of it and of the file's name, as `read_sealed` wants it."""
    write_bytes(path, _seal(path, content) + content)


def read_sealed(path: Path) -> bytes | None:
    """Return the content that `write_sealed` wrote there; None where it is not there."""
    try:
        sealed = path.read_bytes() if path.is_file() else b""  # a pipe, or a device, has no end
    except OSError:
        return None
    content = sealed[sha256().digest_size :]
    if _seal(path, content) + content == sealed:
        return content
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def _seal(path: Path, content: bytes) -> bytes:
    return sha256(path.name.encode() + b"/" + content).digest()


def used(path: Path) -> None:
    """Note that an entry is used now, by its `MAIN` file."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


@dataclass(slots=True)
class Entry:
    """Files that belong together."""

    files: list[str] = field(default_factory=list)  # their paths
    size: int = 0  # their bytes
    used: float = 0.0  # when the entry was last used, in seconds since 1970


def entries(directory: Path) -> dict[str, Entry]:
    """Return all entries by name; temporary files each as one of its own."""
    by_name: dict[str, Entry] = defaultdict(Entry)
    for file in _files(directory):
        with contextlib.suppress(OSError):
            status = file.stat()
            entry = by_name[file.name if ".tmp" in file.name else file.name.partition(".")[0]]
            entry.files.append(file.path)
            entry.size += status.st_size
            entry.used = max(entry.used, status.st_atime if file.name.endswith(MAIN) else status.st_mtime)
    return dict(by_name)


def _files(directory: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(directory) as listed:
        yield from (file for file in listed if file.is_file(follow_symlinks=False))


def remove(removed: Iterable[Entry]) -> None:
    """Remove entries, as far as that is allowed."""
    for entry in removed:
        for file in entry.files:
            with contextlib.suppress(OSError):
                Path(file).unlink()


def tidy(directory: Path) -> None:
    """Remove temporary files left behind; where entries pass `MAX_BYTES`, those least recently used."""
    by_name = entries(directory)
    deadline = time.time() - FORGOTTEN
    remove(entry for name, entry in by_name.items() if ".tmp" in name and entry.used < deadline)
    size = sum(entry.size for entry in by_name.values())
    if size <= MAX_BYTES:
        return
    for entry in sorted(by_name.values(), key=lambda entry: entry.used):
        if size <= SHARE_AFTER_REMOVAL * MAX_BYTES:
            break
        remove([entry])
        size -= entry.size


@cache
def tidy_once(directory: Path) -> None:
    """Tidy up in a process that compiles, the first time it does."""
    tidy(directory)


def clear(directory: Path) -> None:
    """Remove all entries, and nothing else."""
    remove(entries(directory).values())
