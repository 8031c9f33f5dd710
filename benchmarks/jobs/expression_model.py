"""The model of an expression: a Tree-LSTM, and features of its nodes that are counted over all of it.

Annotations are not postponed here: those of cells are made with the model, of its size.
"""

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.jobs.job import Example
from foldbatch import ops

SIZE = 64


def name_of(node: Any) -> str:
    """Return what stands in a node: a symbol, a number, or the operation on its children."""
    return str(node.token or node.label)


def walk_of(
    examples: Sequence[Example], classes: int, size: int = SIZE, dropout: float = 0.2
) -> Callable[[Any], Any]:
    """Return the model of trees with so many classes."""
    names = fb.trees.Vocabulary.count(
        token or label
        for each in examples
        for token, label in zip(each.data.tokens, each.data.labels, strict=True)
    )

    def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return rng.normal(0.0, 0.3, shape)

    embed, lstm = fb.Embedding(len(names), size, wide, name="names"), fb.ChildSumTreeLSTM(size, name="lstm")
    see, hidden = fb.Linear(size, "relu", name="see"), fb.Linear(size, "relu", name="hidden")
    out, drop = fb.Linear(classes, name="out"), fb.Dropout(dropout)
    states = GenericAlias(list, ((f"float32[{size}]",) * 3,))

    @fb.cell
    def join(name: Any, below: states) -> Any:  # type: ignore[valid-type]
        hs, cs, seen = below  # type: ignore[attr-defined]
        x = embed(name)
        h, c = lstm(x, (hs, cs))
        return h, c, see(ops.concat([x, h, ops.segment_sum(hs)])) + ops.segment_sum(seen)

    @fb.cell
    def score(h: Any, seen: Any) -> Any:
        return out(drop(hidden(drop(ops.concat([h, ops.log(1 + seen)])))))

    def visit(node: Any) -> Any:
        return join(names[name_of(node)], [visit(child) for child in node.children])

    def walk(example: tuple[Any, Any]) -> Any:
        tree, label = example
        h, _, seen = visit(tree)
        scores = score(h, seen)
        fb.loss(ops.cross_entropy(scores, label))
        return scores

    return walk
