"""Passes that know stages, as tests call them: what comes last is what the recursion feeds back.

By convention the last input with a row per call is recursive, and so is the first output.
"""

from collections.abc import Callable

from foldbatch.static.cell import split
from foldbatch.static.cellgraph import AFTER, BEFORE
from foldbatch.static.graph import Graph, Node
from foldbatch.static.op import CALL

StagedPass = Callable[[Graph, Callable[[Node], str]], Graph]


def staged(transform: StagedPass, *, recursive: bool = True) -> Callable[[Graph], Graph]:
    """Return the pass with the stages that the convention gives; without recursion all is before."""

    def run(graph: Graph) -> Graph:
        calls = [x for x in graph.inputs if x.axis is CALL]
        late = set(calls[-1:]) if recursive else set()
        stages = split(graph.outputs, late, set(graph.outputs[:1]), graph.inputs)
        return transform(graph, lambda node: stages.get(node, AFTER if node in late else BEFORE))

    return run
