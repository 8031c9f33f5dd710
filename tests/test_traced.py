"""Examples and their traces: what cannot have changed is traced once, and nothing lives longer than it must."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import foldbatch as fb
from foldbatch import traced
from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.scheduler.trace import Trace
from foldbatch.traced import Prepared, Traces
from foldbatch.trees import Tree

OWNER = object()


def a_program() -> fb.Program:
    return fb.compile(fb.InputTransform(lambda example: 1.0) >> fb.Scalar(), "numpy", threads=1)


def a_tree(word: str = "a") -> Tree:
    return Tree.from_nested(("1", ("2", word), ("3", "b")))


class Counted:
    """The traces of a program's examples, with how often examples were traced and batches planned."""

    def __init__(self, block: fb.Block | None = None) -> None:
        program = a_program() if block is None else fb.compile(block, "numpy", threads=1)
        self.program = program
        self.seen: list[int] = []
        self.planned: list[list[Trace]] = []
        lowered: Any = SimpleNamespace(tracer=SimpleNamespace(trace=self._trace), model=program.model)
        self.traces = Traces(lowered, self._plan)

    def _trace(self, example: Any, number: int) -> Trace:
        self.seen.append(number)
        return self.program.lowered.tracer.trace(example, number)

    def _plan(self, traces: list[Trace]) -> Any:
        self.planned.append(traces)
        return self.program._runner.plan(traces)


def test_a_tree_is_traced_once_whatever_the_batch() -> None:
    """Identity tells: an equal tree is another one. Examples are numbered, for errors."""
    counted, trees = Counted(), [a_tree(), a_tree(), a_tree("c")]
    first = counted.traces.all(trees, OWNER)
    assert counted.seen == [0, 1, 2]
    again = counted.traces.all(trees[::-1], OWNER)
    assert [a is b for a, b in zip(first, again[::-1], strict=True)] == [True] * 3
    assert len(counted.seen) == 3


def test_other_examples_are_traced_each_time() -> None:
    counted, example = Counted(), [1, 2]
    counted.traces.all([example], OWNER)
    counted.traces.all(iter([example]), OWNER)
    assert len(counted.seen) == 2


def test_a_tree_that_its_trace_holds_is_not_kept() -> None:
    """Else it would never die."""
    counted = Counted(fb.AllOf(fb.InputTransform(lambda example: 1.0) >> fb.Scalar(), fb.Identity()))
    tree = a_tree()
    counted.traces.all([tree, tree], OWNER)
    assert len(counted.seen) == 2


def test_what_is_known_of_a_tree_goes_with_it() -> None:
    counted, tree = Counted(), a_tree()
    counted.traces.work([tree], OWNER)
    left = counted.traces._left
    assert left < traced.PLANNED_BYTES
    del tree
    gc.collect()
    assert not counted.traces._known
    assert counted.traces._left == traced.PLANNED_BYTES


def test_traces_live_no_longer_than_their_program() -> None:
    program, tree = a_program(), a_tree()
    program.run([tree])
    watch = weakref.ref(program._traces)
    del program
    gc.collect()
    assert watch() is None


def test_a_batch_of_one_tree_is_planned_once() -> None:
    """A batch of several is not: which come together changes."""
    counted, tree = Counted(), a_tree()
    first = counted.traces.work([tree], OWNER)
    assert isinstance(first, tuple)
    assert counted.traces.work([tree], OWNER) is first
    assert len(counted.planned) == 1
    both = counted.traces.work([tree, a_tree()], OWNER)
    assert isinstance(both, list)
    assert isinstance(counted.traces.work([[1]], OWNER), list)
    assert isinstance(counted.traces.work(iter([tree]), OWNER), list)
    assert len(counted.planned) == 1


def test_plans_are_kept_as_long_as_there_is_room() -> None:
    """Then single trees run unplanned; a tree that dies makes room again."""
    counted, trees = Counted(), [a_tree(), a_tree(), a_tree()]
    size = traced.PLAN_BYTES + traced.CALL_BYTES * counted.traces.all(trees, OWNER)[0].size
    counted.traces._left = 2 * size
    assert [type(counted.traces.work([tree], OWNER)) for tree in trees] == [tuple, tuple, list]
    assert isinstance(counted.traces.work([trees[0]], OWNER), tuple)
    del trees[0]
    gc.collect()
    assert isinstance(counted.traces.work([trees[-1]], OWNER), tuple)


def test_results_are_the_same_with_and_without_a_plan() -> None:
    program, tree = a_program(), a_tree()
    first = program.run([tree])[0]
    with mock.patch.object(program._runner, "plan", side_effect=AssertionError):
        assert program.run([tree])[0] == first
    assert program.run([tree, tree])[0] == first


def test_prepared_and_planned_examples_stand_for_themselves_with_their_program_alone() -> None:
    program, other = a_program(), a_program()
    (prepared,) = program.prepare([a_tree()])
    planned = program.plan([a_tree(), [1]])
    assert program._traces.all([prepared], program) == [prepared.trace]
    assert program._traces.work(planned, program) is planned.parts
    assert program._traces.all(planned, program) == planned.traces
    with pytest.raises(ExampleError, match="example 1: expected an example prepared by this program"):
        other.run([a_tree(), prepared])
    for method in (other._traces.work, other._traces.all):
        with pytest.raises(
            ExampleError, match="expected a batch planned by this program.*plan it with this one"
        ):
            method(planned, other)
    assert isinstance(prepared, Prepared)
    assert "owner" not in repr(prepared)


@pytest.mark.parametrize(
    "wrong", [a_tree(), "text", b"bytes", {"a": 1}, 3, None], ids=lambda x: type(x).__name__
)
def test_a_single_example_is_no_batch(wrong: Any) -> None:
    with pytest.raises(
        ExampleTypeError, match=r"examples: expected an iterable of examples.*pass a list of one"
    ):
        Counted().traces.all(wrong, OWNER)


def test_an_iterator_is_read_once() -> None:
    def examples() -> Iterator[Any]:
        yield a_tree()
        yield [2]

    assert len(Counted().traces.all(examples(), OWNER)) == 2
