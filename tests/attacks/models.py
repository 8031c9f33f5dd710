"""Models whose files are edited, and examples of each."""

import operator
import re
from functools import partial
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch.zoo import Task, Words

TEXTS = ["a fine film", "not good"]
LENGTH = fb.Length()
LABELS = fb.trees.Vocabulary(["a", "fine", "film", "not", "good"])


def models() -> dict[str, tuple[fb.Block, list[Any]]]:
    """Return blocks that name many functions, methods and classes, each with examples."""
    words, task = Words(LABELS, 3), Task("class", 2)
    tree = fb.trees.parse_brackets("(1 (0 a) (1 film))", labels=int)
    code = fb.trees.python_tree("x = f(readLine, 1)")
    records = [
        {"age": n, "kind": "ab"[n % 2], "tags": ["x"] * n, "note": f"n {n}", "on": n > 2} for n in range(9)
    ]
    texts = [{"text": text} for text in TEXTS]
    kinds = fb.trees.Vocabulary(["Module", "Assign"])
    features = fb.trees.Vocabulary(["kind Assign", "word x"])
    return {
        "tree_lstm": (fb.zoo.tree_lstm(words, Task("nodes", 2, weights=(1.0, 2.0)), hidden=2), [tree]),
        "rntn": (fb.zoo.rntn(words, Task("root", 2)), [tree]),
        "bilstm": (fb.zoo.bilstm(words, task, hidden=2), [(text, 1) for text in TEXTS]),
        "child_sum": (
            fb.zoo.child_sum(
                Words(LABELS, 2, split="subwords", spread=0.1),
                Task("class", 3, answers=2),
                kinds=kinds,
                hidden=2,
                counts=True,
                features=features,
            ),
            [(code, 0)],
        ),
        "json": (
            fb.zoo.json(fb.schema.infer(records).block(3), Task("number"), hidden=2),
            [(record, 1.0) for record in records[:3]],
        ),
        **{
            f"text {number}": (
                fb.GetItem("text") >> fb.InputTransform(function) >> fb.InputTransform(str) >> LENGTH,
                texts,
            )
            for number, function in enumerate(_of_text())
        },
        **{
            f"number {number}": (fb.GetItem(0) >> fb.InputTransform(function) >> fb.Scalar(), [[1.5], [2]])
            for number, function in enumerate(_of_number())
        },
        **{
            f"tensor {number}": (fb.Vector(3) >> fb.Function(function), [[1.0, 2.0, 3.0]])
            for number, function in enumerate(_of_tensor())
        },
        "choice": (_choice(), [{"kind": "x"}, {"kind": 1}]),
        "nested": (_nested(), [[1, [2, [3]], 4], 5]),
    }


def _of_text() -> list[Any]:
    methods = [str.split, str.lower, "ab".count, {"a fine film": 1}.get, re.compile(r"\w+").findall]
    partials = [partial(re.compile("i").sub, "o"), partial(max, key=ord), partial(sorted, reverse=True)]
    return [*methods, *partials, len, str, list, bool, operator.itemgetter(0), LABELS, LABELS.numbers]


def _of_number() -> list[Any]:
    return [
        float,
        operator.attrgetter("real"),
        np.sqrt,
        partial(operator.add, 1.0),
        partial(round, ndigits=1),
    ]


def _of_tensor() -> list[Any]:
    """Return functions of a vector, with attributes of ops and layers."""
    ops = fb.ops
    return [
        ops.tanh,
        partial(ops.softmax, axis=0),
        partial(ops.power, exponent=2.5),
        partial(ops.sum, axis=0, keepdims=True),
        partial(ops.clip, low=0.0, high=1.0),
        partial(ops.reshape, shape=(3, 1)),
        partial(ops.einsum, "i->i"),
        partial(ops.cast, dtype="float64"),
        partial(ops.pad, before=1, after=0),
        operator.neg,
        np.tanh,
        fb.Linear(2, "relu", name="inner"),
        fb.blocks.LayerNorm(name="norm"),
    ]


def _choice() -> fb.Block:
    """Return a block that chooses by a class, and by a vocabulary."""
    kind = fb.GetItem("kind", default=None)
    by_type = fb.OneOf(type, {str: fb.FromTensor(np.ones(2)), int: fb.Zeros([2, "float64"])})
    return fb.AllOf(
        kind >> by_type, kind >> fb.OneOf(LABELS.__contains__, [fb.FromTensor(1.0), fb.FromTensor(2.0)])
    )


def _nested() -> fb.Block:
    total = fb.ForwardDeclaration(output_type="float32", name="total")
    inner = fb.Map(total()) >> fb.Sum() >> fb.blocks.Collect("sums")
    total.resolve_to(fb.OneOf(type, {list: inner, int: fb.Scalar()}))
    measured = fb.AllOf(fb.Identity(), fb.Metric("seen"), fb.Loss("loss", 0.5)) >> fb.GetItem(0)
    return fb.blocks.Collected(total() >> measured, "sums")
