"""A small model over trees, for tests: shared rows, a recursion, a table, losses and metrics."""

from functools import cache
from typing import Any

import foldbatch as fb
from foldbatch import ops

SIZE = 3
TREES: list[Any] = [(1, [(0, []), (2, [(0, [])])]), (2, []), (1, [(1, []), (1, []), (0, [])])]


def model() -> fb.Block:
    """Return a block: a tree's state, with a loss and a metric at each node."""
    tree = fb.ForwardDeclaration(output_type=[SIZE, "float64"], name="tree")
    word = fb.GetItem(0) >> fb.Scalar("int32") >> fb.Embedding(4, SIZE, dtype="float64", name="words")
    join = fb.Linear(SIZE, name="join")
    state = fb.Function(lambda x, kids: ops.tanh(join(x) + ops.segment_sum(kids)))
    loss = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    node = fb.AllOf(word, fb.GetItem(1) >> fb.Map(tree())) >> state
    tree.resolve_to(node >> fb.AllOf(fb.Identity(), loss, fb.Metric("state")) >> fb.GetItem(0))
    return tree()


@cache
def program(backend: str = "cuda-on-cpu") -> fb.Program:
    """Return the model compiled, with parameters that are the same for all engines."""
    made = fb.compile(model(), backend, threads=1)
    for number, name in enumerate(made.params):
        value = made.params[name]
        made.params[name] = ((7 * number + 1) * (value * 0 + 1)) / 20
    return made
