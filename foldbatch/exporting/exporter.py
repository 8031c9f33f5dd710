"""Exporter: a program as an ONNX graph, tables of examples for it, results of what it yields, and a check."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnxruntime

from foldbatch.engines.results import Metrics, MetricValues, Results
from foldbatch.errors import ModelError
from foldbatch.exporting.graph import OPSET, Tables, decoded, interface_of, model_proto, tables_of
from foldbatch.params.parameters import Array
from foldbatch.program.program import Program
from foldbatch.program.traced import listed
from foldbatch.scheduler.policies import find_policy
from foldbatch.train.resuming import tables
from foldbatch.trees.vocabulary import Vocabulary

ASIDES = frozenset({"metrics"})


class Exporter:
    """What leads from a program to another runtime: the graph, and the tables of examples.

    Raises:
        ModelError: when the model has ops that cannot be exported, or a walk has asked for numbers.

    >>> import foldbatch as fb
    >>> exporter = Exporter(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> exporter.tables([[1, 2], [], [3]]).inputs["cell1.owner0"]
    array([0, 0, 2])
    """

    def __init__(self, program: Program) -> None:
        if program.lowered.decides:
            fix = "export what runs between two questions as a program of its own"
            raise ModelError(
                "export", "a walk that only the example decides", "one that asked for numbers", fix
            )
        self.program = program
        self.lowered = program.lowered.variant(ASIDES, find_policy("by_component"))
        self.interface = interface_of(self.lowered.model)

    def proto(self, metadata: Mapping[str, str] | None = None, opset: int = OPSET) -> Any:
        """Return the program as an `onnx.ModelProto`, checked.

        Args:
            metadata: texts to keep in the file.
            opset: the version of ONNX's operators.

        Raises:
            BlockValueError: when there is no such version, or it is too old.
        """
        return model_proto(self.lowered.model, metadata, opset)

    def tables(self, examples: Iterable[Any]) -> Tables:
        """Return the arrays that the graph takes for a batch of examples.

        Raises:
            ExampleError: when an example does not fit the program.
        """
        batch = listed(examples)
        traces = self.lowered.trace_all(batch, range(len(batch)))
        return tables_of(self.lowered.model, self.interface, traces)

    def results(self, tables: Tables, outputs: Mapping[str, Array]) -> Results:
        """Return what the graph yielded for a batch, as `Program.run` does, with metrics."""
        metrics = {}
        for name, examples in tables.examples.items():
            starts = np.searchsorted(examples, examples)
            nodes = np.arange(len(examples)) - starts
            metrics[name] = MetricValues(outputs[f"metrics.{name}"], examples, nodes, None)
        return Results(decoded(self.lowered.model, tables, outputs), Metrics(metrics))

    def vocabularies(self) -> list[Vocabulary]:
        """Return the vocabularies by which the program reads words as numbers."""
        found = (table.source for table in tables(self.program).values())
        return [each for each in found if isinstance(each, Vocabulary)]


def to_onnx(program: Program, metadata: Mapping[str, str] | None = None, opset: int = OPSET) -> Any:
    """Return a program as an `onnx.ModelProto`, checked; it takes examples of every shape.

    Its inputs are the tables that `Exporter` makes of examples; see `foldbatch.exporting.graph`.

    Args:
        program: the program.
        metadata: texts to keep in the file.
        opset: the version of ONNX's operators.

    Raises:
        ModelError: as `Exporter`; when the model computes no tensors.
        BlockValueError: when there is no such version of the operators, or it is too old.
        BlockTypeError: when the metadata are no mapping.

    >>> import foldbatch as fb
    >>> proto = to_onnx(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> [x.name for x in proto.graph.input], [x.name for x in proto.graph.output]
    (['cell0.feed0', 'cell1.operand0', 'cell1.owner0', 'cell1.calls', 'results.rows'], ['results'])
    """
    return Exporter(program).proto(metadata, opset)


BATCH = 256


def session_of(data: bytes, threads: int = 0) -> Any:
    """Return a session of onnxruntime on the CPU for an exported graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(exporter: Exporter, session: Any, examples: Sequence[Any]) -> Results:
    """Return what `Program.run` returns with metrics, computed by onnxruntime.

    >>> import foldbatch as fb
    >>> exporter = Exporter(fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy"))
    >>> session = session_of(exporter.proto().SerializeToString(), threads=1)
    >>> [float(x) for x in run(exporter, session, [[1, 2], [], [3]])]
    [3.0, 0.0, 3.0]
    """
    tables = exporter.tables(examples)
    names = [output.name for output in session.get_outputs()]
    return exporter.results(tables, dict(zip(names, session.run(names, tables.inputs), strict=True)))


def largest_difference(program: Program, exporter: Exporter, data: bytes, examples: Sequence[Any]) -> float:
    """Return the largest difference between a program and its graph, over all results and metrics.

    Of numbers above 1 it is the share that counts, since rounding grows with them.
    """
    session, rest, largest = session_of(data), iter(examples), 0.0
    while batch := list(islice(rest, BATCH)):
        ours, theirs = program.run(batch, metrics=True), run(exporter, session, batch)
        pairs = list(zip(_tensors(list(ours)), _tensors(list(theirs)), strict=True))
        pairs += [(ours.metrics[name].values, theirs.metrics[name].values) for name in ours.metrics]
        for a, b in pairs:
            if a.size:
                apart = np.abs(a.astype(np.float64) - b) / np.maximum(1.0, np.abs(a))
                largest = max(largest, float(np.nan_to_num(apart, nan=np.inf).max()))
    return largest


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    return [value] if isinstance(value, np.ndarray) else []
