"""The stages of a cell with an engine's routines, from which explanations are read."""

from __future__ import annotations

from dataclasses import dataclass

from foldbatch.static.cell import Phase
from foldbatch.static.graph import SOURCES, Graph, Node
from foldbatch.static.memory import Buffers
from foldbatch.static.routines import PlannedStage, Stage, Target, plan_stage
from foldbatch.static.statements import Routine

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stage of a cell.

    Attributes:
        direction: ``forward`` or ``backward``.
        when: ``before``, ``step`` or ``after``.
        stage: its computation, for any engine.
        planned: the routine that one engine makes of it.
    """

    direction: str
    when: str
    stage: Stage
    planned: PlannedStage

    @property
    def name(self) -> str:
        """The name of its routine."""
        return self.stage.name

    @property
    def routine(self) -> Routine:
        """Its statements."""
        return self.planned.routine

    @property
    def graph(self) -> Graph:
        """Its graph: results first, then kept nodes."""
        return self.planned.graph

    @property
    def buffers(self) -> Buffers:
        """The places of computed values."""
        return self.planned.buffers

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes that it computes, operands first."""
        return tuple(node for node in self.graph.nodes if node.op not in SOURCES)


StageParts = tuple[StagePart, ...]


def parts_of(phase: Phase, target: Target) -> StageParts:
    """Return the stages of training or of inference, in the order in which they run.

    >>> from foldbatch.static.cell import stage_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> cell = stage_cell(CellGraph("c", (x,), (), (x * x,)), Ends())
    >>> [(part.direction, part.when, part.name) for part in parts_of(cell.training, Target())]
    [('forward', 'before', 'forward_before')]
    """
    return tuple(
        StagePart(direction, when, stage, plan_stage(stage, target))
        for direction, stages in ((FORWARD, phase.forward), (BACKWARD, phase.backward))
        for when, stage in stages.items()
    )
