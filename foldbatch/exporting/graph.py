"""Graph: from a model to one ONNX graph for examples of every shape."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from foldbatch.errors import BlockTypeError, BlockValueError, ModelError
from foldbatch.exporting.operators import OnnxScope, OnnxWriter, onnx_type, write
from foldbatch.exporting.tables import CellInterface, Interface, graph_of, interface_of
from foldbatch.model.model import Model
from foldbatch.static.graph import Graph, Node
from foldbatch.static.op import CALL, Axis
from foldbatch.types import TensorType, describe_value

OPSET, OPSETS = 21, range(18, 24)  # ScatterND reduces by max and min from 18 on
IR_VERSION = 10  # that of opset 21, which older runtimes read

LARGEST = 2_000_000_000  # bytes of constants; a message of protocol buffers has less than 2 GiB

State = dict[str, str]  # what runs hand on: tensors that grow, by name


def model_proto(model: Model, metadata: Mapping[str, str] | None = None, opset: int = OPSET) -> Any:
    """Return a model as an `onnx.ModelProto`, checked."""
    if opset not in OPSETS:
        expected = f"a version from {OPSETS[0]} to {OPSETS[-1]}"
        raise BlockValueError("opset", expected, str(opset), f"leave it out for {OPSET}")
    interface = interface_of(model)
    build = _Build(model, interface)
    if not isinstance(metadata or {}, Mapping):
        fix = "to write a file: onnx.save(to_onnx(program), path)"
        raise BlockTypeError("export metadata", "a mapping of texts", describe_value(metadata), fix)
    for component in interface.components:
        if component[0].recursive:
            build.loop(component)
        else:
            build.run_all(component[0])
    outputs = build.outputs()
    if not outputs:
        fix = "end it with a tensor" if model.cells else "run a walk once, so that its cells are known"
        raise ModelError("export", "a model that computes tensors", "one without", fix)
    size = sum(x.nbytes for x in build.writer.constants.values())
    if size >= LARGEST:
        expected = f"parameters of less than {LARGEST / 1e9:.1f} GB, which fit into one file of ONNX"
        raise ModelError("export", expected, f"{size / 1e9:.1f} GB", "make tables of words smaller")
    constants = [onnx.numpy_helper.from_array(x, name) for name, x in build.writer.constants.items()]
    graph = onnx.helper.make_graph(build.writer.nodes, "foldbatch", build.inputs, outputs, constants)
    opsets = [onnx.helper.make_opsetid("", opset)]
    proto = onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="foldbatch"
    )
    described = {"foldbatch.tables": json.dumps(described_tables(model, interface))}
    onnx.helper.set_model_props(proto, described | dict(metadata or {}))
    onnx.checker.check_model(proto, full_check=True)
    return proto


def described_tables(model: Model, interface: Interface) -> dict[str, Any]:
    """Return what tables a graph takes as plain data: for readers that must find their way by it."""
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
                "once": cell.once,
            }
        )
    results = {interface.results_name(i): arena for i, arena in enumerate(interface.results)}
    return {"cells": cells, "results": results, "ordered": sorted(interface.ordered)}


@dataclass(slots=True)
class _Build:
    model: Model
    interface: Interface
    writer: OnnxWriter = field(default_factory=OnnxWriter)
    inputs: list[Any] = field(default_factory=list)
    state: State = field(default_factory=dict)

    def run_all(self, cell: CellInterface) -> None:
        tables = self.tables(cell)
        if cell.once:
            tables["calls"] = self.writer.constant([1], "int64")
        self.state |= self.run(cell, self.writer, tables, self.state)

    def loop(self, component: Sequence[CellInterface]) -> None:
        tables = [self.tables(cell) for cell in component]
        written = [name for cell in component for name, _ in self.written(cell)]
        carried = list(dict.fromkeys(written))
        types = {name: type_ for cell in component for name, type_ in self.written(cell)}
        before = [self.state.get(name) or self.no_rows(types[name]) for name in carried]
        body = self.writer.body()
        turn, going = body.name("level"), body.name("going")
        state = self.state | {name: body.name(name) for name in carried}
        given = [state[name] for name in carried]
        one = body.constant([1], "int64")
        first = body.add("Reshape", turn, one)
        last = body.add("Add", first, one)
        added: State = {}
        for cell, whole in zip(component, tables, strict=True):
            # calls of a level read rows of lower levels alone
            ready = self.level(cell, body, whole, first, last)
            added = self.run(cell, body, ready, state, added)
        after = [added[name] for name in carried]
        still = body.add("Identity", going)
        ends = [onnx.helper.make_tensor_value_info(turn, onnx_type("int64"), [])]
        ends += [onnx.helper.make_tensor_value_info(going, onnx_type("bool"), [])]
        ends += [_declared(name, types[key], "rows") for name, key in zip(given, carried, strict=True)]
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
        self, cell: CellInterface, body: OnnxWriter, whole: Mapping[str, str], first: str, last: str
    ) -> dict[str, str]:
        bounds = {}
        for name in ("starts", *(f"begins{s}" for s in cell.sequences)):
            bounds[name] = [body.add("Gather", whole[name], place) for place in (first, last)]
        level = {"calls": body.add("Sub", *reversed(bounds["starts"]))}
        ragged = {f"owner{s}": s for s in cell.sequences}
        for i in cell.operands:
            sequence = self.model.signatures[cell.number].operands[i].sequence
            if sequence is not None:
                ragged[f"operand{i}"] = sequence
        for name, table in whole.items():
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
        counts: dict[Axis, str] = {}
        owners: dict[Axis, str] = {}
        for s, i in cell.sequences.items():
            axis = graph.operands[i].axis
            owners[axis] = tables[f"owner{s}"]
            counts[axis] = writer.count(owners[axis])
        if "calls" in tables:
            counts[CALL] = tables["calls"]
        else:
            rows = [f"feed{i}" for i in cell.feeds]
            rows += [f"operand{i}" for i in cell.operands if graph.operands[i].axis is CALL]
            counts[CALL] = writer.count(tables[rows[0]])
        wanted = Graph(graph.inputs, (*graph.outputs, *graph.metrics))
        results = write(OnnxScope(writer, counts, owners), wanted, names)
        grown = dict(added or {})
        for (name, _), result in zip(self.written(cell), results, strict=True):
            old = grown.get(name) or state.get(name)
            grown[name] = writer.add("Concat", old, result, axis=0) if old else result
        return grown

    def written(self, cell: CellInterface) -> list[tuple[str, TensorType]]:
        """Return what a cell adds rows to, one name for each of its results, and their types."""
        graph, signature = graph_of(self.model, cell.number), self.model.signatures[cell.number]
        outputs = [(f"arena{arena}", self.model.arenas[arena]) for arena in signature.outputs]
        return outputs + [(f"{cell.number}.{i}", node.type) for i, node in enumerate(graph.metrics)]

    def tables(self, cell: CellInterface) -> dict[str, str]:
        graph, signature = graph_of(self.model, cell.number), self.model.signatures[cell.number]
        rows, k = f"calls{cell.number}", cell.number
        for i in cell.feeds:
            self.declare(cell.name("feed", i), graph.feeds[i].dtype, (rows, *graph.feeds[i].shape))
        for i in cell.operands:
            operand = signature.operands[i]
            if operand.sequence is None:
                several = (len(operand.columns),) if len(operand.columns) > 1 else ()
                self.declare(cell.name("operand", i), "int64", (rows, *several))
            else:
                self.declare(cell.name("operand", i), "int64", (f"elements{k}.{operand.sequence}",))
        for s in cell.sequences:
            self.declare(cell.name("owner", s), "int64", (f"elements{k}.{s}",))
        if cell.counted:
            self.declare(cell.name("calls"), "int64", (1,))
        if cell.recursive:
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
            if name in self.interface.ordered:
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
