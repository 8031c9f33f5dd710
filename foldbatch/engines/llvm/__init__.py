"""The LLVM engine: a direction of a batch is one call of compiled code, which walks the launch table.

Nothing is compiled for a kernel but its fused loops: it is a list of instructions, each of which calls a
function that is compiled once a machine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from foldbatch.engines.arrays import ArrayEngine, BatchMemory, Kernels
from foldbatch.engines.bindings import Bound, Directions
from foldbatch.engines.engine import DEFAULTS, Backend, EngineSettings
from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.llvm.integers import compiled as arithmetic
from foldbatch.engines.llvm.loop_texts import TARGET, listing
from foldbatch.engines.llvm.tables import compiled, launch_writer
from foldbatch.errors import BackendError
from foldbatch.loops.compiling import llvm
from foldbatch.model.labels import title
from foldbatch.model.model import Model
from foldbatch.scheduler.schedule import Schedule

TARGETS = {"fp32": TARGET, "bf16": replace(TARGET, precision="bf16")}
SPLITS = 3  # up to so many times the usual calls of a part, a helper at one large part is faster


def load(model: Model, settings: EngineSettings = DEFAULTS) -> ArrayEngine:
    """Return the LLVM engine for a model."""
    from foldbatch.engines.llvm.updates import Compiled, sum_copies  # noqa: PLC0415 - it needs llvmlite

    updates = Compiled()
    target, make = TARGETS[settings.precision], partial(_make_kernels, settings)
    return ArrayEngine(
        "llvm", model, target, make, arithmetic(), updates, sum_copies, splits=SPLITS, settings=settings
    )


def _make_kernels(settings: EngineSettings, bound: Bound) -> Kernels:
    """Return the kernels of a phase: their codes, walker and launches, and the runner of small batches."""
    from foldbatch.engines.llvm import team  # noqa: PLC0415 - and this
    from foldbatch.engines.llvm.known import with_known  # noqa: PLC0415 - it needs llvmlite
    from foldbatch.engines.llvm.rounds import RoundRunner  # noqa: PLC0415 - and this
    from foldbatch.engines.llvm.walker import Walker  # noqa: PLC0415 - and it

    bound, codes, products = with_known(bound)
    walker = Walker(codes)
    launched = launch_writer(compiled(), bound)

    def walk(table: LaunchTable, memory: BatchMemory) -> None:
        walker.run(table, memory.addresses, team.team() if memory.helped else None)

    titles = [
        " ".join(filter(None, [title(bound.model.cells[key.cell].name), routine.name, key.variant]))
        for key, routine in zip(bound.keys, bound.routines, strict=True)
    ]

    def tables(schedule: Schedule) -> Directions:
        return products.adapt(launched(schedule))

    runner = RoundRunner(bound, walker, settings)
    return Kernels(bound, walk, lambda: list(map(listing, titles, bound.routines)), tables, runner)


def check_precision(precision: str) -> None:
    """Refuse a precision that this processor has no instruction for."""
    from foldbatch.loops.machine import processor  # noqa: PLC0415 - it needs llvmlite

    name, features = processor()
    if precision == "bf16" and "+avx512bf16" not in features.split(","):
        fix = "leave precision out, or take the backend numpy"
        raise BackendError("precision", "a processor that has AVX-512 BF16 for bf16", name, fix)


BACKEND = Backend(load, llvm, precisions=tuple(TARGETS), arithmetic=arithmetic, suits=check_precision)
