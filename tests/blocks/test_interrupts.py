"""Exceptions that no example is to blame for come out as they are."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import foldbatch as fb
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
