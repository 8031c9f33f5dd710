"""Walking the launch table in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from foldbatch.engines.arrays import ArrayEngine, BatchMemory, Kernels
from foldbatch.engines.bindings import Bound, launch_tables
from foldbatch.engines.engine import DEFAULTS, Backend, EngineSettings
from foldbatch.engines.launch import HEAD, LaunchTable, OutOfRangeError
from foldbatch.engines.numpy.kernel import Function
from foldbatch.engines.numpy.kernel import load as load_kernel
from foldbatch.engines.numpy.spelling import OVERWRITES
from foldbatch.engines.threads import single_threaded_blas
from foldbatch.model.labels import title
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.static.routines import Target


def run(table: LaunchTable, kernels: Sequence[Function], buffers: Sequence[Array]) -> None:
    """Run the launches of a table, in order."""
    bounds, index = table.bounds, table.index
    for launch, row in enumerate(table.launches.tolist()):
        kernel, first, stop = row[:HEAD]
        try:
            kernels[kernel](bounds[first:stop], row, index, buffers)
        except OutOfRangeError as error:
            error.launch = launch
            raise


TARGET = Target(overwrites=OVERWRITES)
TARGETS = {"fp32": TARGET, "bf16": replace(TARGET, precision="bf16")}


def load(model: Model, settings: EngineSettings = DEFAULTS) -> ArrayEngine:
    """Return the NumPy engine for a model."""
    return ArrayEngine("numpy", model, TARGETS[settings.precision], _make, settings=settings)


def _make(bound: Bound) -> Kernels:
    """Return the kernels of bound routines: generated functions, and the walk that calls them."""
    kernels = [load_kernel(routine) for routine in bound.routines]
    functions = [kernel.function for kernel in kernels]

    def walk(table: LaunchTable, memory: BatchMemory) -> None:
        with single_threaded_blas(), np.errstate(all="ignore"):  # parts of a batch run side by side
            run(table, functions, memory.arrays)

    def sources() -> list[str]:
        cells = [bound.model.cells[key.cell].name for key in bound.keys]
        cell_kernels = zip(cells, bound.routines, kernels, strict=True)
        return [f"# {title(cell)} {routine.name}\n{kernel.source}" for cell, routine, kernel in cell_kernels]

    return Kernels(bound, walk, sources, partial(launch_tables, bound))


BACKEND = Backend(load, precisions=tuple(TARGETS), arithmetic=lambda: NUMPY)
