"""Functions that go on where the stack ends note what others note."""

from operator import itemgetter

import pytest

import foldbatch as fb
from foldbatch.blocks import printing
from tests.blocks.test_tracer import parts_of
from tests.programs import CHOICES, drawn


@pytest.mark.parametrize("number", range(8))
def test_random_programs_are_traced_alike_however_deep_the_stack_is(number):
    drawn_program = drawn(number, CHOICES, dropout=number % 2 == 0)
    examples = drawn_program.examples
    found = []
    for depth, variables in ((1, 100), (2, 100), (500, 100), (500, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foldbatch.blocks.lower.depth_left", lambda depth=depth: depth)
            patch.setattr(printing, "MANY_VARIABLES", variables)
            tracer = fb.compile(drawn_program.block, "reference").lowered
            found.append([parts_of(trace) for trace in tracer.trace_all(examples, range(len(examples)))])
    assert all(each == found[0] for each in found)


def test_an_iterator_is_read_once():
    program = fb.compile(fb.Map(fb.GetItem(0) >> fb.Scalar("int32")) >> fb.Sum(), "reference")
    (one, other) = program.run([iter([[1], [2]]), [[1], [2]]])
    assert one.tolist() == other.tolist()


def test_cases_that_exclude_each_other_share_variables():
    """Python makes room for all variables of a function at each call, so many cases would make it slow."""
    cases = {
        kind: fb.GetItem(1) >> fb.Vector(1) >> fb.Linear(1, init="ones", name=f"layer {kind}")
        for kind in range(60)
    }
    program = fb.compile(fb.OneOf(itemgetter(0), cases), "reference")
    variables = [getattr(each, "co_nlocals", 0) for each in program.lowered.code.co_consts]
    assert max(variables) < 20
    assert [float(x[0]) for x in program.run([(59, [1]), (0, [2]), (7, [3])])] == [1, 2, 3]
    with pytest.raises(fb.errors.ExampleError, match=r"at example 1 .*\[1\]"):
        program.run([(59, [1]), (0, "two")])
