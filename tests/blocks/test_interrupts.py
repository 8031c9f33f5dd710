"""Signals, and walks without an end, while examples are traced."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import foldbatch as fb
from foldbatch.blocks import tracer
from foldbatch.blocks.interrupts import interrupted, is_accident
from foldbatch.errors import ExampleError, ExampleIndexError
from foldbatch.trees import Tree


class LateError(TimeoutError, LookupError, ValueError):
    """An exception that is an error of data by its classes."""


def handle(number: int, frame: Any) -> None:
    raise LateError(number)


def handle_any(*given: Any) -> None:
    handle_within(given)


def handle_within(given: Any) -> None:
    raise LateError(given[0])


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise LateError(number)

    def late(self, number: int, frame: Any) -> None:
        raise LateError(number)


def once(number: int, frame: Any) -> None:
    signal.signal(number, signal.SIG_IGN)  # it is no handler any more when its exception is looked at
    raise LateError(number)


HANDLERS = [handle, handle_any, Handler(), Handler().late, partial(handle), once]


def calls_its_own_function(fail: Callable[[], None]) -> None:
    fail()


def test_a_function_that_raises_is_no_handler() -> None:
    def fail() -> None:
        raise LateError(1)

    with pytest.raises(LateError) as caught:
        calls_its_own_function(fail)
    assert not interrupted(caught.value)


def summed(function: Callable[[Any], Any]) -> fb.Program:
    tree = fb.ForwardDeclaration(output_type=1, name="tree")
    own = fb.InputTransform(function) >> fb.Scalar() >> fb.Function(lambda x: fb.ops.reshape(x, (1,)))
    below = fb.GetItem("children") >> fb.Map(tree()) >> fb.Sum()
    tree.resolve_to(fb.AllOf(own, below) >> fb.Function(lambda a, b: a + b))
    return fb.compile(tree(), "numpy")


def trees(count: int) -> list[Tree]:
    text = "(1 (2 a) (3 (0 good) (1 film)))"
    return [fb.trees.parse_brackets(text, int) for _ in range(count)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
@pytest.mark.parametrize("handler", HANDLERS, ids=range(len(HANDLERS)))
def test_what_a_handler_raises_in_the_midst_of_tracing_comes_out_as_it_is(handler: Any) -> None:
    """By columns and by the program; in our own code, in functions of the user, and while data become arrays."""
    programs = [summed(lambda t: len(t) + t.size), summed(lambda t: sum(1 for _ in t.nodes()))]
    random_ = random.Random(0)
    before = signal.getsignal(signal.SIGALRM)
    try:
        for turn in range(8):
            batches = [trees((20, 600)[turn // 2 % 2]) for _ in range(2)]
            with suppress(LateError):  # any other exception is an error
                signal.signal(signal.SIGALRM, handler)
                signal.setitimer(signal.ITIMER_REAL, random_.uniform(1e-5, 0.03))
                for batch in batches:
                    programs[turn % 2]._trace_all(batch)
                time.sleep(0.1)  # if it was too late
    finally:
        signal.signal(signal.SIGALRM, before)
    assert programs[0].run(trees(1))[0].tolist() == [15.0]


def test_an_error_that_does_not_happen_again_is_the_examples_only_if_it_may_be() -> None:
    try:
        Tree.leaf()[3]
    except ExampleIndexError as error:
        assert is_accident(error, [{"a": (1, Tree.leaf())}])
        assert not is_accident(error, [iter([1])])
    with pytest.raises(LateError) as caught:
        handle(1, None)
    assert not is_accident(caught.value, [1]), "it may be a function of the user that raised it"


def test_errors_of_functions_are_told_as_ever() -> None:
    with pytest.raises(ExampleError, match="at example 1: .*ZeroDivisionError"):
        summed(lambda t: 1 / (len(t) - 1)).run([*trees(1), Tree([1, -1])])


ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)


def sum_of(memo: bool | None, input_type: Any = fb.types.OBJECT) -> fb.Block:
    total = fb.ForwardDeclaration(input_type, "float32", "total", memo=memo)
    total.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: ONE, True: fb.Map(total()) >> fb.Sum()}))
    return total()


@pytest.mark.parametrize("memo", [None, False, True])
def test_the_error_names_the_first_place_that_is_met_again(memo, monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    ring = [1, [2, 3]]
    ring[1].append([4, ring])
    with pytest.raises(ExampleError, match="a part that contains itself; cut the cycle") as caught:
        fb.compile(sum_of(memo), "reference").run([[1], [0, ring]])
    assert caught.value.where.endswith("at example 1 [1][1][2][1]")


def test_a_long_cycle_is_found_long_before_the_deepest_level(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    monkeypatch.setattr(tracer, "MAX_LEVELS", 5_000)
    ring: list[Any] = []
    last = ring
    for _ in range(299):
        last.append([])
        last = last[0]
    last.append(ring)
    with pytest.raises(ExampleError, match="a part that contains itself"):
        fb.compile(sum_of(None), "reference").run([ring])


def test_a_cycle_is_found_though_other_branches_end_and_tensors_differ(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    down = fb.ForwardDeclaration((fb.types.OBJECT, "float32"), "float32", "down")
    state = fb.GetItem(1) >> fb.Function(lambda w: w / 2)
    left, right = (fb.AllOf(fb.GetItem(0) >> fb.GetItem(k), state) >> down() for k in (0, 1))
    choice = fb.GetItem(0) >> fb.InputTransform(lambda x: isinstance(x, list))
    down.resolve_to(fb.OneOf(choice, {False: fb.GetItem(1), True: fb.AllOf(left, right) >> ADD}))
    block = fb.AllOf(fb.Identity(), fb.FromTensor(1.0)) >> down()
    assert float(block.eval([[1, 2], 3])) == 1.0
    ring: list[Any] = [[1, 2]]
    ring.append([[3, 4], ring])
    with pytest.raises(ExampleError, match="a part that contains itself"):
        block.eval(ring)


def test_what_changes_as_it_is_read_is_no_cycle(monkeypatch):
    """An iterator is read on from call to call; so many levels are deep, and end."""
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    count = fb.ForwardDeclaration(output_type="float32", name="count")
    more = fb.AllOf(count(), fb.FromTensor(1.0)) >> ADD
    count.resolve_to(fb.OneOf(lambda numbers: next(numbers, None) is None, {True: fb.Zeros([]), False: more}))
    program = fb.compile(count(), "reference")
    assert [float(program.run([iter(range(n))])[0]) for n in (0, 1, 1_000)] == [0.0, 1.0, 1000.0]


def test_deep_data_is_no_cycle(monkeypatch):
    monkeypatch.setattr(tracer, "SHALLOW", 100)
    data: Any = 1
    for _ in range(1_000):
        data = [data, data]
    assert fb.compile(sum_of(None), "reference").describe([data]).calls == 1_002
