"""What the benchmarks take from inside the package, beyond its public names, in one place.

So when the package moves these, this module follows, and no case does. Cases whose subject *is* the inside
import it themselves: ``clocks``, ``compiler``, ``schedule`` and ``structures``.
"""

from __future__ import annotations

from collections.abc import Callable

from foldbatch.engine import backend_of
from foldbatch.runtime.sums import total
from foldbatch.runtime.threads import available_cores, in_threads, single_threaded_blas
from foldbatch.static.backends import find_backend
from foldbatch.static.backends.loop_compiler import compile_loop
from foldbatch.static.backends.numpy import segment_sum
from foldbatch.static.graph import Node

__all__ = [
    "Node",
    "available_cores",
    "backend_name",
    "compile_loop",
    "compiled_product",
    "in_threads",
    "segment_sum",
    "single_threaded_blas",
    "total",
]


def backend_name(name: str) -> str:
    """Return the backend that computes when `name` is asked for: of ``auto``, the one that it picks."""
    return backend_of(name).name


def compiled_product(dtype: str) -> Callable[..., object] | None:
    """Return the product that compiled kernels call, of ``float32`` or ``float64``; None if NumPy's."""
    spelled = find_backend("auto").called_by(f"product_{'f4' if dtype == 'float32' else 'f8'}(")
    return next(iter(spelled.values()), None)
