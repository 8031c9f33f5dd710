"""Functions that go on where the stack ends note what others note."""

import pytest

import foldbatch as fb
from tests.blocks.test_tracer import parts_of
from tests.programs import CHOICES, drawn


@pytest.mark.parametrize("number", range(8))
def test_random_programs_are_traced_alike_however_deep_the_stack_is(number):
    drawn_program = drawn(number, CHOICES, dropout=number % 2 == 0)
    examples = drawn_program.examples
    tracer = fb.compile(drawn_program.block, "reference").lowered.tracer
    found = []
    for depth in (1, 2, 500):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foldbatch.blocks.tracer._depth", lambda depth=depth: depth)
            found.append([parts_of(trace) for trace in tracer.trace_all(examples, range(len(examples)))])
    assert found[0] == found[1] == found[2]


def test_an_iterator_is_read_once():
    program = fb.compile(fb.Map(fb.GetItem(0) >> fb.Scalar("int32")) >> fb.Sum(), "reference")
    (one, other) = program.run([iter([[1], [2]]), [[1], [2]]])
    assert one.tolist() == other.tolist()
