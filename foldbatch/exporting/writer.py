"""Writer: nodes and constants of an ONNX graph, with the few sequences of nodes that many ops need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from foldbatch.params import Array
from foldbatch.static.graph import Node
from foldbatch.static.op import UNBATCHED, Axis


@dataclass(slots=True)
class Writer:
    """The nodes of one graph. The body of a loop has a writer of its own, which shares the constants.

    Attributes:
        constants: the arrays of the whole model, by name.
        names: the name of each constant, by dtype, shape and bytes.
        used: how many names have been given, over all writers of a model.
        nodes: the nodes of this graph.
    """

    constants: dict[str, Array] = field(default_factory=dict)
    names: dict[tuple[str, tuple[int, ...], bytes], str] = field(default_factory=dict)
    used: list[int] = field(default_factory=lambda: [0])
    nodes: list[Any] = field(default_factory=list)

    def body(self) -> Writer:
        """Return the writer of a graph inside this one."""
        return Writer(self.constants, self.names, self.used)

    def name(self, stem: str) -> str:
        """Return a name that no other tensor has."""
        self.used[0] += 1
        return f"{stem}_{self.used[0]}"

    def constant(self, value: Any, dtype: str | None = None, stem: str = "constant") -> str:
        """Return the name of a constant; equal ones have one name. Python's numbers are int64."""
        array = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self.names:
            self.names[key] = self.name(stem)
            self.constants[self.names[key]] = array
        return self.names[key]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result, and return the result's name."""
        result = self.name(op)
        self.nodes.append(onnx.helper.make_node(op, inputs, [result], result, **attributes))
        return result

    def count(self, x: str) -> str:
        """Return the number of rows of a tensor: ``[1] int64``."""
        return self.add("Shape", x, start=0, end=1)

    def extended(self, count: str, shape: Sequence[int]) -> str:
        """Return the shape ``[count, *shape]``: ``[1 + axes] int64``."""
        return self.add("Concat", count, self.constant([*shape], "int64"), axis=0) if shape else count

    def rows(self, x: str, start: str, stop: str) -> str:
        """Return the rows of a tensor from a start to a stop; both are ``[1] int64``."""
        return self.add("Slice", x, start, stop, self.constant([0], "int64"))


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the nodes of a cell are written.

    Attributes:
        writer: of the graph.
        counts: the number of rows along each batch axis: ``[1] int64``.
        owners: for each ragged axis, the call of each element: ``[m] int64``, growing.
    """

    writer: Writer
    counts: Mapping[Axis, str]
    owners: Mapping[Axis, str]

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result, and return the result's name."""
        return self.writer.add(op, *inputs, **attributes)

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """Return the name of a constant."""
        return self.writer.constant(value, dtype)

    def spread(self, x: str, shape: Sequence[int], axis: Axis) -> str:
        """Return an unbatched tensor once for every row of a batch axis."""
        return self.add("Expand", x, self.writer.extended(self.counts[axis], shape))

    def along(self, x: str, source: Node, axis: Axis) -> str:
        """Return a tensor with rows along an axis: as it is, unless it is unbatched."""
        return self.spread(x, source.shape, axis) if source.axis is UNBATCHED is not axis else x

    def reshape(self, x: str, shape: Sequence[int], axis: Axis) -> str:
        """Return a tensor in another instance shape; its rows stay."""
        if axis is UNBATCHED:
            return self.add("Reshape", x, self.constant([*shape], "int64"), allowzero=1)
        if 0 in shape:
            wanted = self.writer.extended(self.writer.count(x), shape)
            return self.add("Reshape", x, wanted, allowzero=1)
        return self.add("Reshape", x, self.constant([0, *shape], "int64"))  # 0: as many rows as before


def first_axis(node: Node) -> int:
    """Return which axis of a tensor is the first instance axis: 1 where it has rows, else 0."""
    return int(node.axis is not UNBATCHED)
