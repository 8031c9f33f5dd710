"""What a front end hands over to be linked: cells in the making, with the wires that connect them."""

from __future__ import annotations

from dataclasses import dataclass, field

from foldbatch.model.wires import Flow
from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Feed:
    """Data read from the example: what it must be, and where in the model which block reads it.

    `declared` is the dtype that the data must fit, where that is narrower than the type they are read
    as; else "".
    """

    type: TensorType
    where: str
    declared: str


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
        marks: for metrics that are visited before other calls (`foldbatch.blocks.drafts.MetricVisit`), the
            metric's number and that of the feed that holds the visit's place among the calls.
        keys: numbers of feeds that hold no data, but the call's own number.
        nodes: all that it computes.
    """

    name: str
    number: int
    variable: str
    operands: list[tuple[Node, Flow]] = field(default_factory=list)
    sequences: list[tuple[Axis, list[tuple[Node, Flow]]]] = field(default_factory=list)
    feeds: list[tuple[Node, Feed]] = field(default_factory=list)
    outputs: dict[Node, Flow] = field(default_factory=dict)
    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[tuple[str, Node]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    marks: list[tuple[int, int]] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    nodes: set[Node] = field(default_factory=set)

    @property
    def reads(self) -> list[Flow]:
        """The wires that the cell reads."""
        members = [wire for _, several in self.sequences for _, wire in several]
        return [*(wire for _, wire in self.operands), *members]

    def output(self, node: Node) -> tuple[str, Flow]:
        """Make a node an output; return the expression of its number and its wire."""
        wire = self.outputs.setdefault(node, Flow())
        number = list(self.outputs).index(node)
        return (f"{self.variable} + {number}" if number else self.variable), wire
