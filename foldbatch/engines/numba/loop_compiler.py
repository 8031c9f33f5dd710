"""Compiling loops with Numba, once per text and machine; see `foldbatch.engines.numba.compiling` for where it is kept."""

from __future__ import annotations

import inspect
import re
import zlib
from collections.abc import Callable
from functools import cache, lru_cache

from foldbatch.engines.numba.compiling import compile_arrays, compile_loop, digest, numba
from foldbatch.engines.numba.named_loops import PRODUCTS, TEXTS, text_of

_CALLS = re.compile(r"\b([a-z]\w*_[fi][48])\b")  # what may be a product or a loop with a name


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
    from foldbatch.engines.numba import products, tiles  # noqa: PLC0415 - they need Numba

    cut = products.blocks()
    if cut is None:
        return None
    text, functions = products.spell(name, kind, cut), products.functions(kind, cut)
    return compile_arrays(text, functions, inspect.getsource(tiles) + inspect.getsource(products), "OPTIONS")


@lru_cache(1024)
def compile_levels(text: str, loops: tuple[str, ...]) -> Callable[..., None]:
    """Return the function of a loop over levels (see `levels`), whose statements call loops of these texts.

    Raises:
        BackendError: when Numba is not installed.
    """
    numba()
    from foldbatch.engines.numba import linking, products, row_functions, tiles  # noqa: PLC0415 - need Numba

    modules = "".join(map(inspect.getsource, (linking, tiles, products, row_functions)))
    called = {
        name: function if text_of(name) else linking.linked(function, f"{name}_{digest(modules)}")
        for name, function in called_by(text).items()
    }
    called |= {loop_name(loop): compile_loop(loop) for loop in loops}
    source = "".join([modules, *TEXTS.values(), *loops])
    return compile_arrays(text, row_functions.FUNCTIONS | called, source, "SHARING_OPTIONS")
