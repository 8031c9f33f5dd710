"""Walks that are timed level by level compute what they do unwatched."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.arrays import LevelsWatched
from foldbatch.engines.watching import NothingWatched
from foldbatch.timelines import rows_of

EXAMPLES = [[1, 2, 3, 4], [2, 1]]


def _program(rows=9):
    words = fb.Map(fb.Scalar("int32") >> fb.Function(lambda i: i + 1) >> fb.Embedding(rows, 3))
    return fb.compile(
        words >> fb.RNN(fb.GRUCell(4)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss(), "numpy"
    )


def test_each_level_is_a_span_and_no_bit_changes():
    program = _program()
    expected = program.value_and_grad(EXAMPLES)
    planned = program.plan(EXAMPLES)
    engine, watch = program.engine, LevelsWatched()
    (part,) = planned.parts
    ready, levels = engine.ready(part.batch, training=True), []

    def walk(table, memory):
        levels.extend((stop - first).item() for _, first, stop, *_ in table.launches)
        ready.kernels.walk(table, memory)

    counted = ready._replace(kernels=replace(ready.kernels, walk=walk))
    part.ready[True] = watch.watched(counted, 2)
    loss, gradients = program.value_and_grad(planned)
    assert loss == expected[0]
    for name, gradient in expected[1].items():
        np.testing.assert_array_equal(np.asarray(_dense(gradients[name])), _dense(gradient))
    assert levels == [1] * len(watch.spans())
    steps = [span for span in watch.spans() if span.name.endswith("forward_step")]
    assert [(span.arguments["level"], span.arguments["rows"]) for span in steps] == [
        (0, 2),
        (1, 2),
        (2, 1),
        (3, 1),
    ]
    assert {span.row for span in watch.spans()} == {"part 3"}
    assert all(a.end <= b.start for a, b in pairwise(steps))


def test_parts_stand_in_their_order_whichever_ran_first():
    program = _program()
    planned = program.plan(EXAMPLES)
    (part,) = planned.parts
    ready, watch = program.engine.ready(part.batch, training=True), LevelsWatched()
    for number in (10, 1, 10):
        part.ready[True] = watch.watched(ready, number)
        program.value_and_grad(planned)
    spans = watch.spans()
    assert rows_of(spans) == ["part 2", "part 11"]
    assert all(a.start <= b.start for a, b in pairwise(spans) if a.row == b.row)


def test_an_error_names_the_example_as_ever():
    program = _program(rows=3)
    planned = program.plan(EXAMPLES)
    (part,) = planned.parts
    part.ready[True] = LevelsWatched().watched(program.engine.ready(part.batch, training=True), 0)
    messages = []
    for batch in (EXAMPLES, planned):
        with pytest.raises(fb.errors.ExampleError) as caught:
            program.value_and_grad(batch)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_what_is_not_watched_stays_as_it_is():
    ready = object()
    watch = NothingWatched()
    assert watch.watched(ready, 0) is ready
    assert watch.spans() == ()


def _dense(gradient):
    return gradient.dense() if isinstance(gradient, fb.params.SparseRows) else gradient
