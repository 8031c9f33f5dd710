"""Loops in bulk, and functions that go on where the stack ends, note what statement by statement is noted."""

from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks.printing import program as printed
from tests.blocks.test_tracer import parts_of
from tests.programs import CHOICES, drawn

ONE = fb.Scalar()
ID = fb.Scalar("int32") >> fb.Embedding(9, 2, name="ids")
ADD = fb.Function(lambda a, b: a + b)


def twice() -> fb.Block:
    seen = fb.AllOf(fb.Identity(), fb.Metric("seen")) >> fb.GetItem(0)
    return ONE >> fb.Function(lambda x: 2 * x) >> seen


# models of a list of small lists of two numbers, and whether a loop is left in them
MODELS: dict[str, tuple[Callable[[], Any], bool]] = {
    "words": (lambda: fb.Map(fb.GetItem(0) >> ID) >> fb.Sum(), False),
    "functions": (lambda: fb.Map(fb.InputTransform(len) >> ONE) >> fb.Sum(), False),
    "a function of a part": (
        lambda: fb.Map(fb.GetItem(1) >> fb.InputTransform(abs) >> ID) >> fb.Sum(),
        False,
    ),
    "states": (lambda: fb.Map(fb.GetItem(0) >> ID) >> fb.RNN(fb.LSTMCell(3)) >> fb.GetItem(1), False),
    "outputs": (
        lambda: fb.Map(fb.GetItem(0) >> ID) >> fb.RNN(fb.GRUCell(3)) >> fb.GetItem(0) >> fb.Sum(),
        False,
    ),
    "keys": (lambda: fb.Map(fb.GetItem(0) >> ID >> fb.Dropout(0.5)) >> fb.Sum(), False),
    "two columns": (
        lambda: fb.Map(fb.GetItem(2) >> fb.Record((ONE, ONE)) >> ADD) >> fb.Sum(),
        True,
    ),  # it checks their number
    "two functions": (
        lambda: (
            fb.Map(
                fb.AllOf(fb.InputTransform(itemgetter(0)) >> ONE, fb.InputTransform(itemgetter(1)) >> ONE)
                >> ADD
            )
            >> fb.Sum()
        ),
        True,
    ),
    "a part that two parts are of": (
        lambda: (
            fb.Map(fb.GetItem(2) >> fb.AllOf(fb.GetItem(0) >> ONE, fb.GetItem(1) >> ONE) >> ADD) >> fb.Sum()
        ),
        True,
    ),
    "a choice": (
        lambda: (
            fb.Map(fb.OneOf(lambda x: x[0] > 2, {True: fb.GetItem(0) >> ONE, False: fb.GetItem(1) >> ONE}))
            >> fb.Sum()
        ),
        True,
    ),
    "metrics": (lambda: fb.Map(fb.GetItem(0) >> twice()) >> fb.Sum(), False),
    "lists of lists": (lambda: fb.Map(fb.GetItem(2) >> fb.Map(ONE) >> fb.Sum()) >> fb.Sum(), True),
    "a state that is read by another": (
        lambda: (
            fb.Map(fb.GetItem(0) >> ONE)
            >> fb.Fold(fb.Function(lambda s, x: (s[1] + x, s[0] * x)), (fb.Zeros([]), fb.Zeros([])))
            >> fb.GetItem(0)
        ),
        False,
    ),
}
EXAMPLES = [
    [[1, 2, (1, 2)], [3, 4, (0, 1)], [5, 6, (3, 3)]],
    [],
    [[7, 8, (2, 2)]],
    [[2, 2, (5, 1)], [2, 2, (1, 5)]],
]


def assert_both_alike(program: fb.Program, examples: list[Any]) -> None:
    tracer = program.lowered.tracer
    careful = compile(tracer.source, "<careful>", "exec")
    found = []
    for depth, code in ((1, careful), (500, careful), (2, tracer.code), (500, tracer.code)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foldbatch.blocks.tracer._depth", lambda depth=depth: depth)
            made = replace(tracer)
            object.__setattr__(made, "code", code)
            found.append([parts_of(trace) for trace in made.trace_all(examples, range(len(examples)))])
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.parametrize("name", MODELS)
def test_models_are_traced_alike(name):
    make, loops = MODELS[name]
    program = fb.compile(make(), "reference")
    assert ("    for " in printed(program.lowered.tracer.functions).source) == loops
    assert_both_alike(program, EXAMPLES)


@pytest.mark.parametrize("number", range(8))
def test_random_programs_are_traced_alike(number):
    drawn_program = drawn(number, CHOICES, dropout=number % 2 == 0)
    assert_both_alike(fb.compile(drawn_program.block, "reference"), drawn_program.examples)


def test_an_iterator_is_read_once():
    program = fb.compile(fb.Map(fb.GetItem(0) >> ID) >> fb.Sum(), "reference")
    (one, other) = program.run([iter([[1], [2]]), [[1], [2]]])
    assert one.tolist() == other.tolist()
