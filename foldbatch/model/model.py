"""The Model: cells and how they are connected. Any front end can describe one, and any engine can run it."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foldbatch.errors import UnknownNameError
from foldbatch.model.drafts import Feed
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.trace import CellSignature, Form, form, is_integer
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import CONSTANT
from foldbatch.static.printer import parameter_name, print_graph
from foldbatch.types import TensorType, Type

FEW_CELLS = 3  # up to so many are printed in whole, of more a line each
NAMED_CELLS = 12  # cells that an error names


Arenas = Sequence[Sequence[int]]  # per cell, the arena of each operand, or of each output


@dataclass(frozen=True, slots=True)
class Sources:
    """Where gradients come from: losses, or values of some arenas whose cotangents are given, or both."""

    losses: bool = True
    arenas: frozenset[int] = frozenset()


def acted_on(
    reads: Arenas, writes: Arenas, sources: Sequence[bool], arenas: Collection[int] = ()
) -> set[int]:
    """Return the arenas that hold values on which cells that are `sources`, or values of `arenas`, act.

    With `reads` and `writes` exchanged, these are the arenas that hold values which act on them.

    >>> sorted(acted_on([[], [0], [1]], [[0], [1], [2]], [False, True, False]))
    [1, 2]
    >>> sorted(acted_on([[0], [1], [2]], [[], [0], [1]], [False, False, False], {1}))
    [0, 1]
    """
    readers = defaultdict[int, list[int]](list)
    for cell, read in enumerate(reads):
        for arena in read:
            readers[arena].append(cell)
    reached, waiting = set[int](), [*arenas]
    waiting += [arena for written, source in zip(writes, sources, strict=True) if source for arena in written]
    while waiting:
        arena = waiting.pop()
        if arena not in reached:
            reached.add(arena)
            waiting += [target for cell in readers[arena] for target in writes[cell]]
    return reached


def active_ends(
    graphs: Sequence[CellGraph],
    reads: Arenas,
    writes: Arenas,
    wanted: Sequence[bool],
    sources: Sources = Sources(),
) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Return, for each cell, the operands and the outputs (by number) between which gradients must flow."""
    lossy = [sources.losses and bool(graph.losses) for graph in graphs]
    needed = acted_on(reads, writes, wanted)
    reached = acted_on(writes, reads, lossy, sources.arenas)
    ends = []
    for graph, read, written, loss in zip(graphs, reads, writes, lossy, strict=True):
        live = loss or not reached.isdisjoint(written)
        operands = enumerate(zip(read, graph.operands, strict=True))
        outputs = enumerate(zip(written, graph.outputs, strict=True))
        ends.append(
            (
                frozenset(i for i, (arena, x) in operands if live and x.type.is_float and arena in needed),
                frozenset(j for j, (arena, y) in outputs if y.type.is_float and arena in needed & reached),
            )
        )
    return ends


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """Cells, and how they are connected."""

    result: Type  # the type of an example's result
    cells: tuple[Cell, ...]  # the staged cells, by number
    signatures: tuple[CellSignature, ...]  # what the scheduler knows of each cell
    arenas: tuple[TensorType, ...]  # the type of each arena
    results: frozenset[int]  # the arenas that hold tensors of results
    losses: tuple[tuple[str, ...], ...]  # per cell, the names of its losses
    metrics: tuple[tuple[str, ...], ...]  # per cell, the names of its metrics
    labels: tuple[tuple[int, ...], ...]  # per cell, the numbers of metrics that have labels
    # per cell, for metrics that are visited before other calls, two numbers: the metric's, and that of a
    # feed, which holds the visit's place among the calls of its example
    marks: tuple[tuple[tuple[int, int], ...], ...]
    # per cell, the feeds that hold the number of the call itself, as a key for random numbers
    keys: tuple[tuple[int, ...], ...]
    # per cell, the data of an example that it reads. Several cells that read one datum share its feed.
    feeds: tuple[tuple[Feed, ...], ...]
    # all parameters that cells read, in the order in which blocks read them
    parameters: tuple[Parameter, ...]

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
        return [[cell.graph.bounds.get(node) for node in cell.graph.feeds] for cell in self.cells]

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
    """Return a model with new graphs of cells, or with other gradients; the same traces fit it.

    Gradients come from `sources`; those wanted are, per cell, of something in it and of some data, and those
    of parameters.
    """
    feeds = feeds or [frozenset()] * len(graphs)
    active = active_ends(graphs, model.reads, model.writes, wanted, sources)
    cells = []
    for cell, graph, (operands, outputs), data in zip(model.cells, graphs, active, feeds, strict=True):
        ends = replace(cell.ends, active_operands=operands, active_outputs=outputs, active_feeds=data)
        ends = replace(ends, trained=trained, losses=sources.losses)
        cells.append(stage_cell(graph, ends))
    signatures = tuple(map(differentiated, model.signatures, cells))
    return replace(model, cells=tuple(cells), signatures=signatures)


def differentiated(signature: CellSignature, cell: Cell) -> CellSignature:
    """Return a cell's signature with what follows from the cell: operands with cotangents, and weights."""
    wanted = cell.differentiated
    operands = tuple(
        replace(operand, differentiable=i in wanted) for i, operand in enumerate(signature.operands)
    )
    return replace(signature, operands=operands, weights=cell.built.weights)


def asides_of(model: Model) -> frozenset[str]:
    """Return the kinds of side outputs that a model has: of ``losses`` and ``metrics``."""
    has = {"losses": any(model.losses), "metrics": any(model.metrics)}
    return frozenset(name for name, there in has.items() if there)


def digest(model: Model) -> str:
    """Return a digest of what a model computes and how its parameters are drawn, for values of them."""
    parts: list[object] = [str(model.result), model.arenas, sorted(model.results), model.signatures]
    parts += [model.losses, model.metrics, model.labels, model.marks, model.keys]
    parts += [[(str(feed.type), feed.declared) for feed in feeds] for feeds in model.feeds]
    for parameter in model.parameters:
        init = parameter.init
        drawn = "" if callable(init) else init if isinstance(init, str) else np.asarray(init).tobytes()
        parts.append((parameter_name(parameter), str(parameter.type), parameter.trainable, drawn))
    for cell in model.cells:
        graph = cell.built.joined
        # in no order: that of nodes depends on what was compiled before
        constants = sorted(node.attrs["value"].tobytes() for node in graph.nodes if node.op is CONSTANT)
        parts.append((print_graph(graph), constants))
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def find_cells(cells: Sequence[Cell], name: str, where: str) -> list[int]:
    """Return the numbers of the cells that a name stands for."""
    if isinstance(name, str):  # not so where nobody checks types
        exact = [number for number, cell in enumerate(cells) if cell.name == name]
        part = [number for number, cell in enumerate(cells) if name in cell.name]
        if exact or part or not (name or cells):
            return exact or part
    listed = ", ".join(cell.name for cell in cells[:NAMED_CELLS]) or "none"
    ending = f", and {len(cells) - NAMED_CELLS} more" if len(cells) > NAMED_CELLS else ""
    raise UnknownNameError(where, f"a part of the name of a cell ({listed}{ending})", repr(name))
