"""Drafts of cells, with the wires that connect them: a front end makes them, and `link` reads them."""

from dataclasses import dataclass, field

from foldbatch.model.wires import Flow
from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.types import TensorType

ASIDES = frozenset({"losses", "metrics"})  # what leaves a model beside its results


@dataclass(frozen=True, slots=True)
class Feed:
    """Data read from the example."""

    type: TensorType  # the type that the data are read as
    where: str  # the place in the model of the block that reads them
    declared: str  # the dtype that the data must fit, where it is narrower than that of `type`; else ""


@dataclass(slots=True)
class Draft:
    """A cell in the making: one place of the program that will make calls.

    Attributes:
        name: what reports and errors call it; no two cells of a model are called alike.
        number: the number of the cell.
        operands: the tensors read, with their wires; ragged ones belong to `sequences`.
        sequences: per sequence read, its ragged axis and the tensors of an element, with their wires.
        feeds: the data read.
        outputs: the values that others read, with the wires they go to.
        losses, metrics: names and nodes.
        labels: the numbers of metrics with labels.
        marks: for metrics that are visited before other calls (`foldbatch.blocks.drafts.MetricVisit`), two
            numbers: the metric's, and that of the feed that holds the visit's place among the calls.
        keys: the numbers of feeds that hold the call's own number, as it was first counted, instead of data.
        nodes: all nodes that it computes.
    """

    name: str
    number: int
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

    def output(self, node: Node) -> tuple[int, Flow]:
        """Make a node an output; return its number and its wire."""
        wire = self.outputs.setdefault(node, Flow())
        return list(self.outputs).index(node), wire
