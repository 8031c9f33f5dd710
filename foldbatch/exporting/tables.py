"""Which tables an exported graph takes and which tensors it yields; the tables of a batch of traces.

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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.results import decode
from foldbatch.errors import ModelError
from foldbatch.exporting.operators import REFUSED, TRANSLATIONS
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.scheduler.merge import Merged, merge
from foldbatch.scheduler.trace import Index, Trace, arguments_of, lengths_of
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import SOURCES, reachable
from foldbatch.static.op import CALL, UNBATCHED


@dataclass(frozen=True, slots=True)
class CellInterface:
    """What the graph takes for one cell."""

    number: int  # the cell's number in the model
    recursive: bool  # whether it runs level by level
    feeds: tuple[int, ...]  # the numbers of the feeds that inference reads
    operands: tuple[int, ...]  # the numbers of the operands that inference reads
    sequences: dict[int, int]  # by number of a sequence that counts, an operand that runs along it
    once: bool  # whether all calls are alike, because the cell reads nothing; then it runs once
    counted: bool  # whether a table must say how many calls there are

    def name(self, what: str, number: int | None = None) -> str:
        """Return the name of a table.

        >>> CellInterface(2, False, (), (), {}, True, False).name("feed", 0)
        'cell2.feed0'
        """
        return f"cell{self.number}.{what}{'' if number is None else number}"


@dataclass(frozen=True, slots=True)
class Interface:
    """What the graph of a model takes and yields."""

    # the cells, component by component in the order in which they run
    components: tuple[tuple[CellInterface, ...], ...]
    # by name, the cells that collect a metric, with its number there
    metrics: dict[str, tuple[tuple[int, int], ...]]
    ordered: frozenset[str]  # the metrics whose values are put in order by a table
    results: tuple[int, ...]  # the arenas that hold results

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
    """Return what the graph of a model takes and yields."""
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


UNKNOWN = "`exporting.operators` has no translation of it"


def refuse(model: Model) -> None:
    """Refuse a model with ops that cannot be exported."""
    wrong = []
    for k, cell in enumerate(model.cells):
        nodes = reachable(graph_of(model, k).results, graph_of(model, k).inputs)
        batched = {node.op.name for node in nodes if node.axis is not UNBATCHED and node.op not in SOURCES}
        names = sorted(batched - TRANSLATIONS.keys() | {node.op.name for node in nodes} & REFUSED.keys())
        wrong += [f"{name} in {cell.name} ({REFUSED.get(name, UNKNOWN)})" for name in names]
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


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a batch."""

    inputs: dict[str, Array]  # the arrays by name: what a runtime is given
    examples: dict[str, Index]  # per metric, the example of each value: ``[m] int64``
    numbers: dict[str, Index]  # per output that holds results, the numbers of its values, in order
    offsets: Index  # what was added to the value numbers of each example
    results: tuple[object, ...]  # each example's result, as its trace holds it


def tables_of(model: Model, interface: Interface, traces: Sequence[Trace]) -> Tables:
    """Return the tables of a batch."""
    merged = merge(list(traces), model.signatures)
    trace = merged.trace
    level_of = trace.levels
    turns = {cell.number: _turns(cell, level_of[cell.number], trace) for cell in interface.cells}
    rows = np.zeros(trace.values, np.int64)  # of each value, in its arena
    sizes = np.zeros(len(model.arenas), np.int64)
    inputs: dict[str, Array] = {}
    for component in interface.components:
        starts = _starts(component, level_of, turns)
        for level in range(starts.shape[1] - 1):
            for cell, bounds in zip(component, starts, strict=True):
                calls = turns[cell.number][bounds[level] : bounds[level + 1]]
                bases = trace.calls[cell.number][calls, 0]
                for output, arena in enumerate(model.signatures[cell.number].outputs):
                    rows[bases + output] = sizes[arena] + (0 if cell.once else np.arange(len(calls)))
                    sizes[arena] += 1 if cell.once else len(calls)
        for cell, bounds in zip(component, starts, strict=True):
            inputs |= _inputs(model, cell, trace, turns[cell.number], bounds, rows)
    examples: dict[str, Index] = {}
    for name in interface.metrics:
        order, examples[name] = _order(model, interface, name, merged, turns)
        if name in interface.ordered:
            inputs[f"order.{name}"] = order
    numbers = _numbers(model, interface, merged, traces)
    inputs |= {f"{name}.rows": rows[values] for name, values in numbers.items()}
    return Tables(inputs, examples, numbers, merged.offsets, tuple([trace.result for trace in traces]))


def decoded(model: Model, tables: Tables, outputs: Mapping[str, Array]) -> list[Any]:
    """Return the result of each example."""
    values: dict[int, Array] = {}
    for name, numbers in tables.numbers.items():
        values |= zip(numbers.tolist(), map(np.asarray, outputs[name]), strict=True)
    offsets = tables.offsets.tolist()
    return decode(model.result, tables.results, offsets, lambda asked: [values[n] for n in asked])


def _turns(cell: CellInterface, level_of: NDArray[np.int32], trace: Trace) -> Index:
    """Return the calls of a cell in the order in which they run: of visits, in a recursive cell by level."""
    return np.argsort(level_of if cell.recursive else trace.calls[cell.number][:, 0], kind="stable")


def _starts(
    component: Sequence[CellInterface], level_of: Sequence[NDArray[np.int32]], turns: Mapping[int, Index]
) -> Index:
    """Return where the calls of each level start, for each cell: ``[cells, levels + 1]``."""
    if not component[0].recursive:
        return np.array([[0, len(turns[component[0].number])]])
    own = [level_of[cell.number] for cell in component]
    count = max([int(part.max()) + 1 for part in own if len(part)], default=0)
    return np.array([np.searchsorted(np.sort(part), np.arange(count + 1)) for part in own])


def _inputs(
    model: Model, cell: CellInterface, trace: Trace, turns: Index, bounds: Index, rows: Index
) -> dict[str, Array]:
    k, signature = cell.number, model.signatures[cell.number]
    inputs: dict[str, Array] = {}
    for i in cell.feeds:
        type_ = model.feeds[k][i].type
        column = trace.feeds[k][i] if len(turns) else np.zeros((0, *type_.shape), type_.dtype)
        inputs[cell.name("feed", i)] = column[turns]
    arguments = arguments_of(trace, model.signatures, k)[turns]
    elements: dict[int, Index] = {}
    for s in cell.sequences:
        lengths = lengths_of(trace, model.signatures, k, s)
        elements[s] = _elements(lengths, turns)
        inputs[cell.name("owner", s)] = np.repeat(np.arange(len(turns)), lengths[turns])
        if cell.recursive:
            ends = np.concatenate([[0], np.cumsum(lengths[turns], dtype=np.int64)])
            inputs[cell.name("begins", s)] = ends[bounds]
    for i in cell.operands:
        operand = signature.operands[i]
        if operand.sequence is None:
            read = rows[arguments[:, list(operand.columns)]]
            inputs[cell.name("operand", i)] = read if len(operand.columns) > 1 else read[:, 0]
        else:
            values = trace.elements[k][operand.sequence][:, operand.member]
            inputs[cell.name("operand", i)] = rows[values[elements[operand.sequence]]]
    if cell.counted:
        inputs[cell.name("calls")] = np.array([len(turns)])
    if cell.recursive:
        inputs[cell.name("starts")] = bounds
    return inputs


def _elements(lengths: NDArray[np.int32], turns: Index) -> Index:
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    sizes = lengths[turns].astype(np.int64)
    firsts = np.cumsum(sizes) - sizes
    places: Index = np.arange(int(sizes.sum())) + np.repeat(starts[turns] - firsts, sizes)
    return places


def _order(
    model: Model, interface: Interface, name: str, merged: Merged, turns: Mapping[int, Index]
) -> tuple[Index, Index]:
    """Return where the values of a metric stand, in the order of visits, and the example of each."""
    cells = {cell.number: cell for cell in interface.cells}
    places, visits, examples, before = [], [], [], 0
    for k, i in interface.metrics[name]:
        own = merged.examples(k)[turns[k]]
        mark = dict(model.marks[k]).get(i)
        visit = merged.trace.calls[k][turns[k], 0]
        if mark is not None:
            visit = merged.trace.feeds[k][mark][turns[k]] + merged.offsets[own]
        rows = np.zeros(len(own), np.int64) if cells[k].once else np.arange(len(own))
        places.append(before + rows)
        visits.append(visit.astype(np.int64))
        examples.append(own)
        before += 1 if cells[k].once else len(own)
    order = np.argsort(np.concatenate(visits), kind="stable")
    return np.concatenate(places)[order], np.concatenate(examples)[order]


def _numbers(model: Model, interface: Interface, merged: Merged, traces: Sequence[Trace]) -> dict[str, Index]:
    """Return, for each arena of results, the numbers of its values in the order of the examples."""
    arena_of = np.full(merged.trace.values, -1, np.int64)
    for rows, signature in zip(merged.trace.calls, model.signatures, strict=True):
        for output, arena in enumerate(signature.outputs):
            arena_of[rows[:, 0] + output] = arena
    asked: list[int] = []

    def note(numbers: Sequence[int]) -> list[Array]:
        asked.extend(numbers)
        return [np.zeros(())] * len(numbers)

    results = tuple([trace.result for trace in traces])
    decode(model.result, results, merged.offsets.tolist(), note)
    numbers = np.array(list(dict.fromkeys(asked)), np.int64)
    arenas = arena_of[numbers]
    return {interface.results_name(i): numbers[arenas == arena] for i, arena in enumerate(interface.results)}
