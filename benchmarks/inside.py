"""What the benchmarks take from inside the package, beyond its public names, in one place.

So when the package moves these, this module follows, and no case does. Cases whose subject *is* the inside
import it themselves: ``clocks``, ``compiler``, ``schedule`` and ``structures``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foldbatch import Program
from foldbatch.engines.engine import choose_engine
from foldbatch.engines.sums import segment_sum, total
from foldbatch.engines.threads import available_cores, in_threads, single_threaded_blas
from foldbatch.static.graph import Node

__all__ = [
    "Node",
    "available_cores",
    "backend_name",
    "compile_loop",
    "compiled_product",
    "in_threads",
    "make_ready",
    "segment_sum",
    "single_threaded_blas",
    "total",
]


def backend_name(name: str) -> str:
    """Return the backend that computes when `name` is asked for: of ``auto``, the one that it picks."""
    return choose_engine(name)


def make_ready(program: Program, examples: Sequence[Any]) -> None:
    """Plan a training step for examples: merge their traces, schedule, and fill the launch tables."""
    engine = program._runner.engine
    for part in program.plan(examples).parts:
        assert part.batch is not None, "planning schedules"
        engine.ready(part.batch, training=True)


def compile_loop(text: str) -> Callable[..., None]:
    """Return the function of a loop's text, compiled with Numba."""
    from foldbatch.engines.numba.compiling import compile_loop  # noqa: PLC0415 - it needs Numba

    return compile_loop(text)


def compiled_product(dtype: str) -> Callable[..., object] | None:
    """Return the product that compiled kernels call, of ``float32`` or ``float64``; None if NumPy's."""
    if choose_engine("auto") != "numba":
        return None
    from foldbatch.engines.numba.products import by_arrays  # noqa: PLC0415 - it needs Numba

    return by_arrays("f4" if dtype == "float32" else "f8")
