"""The Model: what a front end describes and every engine can run. It holds no kernel and no tracer.

``drafts --link--> Model --load--> kernels``. Traces of examples fit a model; who makes them is the front
end's part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foldbatch.model.active import Arenas, Sources, active_ends
from foldbatch.model.drafts import Feed
from foldbatch.params import Parameter
from foldbatch.scheduler.trace import CellSignature, Form, form, is_integer
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds
from foldbatch.types import TensorType, Type


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Cells, and how they are connected.

    Attributes:
        result: the type of an example's result.
        cells: staged, by number.
        signatures: what the scheduler knows of them.
        arenas: the type of each arena.
        results: the arenas that hold tensors of results.
        metrics: per cell, the names of its metrics.
        labels: per cell, the numbers of metrics that have labels.
        marks: per cell, for metrics that are visited before other calls, the metric's number and that of
            the feed that holds the visit's place among the calls of its example.
        keys: per cell, which feeds hold the number of the call itself, to key random numbers by.
        feeds: per cell, what it reads of an example, and where. Feeds of one datum that several cells read
            are one.
        parameters: all parameters that cells read, in the order in which blocks do.
        kept_bytes: what a call may keep for its backward pass; None is no bound.
    """

    result: Type
    cells: tuple[Cell, ...]
    signatures: tuple[CellSignature, ...]
    arenas: tuple[TensorType, ...]
    results: frozenset[int]
    metrics: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[int, ...], ...]
    marks: tuple[tuple[tuple[int, int], ...], ...]
    keys: tuple[tuple[int, ...], ...]
    feeds: tuple[tuple[Feed, ...], ...]
    parameters: tuple[Parameter, ...]
    kept_bytes: int | None = None

    @property
    def reads(self) -> Arenas:
        """Per cell, the arena of each operand."""
        return [[operand.arena for operand in signature.operands] for signature in self.signatures]

    @property
    def writes(self) -> Arenas:
        """Per cell, the arena of each output."""
        return [signature.outputs for signature in self.signatures]

    @property
    def bounds(self) -> list[list[int | None]]:
        """Per cell and feed, the number that ids must be below; None where the feed holds no ids."""
        return [[feed_bounds(cell.graph).get(node) for node in cell.graph.feeds] for cell in self.cells]

    @property
    def form(self) -> Form:
        """How traces are packed."""
        arguments = tuple(signature.arguments for signature in self.signatures)
        sequences = tuple(signature.sequences for signature in self.signatures)
        integers = tuple(
            tuple(is_integer(feed.type.dtype, feed.type.shape) for feed in feeds) for feeds in self.feeds
        )
        return form(arguments, sequences, integers)


def restaged(
    model: Model,
    graphs: Sequence[CellGraph],
    sources: Sources,
    wanted: Sequence[bool],
    feeds: Sequence[frozenset[int]] | None = None,
    *,
    trained: bool = True,
) -> Model:
    """Return a model with cells of other graphs, or with gradients of other things; traces stay as they are.

    Args:
        model: the model.
        graphs: its cells' new graphs.
        sources: where gradients come from.
        wanted: which cells hold what gradients are wanted of.
        feeds: per cell, the data whose gradients are wanted.
        trained: whether gradients of parameters are wanted.
    """
    feeds = feeds or [frozenset()] * len(graphs)
    active = active_ends(graphs, model.reads, model.writes, wanted, sources)
    cells = []
    for cell, graph, (operands, outputs), data in zip(model.cells, graphs, active, feeds, strict=True):
        ends = Ends(
            cell.ends.recursive_operands,
            cell.ends.recursive_outputs,
            operands,
            outputs,
            data,
            trained,
            sources.losses,
        )
        cells.append(stage_cell(graph, ends, model.kept_bytes))
    signatures = tuple(map(differentiated, model.signatures, cells))
    return replace(model, cells=tuple(cells), signatures=signatures)


def differentiated(signature: CellSignature, cell: Cell) -> CellSignature:
    """Return the signature of a cell with which operands' cotangents it yields."""
    operands = tuple(
        replace(operand, differentiable=i in cell.differentiated)
        for i, operand in enumerate(signature.operands)
    )
    return replace(signature, operands=operands)
