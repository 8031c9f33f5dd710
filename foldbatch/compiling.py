"""Compiling with Numba, once per text and machine: in memory, and in a directory of the user.

The directory is ``$FOLDBATCH_CACHE``, or ``foldbatch`` below ``$XDG_CACHE_HOME`` (``~/.cache``). An empty
``FOLDBATCH_CACHE`` means none; nor is there one where nothing can be written. Processes may share it:
files are complete when they appear, and their names tell their contents.
"""

from __future__ import annotations

import linecache
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from foldbatch.errors import BackendError

C = TypeVar("C")


def numba() -> ModuleType:
    """Return Numba.

    Raises:
        BackendError: when it is not installed, or does not work with the NumPy there is.
    """
    try:
        import numba  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        fix = "pip install 'foldbatch[numba]', or take the backend numpy"
        raise BackendError("backend numba", "Numba to be installed", str(error), fix) from None
    module: ModuleType = numba
    return module


def cache_directory() -> Path | None:
    """Return where compiled code is kept between runs; None where the user wants none.

    >>> import os; from unittest import mock
    >>> with mock.patch.dict(os.environ, {"FOLDBATCH_CACHE": "/some/where"}):
    ...     cache_directory().as_posix()
    '/some/where'
    """
    named = os.environ.get("FOLDBATCH_CACHE")
    if named is not None:
        return Path(named) if named else None
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()) / "foldbatch"


def compile_text(name: str, text: str, compile_as: Callable[[str, bool], C]) -> C:
    """Return what `compile_as` makes of a text, from the cache on disk if that works.

    Args:
        name: of the text, unlike that of any other one.
        text: of a Python module.
        compile_as: compiles the text under a file's name; and whether Numba is to keep what it compiles.
    """
    kept = _write(cache_directory(), f"{name}.py", text)
    if kept is not None:
        try:
            return compile_as(kept.as_posix(), True)  # noqa: FBT003 - called by position
        except Exception:  # noqa: BLE001, S110 - if it was not the cache, it is raised again below
            pass
    filename = f"<foldbatch {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return compile_as(filename, False)  # noqa: FBT003


def _write(directory: Path | None, name: str, text: str) -> Path | None:
    """Write a file that many may write at once, with the same text; None if that is impossible."""
    if directory is None:
        return None
    path = directory / name
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not path.exists():  # replacing it would make Numba forget what it compiled
            with tempfile.NamedTemporaryFile("w", dir=directory, suffix=".tmp", delete=False) as file:
                file.write(text)
            try:
                os.link(file.name, path)
            except FileExistsError:
                pass
            finally:
                Path(file.name).unlink()
    except OSError:
        return None
    return path
