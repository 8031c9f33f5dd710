"""What building collects: lines of the tracing program, regions of it, and cells in the making.

Plain records; `builder` fills them, `lower` and `tracer` read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from foldbatch.blocks.values import Object, Sequence, Slot, Value
from foldbatch.blocks.wires import Wire
from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class Feed:
    """Data read from the example: the object, what it must be, and the block that reads it.

    `declared` is the dtype that the data must fit, where that is narrower than the type they are read as.
    """

    source: Object
    type: TensorType
    where: str
    declared: str = ""


@dataclass(slots=True)
class Draft:
    """A cell in the making: one place of the program that will make calls.

    Attributes:
        name: the path of the first block in it.
        number: which cell.
        variable: the variable that holds a call's first value number.
        operands: tensors read, with their wires; ragged ones belong to `sequences`.
        feeds: data read.
        outputs: values others read, with the wires they go to.
        losses, metrics: names and nodes.
        labels: metric numbers with labels.
        marks: metric number and number of the feed that holds its mark, for metrics with one.
        keys: numbers of feeds that hold no data, but the call's own number.
        nodes: all that it computes.
    """

    name: str
    number: int
    variable: str
    operands: list[tuple[Node, Wire]] = field(default_factory=list)
    sequences: list[tuple[Axis, list[tuple[Node, Wire]]]] = field(default_factory=list)
    feeds: list[tuple[Node, Feed]] = field(default_factory=list)
    outputs: dict[Node, Wire] = field(default_factory=dict)
    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[tuple[str, Node]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    nodes: set[Node] = field(default_factory=set)

    def output(self, node: Node) -> tuple[str, Wire]:
        """Make a node an output; return the expression of its number and its wire."""
        wire = self.outputs.setdefault(node, Wire())
        at = list(self.outputs).index(node)
        return (f"{self.variable} + {at}" if at else self.variable), wire


@dataclass(slots=True)
class MetricVisit:
    """A tensor that a `Metric` collects, with its label, until a cell of the region computes it.

    That cell's call comes at the region's end, after calls of loops, cases and functions that the
    program enters meanwhile. Where it enters any, `mark` is a number drawn before from those that count
    calls: it tells when the metric was visited.
    """

    name: str
    node: Node
    label: Object | None
    mark: Object | None = None


@dataclass(slots=True)
class Region:
    """Tensors available at one place of the program, and cells drafted there."""

    values: dict[Node, tuple[str, Wire]] = field(default_factory=dict)
    feeds: dict[Node, Feed] = field(default_factory=dict)
    elements: dict[Node, tuple[str, Axis, int, Wire]] = field(default_factory=dict)
    drafts: list[Draft] = field(default_factory=list)
    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[MetricVisit] = field(default_factory=list)
    collected: list[tuple[Sequence, Value]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the program: its text, the block it is for, and the object it looks at.

    `expected` says what the object must have for the line to succeed, `calls` which function of
    the user's the line calls.
    """

    text: str
    where: str
    subject: Object | None = None
    expected: str = ""
    calls: str = ""


@dataclass(slots=True)
class Function:
    """A function of the tracing program, in the making or done; `always` are those it calls in any case."""

    name: str
    path: str
    input_type: Type
    output_type: Type
    parameters: list[Slot]
    results: list[Slot]
    lines: list[Line] = field(default_factory=list)
    always: list[str] = field(default_factory=list)
