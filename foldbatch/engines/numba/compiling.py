"""Compiling, once per text and machine: in memory, and in a directory of the user.

A text is a function called ``loop``; its first line tells its types. `compile_loop` makes of it what Python
calls with arrays, with Numba. `native` makes of it what compiled code calls by its address, with LLVM alone,
which takes a third of the time.

The directory is that of `system.cache`. Where it cannot be used, texts are compiled in each process; what
is damaged there is removed, and compiled anew. Compiled code stays in memory, so a text is compiled once in a
process, and all programs share it.
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
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, TypeVar

from foldbatch.errors import BackendError
from foldbatch.system.cache import (
    cache_directory,
    entries,
    read_sealed,
    remove,
    sealed,
    tidy_once,
    used,
    write_bytes,
    write_text,
)
from foldbatch.system.forks import start_in_each_process

FORM = "3"  # of the compiled code, where that is not seen in the texts below
PATIENCE = 0.5  # seconds of compiling after which a person is told
CLEAR = "\r\x1b[K"  # to the beginning of a terminal's line, which is empty then

_spent: list[float] = []

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
    return timed(partial(compile_as, filename, False))  # noqa: FBT003 - called by position


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
                return timed(partial(compile_as, path.as_posix(), True))  # noqa: FBT003 - called by position
            used(path)
            return compile_as(path.as_posix(), True)  # noqa: FBT003 - called by position
        except Exception:  # noqa: BLE001 - if it was not the cache, it is raised again without it
            remove([entry for known, entry in entries(directory).items() if known == name])
            if new:
                return None
    return None


def timed(make: Callable[[], C]) -> C:
    """Return what `make` compiles; a person at a terminal is told meanwhile, if all of it takes long."""
    start, shown = time.perf_counter(), sum(_spent) > PATIENCE and sys.stderr is not None
    shown = shown and sys.stderr.isatty()
    if shown:
        kept = "not kept on disk" if cache_directory() is None else "once a machine"
        print(
            f"{CLEAR}foldbatch: compiling kernel {len(_spent) + 1}, {kept}",
            end="",
            file=sys.stderr,
            flush=True,
        )
    try:
        return make()
    finally:
        _spent.append(time.perf_counter() - start)
        if shown:
            print(CLEAR, end="", file=sys.stderr, flush=True)


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
    options = {"fastmath": False} if rounded else {}
    key = digest(f"{FORM}\n{_basis()}{options or ''}\n{text}")
    return compile_text(f"loop_{key}", text, partial(_compiled, text, options))


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
    """

    address: int
    count: int


class _Loaded:
    """Functions in memory by the digest of their text; whoever makes one holds the lock."""

    def __init__(self) -> None:
        self.functions: dict[str, Native] = {}
        start_in_each_process(self, _Loaded.unlock)

    def unlock(self) -> None:
        self.lock = RLock()


_loaded = _Loaded()


@lru_cache(4096)
def native(
    text: str,
    more: Callable[[], Mapping[str, Any]] | None = None,
    source: str = "",
    *,
    rounded: bool = False,
) -> Native:
    """Return a text's function ``loop(n, x0, x1, ..., s)``, to be called by its address.

    The text is in the language of `translation`. Its first line tells the kinds of the numbers that x0, x1
    and so on point to: ``# f4 i8``; `n` is a number of rows, `s` points to whole numbers. None of the memory
    overlaps. The function takes two pointers: to `n` and the addresses of x0, x1 and so on, and `s`.

    Args:
        text: of the function.
        more: returns what the text calls besides `vector_functions.SCOPE`, by name.
        source: the text of what `more` returns.
        rounded: whether every product is rounded before something is added to it.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    from foldbatch.engines.numba import machine  # noqa: PLC0415 - it needs Numba

    key = digest(f"{_translated()}{machine.identity()}{source}{' rounded' * rounded}\n{text}")
    with _loaded.lock:
        function = _loaded.functions.get(key)
        if function is None:
            name = f"native_{key}"
            content = keep(f"{name}.o", partial(_machine_code, name, text, more, rounded))
            count = len(text.split("\n", 1)[0].removeprefix("#").split())
            function = _loaded.functions[key] = Native(machine.load(name, content), count)
    return function


def _machine_code(
    name: str,
    text: str,
    more: Callable[[], Mapping[str, Any]] | None,
    rounded: bool,  # noqa: FBT001 - called by position
) -> bytes:
    from foldbatch.engines.numba import machine, translation, vector_functions  # noqa: PLC0415 - they need Numba

    scope = {**vector_functions.SCOPE, **(more() if more is not None else {})}
    return timed(lambda: machine.assemble(_rounded(translation.translate(name, text, scope), rounded)))


def _rounded(text: str, rounded: bool) -> str:  # noqa: FBT001 - called by position
    """Return LLVM's text, without leave to round a sum of a product once if every product is `rounded`."""
    return text.replace(" contract ", " ") if rounded else text


def keep(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the content of a file in the cache, which is made where it is not there or damaged."""
    directory = cache_directory()
    if directory is None:
        return make()
    path = directory / name
    content = read_sealed(path)
    if content is not None:
        used(path)
        return content
    tidy_once(directory)
    content = make()
    write_bytes(path, sealed(content))
    return content


@cache
def _translated() -> str:
    """Return a digest of what decides how texts are translated, and what every text may call."""
    from foldbatch.engines.numba import machine, numbers, translation, vector_functions  # noqa: PLC0415 - they need Numba

    return digest(FORM + "".join(map(inspect.getsource, (machine, numbers, translation, vector_functions))))


def _basis() -> str:
    """Return the text of what every text may call that Numba compiles."""
    from foldbatch.engines.numba import memory  # noqa: PLC0415 - it needs Numba

    return inspect.getsource(memory)


def _compiled(text: str, options: Mapping[str, Any], filename: str, keep: bool) -> Callable[..., None]:  # noqa: FBT001
    from foldbatch.engines.numba import memory  # noqa: PLC0415 - it needs Numba

    # what is read back from disk looks for the module that it came from
    scope: dict[str, Any] = {**memory.GLOBALS, "__name__": memory.__name__}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    signature = memory.signature(text.split("\n", 1)[0].removeprefix("# "))
    njit = partial(numba().njit, **{**memory.OPTIONS, **options})
    if not keep:
        compiled: Callable[..., None] = njit(signature)(scope["loop"])
        return compiled
    dispatcher = njit(cache=True)(scope["loop"])
    if Path(dispatcher.stats.cache_path).parent != Path(filename).parent:
        raise OSError("variables of Numba's own name another directory, which nobody has looked at")
    dispatcher.compile(signature)  # or reads it
    dispatcher.disable_compile()
    kept: Callable[..., None] = dispatcher
    return kept
