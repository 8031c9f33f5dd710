"""Compiling loops with Numba, once per text and machine; see `foldbatch.compiling` for where it is kept."""

from __future__ import annotations

import hashlib
import inspect
import re
import zlib
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from types import ModuleType
from typing import Any

from foldbatch.compiling import compile_text, numba
from foldbatch.static.backends.named_loops import PRODUCTS, TEXTS, text_of

FORM = "2"  # of the compiled code, where that is not seen in the texts below

_CALLS = re.compile(r"\b([a-z]\w*_[fi][48])\b")  # what may be a product or a loop with a name


@lru_cache(4096)
def compile_loop(text: str) -> Callable[..., None]:
    """Return a loop's function, compiled for the types that its first line tells and for no others.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    return _compile(text, {}, "", "OPTIONS")


def loop_name(text: str) -> str:
    """Return what a loop is called in kernels: by its text, so that equal ones are one.

    >>> loop_name("# f4[1]w")
    'loop_afbbb1c3'
    """
    return f"loop_{zlib.crc32(text.encode()):08x}"


def called_by(text: str) -> dict[str, Callable[..., None]]:
    """Return the functions that a kernel's text calls besides loops, by name.

    There are no products for processors on which they have not been tried.

    Raises:
        BackendError: when Numba is not installed.

    >>> called_by("np.matmul(x, p0, out=s0)")
    {}
    """
    found = {name: _function(name) for name in sorted(set(_CALLS.findall(text)))}
    return {name: function for name, function in found.items() if function is not None}


@cache
def _function(name: str) -> Callable[..., None] | None:
    """Compile ``product_f4``, ``sum_axis_f8`` and their like; None for what kernels call otherwise."""
    text = text_of(name)
    if text is not None:
        return compile_loop(text)
    name, _, kind = name.rpartition("_")
    if name not in PRODUCTS:
        return None
    numba()
    from foldbatch.static.backends import products, tiles  # noqa: PLC0415 - they need Numba

    cut = products.blocks()
    if cut is None:
        return None
    text, functions = products.spell(name, kind, cut), products.functions(kind, cut)
    return _compile(text, functions, inspect.getsource(tiles) + inspect.getsource(products), "OPTIONS")


@lru_cache(1024)
def compile_levels(text: str, loops: tuple[str, ...]) -> Callable[..., None]:
    """Return the function of a loop over levels (see `levels`), whose statements call loops of these texts.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    from foldbatch.static.backends import linking, products, row_functions, tiles  # noqa: PLC0415 - need Numba

    modules = "".join(map(inspect.getsource, (linking, tiles, products, row_functions)))
    called = {
        name: function if text_of(name) else linking.linked(function, f"{name}_{_digest(modules)}")
        for name, function in called_by(text).items()
    }
    called |= {loop_name(loop): compile_loop(loop) for loop in loops}
    source = "".join([modules, *TEXTS.values(), *loops])
    return _compile(text, row_functions.FUNCTIONS | called, source, "SHARING_OPTIONS")


def _compile(text: str, called: Mapping[str, Any], source: str, options: str) -> Callable[..., None]:
    """Compile a text that calls what is `called` by name, all of it defined by `source`."""
    known = f"{FORM}\n{inspect.getsource(_vector_functions())}{source}\n{text}"
    return compile_text(f"loop_{_digest(known)}", text, partial(_compiled, text, called, options))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def _vector_functions() -> ModuleType:
    from foldbatch.static.backends import vector_functions  # noqa: PLC0415 - it needs Numba

    return vector_functions


def _compiled(
    text: str,
    called: Mapping[str, Any],
    options: str,
    filename: str,
    keep: bool,  # noqa: FBT001
) -> Callable[..., None]:
    functions = _vector_functions()
    # what is read back from disk looks for the module that it came from
    scope: dict[str, Any] = {**functions.GLOBALS, **called, "__name__": functions.__name__}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    signature = functions.signature(text.split("\n", 1)[0].removeprefix("# "))
    njit = numba().njit(signature, cache=keep, **getattr(functions, options))
    compiled: Callable[..., None] = njit(scope["loop"])
    return compiled
