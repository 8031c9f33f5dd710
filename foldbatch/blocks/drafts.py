"""Records of building: functions of the tracing program, and regions of it with cells in the making.

Plain records; `builder` fills them, `lower` and `tracer` read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from foldbatch.blocks.tracing import Body, CallOutput, Expression
from foldbatch.blocks.values import Object, Sequence, Terminal, Value
from foldbatch.model.drafts import Draft, Feed
from foldbatch.model.wires import Flow
from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.types import TensorType, Type


@dataclass(frozen=True, slots=True)
class FeedReading(Feed):
    """Data read from the example, with the object that is read."""

    source: Object


@dataclass(slots=True)
class MetricVisit:
    """A tensor that a `Metric` collects, with its label, until a cell of the region computes it.

    That cell's call comes at the region's end, after calls of loops, cases and functions that the
    program enters meanwhile. Where it enters any, `mark` is a number drawn beforehand from the counter
    of calls: it records when the metric was visited.
    """

    name: str
    node: Node
    label: Object | None
    mark: Object | None = None


@dataclass(frozen=True, slots=True)
class Drafted:
    """A cell that a region calls, and the variable that holds the number of the call."""

    variable: str
    draft: Draft

    def output(self, node: Node) -> tuple[Expression, Flow]:
        """Make a node an output; return its number and its wire."""
        number, wire = self.draft.output(node)
        return CallOutput(self.variable, self.draft.number, number), wire


@dataclass(slots=True)
class Region:
    """Tensors available at one place of the program, and cells drafted there."""

    values: dict[Node, tuple[Expression, Flow]] = field(default_factory=dict)
    feeds: dict[Node, FeedReading] = field(default_factory=dict)
    elements: dict[Node, tuple[Expression, Axis, int, Flow]] = field(default_factory=dict)
    drafts: list[Drafted] = field(default_factory=list)
    losses: list[tuple[str, Node]] = field(default_factory=list)
    metrics: list[MetricVisit] = field(default_factory=list)
    collected: list[tuple[Sequence, Value]] = field(default_factory=list)


@dataclass(slots=True)
class Procedure:
    """A function of the tracing program, in the making or done.

    Attributes:
        name: as in the program.
        path: the path of its block.
        input_type, output_type: what it reads and yields.
        parameters, results: the terminals of these.
        body: its statements, the last of which returns.
        calls: the functions that it calls.
        always: those of them that it calls in every case.
        effects: whether a visit does more than yield a result: losses, metrics, collected values, random
            numbers.
        memo: whether it visits arguments only once; None leaves that to `foldbatch.blocks.memo`.
    """

    name: str
    path: str
    input_type: Type
    output_type: Type
    parameters: list[Terminal]
    results: list[Terminal]
    body: Body = ()
    calls: list[str] = field(default_factory=list)
    always: list[str] = field(default_factory=list)
    effects: bool = False
    memo: bool | None = False

    @property
    def names(self) -> list[str]:
        """The variables of the parameters."""
        return [str(slot.expression) for slot in self.parameters]

    @property
    def objects(self) -> list[str]:
        """Those that hold no tensors."""
        return [str(slot.expression) for slot in self.parameters if not isinstance(slot.type, TensorType)]
