"""Compiling with Numba, once per text and machine: in memory, and in a directory of the user.

A text is a function called ``loop``; its first line tells its types. `compile_loop` makes of it what Python
calls with arrays, `native` what compiled code calls by its address.

The directory is that of `foldbatch.cache`. Where it does not work, texts are compiled in each process; what
is damaged there is removed, and compiled anew. Numba does not free what it has compiled (about half a
megabyte a text), so a text is compiled once in a process, and all programs share it.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from foldbatch.cache import cache_directory, entries, remove, tidy_once, used, write_text
from foldbatch.errors import BackendError

FORM = "3"  # of the compiled code, where that is not seen in the texts below
PATIENCE = 2.0  # seconds of compiling after which a person is told

_spent: list[float] = []
_told: list[bool] = []

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


def compile_text(name: str, text: str, compile_as: Callable[[str, bool], C]) -> C:
    """Return what `compile_as` makes of a text, from the cache on disk if that works.

    Args:
        name: of the text, unlike that of any other one.
        text: of a Python module.
        compile_as: compiles the text under a file's name; and whether Numba is to keep what it compiles.
    """
    directory = cache_directory()
    if directory is not None:
        compiled = _from_disk(directory, name, text, compile_as)
        if compiled is not None:
            return compiled
    filename = f"<foldbatch {name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    return _timed(compile_as, filename, None)


def _from_disk(directory: Path, name: str, text: str, compile_as: Callable[[str, bool], C]) -> C | None:
    """Return what is in the cache, or compile for it; None where the cache does not work."""
    for _ in range(2):
        new = not (directory / f"{name}.py").exists()
        if new:
            tidy_once(directory)
        path = write_text(directory, name, text)
        if path is None:
            return None
        try:
            if new:
                return _timed(compile_as, path.as_posix(), directory)
            used(path)
            return compile_as(path.as_posix(), True)  # noqa: FBT003 - called by position
        except Exception:  # noqa: BLE001 - if it was not the cache, it is raised again without it
            remove([entry for known, entry in entries(directory).items() if known == name])
            if new:
                return None
    return None


def _timed(compile_as: Callable[[str, bool], C], filename: str, directory: Path | None) -> C:
    """Compile; where a person waits for seconds, say why."""
    start = time.perf_counter()
    compiled = compile_as(filename, directory is not None)
    _spent.append(time.perf_counter() - start)
    if sum(_spent) > PATIENCE and not _told and sys.stderr is not None and sys.stderr.isatty():
        _told.append(True)
        kept = f"kept in {directory}" if directory is not None else "not kept, as there is no FOLDBATCH_CACHE"
        print(f"foldbatch: compiling loops of a new model; they are {kept}", file=sys.stderr)
    return compiled


@lru_cache(4096)
def compile_loop(text: str, *, rounded: bool = False) -> Callable[..., None]:
    """Return a loop's function, compiled for the arrays and numbers that its first line tells and no others.

    Args:
        text: of the function.
        rounded: whether every product is rounded before something is added to it.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    return compile_arrays(text, rounded=rounded)


def compile_arrays(
    text: str, called: Mapping[str, Any] | None = None, source: str = "", *, rounded: bool = False
) -> Callable[..., None]:
    """Compile a text that calls what is `called` by name, all of it defined by `source`."""
    options = {"fastmath": False} if rounded else {}
    key = digest(f"{FORM}\n{_basis()}{source}{options or ''}\n{text}")
    return compile_text(f"loop_{key}", text, partial(_compiled, text, called or {}, options))


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
    options: Mapping[str, Any],
    filename: str,
    keep: bool,  # noqa: FBT001
) -> Callable[..., None]:
    functions = _vector_functions()
    scope = _scope(text, filename, called)
    signature = functions.signature(text.split("\n", 1)[0].removeprefix("# "))
    njit = numba().njit(signature, cache=keep, **functions.OPTIONS | options)
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
