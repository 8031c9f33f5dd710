"""Compiling loops with Numba, once per text and machine: in memory, and in a directory of the user.

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
import zlib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from foldbatch.errors import BackendError

FORM = "1"  # of the compiled code, where that is not seen in the texts below


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
    """Return where compiled loops are kept between runs; None where the user wants none.

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


@lru_cache(4096)
def compile_loop(text: str) -> Callable[..., None]:
    """Return a loop's function, compiled for the types that its first line tells and for no others.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    return _compile(text, {}, "")


@cache
def compile_product(kind: str) -> Callable[..., None]:
    """Return ``product(a, b, out)`` of `products.spell` for ``f4`` or ``f8``.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    from foldbatch.static.backends import products  # noqa: PLC0415 - it needs Numba

    cut = products.blocks()
    assert cut is not None, "kernels multiply by BLAS where products have not been tried"
    return _compile(products.spell(kind, cut), products.functions(kind, cut), _product_source())


@cache
def _product_source() -> str:
    from foldbatch.static.backends import products  # noqa: PLC0415 - it needs Numba

    return inspect.getsource(products)


@lru_cache(1024)
def compile_levels(text: str, called: tuple[str, ...]) -> Callable[..., None]:
    """Return the function of a loop over levels (see `levels`), whose statements call loops of these texts.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    from foldbatch.static.backends import row_functions  # noqa: PLC0415 - it needs Numba

    functions: dict[str, Any] = {**row_functions.FUNCTIONS}
    functions |= {loop_name(loop): compile_loop(loop) for loop in called}
    functions |= {
        f"product_{kind}": compile_product(kind) for kind in ("f4", "f8") if f"product_{kind}(" in text
    }
    source = f"{inspect.getsource(row_functions)}{_product_source()}{''.join(called)}"
    return _compile(text, functions, source, distinct=False)


def loop_name(text: str) -> str:
    """Return what a loop is called in kernels: by its text, so that equal ones are one."""
    return f"loop_{zlib.crc32(text.encode()):08x}"


def _compile(
    text: str, called: Mapping[str, Any], source: str, *, distinct: bool = True
) -> Callable[..., None]:
    """Compile a text that calls what is `called` by name, all of it defined by `source`."""
    sources = f"{inspect.getsource(_vector_functions())}{source}"
    digest = hashlib.sha256(f"{FORM}\n{sources}\n{text}".encode()).hexdigest()[:20]
    kept = _write(cache_directory(), f"loop_{digest}.py", text)
    if kept is not None:
        try:
            return _compiled(text, called, kept.as_posix(), keep=True, distinct=distinct)
        except Exception:  # noqa: BLE001, S110 - if it was not the cache, the next line raises it again
            pass
    return _compiled(text, called, f"<foldbatch loop {digest}>", keep=False, distinct=distinct)


@cache
def _vector_functions() -> ModuleType:
    from foldbatch.static.backends import vector_functions  # noqa: PLC0415 - it needs Numba

    return vector_functions


def _compiled(
    text: str, called: Mapping[str, Any], filename: str, *, keep: bool, distinct: bool
) -> Callable[..., None]:
    functions = _vector_functions()
    # what is read back from disk looks for the module that it came from
    scope: dict[str, Any] = {**functions.GLOBALS, **called, "__name__": functions.__name__}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    if not keep:
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    signature = functions.signature(text.split("\n", 1)[0].removeprefix("# "))
    options = functions.OPTIONS if distinct else functions.SHARING_OPTIONS
    compiled: Callable[..., None] = numba().njit(signature, cache=keep, **options)(scope["loop"])
    return compiled


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
