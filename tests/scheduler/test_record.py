"""Examples noted together are the batch that merging their packed traces makes, in whole and in part."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.scheduler.merge import Merged, merge
from foldbatch.scheduler.trace import Trace, unpack
from foldbatch.trees import parse_brackets

TREES = [
    parse_brackets(text, labels=int)
    for text in (
        "(3 (2 a) (4 b))",
        "(1 c)",
        "(0 (1 (2 a) (3 c)) (4 (1 b) (0 (2 a) (3 b))))",
        "(2 (2 c) (1 c))",
    )
]


def model() -> fb.Block:
    """Sequences of values, ids, vectors (which are not packed) and labels of metrics."""
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    length = fb.InputTransform(lambda node: [len(node), 1.0]) >> fb.Vector(2)
    below = fb.GetItem("children") >> fb.Map(tree()) >> fb.Sum()
    label = fb.GetItem("label") >> fb.Scalar("int32") >> fb.Embedding(5, 2)
    state = fb.AllOf(label, below, length) >> fb.Function(lambda a, b, c: a + b + c)
    measured = fb.AllOf(fb.GetItem(0), fb.Metric("state")) >> fb.GetItem(0)
    tree.resolve_to(fb.AllOf(state, fb.GetItem("label")) >> measured)
    loss = fb.Function(ops.sum) >> fb.Loss()
    return tree() >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def traced(trees: Sequence[Any]) -> tuple[fb.Program, list[Trace]]:
    program = fb.compile(model(), "numpy")
    return program, program.lowered.tracer.trace_all(trees, range(len(trees)))


def assert_same(one: Trace, other: Trace) -> None:
    arrays = [
        [*t.calls, *(x for parts in t.elements for x in parts), *t.levels, *(x for f in t.feeds for x in f)]
        for t in (one, other)
    ]
    for a, b in zip(*arrays, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.array_equal(a, b)
    assert (one.labels, one.values, one.size) == (other.labels, other.values, other.size)
    assert [*one.counts] == [*map(len, one.calls)] == [*other.counts]


def assert_alike(one: Merged, other: Merged) -> None:
    assert_same(one.trace, other.trace)
    assert all(np.array_equal(a, b) for a, b in zip(one.counts, other.counts, strict=True))
    assert np.array_equal(one.offsets, other.offsets)


def apart(trace: Trace) -> Trace:
    """The same trace without its company."""
    return unpack(trace.form, trace.packed, trace.loose, trace.labels, trace.result)


def test_examples_traced_together_have_the_traces_that_they_have_alone():
    program, together = traced(TREES)
    for tree, trace in zip(TREES, together, strict=True):
        alone = program.lowered.tracer.trace(tree)
        assert_same(trace, alone)
        assert trace.result == alone.result
        assert np.array_equal(trace.packed, alone.packed)
        assert_same(pickle.loads(pickle.dumps(trace)), alone)


@pytest.mark.parametrize(("first", "last"), [(0, 4), (0, 2), (1, 4), (2, 3), (1, 1)])
def test_a_run_of_examples_noted_together_is_the_batch_of_their_packed_traces(first, last):
    program, together = traced(TREES)
    cells = program.model.signatures
    run = together[first:last]
    fast = merge(run, cells)
    if run:
        assert run[0].origin[0].record is not None, "nothing has been packed so far"
    assert_alike(fast, merge([apart(trace) for trace in run], cells))
    if run:
        assert run[0].origin[0].record is None, "packed traces need no record"
        assert_alike(merge(run, cells), fast)
