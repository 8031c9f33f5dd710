"""What the benchmarks take from inside the package, beyond its public names, in one place.

So when the package moves these, this module follows, and no case does. Cases whose subject *is* the inside
import it themselves: ``clocks``, ``compiler``, ``schedule`` and ``structures``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch import Program
from foldbatch.engines.batch import SubBatch
from foldbatch.engines.engine import choose_engine
from foldbatch.engines.sums import segment_sum, total
from foldbatch.engines.threads import in_threads, single_threaded_blas
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node
from foldbatch.system.cores import available_cores

__all__ = [
    "Node",
    "Stages",
    "available_cores",
    "backend_name",
    "compile_loop",
    "compiled_product",
    "device_of",
    "in_threads",
    "make_ready",
    "segment_sum",
    "single_threaded_blas",
    "stages_of",
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


@dataclass(frozen=True, slots=True)
class Stages:
    """A training step cut into what can be timed, to be called once each and in this order.

    Attributes:
        seconds: of merging and scheduling, which is done.
        ready: makes the launch tables.
        forward: runs forward; `backward` backward, each on what the one before made.
    """

    seconds: Mapping[str, float]
    ready: Callable[[], None]
    forward: Callable[[], None]
    backward: Callable[[], None]


def stages_of(program: Program, examples: Sequence[Any]) -> Stages:
    """Return a training step of a batch, run whole, cut into stages; the batch is traced and scheduled."""
    runner = program._runner
    traces = program._trace_all(examples)
    batch = runner.scheduled(traces)
    made: list[Any] = []

    def ready() -> None:
        made.append(runner.engine.ready(batch, training=True))

    def forward() -> None:
        made.append(runner._forward(SubBatch(0, traces, batch), (batch, made[0]), runner._memories[0], 0))

    def backward() -> None:
        made[1].backward()

    return Stages(dict(batch.seconds), ready, forward, backward)


def device_of(program: Program) -> Any:
    """Return the device that a program computes on, a `foldbatch.engines.cuda.device.Device`; else None."""
    return getattr(program._runner.engine, "device", None)


def compile_loop(text: str) -> Callable[..., None]:
    """Return a loop's function, for Python to call with a number of rows and arrays without gaps."""
    from foldbatch.engines.llvm.compiling import native  # noqa: PLC0415 - it needs llvmlite

    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(native(text).address)

    def loop(n: int, *arrays: Array) -> None:
        numbers = np.array([n, *(array.__array_interface__["data"][0] for array in arrays)], np.int64)
        function(numbers.ctypes.data, None)

    return loop


def compiled_product(dtype: str) -> Callable[..., object] | None:
    """Return the product that compiled kernels call, of ``float32`` or ``float64``; None if NumPy's."""
    if choose_engine("auto") != "llvm":
        return None
    from foldbatch.engines.llvm import products, tiles  # noqa: PLC0415 - they need llvmlite

    kind, cut = "f4" if dtype == "float32" else "f8", tiles.blocks()
    if cut is None:  # a processor that is not known
        return None
    function = products.compiled(products.native_text, kind, cut)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(function.address)

    def product(a: Array, b: Array, c: Array) -> None:
        strides = [step // x.itemsize for x in (a, b, c) for step in x.strides][:5]
        numbers = np.array([1, *(x.ctypes.data for x in (a, b, c))], np.int64)
        told = np.array([1, *a.shape, b.shape[1], 1, *strides, 0, 0, 0, 0], np.int64)
        run(numbers.ctypes.data, told.ctypes.data)

    return product
