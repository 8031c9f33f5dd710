"""Interface: which tables an exported graph takes and which tensors it yields, found from the model alone.

The names of tables begin with the cell that reads them, by its number in the model:

=================  ====================  =============================================================
``cell0.feed0``    ``[n, *shape]``       data of each call
``cell0.operand0`` ``[n]``, ``[n, k]``   rows that each call reads; ``[m]`` where its elements read them
``cell0.owner0``   ``[m]``               the call of each element of a sequence
``cell0.calls``    ``[1]``               n, where no other table has n rows
``cell0.starts``   ``[levels + 1]``      where the calls of each level start in a recursive cell's tables
``cell0.begins0``  ``[levels + 1]``      the same of the elements of a sequence
``order.node``     ``[m]``               where the values of a metric stand, one after the other
``results.rows``   ``[k]``               rows of the arena that holds results
=================  ====================  =============================================================

All but feeds are int64. Components of cells run in turn. An arena gets its rows in the order in which they
are computed: component by component, in a recursive one level by level, then cell by cell, then output by
output, then call by call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foldbatch.errors import ModelError
from foldbatch.exporting.operators import REFUSED
from foldbatch.model.model import Model
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import reachable
from foldbatch.static.op import CALL


@dataclass(frozen=True, slots=True)
class CellInterface:
    """What the graph takes for one cell.

    Attributes:
        number: the cell's number in the model.
        recursive: whether it runs level by level.
        feeds: the numbers of the feeds that inference reads.
        operands: the numbers of the operands that inference reads.
        sequences: by number of a sequence that counts, an operand that runs along it.
        once: whether all calls are alike, because the cell reads nothing; then it runs once.
        counted: whether a table must say how many calls there are.
    """

    number: int
    recursive: bool
    feeds: tuple[int, ...]
    operands: tuple[int, ...]
    sequences: dict[int, int]
    once: bool
    counted: bool

    def name(self, what: str, number: int | None = None) -> str:
        """Return the name of a table.

        >>> CellInterface(2, False, (), (), {}, True, False).name("feed", 0)
        'cell2.feed0'
        """
        return f"cell{self.number}.{what}{'' if number is None else number}"


@dataclass(frozen=True, slots=True)
class Interface:
    """What the graph of a model takes and yields.

    Attributes:
        components: the cells, component by component in the order in which they run.
        metrics: by name, the cells that collect a metric, with its number there.
        ordered: the metrics whose values are put in order by a table.
        results: the arenas that hold results.
    """

    components: tuple[tuple[CellInterface, ...], ...]
    metrics: dict[str, tuple[tuple[int, int], ...]]
    ordered: frozenset[str]
    results: tuple[int, ...]

    @property
    def cells(self) -> Iterator[CellInterface]:
        """The cells in the order in which they run."""
        for component in self.components:
            yield from component

    def results_name(self, place: int) -> str:
        """Return the name of the results of an arena: ``results``, of several ``results0`` and so on."""
        return "results" if len(self.results) == 1 else f"results{place}"


def graph_of(model: Model, cell: int) -> CellGraph:
    """Return the graph of a cell in inference."""
    return model.cells[cell].phase(training=False).graph


def interface_of(model: Model) -> Interface:
    """Return what the graph of a model takes and yields.

    Raises:
        ModelError: when cells have ops that cannot be exported: it names them all.
    """
    refuse(model)
    cells = {k: _cell(model, k) for k in range(len(model.cells))}
    numbers = sorted({signature.component for signature in model.signatures})
    components = [
        tuple([cells[k] for k, signature in enumerate(model.signatures) if signature.component == number])
        for number in numbers
    ]
    metrics: dict[str, tuple[tuple[int, int], ...]] = {}
    for k, names in enumerate(model.metrics):
        for i, name in enumerate(names):
            metrics[name] = (*metrics.get(name, ()), (k, i))
    ordered = [
        name
        for name, places in metrics.items()
        if len(places) > 1
        or any(cells[k].recursive or cells[k].once or i in dict(model.marks[k]) for k, i in places)
    ]
    return Interface(tuple(components), metrics, frozenset(ordered), tuple(sorted(model.results)))


def refuse(model: Model) -> None:
    """Refuse a model with ops that cannot be exported.

    Raises:
        ModelError: when there are some: it names the cells and the ops.
    """
    wrong = []
    for k, cell in enumerate(model.cells):
        nodes = reachable(graph_of(model, k).results, graph_of(model, k).inputs)
        names = sorted({node.op.name for node in nodes} & REFUSED.keys())
        wrong += [f"{name} in {cell.name} ({REFUSED[name]})" for name in names]
    if wrong:
        raise ModelError("export", "ops that ONNX has", "; ".join(wrong), "leave them out of inference")


def _cell(model: Model, k: int) -> CellInterface:
    graph, signature = graph_of(model, k), model.signatures[k]
    read = {*reachable((*graph.outputs, *graph.metrics), graph.inputs)}
    axes = {node.axis for node in read}
    feeds = tuple([i for i, node in enumerate(graph.feeds) if node in read])
    operands = tuple([i for i, node in enumerate(graph.operands) if node in read])
    sequences: dict[int, int] = {}
    for i, (node, operand) in enumerate(zip(graph.operands, signature.operands, strict=True)):
        if operand.sequence is not None and node.axis in axes:  # its length counts even where it is not read
            sequences.setdefault(operand.sequence, i)
    rows = [graph.feeds[i] for i in feeds] + [graph.operands[i] for i in operands]
    once = not rows and not sequences and not signature.recursive
    counted = not once and not signature.recursive and all(node.axis is not CALL for node in rows)
    return CellInterface(k, signature.recursive, feeds, operands, sequences, once, counted)
