"""Exporter: a program as one ONNX graph for examples of every shape, tables of examples for it, and a check.

docs/onnx.md says which tables there are, and how an arena's rows are numbered.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from foldbatch.engines.batch import arenas_of
from foldbatch.engines.parts import labels_of
from foldbatch.engines.results import Metrics, MetricValues, Results
from foldbatch.errors import BlockTypeError, BlockValueError, ModelError
from foldbatch.exporting.operators import REFUSED, TRANSLATIONS, OnnxScope, OnnxWriter, onnx_type, write
from foldbatch.functions.noted import is_named
from foldbatch.functions.specs import opened
from foldbatch.model.decoding import decode, numbers_in
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.planning.merge import Merged, merge
from foldbatch.planning.policies import find_policy
from foldbatch.program.program import Program
from foldbatch.program.traced import listed
from foldbatch.scheduler.trace import Index, Trace, arguments_of, element_order, lengths_of
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import SOURCES, Graph, Node, reachable
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import TensorType, describe_value


@dataclass(frozen=True, slots=True)
class CellInterface:
    """The tables that the graph takes for one cell."""

    number: int  # the cell's number in the model
    recursive: bool  # whether it runs level by level
    feeds: tuple[int, ...]  # the numbers of the feeds that inference reads
    operands: tuple[int, ...]  # the numbers of the operands that inference reads
    sequences: dict[int, int]  # by number of a sequence that counts, an operand that runs along it

    def name(self, kind: str, number: int | None = None) -> str:
        """Return the name of a table.

        >>> CellInterface(2, False, (), (), {}).name("feed", 0)
        'cell2.feed0'
        """
        return f"cell{self.number}.{kind}{'' if number is None else number}"


@dataclass(frozen=True, slots=True)
class Interface:
    """The inputs and outputs of a model's graph."""

    # the cells, component by component in the order in which they run
    components: tuple[tuple[CellInterface, ...], ...]
    # by name, the cells that collect a metric, with its number there
    metrics: dict[str, tuple[tuple[int, int], ...]]
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
    """Return the interface of a model's graph; refuse a model that cannot be exported."""
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
    return Interface(tuple(components), metrics, tuple(sorted(model.results)))


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
    """Return the interface of a cell: the feeds, operands and sequences that inference reads."""
    graph, signature = graph_of(model, k), model.signatures[k]
    read = {*reachable((*graph.outputs, *graph.metrics), graph.inputs)}
    axes = {node.axis for node in read}
    feeds = tuple([i for i, node in enumerate(graph.feeds) if node in read])
    operands = tuple([i for i, node in enumerate(graph.operands) if node in read])
    sequences: dict[int, int] = {}
    for i, (node, operand) in enumerate(zip(graph.operands, signature.operands, strict=True)):
        if operand.sequence is not None and node.axis in axes:  # its length counts even where it is not read
            sequences.setdefault(operand.sequence, i)
    return CellInterface(k, signature.recursive, feeds, operands, sequences)


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables of a batch."""

    inputs: dict[str, Array]  # the arrays by name: what a runtime is given
    examples: dict[str, Index]  # per metric, the example of each value: ``[m] int64``
    labels: dict[str, list[Any] | None]  # per metric, the label of each value; None where it has no labels
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
                    rows[bases + output] = sizes[arena] + np.arange(len(calls))
                    sizes[arena] += len(calls)
        for cell, bounds in zip(component, starts, strict=True):
            inputs |= _inputs(model, cell, trace, turns[cell.number], bounds, rows)
    examples: dict[str, Index] = {}
    labels: dict[str, list[Any] | None] = {}
    for name in interface.metrics:
        places = interface.metrics[name]
        inputs[f"order.{name}"], examples[name], labels[name] = _order(model, places, merged, turns)
    results = tuple([trace.result for trace in traces])
    numbers = _numbers(model, interface, merged, results)
    inputs |= {f"{name}.rows": rows[values] for name, values in numbers.items()}
    return Tables(inputs, examples, labels, numbers, merged.offsets, results)


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
    cell_levels = [level_of[cell.number] for cell in component]
    count = max([int(part.max()) + 1 for part in cell_levels if len(part)], default=0)
    return np.array([np.searchsorted(np.sort(part), np.arange(count + 1)) for part in cell_levels])


def _inputs(
    model: Model, cell: CellInterface, trace: Trace, turns: Index, bounds: Index, rows: Index
) -> dict[str, Array]:
    """Return the tables of a cell for a batch, by name: feeds, rows of operands, and bounds of levels."""
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
        elements[s] = element_order(lengths, turns)
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
    table, counts = ("starts", bounds) if cell.recursive else ("calls", np.array([len(turns)]))
    inputs[cell.name(table)] = counts
    return inputs


def _order(
    model: Model, places: Sequence[tuple[int, int]], merged: Merged, turns: Mapping[int, Index]
) -> tuple[Index, Index, list[Any] | None]:
    """Return where the values of a metric stand, in the order of visits, and example and label of each."""
    visits, examples, labels = [], [], list[Any]()
    for k, i in places:
        call_examples = merged.examples(k)[turns[k]]
        mark = dict(model.marks[k]).get(i)
        visit = merged.trace.calls[k][turns[k], 0]
        if mark is not None and len(call_examples):  # a cell without calls has no columns
            noted = merged.trace.feeds[k][mark][turns[k]].astype(np.int64)
            visit = noted + merged.offsets[call_examples]
        visits.append(visit.astype(np.int64))
        examples.append(call_examples)
        cell_labels = labels_of(model, k, i, merged.trace) if len(call_examples) else None
        if cell_labels is None:
            labels += [None] * len(call_examples)
        else:
            labels += [cell_labels[turn] for turn in turns[k].tolist()]
    order = np.argsort(np.concatenate(visits), kind="stable")
    labelled = any(i in model.labels[k] for k, i in places)
    sorted_labels = [labels[place] for place in order.tolist()] if labelled else None
    return order, np.concatenate(examples)[order], sorted_labels


def _numbers(
    model: Model, interface: Interface, merged: Merged, results: Sequence[tuple[object, ...]]
) -> dict[str, Index]:
    """Return, for each arena of results, the numbers of its values in the order of the examples."""
    in_results = numbers_in(model.result, results, merged.offsets.tolist())
    numbers = np.array(list(dict.fromkeys(in_results)), np.int64)
    arenas = arenas_of(merged.trace, model.signatures)[numbers]
    return {interface.results_name(i): numbers[arenas == arena] for i, arena in enumerate(interface.results)}


OPSET, OPSETS = 21, range(18, 24)  # ScatterND reduces by max and min from 18 on
IR_VERSION = 10  # that of opset 21, which older runtimes read

MAX_CONSTANT_BYTES = 2_000_000_000  # bytes of constants; a message of protocol buffers has less than 2 GiB

State = dict[str, str]  # what runs hand on: tensors that grow, by name


def described_tables(model: Model, interface: Interface) -> dict[str, Any]:
    """Return the tables of a graph as plain data, for readers of the file in other languages."""
    cells = []
    for cell in interface.cells:
        signature = model.signatures[cell.number]
        cells.append(
            {
                "cell": cell.number,
                "name": signature.name,
                "recursive": cell.recursive,
                "feeds": {cell.name("feed", i): model.feeds[cell.number][i].where for i in cell.feeds},
                "operands": {
                    cell.name("operand", i): {
                        "arena": signature.operands[i].arena,
                        "columns": list(signature.operands[i].columns),
                        "sequence": signature.operands[i].sequence,
                    }
                    for i in cell.operands
                },
                "outputs": list(signature.outputs),
                "metrics": list(model.metrics[cell.number]),
            }
        )
    results = {interface.results_name(i): arena for i, arena in enumerate(interface.results)}
    return {"cells": cells, "results": results}


@dataclass(slots=True)
class _Build:
    """Writes the graph of a model: its nodes, its inputs, and the state that cells hand on."""

    model: Model
    interface: Interface
    writer: OnnxWriter = field(default_factory=OnnxWriter)
    inputs: list[Any] = field(default_factory=list)
    state: State = field(default_factory=dict)

    def run_all(self, cell: CellInterface) -> None:
        self.state |= self.run(cell, self.writer, self.tables(cell), self.state)

    def loop(self, component: Sequence[CellInterface]) -> None:
        """Write the loop of a recursion: its body runs the component's cells on one level."""
        tables = [self.tables(cell) for cell in component]
        written = [name for cell in component for name, _ in self.written(cell)]
        carried = list(dict.fromkeys(written))
        types = {name: type_ for cell in component for name, type_ in self.written(cell)}
        before = [self.state.get(name) or self.no_rows(types[name]) for name in carried]
        body = self.writer.body()
        turn, going = body.name("level"), body.name("going")
        state = self.state | {name: body.name(name) for name in carried}
        inputs_of_level = [state[name] for name in carried]
        single = body.constant([1], "int64")
        first = body.add("Reshape", turn, single)
        last = body.add("Add", first, single)
        added: State = {}
        for cell, table in zip(component, tables, strict=True):
            # calls of a level read rows of lower levels alone
            ready = self.level(cell, body, table, first, last)
            added = self.run(cell, body, ready, state, added)
        after = [added[name] for name in carried]
        still = body.add("Identity", going)
        ends = [onnx.helper.make_tensor_value_info(turn, onnx_type("int64"), [])]
        ends += [onnx.helper.make_tensor_value_info(going, onnx_type("bool"), [])]
        ends += [
            _declared(name, types[key], "rows") for name, key in zip(inputs_of_level, carried, strict=True)
        ]
        results = [onnx.helper.make_tensor_value_info(still, onnx_type("bool"), [])]
        results += [_declared(name, types[key], "more") for name, key in zip(after, carried, strict=True)]
        graph = onnx.helper.make_graph(body.nodes, "levels", ends, results)
        count = self.writer.add(
            "Sub", self.writer.add("Size", tables[0]["starts"]), self.writer.constant(1, "int64")
        )
        outputs = [self.writer.name(name) for name in carried]
        node = onnx.helper.make_node(
            "Loop", [count, "", *before], outputs, self.writer.name("Loop"), body=graph
        )
        self.writer.nodes.append(node)
        self.state |= zip(carried, outputs, strict=True)

    def level(
        self, cell: CellInterface, body: OnnxWriter, cell_tables: Mapping[str, str], first: str, last: str
    ) -> dict[str, str]:
        """Write the parts of a cell's tables that belong to one level; return their names."""
        bounds = {}
        for name in ("starts", *(f"begins{s}" for s in cell.sequences)):
            bounds[name] = [body.add("Gather", cell_tables[name], place) for place in (first, last)]
        level = {"calls": body.add("Sub", *reversed(bounds["starts"]))}
        ragged = {f"owner{s}": s for s in cell.sequences}
        for i in cell.operands:
            sequence = self.model.signatures[cell.number].operands[i].sequence
            if sequence is not None:
                ragged[f"operand{i}"] = sequence
        for name, table in cell_tables.items():
            if name not in bounds:
                place = f"begins{ragged[name]}" if name in ragged else "starts"
                level[name] = body.rows(table, *bounds[place])
        for s in cell.sequences:
            level[f"owner{s}"] = body.add("Sub", level[f"owner{s}"], bounds["starts"][0])
        return level

    def run(
        self,
        cell: CellInterface,
        writer: OnnxWriter,
        tables: Mapping[str, str],
        state: State,
        added: State | None = None,
    ) -> State:
        """Write one run of a cell, and return the state with its rows added to that of `added`."""
        graph, signature = graph_of(self.model, cell.number), self.model.signatures[cell.number]
        names: dict[Node, str] = {graph.feeds[i]: tables[f"feed{i}"] for i in cell.feeds}
        for i in cell.operands:
            arena = self.arena(state, signature.operands[i].arena)
            names[graph.operands[i]] = writer.add("Gather", arena, tables[f"operand{i}"], axis=0)
        counts, owners = {CALL: tables["calls"]}, dict[Axis, str]()
        for s, i in cell.sequences.items():
            axis = graph.operands[i].axis
            owners[axis] = tables[f"owner{s}"]
            counts[axis] = writer.count(owners[axis])
        wanted = Graph(graph.inputs, (*graph.outputs, *graph.metrics))
        results = write(OnnxScope(writer, counts, owners), wanted, names)
        grown = dict(added or {})
        for (name, _), result in zip(self.written(cell), results, strict=True):
            old = grown.get(name) or state.get(name)
            grown[name] = writer.add("Concat", old, result, axis=0) if old else result
        return grown

    def written(self, cell: CellInterface) -> list[tuple[str, TensorType]]:
        """Return the tensors to which a cell adds rows, one name and type for each of its results."""
        graph, signature = graph_of(self.model, cell.number), self.model.signatures[cell.number]
        outputs = [(f"arena{arena}", self.model.arenas[arena]) for arena in signature.outputs]
        return outputs + [(f"{cell.number}.{i}", node.type) for i, node in enumerate(graph.metrics)]

    def tables(self, cell: CellInterface) -> dict[str, str]:
        """Declare the tables of a cell as inputs of the graph; return their names, by short name."""
        graph, signature = graph_of(self.model, cell.number), self.model.signatures[cell.number]
        rows, k = f"calls{cell.number}", cell.number
        for i in cell.feeds:
            self.declare(cell.name("feed", i), graph.feeds[i].dtype, (rows, *graph.feeds[i].shape))
        for i in cell.operands:
            operand = signature.operands[i]
            if operand.sequence is None:
                columns = (len(operand.columns),) if len(operand.columns) > 1 else ()
                self.declare(cell.name("operand", i), "int64", (rows, *columns))
            else:
                self.declare(cell.name("operand", i), "int64", (f"elements{k}.{operand.sequence}",))
        for s in cell.sequences:
            self.declare(cell.name("owner", s), "int64", (f"elements{k}.{s}",))
        if not cell.recursive:
            self.declare(cell.name("calls"), "int64", (1,))
        else:
            ends = f"ends{signature.component}"
            for name in ("starts", *(f"begins{s}" for s in cell.sequences)):
                self.declare(cell.name(name), "int64", (ends,))
        prefix = cell.name("")
        return {x.name.removeprefix(prefix): x.name for x in self.inputs if x.name.startswith(prefix)}

    def declare(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        self.inputs.append(onnx.helper.make_tensor_value_info(name, onnx_type(dtype), shape))
        return name

    def no_rows(self, type_: TensorType) -> str:
        return self.writer.constant(np.zeros((0, *type_.shape), type_.dtype))

    def arena(self, state: State, arena: int) -> str:
        return state.get(f"arena{arena}") or self.no_rows(self.model.arenas[arena])

    def outputs(self) -> list[Any]:
        """Write the outputs of the graph, results and metrics in order; return their declarations."""
        declared = []
        for place, arena in enumerate(self.interface.results):
            name = self.interface.results_name(place)
            table = self.declare(f"{name}.rows", "int64", (f"{name}.count",))
            rows = self.arena(self.state, arena)
            values = self.writer.add("Gather", rows, table, axis=0)
            declared.append(self.yielded(name, values, self.model.arenas[arena]))
        for name, places in self.interface.metrics.items():
            parts = [self.state[f"{k}.{i}"] for k, i in places]
            values = self.writer.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]
            table = self.declare(f"order.{name}", "int64", (f"visits.{name}",))
            values = self.writer.add("Gather", values, table, axis=0)
            k, i = places[0]
            declared.append(self.yielded(f"metrics.{name}", values, graph_of(self.model, k).metrics[i].type))
        return declared

    def yielded(self, name: str, values: str, type_: TensorType) -> Any:
        self.writer.nodes.append(onnx.helper.make_node("Identity", [values], [name], f"yield_{name}"))
        return _declared(name, type_, f"{name}.count")


def _declared(name: str, type_: TensorType, rows: str) -> Any:
    return onnx.helper.make_tensor_value_info(name, onnx_type(type_.dtype), [rows, *type_.shape])


ASIDES = frozenset({"metrics"})


class _Outputs(dict[str, Array]):
    def __missing__(self, name: str) -> NoReturn:
        fix = "give those of all names that the session has: session.run(None, tables.inputs)"
        raise ModelError("Exporter.results", f"the output {name!r}", ", ".join(self) or "none", fix)


class Exporter:
    """Exports a program to another runtime: as a graph, and tables of examples for it.

    Raises:
        BlockTypeError: when it is no program.
        ModelError: when the model has ops that cannot be exported, or a walk has asked for numbers.

    >>> exporter = Exporter(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> exporter.tables([[1, 2], [], [3]]).inputs["cell1.owner0"]
    array([0, 0, 2])
    """

    def __init__(self, program: Program) -> None:
        if not isinstance(program, Program):
            fix = "give what fb.compile(block) returns"
            raise BlockTypeError("export", "a program", describe_value(program), fix)
        if program.lowered.decides:
            fix = "export what runs between two questions as a program of its own"
            expected = "a walk that only the example decides"
            raise ModelError("export", expected, "one that asked for numbers", fix)
        self.program = program
        self.lowered = program.lowered.variant(ASIDES, find_policy("by_component"))
        self.model = self.lowered.model
        self.interface = interface_of(self.model)

    def proto(self, metadata: Mapping[str, str] | None = None, opset: int = OPSET) -> Any:
        """Return the program as an `onnx.ModelProto`, checked.

        Args:
            metadata: texts to keep in the file.
            opset: the version of ONNX's operators.

        Raises:
            BlockValueError: when there is no such version, or it is too old.
            BlockTypeError: when the metadata are no mapping.
            ModelError: when the model computes no tensors, or is too large for one file.
        """
        texts: Any = metadata or {}
        if type(opset) is not int or opset not in OPSETS:
            expected = f"a version from {OPSETS[0]} to {OPSETS[-1]}"
            raise BlockValueError("opset", expected, str(opset), f"leave it out for {OPSET}")
        if not isinstance(texts, Mapping) or not all(isinstance(x, str) for kv in texts.items() for x in kv):
            fix = "to write a file: onnx.save(to_onnx(program), path)"
            raise BlockTypeError("export metadata", "a mapping of texts", describe_value(metadata), fix)
        model = self.model
        build = _Build(model, self.interface)
        for component in self.interface.components:
            if component[0].recursive:
                build.loop(component)
            else:
                build.run_all(component[0])
        outputs = build.outputs()
        if not outputs:
            fix = "end it with a tensor" if model.cells else "run a walk once, so that its cells are known"
            raise ModelError("export", "a model that computes tensors", "one without", fix)
        size = sum(x.nbytes for x in build.writer.constants.values())
        if size >= MAX_CONSTANT_BYTES:
            expected = (
                f"parameters of less than {MAX_CONSTANT_BYTES / 1e9:.1f} GB, which fit into one file of ONNX"
            )
            raise ModelError("export", expected, f"{size / 1e9:.1f} GB", "make tables of words smaller")
        constants = [onnx.numpy_helper.from_array(x, name) for name, x in build.writer.constants.items()]
        graph = onnx.helper.make_graph(build.writer.nodes, "foldbatch", build.inputs, outputs, constants)
        opsets = [onnx.helper.make_opsetid("", opset)]
        proto = onnx.helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="foldbatch"
        )
        described = {"foldbatch.tables": json.dumps(described_tables(model, self.interface))}
        onnx.helper.set_model_props(proto, described | dict(metadata or {}))
        onnx.checker.check_model(proto, full_check=True)
        return proto

    def tables(self, examples: Iterable[object]) -> Tables:
        """Return the arrays that the graph takes for a batch of examples.

        Raises:
            ModelError: when a walk has learnt more since the exporter was made, of these examples or others.
        """
        batch = listed(examples)
        traces = self.lowered.trace_all(batch, range(len(batch)))
        if self.lowered.model is not self.model:
            expected, actual = "the cells and wires that the graph has", "a walk that has learnt others since"
            fix = "call program.warm with examples of all kinds, then export anew"
            raise ModelError("export", expected, actual, fix)
        return tables_of(self.model, self.interface, traces)

    def results(self, tables: Tables, outputs: Mapping[str, Array]) -> Results:
        """Return the results of a batch as `Program.run` does, with metrics, from the graph's outputs.

        Raises:
            ModelError: when an output is missing.
        """
        outputs, metrics = _Outputs(outputs), {}
        for name, examples in tables.examples.items():
            starts = np.searchsorted(examples, examples)
            nodes = np.arange(len(examples)) - starts
            metrics[name] = MetricValues(outputs[f"metrics.{name}"], examples, nodes, tables.labels[name])
        return Results(decoded(self.model, tables, outputs), Metrics(metrics))

    def vocabularies(self) -> list[Vocabulary]:
        """Return the vocabularies by which the program reads words as numbers."""
        vocabularies: dict[int, Vocabulary] = {}
        for value in self.program.lowered.reached:
            arguments = (
                *getattr(value, "args", ()),
                *getattr(value, "keywords", {}).values(),
            )  # of a partial
            for part in (value, getattr(value, "__self__", None), *arguments):
                if isinstance(part, Vocabulary):
                    vocabularies.setdefault(id(part), part)
        return list(vocabularies.values())


def to_onnx(program: Program, metadata: Mapping[str, str] | None = None, opset: int = OPSET) -> Any:
    """Return a program as an `onnx.ModelProto`, checked; it takes examples of every shape.

    Its inputs are the tables that `Exporter` makes of examples; see `foldbatch.exporting.exporter`.

    Arguments and errors are those of `Exporter` and `Exporter.proto`.

    >>> proto = to_onnx(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> [x.name for x in proto.graph.input]
    ['cell0.feed0', 'cell0.calls', 'cell1.operand0', 'cell1.owner0', 'cell1.calls', 'results.rows']
    """
    return Exporter(program).proto(metadata, opset)


CHECKED_BATCH = 256


def session_of(data: bytes, threads: int = 0) -> Any:
    """Return a session of onnxruntime on the CPU for an exported graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(exporter: Exporter, session: Any, examples: Sequence[Any]) -> Results:
    """Return the results of examples as `Program.run` does, with metrics, computed by onnxruntime.

    >>> exporter = Exporter(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> session = session_of(exporter.proto().SerializeToString(), threads=1)
    >>> [float(x) for x in run(exporter, session, [[1, 2], [], [3]])]
    [3.0, 0.0, 3.0]
    """
    tables = exporter.tables(examples)
    names = [output.name for output in session.get_outputs()]
    return exporter.results(tables, dict(zip(names, session.run(names, tables.inputs), strict=True)))


def largest_difference(
    program: Program, exporter: Exporter, data: bytes, examples: Sequence[object]
) -> float:
    """Return the largest difference between a program and its graph, over all results and metrics.

    Of numbers above 1 it is the share that counts, since rounding grows with them.
    """
    session, remaining, largest = session_of(data), iter(examples), 0.0
    while batch := list(islice(remaining, CHECKED_BATCH)):
        expected, exported = program.run(batch, metrics=True), run(exporter, session, batch)
        pairs = list(zip(_tensors(list(expected)), _tensors(list(exported)), strict=True))
        pairs += [(expected.metrics[name].values, exported.metrics[name].values) for name in expected.metrics]
        for a, b in pairs:
            if a.size:
                apart = np.abs(a.astype(np.float64) - b) / np.maximum(1.0, np.abs(a))
                largest = max(largest, float(np.nan_to_num(apart, nan=np.inf).max()))
    return largest


def _tensors(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    if is_named(value):
        return _tensors(opened(value)[1])
    return [value] if isinstance(value, np.ndarray) else []
