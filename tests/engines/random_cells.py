"""Models for the scheduler's random traces, so that a random batch can be run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from foldbatch.engines.batch import ScheduledBatch, schedule_batch
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model, differentiated
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.layout import Layout
from foldbatch.scheduler.sharing import SHARES
from foldbatch.static import ops
from foldbatch.static.cell import stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import INPUT, Graph, Node, input_node
from foldbatch.static.op import CALL, Axis, ragged
from foldbatch.types import VOID, TensorType
from tests.scheduler.random_traces import Cells, Setting, settings_of

FLOAT = "float64"


@dataclass(frozen=True, slots=True)
class Runnable:
    """A random batch with a model that can be run on it."""

    setting: Setting
    model: Model

    def batch(
        self, layout: Layout, share: str | None = "leaves", *, part: slice = slice(None)
    ) -> ScheduledBatch:
        """Return the batch scheduled, or a part of it."""
        setting, model = self.setting, self.model
        arenas = len(model.arenas)
        return schedule_batch(
            setting.traces[part], model.signatures, setting.policy, layout, arenas, SHARES[share]
        )

    def __repr__(self) -> str:
        model = self.model
        graphs = [str(Graph(cell.graph.inputs, cell.graph.results)) for cell in model.cells]
        ends = [
            f"{s.name} {cell.ends}\n{graph}"
            for s, cell, graph in zip(model.signatures, model.cells, graphs, strict=True)
        ]
        return "\n".join([f"{self.setting!r}\narenas {', '.join(map(str, model.arenas))}", *ends])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


class _Maker:
    """Makes the graphs of cells: every result a random layer of some of the operands and all data."""

    def __init__(self, rng: np.random.Generator, cells: Cells) -> None:
        self.rng = rng
        self.cells = cells
        extents = rng.choice([0, 1, 2, 3], cells.arenas)
        self.arenas = tuple(TensorType((int(n),) if n else (), FLOAT) for n in extents)
        self.names = 0

    def weight(self, *shape: int) -> Parameter:
        """Return a new parameter, one in six of them frozen."""
        self.names += 1
        value = self.rng.normal(size=shape)
        return Parameter(
            TensorType(shape, FLOAT), value, f"w{self.names}", trainable=bool(self.rng.integers(6))
        )

    def graph(self, k: int) -> CellGraph:
        """Return the graph of a cell."""
        cell = self.cells.signatures[k]
        axes = [ragged(f"{k}.{s}") for s in range(len(cell.sequences))]
        operands = tuple(self._operand(k, i, axes) for i in range(len(cell.operands)))
        feeds = tuple(input_node(TensorType((), "int64")) for _ in range(self.cells.feeds[k]))
        late = self.cells.recursive_operands[k]
        early = tuple(x for i, x in enumerate(operands) if i not in late)
        outputs = []
        for j, arena in enumerate(cell.outputs):
            all_ = j in self.cells.recursive_outputs[k] or self.rng.integers(2)
            outputs.append(self.layer(operands if all_ else early, feeds, self.arenas[arena]))
        losses: tuple[Node, ...] = ()
        metrics: tuple[Node, ...] = ()
        if not cell.shareable:
            scalar, pair = TensorType((), FLOAT), TensorType((2,), FLOAT)
            losses = tuple(self.layer(operands, feeds, scalar) for _ in range(int(self.rng.integers(3))))
            metrics = tuple(
                self.layer((*early, *outputs), feeds, pair) for _ in range(int(self.rng.integers(2)))
            )
        return CellGraph(cell.name, operands, feeds, tuple(outputs), losses, metrics)

    def _operand(self, k: int, i: int, axes: list[Axis]) -> Node:
        operand = self.cells.signatures[k].operands[i]
        type_ = self.arenas[operand.arena]
        if len(operand.columns) > 1:
            type_ = TensorType((len(operand.columns), *type_.shape), FLOAT)
        return input_node(type_, CALL if operand.sequence is None else axes[operand.sequence])

    def layer(self, xs: tuple[Node, ...], feeds: tuple[Node, ...], type_: TensorType) -> Node:
        """Return ``tanh(sum of x W, and rows of tables)`` as a tensor of a type."""
        size = type_.size
        terms = [ops.batched(ops.reshape(self.weight(size), size))]
        for x in xs:
            if self.rng.integers(4):
                flat = ops.reshape(x, (x.type.size,)) @ self.weight(x.type.size, size)
                terms.append(ops.segment_sum(ops.sigmoid(flat)) if x.axis.rank == 2 else flat)
        terms += [ops.gather(self.weight(3, size), ids) for ids in feeds]
        return ops.reshape(ops.tanh(ops.add(*terms)), type_.shape)


class _OnceMaker(_Maker):
    """Makes graphs in which an operand is multiplied once: all results are made of one layer of it."""

    def __init__(self, rng: np.random.Generator, cells: Cells) -> None:
        super().__init__(rng, cells)
        self.hidden: dict[tuple[Node, ...], Node] = {}

    def graph(self, k: int) -> CellGraph:
        self.hidden = {}
        return super().graph(k)

    def layer(self, xs: tuple[Node, ...], feeds: tuple[Node, ...], type_: TensorType) -> Node:
        operands = tuple(x for x in xs if x.op is INPUT)
        if operands not in self.hidden:
            self.hidden[operands] = super().layer(operands, feeds, TensorType((4,), FLOAT))
        return super().layer((self.hidden[operands], *(x for x in xs if x.op is not INPUT)), (), type_)


def runnable(setting: Setting, rng: np.random.Generator, *, once: bool = False) -> Runnable:
    """Return the setting with a random model; its cells may multiply each operand `once`."""
    maker = (_OnceMaker if once else _Maker)(rng, setting.cells)
    cells = []

    def some(n: int) -> frozenset[int]:
        return frozenset(i for i in range(n) if rng.integers(4))

    for k in range(len(setting.signatures)):
        graph = maker.graph(k)
        ends = Ends(
            setting.cells.recursive_operands[k],
            setting.cells.recursive_outputs[k],
            some(len(graph.operands)),
            some(len(graph.outputs)),
        )
        cells.append(stage_cell(graph, ends))
    parameters = dict.fromkeys(p for cell in cells for p in cell.parameters)
    model = Model(
        result=VOID,
        cells=tuple(cells),
        signatures=tuple(map(differentiated, setting.signatures, cells)),
        arenas=maker.arenas,
        results=frozenset(),
        losses=tuple(("loss",) * len(cell.graph.losses) for cell in cells),
        metrics=tuple(tuple(f"{cell.name}.{i}" for i in range(len(cell.graph.metrics))) for cell in cells),
        labels=((),) * len(cells),
        marks=((),) * len(cells),
        keys=((),) * len(cells),
        feeds=tuple(tuple(Feed(x.type, cell.name, "") for x in cell.graph.feeds) for cell in cells),
        parameters=tuple(parameters),
    )
    return Runnable(setting, model)


@st.composite
def runnables(
    draw: Callable[[st.SearchStrategy[int]], int], *, examples: int = 3, once: bool = False
) -> Runnable:
    """Return a random batch with a random model; its cells may multiply each operand `once`."""
    setting: Setting = draw(settings_of(examples=examples))  # type: ignore[arg-type, assignment]
    return runnable(setting, np.random.default_rng(draw(st.integers(0, 2**32 - 1))), once=once)
