"""Compiling with Numba, once per text and machine: in memory, and in a directory of the user.

A text is a function called ``loop``; its first line tells its types. `compile_loop` makes of it what Python
calls with arrays, `native` what compiled code calls by its address.

The directory is ``$FOLDBATCH_CACHE``, or ``foldbatch`` below ``$XDG_CACHE_HOME`` (``~/.cache``). An empty
``FOLDBATCH_CACHE`` means none; nor is there one where nothing can be written. Processes may share it:
files are complete when they appear, and their names tell their contents.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from foldbatch.errors import BackendError

FORM = "3"  # of the compiled code, where that is not seen in the texts below

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


@lru_cache(4096)
def compile_loop(text: str) -> Callable[..., None]:
    """Return a loop's function, compiled for the arrays and numbers that its first line tells and no others.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    return compile_arrays(text)


def compile_arrays(
    text: str, called: Mapping[str, Any] | None = None, source: str = ""
) -> Callable[..., None]:
    """Compile a text that calls what is `called` by name, all of it defined by `source`."""
    key = digest(f"{FORM}\n{_basis()}{source}\n{text}")
    return compile_text(f"loop_{key}", text, partial(_compiled, text, called or {}))


def digest(text: str) -> str:
    """Return a short name of a text, unlike that of any other one.

    >>> digest("a") == digest("b")
    False
    """
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Native:
    """A compiled function that is called by its address, with `memory.call`; see `native`.

    Attributes:
        address: where it is.
        count: how many pointers it takes.
        function: what Numba keeps of it, without which its memory would be free for others.
    """

    address: int
    count: int
    function: Any


@lru_cache(4096)
def native(text: str, more: Callable[[], Mapping[str, Any]] | None = None, source: str = "") -> Native:
    """Return a text's function ``loop(n, x0, x1, ..., s)``, to be called by its address.

    The text's first line tells the types of the numbers that x0, x1 and so on point to: ``# f4 i8``; `n` is a
    number of rows, `s` points to whole numbers. None of the memory overlaps.

    Args:
        text: of the function.
        more: returns what the text calls besides the functions of `vector_functions`, by name.
        source: the text of what `more` returns.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    kinds = text.split("\n", 1)[0].removeprefix("#").split()
    key = digest(f"{FORM}\n{_basis()}{source}\n{text}")
    function = compile_text(f"native_{key}", text, partial(_native, text, kinds, more))
    (overload,) = function.overloads.values()
    library, description = attrgetter("library", "fndesc")(overload)
    return Native(library.get_pointer_to_function(description.llvm_func_name), len(kinds), function)


@cache
def _vector_functions() -> ModuleType:
    from foldbatch.engines.numba import vector_functions  # noqa: PLC0415 - it needs Numba

    return vector_functions


def _basis() -> str:
    """Return the text of what every text may call."""
    from foldbatch.engines.numba import memory  # noqa: PLC0415 - it needs Numba

    return inspect.getsource(memory) + inspect.getsource(_vector_functions())


def _scope(text: str, filename: str, called: Mapping[str, Any]) -> dict[str, Any]:
    """Run a text; what is read back from disk looks for the module that it came from."""
    functions = _vector_functions()
    scope: dict[str, Any] = {**functions.GLOBALS, **called, "__name__": functions.__name__}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    return scope


def _compiled(
    text: str,
    called: Mapping[str, Any],
    filename: str,
    keep: bool,  # noqa: FBT001
) -> Callable[..., None]:
    functions = _vector_functions()
    scope = _scope(text, filename, called)
    signature = functions.signature(text.split("\n", 1)[0].removeprefix("# "))
    njit = numba().njit(signature, cache=keep, **functions.OPTIONS)
    compiled: Callable[..., None] = njit(scope["loop"])
    return compiled


def _native(
    text: str,
    kinds: list[str],
    more: Callable[[], Mapping[str, Any]] | None,
    filename: str,
    keep: bool,  # noqa: FBT001
) -> Any:
    from foldbatch.engines.numba import memory  # noqa: PLC0415 - it needs Numba

    options, njit = _vector_functions().OPTIONS, numba().njit
    scope = _scope(text, filename, more() if more is not None else {})
    if len(kinds) <= memory.FEW:
        return njit(memory.signature(kinds), cache=keep, **options)(scope["loop"])
    addresses = "".join(f"pointer_{kind}(a[{i}]), " for i, kind in enumerate(kinds, 1))
    scope |= memory.POINTERS | {"loop": njit(**options)(scope["loop"])}
    entry = f"def entry(a, s):\n    loop(u8(a[0]), {addresses}s)\n"
    exec(compile(entry, filename, "exec"), scope)  # noqa: S102 - the text is our own
    return njit(memory.ENTRY, cache=keep, **options)(scope["entry"])
