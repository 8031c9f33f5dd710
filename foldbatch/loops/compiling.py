"""Compiling, once per text and machine: cached in memory, and in a directory of the user.

`compiled_function` compiles a Python function in the language of `translation`, which Python calls with
arrays; `native` compiles a text to a function that compiled code calls by its address.

The directory is that of `system.cache`. If it cannot be used, texts are compiled in each process; damaged
files are removed, and compiled anew. Compiled code stays in memory, so a text is compiled once in a process,
and all programs share it.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from threading import RLock
from types import ModuleType
from typing import TypeVar

import numpy as np

from foldbatch.errors import BackendError, SlowPathWarning, frames_inside
from foldbatch.loops import cpython
from foldbatch.loops.records import Memory, Record
from foldbatch.system.cache import cache_directory, read_sealed, tidy_once, used, write_sealed
from foldbatch.system.processes import start_in_each_process

FORM = "3"  # version of the compiled code, for changes that the digested texts do not show
QUIET_SECONDS = 0.5  # seconds of compiling after which a terminal shows a message
CLEAR = "\r\x1b[K"  # clears a terminal's line

_spent: list[float] = []

C = TypeVar("C")


def llvm() -> None:
    """Refuse to compile where llvmlite is missing, or the sources of this package."""
    try:
        import_module("llvmlite.binding")  # optional, and slow to import
    except (ImportError, OSError) as error:  # its library may find no room
        fix = "pip install llvmlite, or take the backend numpy"
        raise BackendError("backend llvm", "llvmlite to be installed", str(error), fix) from None
    if not has_sources():
        fix = "install foldbatch with its .py files, or take the backend numpy"
        raise BackendError("backend llvm", "the sources of foldbatch, which it compiles", "none", fix)
    if misfit := cpython.array_misfit():
        fix = "install a NumPy that foldbatch supports, or take the backend numpy"
        raise BackendError("backend llvm", "arrays of NumPy as its C API has them", misfit, fix)


@cache
def can_compile() -> bool:
    """Return whether this process can compile loops; warn, once, where it cannot.

    All is right without: NumPy and Python do what compiled code would have done, in twice the time or more.
    """
    try:
        llvm()
    except BackendError as error:
        fix = f"results are the same; for speed, {error.fix.partition(',')[0]}"
        warnings.warn(
            SlowPathWarning("compiled code", error.expected, error.found, fix), stacklevel=frames_inside()
        )
        return False
    return True


@cache
def has_sources() -> bool:
    """Return whether this package's texts can be read, unlike where only .pyc files are installed."""
    try:
        return bool(inspect.getsource(cpython))
    except OSError:
        return False


def timed(make: Callable[[], C]) -> C:
    """Call `make`, which compiles a kernel, and return its result.

    Once kernels have taken `QUIET_SECONDS` in all, a terminal shows a message meanwhile.
    """
    start = time.perf_counter()
    shown = sum(_spent) > QUIET_SECONDS and sys.stderr is not None
    shown = shown and sys.stderr.isatty()
    if shown:
        storage = "not kept on disk" if cache_directory() is None else "once a machine"
        message = f"{CLEAR}foldbatch: compiling kernel {len(_spent) + 1}, {storage}"
        print(message, end="", file=sys.stderr, flush=True)
    try:
        return make()
    finally:
        _spent.append(time.perf_counter() - start)
        if shown:
            print(CLEAR, end="", file=sys.stderr, flush=True)


@cache
def compiled_function(
    function: Callable[..., object], signature: str, *modules: ModuleType
) -> Callable[..., int]:
    """Compile a Python function of the language of `translation`; return the function that Python calls.

    Args:
        function: it returns a number, a bool, or None, which becomes 0.
        signature: the kinds of its arguments, as in `translation.translate_function`.
        *modules: the modules of all functions that it calls; their sources and integer constants are part of
            the cache key.
    """
    llvm()
    from foldbatch.loops import translation  # noqa: PLC0415 - it needs llvmlite

    key = _cache_key(function, modules)
    define = partial(translation.definition_of, function)
    return _callable(define, function.__globals__, signature, key)


def _cache_key(function: Callable[..., object], modules: Sequence[ModuleType]) -> str:
    """Return the text by which the compile cache finds a function: it changes whenever its code may.

    Args:
        function: the function to be compiled.
        modules: its module, and those whose functions it calls: the text has their sources, integer
            constants and records.
    """
    from foldbatch.loops import words  # noqa: PLC0415 - it needs llvmlite

    texts = [inspect.getsource(module) for module in (words, *modules)]
    named = [item for module in modules for item in vars(module).items()]
    fixed: list[tuple[str, object]] = [(name, x) for name, x in named if type(x) is int]
    fixed += [(name, x.fields) for name, x in named if isinstance(x, type) and issubclass(x, Record)]
    return "\n".join([function.__name__, repr(fixed), *texts])


@cache
def compiled_words(function: Callable[..., object], *modules: ModuleType) -> int:
    """Compile a function of words, which C calls; return its address. See `compiled_function`."""
    llvm()
    from foldbatch.loops import translation  # noqa: PLC0415 - it needs llvmlite

    def translate(name: str) -> str:
        definition = translation.definition_of(function)
        return translation.translate_words(name, definition, function.__globals__)

    return _code_address("words", f"{cpython.COUNT}\n{_cache_key(function, modules)}", translate)


def compiled_late(
    function: Callable[..., object], signature: str, *modules: ModuleType
) -> Callable[..., int]:
    """Return the function of `compiled_function`, which is compiled at its first call."""
    compiled = cache(partial(compiled_function, function, signature, *modules))

    def run(*arguments: Memory | int) -> int:
        return compiled()(*arguments)

    return run


def compiled_text(text: str, signature: str) -> Callable[..., int]:
    """Compile the text of a function, which may call `vector_functions.SCOPE`; see `compiled_function`."""
    llvm()
    from foldbatch.loops import translation, vector_functions  # noqa: PLC0415 - they need llvmlite

    return _callable(partial(translation.definition_in, text), vector_functions.SCOPE, signature, text)


def _callable(
    define: Callable[[], ast.FunctionDef], scope: Mapping[str, object], signature: str, key: str
) -> Callable[..., int]:
    """Return the compiled function of a definition; `key` is its cache key without the translation's part."""
    from foldbatch.loops import translation  # noqa: PLC0415 - it needs llvmlite

    def translate(name: str) -> str:
        return translation.translate_function(name, define(), scope, signature)

    kinds = signature.split()
    address = _code_address("function", f"{cpython.COUNT} {signature}\n{key}", translate)
    types = [ctypes.py_object if kind.endswith("]") else ctypes.c_int64 for kind in kinds]
    foreign = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.py_object, *types)(address)
    array = np.ndarray

    def run(*arguments: Memory | int) -> int:
        """Call the function; arrays of subclasses of NumPy's, such as those of files, are converted first."""
        result: int = foreign(array, *arguments)
        if result == translation.MISFIT:
            plain = [np.asarray(x) if isinstance(x, array) else x for x in arguments]
            result = foreign(array, *plain)
        if result == translation.MISFIT:
            raise TypeError(f"expected arrays without gaps of {signature}, found {_forms(arguments)}")
        return result

    return run


def _forms(arguments: Sequence[Memory]) -> str:
    """Return the dtypes and shapes of arguments, for an error."""
    return " ".join(
        f"{x.dtype}{list(x.shape)}" if hasattr(x, "dtype") else type(x).__name__ for x in arguments
    )


def digest(text: str) -> str:
    """Return a digest of a text, which names its file."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Native:
    """A compiled function that is called by its address, with `words.call`; see `native`."""

    address: int
    count: int  # the number of pointers that it takes


class _Loaded:
    """The addresses of functions in memory, by name; a thread that compiles or loads one holds the lock."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        start_in_each_process(self, _Loaded.unlock)

    def unlock(self) -> None:
        self.lock = RLock()


_loaded = _Loaded()


@lru_cache(4096)
def native(
    text: str,
    extra_scope: Callable[[], Mapping[str, object]] | None = None,
    source: str = "",
    *,
    rounded: bool = False,
) -> Native:
    """Compile a text's function ``loop(n, x0, x1, ..., s)``, which compiled code calls by its address.

    The function takes two pointers: to `n` and the addresses of x0, x1 and so on, and `s`.

    Args:
        text: in the language of `translation`. Its first line has the kinds of the numbers that x0, x1 and so
            on point to: ``# f4 i8``; `n` is a number of rows, `s` points to integers. No memory overlaps.
        extra_scope: returns the functions that the text calls besides `vector_functions.SCOPE`.
        source: a text that changes when these functions do; it is part of the cache key.
        rounded: whether every product is rounded before a sum adds it.
    """
    llvm()
    from foldbatch.loops import translation, vector_functions  # noqa: PLC0415 - they need llvmlite

    def translate(name: str) -> str:
        scope = {**vector_functions.SCOPE, **(extra_scope() if extra_scope is not None else {})}
        return translation.translate(name, text, scope, rounded=rounded)

    count = len(text.split("\n", 1)[0].removeprefix("#").split())
    return Native(_code_address("native", f"{source}{' rounded' * rounded}\n{text}", translate), count)


def link(key: str, translate: Callable[[str], str]) -> None:
    """Load a module whose functions texts call by name; `key` is its cache key without the machine's part."""
    llvm()
    _code_address("library", key, translate)


def _code_address(kind: str, key: str, translate: Callable[[str], str]) -> int:
    """Return the address of a function: from memory, from the cache on disk, or after compiling it.

    Its cache key is `key`, the processor, and the sources of the translation.
    """
    from foldbatch.loops import machine  # noqa: PLC0415 - it needs llvmlite

    name = f"{kind}_{digest(f'{_translation_digest()}{machine.identity()}{key}')}"
    with _loaded.lock:
        if name not in _loaded.addresses:
            content = keep(f"{name}.o", lambda: timed(lambda: machine.assemble(translate(name))))
            _loaded.addresses[name] = machine.load(name, content)
        return _loaded.addresses[name]


def keep(name: str, make: Callable[[], bytes]) -> bytes:
    """Return the content of a file in the cache; call `make` and write the file if it is missing or damaged.

    Without a directory for the cache, `make` is called each time.
    """
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
    write_sealed(path, content)
    return content


@cache
def _translation_digest() -> str:
    """Return a digest of the sources that translate texts, and of the functions that every text may call."""
    from foldbatch.loops import machine, numbers, translation, vector_functions  # noqa: PLC0415 - they need llvmlite

    texts = map(inspect.getsource, (cpython, machine, numbers, translation, vector_functions))
    return digest(FORM + "".join(texts))
