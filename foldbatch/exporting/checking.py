"""Checking: whether onnxruntime computes what a program does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnxruntime

from foldbatch.engines.results import Results
from foldbatch.exporting.exporter import Exporter
from foldbatch.program.program import Program

BATCH = 256


def session_of(data: bytes, threads: int = 0) -> Any:
    """Return a session of onnxruntime on the CPU for an exported graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def run(exporter: Exporter, session: Any, examples: Sequence[Any]) -> Results:
    """Return what `Program.run` returns with metrics, computed by onnxruntime.

    Raises:
        ExampleError: when an example does not fit the program.

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

    Raises:
        ExampleError: when an example does not fit the program.
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
