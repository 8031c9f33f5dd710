"""A model of any graph: two rounds of messages between neighbours, and the sum of what the nodes end as.

Two functions say how a library holds a graph: `kinds` returns a number for each node, `neighbours` the places
of its neighbours. The block is a smaller model, the sum of the nodes as they begin.
"""

from collections.abc import Callable
from typing import Any

from nodes import SIZE, Doors

import foldbatch as fb

ROUNDS = 2


def over_graphs(
    kinds: Callable[[Any], list[int]], neighbours: Callable[[Any], list[list[int]]], count: int
) -> Doors:
    """Return a model of graphs whose nodes are of kinds that are numbers below `count`."""
    table, changed = fb.Embedding(count, SIZE, name="kinds"), fb.Linear(SIZE, "tanh", name="changed")

    @fb.cell
    def begin(kind: Any) -> Any:
        return table(kind)

    @fb.cell
    def change(state: Any, messages: list["float32[8]"]) -> Any:
        return changed(state + fb.ops.segment_sum(messages))

    @fb.cell
    def total(states: list["float32[8]"]) -> Any:
        return fb.ops.segment_sum(states)

    def walk(graph: Any) -> Any:
        states, around = [begin(kind) for kind in kinds(graph)], neighbours(graph)
        for _ in range(ROUNDS):
            states = [
                change(state, [states[i] for i in places])
                for state, places in zip(states, around, strict=True)
            ]
        return total(states)

    node = fb.Scalar("int32") >> table
    return Doors(walk, fb.InputTransform(kinds) >> fb.Map(node) >> fb.Sum())
