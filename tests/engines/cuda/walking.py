"""Routines run as the CUDA engine runs them: kernels of many routines are compiled at once, tables are packed.

The fixture `by_cuda` lets the launches of `tests.engines.numpy.launching` be run so.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.bindings import Directions
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.driver import Driver, Function
from foldbatch.engines.cuda.kernel_text import TARGET
from foldbatch.engines.cuda.kernels import Kernel, kernel_of
from foldbatch.engines.cuda.memory import DeviceMemory
from foldbatch.engines.cuda.row_texts import found_by
from foldbatch.engines.cuda.steps import StepWalker, pack, steps_of
from foldbatch.engines.launch import HEAD, Fields, LaunchTable
from foldbatch.engines.launch import binding as fields_of
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Graph, Node
from foldbatch.static.routines import Target
from foldbatch.static.statements import Routine
from tests.backends import TESTED
from tests.engines.cuda.emulator import Emulator
from tests.engines.numpy import launching
from tests.static import run_kernel
from tests.static.run_kernel import routine_of_graph

FUSED, OP_BY_OP = TARGET, Target()
TARGETS = {"op by op": OP_BY_OP, "fused": FUSED}
STATUS = 8  # words
MANY = TESTED == "cuda-on-cpu"  # whether tests try everything


def kernel_of_routine(routine: Routine, row: Sequence[int] | None = None) -> Kernel:
    """Return what a level of a routine runs; each kernel is named by what its text says.

    Args:
        routine: the routine.
        row: a launch of it, which tells arenas and widths; by default each operand has an arena, of width 1.
    """
    operands: dict[Any, Any] = {}
    bindings = [slot.binding for slot in routine.slots] + [result.binding for result in routine.results]
    for number, (kind, key) in enumerate(bindings):
        result = number >= len(routine.slots)
        if kind in ("operand", "store") or (kind == "cotangent" and result):
            fields = None if row is None else fields_of(row, number)
            width, arena = (1, key) if fields is None else (fields[Fields.width], fields[Fields.base])
            operands[key] = SimpleNamespace(columns=range(width), arena=arena)
    model: Any = SimpleNamespace(signatures=[SimpleNamespace(operands=operands)])
    made = kernel_of(model, SimpleNamespace(cell=0, stage="step"), routine, "NAMED")  # type: ignore[arg-type]
    name = "k" + hashlib.sha256(made.text.encode()).hexdigest()[:16]
    tasks = tuple(replace(task, name=task.name.replace("NAMED", name)) for task in made.tasks)
    return replace(made, tasks=tasks, text=made.text.replace("NAMED", name))


class Together:
    """A device with the kernels of routines."""

    def __init__(self, driver: Driver) -> None:
        self.device = Device(driver)
        self.functions: dict[str, Function] = {}

    def prepare(self, kernels: Iterable[Kernel]) -> None:
        """Compile all kernels that are new, in one text."""
        made = {kernel.text: kernel for kernel in kernels}
        names = {task.name: text for text, kernel in made.items() for task in kernel.tasks if task.name}
        new = {name: text for name, text in names.items() if name not in self.functions}
        if new:
            module = self.device.driver.load("\n".join(dict.fromkeys(new.values())))
            self.functions |= {name: module(name) for name in new}

    def run(self, table: LaunchTable, routine: Routine, buffers: Sequence[Array]) -> None:
        """Run a table of launches of one routine, and change the buffers."""
        table = with_index(table, routine)
        rows = table.launches
        kernel = kernel_of_routine(routine, rows[0].tolist() if len(rows) else None)
        self.prepare([kernel])
        bound: Any = SimpleNamespace(types=[None] * len(buffers), brought={"loss": ()})
        tables = Directions(table, None, {}, table.index)
        packed = pack(bound, [kernel], tables, scheduled(table, routine), {})
        memory = DeviceMemory(self.device, bound.types)
        arrays = [self.device.put(np.asarray(buffer)) for buffer in buffers]
        for number, array in enumerate(arrays):
            memory.bring(number, array)
        status = self.device.zeros((STATUS,), "int64")
        numbers = np.empty_like(packed.numbers)
        packed.filled(numbers, memory.addresses, (), status.pointer)
        told = self.device.put(numbers)
        steps = tuple(steps_of([kernel], packed.forward, spaced=False))
        StepWalker(self.device, self.functions).run(steps, told.pointer, memory.addresses.tolist())
        told_of = self.device.read(status)[:2].tolist()
        if told_of[0]:
            raise found_by(told_of)
        for buffer, array in zip(buffers, arrays, strict=True):
            if buffer.flags.writeable and 0 not in buffer.strides:
                buffer[...] = self.device.read(array)


def scheduled(table: LaunchTable, routine: Routine) -> Any:
    """Return what of a schedule tells the levels of a table: their calls, and where these's elements begin."""
    steps = [(0, ("step",), start, stop) for start, stop in table.bounds.tolist()]
    segments = {}
    for slot in routine.segments.values() if len(table.launches) else ():
        at = fields_of(table.launches[0], slot)[Fields.index]
        segments[int(routine.slots[slot].binding.key)] = table.index[at:]
    listed = tuple(segments.get(k, np.zeros(1, np.int64)) for k in range(1 + max(segments, default=-1)))
    return SimpleNamespace(steps=steps, cells=[SimpleNamespace(segments=listed)], zero_rows=())


def with_index(table: LaunchTable, routine: Routine) -> LaunchTable:
    """Return a table whose values have an index array, as tables of engines always have."""
    launches, index = table.launches.copy(), [table.index]
    calls = int(table.bounds.max(initial=0))
    for number, result in enumerate(routine.results, len(routine.slots)):
        for row in launches if result.binding.kind == "value" else ():
            fields = row[HEAD + Fields.size * number :][: Fields.size]
            if fields[Fields.first] >= 0:
                fields[Fields.index] = sum(map(len, index))
                index.append(np.arange(fields[Fields.first], fields[Fields.first] + calls))
                fields[Fields.first] = -1
    return replace(table, launches=launches, index=np.concatenate(index))


@cache
def together() -> Together:
    return Together(Emulator())


def prepare(
    graphs: Iterable[tuple[Graph, Collection[Node]]],
    targets: Iterable[Target] = (OP_BY_OP,),
    on: Together | None = None,
) -> None:
    """Compile the kernels of graphs, with buffers for some of their nodes, for each target."""
    (on or together()).prepare(
        kernel_of_routine(routine_of_graph(graph, kept, target))
        for target in targets
        for graph, kept in graphs
    )


@pytest.fixture(autouse=True)
def by_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use(monkeypatch)
    yield


def use(monkeypatch: pytest.MonkeyPatch, target: Target = OP_BY_OP, on: Together | None = None) -> None:
    monkeypatch.setattr(run_kernel, "TARGET", target)
    monkeypatch.setattr(launching, "run_table", (on or together()).run)
