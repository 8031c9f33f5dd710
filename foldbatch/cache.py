"""The directory on disk that keeps compiled loops between runs: where it is, what is in it, what leaves it.

The directory is ``$FOLDBATCH_CACHE``, or ``foldbatch`` below ``$XDG_CACHE_HOME`` (``~/.cache``). An empty
``FOLDBATCH_CACHE`` means none. An *entry* is all files of one name: a text, ``NAME.py``, with what Numba
compiled of it, ``__pycache__/NAME.*``; machine code behind a digest of it, ``NAME.o``; kernels for a GPU,
``NAME.cubin``, with the compiler's log, ``NAME.log``; or such kernels compiled for the CPU, ``NAME.so``. The
time of access of its `MAIN` file tells when it was last used. Processes may share the directory: files are
complete when they appear, and one that is removed while another process reads it does no harm.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

LIMIT = 500_000_000  # bytes: some ten thousand entries
LEFT = 0.8  # of the limit, when it was passed and entries have been removed
MAIN = (".py", ".cubin", ".so", ".o")  # endings of the file that is touched when its entry is used
FORGOTTEN = 3600  # seconds after which nobody is writing to a temporary file any more


def cache_directory() -> Path | None:
    """Return where compiled loops are kept between runs; None where there is no such place.

    Warns once where the user wants one, but has no home.

    >>> from unittest import mock
    >>> with mock.patch.dict(os.environ, {"FOLDBATCH_CACHE": "/some/where"}):
    ...     cache_directory().as_posix()
    '/some/where'
    """
    named = os.environ.get("FOLDBATCH_CACHE")
    if named is not None:
        return Path(named) if named else None
    shared = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(shared) if shared else Path("~/.cache").expanduser()) / "foldbatch"
    except RuntimeError:
        _warn_of_no_home()
        return None


@cache
def _warn_of_no_home() -> None:
    text = (
        "this user has no home directory, so compiled loops are not kept; set FOLDBATCH_CACHE to a directory"
    )
    warnings.warn(f"foldbatch: {text}, or to nothing", RuntimeWarning, stacklevel=2)


def write_text(directory: Path, name: str, text: str) -> Path | None:
    """Write the text of an entry, unless it is there; return its path, or None where that is impossible."""
    path = directory / f"{name}.py"
    temporary = directory / f"{name}.{uuid4().hex}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # replacing it would make Numba forget what it compiled
            try:
                temporary.write_text(text)
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError:
        return None
    return path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of an entry, in the place of what is there; where that is impossible, do nothing."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}.tmp")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(content)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def sealed(content: bytes) -> bytes:
    """Return a content behind its digest, as `read_sealed` wants it."""
    return sha256(content).digest() + content


def read_sealed(path: Path) -> bytes | None:
    """Return the content that was `sealed` and written; None where it is not there.

    A damaged file is removed.
    """
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    content = whole[sha256().digest_size :]
    if sealed(content) == whole:
        return content
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def used(path: Path) -> None:
    """Note that an entry is used now, by its `MAIN` file; Numba looks at its time of change, which stays."""
    with contextlib.suppress(OSError):
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))


@dataclass(slots=True)
class Entry:
    """Files that belong together.

    Attributes:
        files: their paths.
        size: their bytes.
        used: when the entry was last used, in seconds since 1970.
    """

    files: list[str] = field(default_factory=list)
    size: int = 0
    used: float = 0.0


def entries(directory: Path) -> dict[str, Entry]:
    """Return all entries by name; temporary files each as one of its own."""
    by_name: dict[str, Entry] = defaultdict(Entry)
    for file in (*_files(directory), *_files(directory / "__pycache__")):
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
    """Remove temporary files that were left behind; where entries pass `LIMIT`, those least recently used."""
    by_name = entries(directory)
    deadline = time.time() - FORGOTTEN
    remove(entry for name, entry in by_name.items() if ".tmp" in name and entry.used < deadline)
    size = sum(entry.size for entry in by_name.values())
    if size <= LIMIT:
        return
    for entry in sorted(by_name.values(), key=lambda entry: entry.used):
        if size <= LEFT * LIMIT:
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
