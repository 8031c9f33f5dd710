"""A model of any nodes with children, by both doors.

A node's state is made of its label and of the sum of its children's states. Two functions say how a library
calls these: `label` returns the number of a node's label, `children` a list of nodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import foldbatch as fb

SIZE = 8


class Doors(NamedTuple):
    """One model as a plain function and as a block, whose parameters have the same names."""

    walk: Callable[[Any], Any]
    block: fb.Block[Any, Any]


def over_nodes(label: Callable[[Any], int], children: Callable[[Any], list[Any]], labels: int) -> Doors:
    """Return a model of nodes whose labels are numbers below `labels`."""
    table, joined = fb.Embedding(labels, SIZE, name="labels"), fb.Linear(SIZE, "tanh", name="joined")

    @fb.cell
    def join(number: Any, below: list["float32[8]"]) -> Any:
        return joined(table(number) + fb.ops.segment_sum(below))

    def walk(node: Any) -> Any:
        return join(label(node), [walk(child) for child in children(node)])

    tree = fb.ForwardDeclaration(output_type=SIZE, name="tree")
    number = fb.InputTransform(label) >> fb.Scalar("int32")
    below = fb.InputTransform(children) >> fb.Map(tree()) >> fb.Sum()
    sums = fb.AllOf(number >> table, below) >> fb.Function(fb.ops.add)
    tree.resolve_to(sums >> joined)
    return Doors(walk, tree())
