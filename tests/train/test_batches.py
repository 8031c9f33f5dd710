"""Batches on their way: planned ahead, dealt, evaluated."""

import gc
import itertools
import os
import threading
import traceback

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.communicators import Alone
from foldbatch.errors import ExampleTypeError, TrainingError
from foldbatch.train import Accuracy, DataParallel, prefetched
from foldbatch.train.parallel import EVALUATED, evaluate, in_parts
from tests.communicators.threads import in_threads
from tests.train.small import EXAMPLES, model

NAME = "foldbatch-prefetch"


@pytest.fixture
def program() -> fb.Program:
    return fb.compile(fb.Map(fb.Scalar("float64")) >> fb.Sum(), backend="numpy")


@pytest.fixture(autouse=True)
def no_thread_is_left_behind():
    yield
    gc.collect()
    for thread in threads():
        thread.join(60)
    assert threads() == []


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


def sums(program: fb.Program, plans) -> list[list[float]]:
    return [[float(x) for x in program.run(plan)] for plan in plans]


@pytest.mark.parametrize("ahead", [1, 2, 7, 50])
def test_batches_come_planned_and_in_order(program, ahead):
    batches = [[[float(k)] * n for n in range(k % 4)] for k in range(20)]
    assert sums(program, prefetched(program, batches, ahead)) == sums(program, batches)
    assert sums(program, prefetched(program, iter(batches), ahead)) == sums(program, batches)
    assert list(prefetched(program, [], ahead)) == []


def test_the_next_batches_are_read_in_a_thread_and_no_more_than_asked_for(program):
    read: list[str] = []
    enough = threading.Semaphore(0)

    def batches():
        for k in itertools.count():
            read.append(threading.current_thread().name)
            yield [[k]]
            enough.release()  # the batch before is planned

    plans = prefetched(program, batches(), ahead=3)
    assert read == []
    for k in range(5):
        assert sums(program, [next(plans)]) == [[k]]
        while len(read) < k + 4:
            enough.acquire(timeout=60)
    plans.close()
    assert len(read) <= 8
    assert {name.startswith(NAME) for name in read} == {True}


def test_an_error_comes_at_its_batch_with_its_traceback(program):
    batches = [[[1]], [[2]], [[3], ["x"]], [[4]]]
    plans = prefetched(program, batches, ahead=4)
    assert sums(program, [next(plans), next(plans)]) == [[1], [2]]
    with pytest.raises(ExampleTypeError, match="at example 1 "):
        next(plans)
    assert list(plans) == []


def test_an_error_of_the_batches_themselves_comes_at_its_place(program):
    def batches():
        yield [[1]]
        raise OSError("no more data")

    plans = prefetched(program, batches())
    assert sums(program, [next(plans)]) == [[1]]
    with pytest.raises(OSError, match="no more data") as caught:
        next(plans)
    assert "in batches" in "".join(traceback.format_exception(caught.value))


def test_an_error_of_the_consumer_ends_the_thread(program):
    with pytest.raises(ZeroDivisionError):
        for _ in prefetched(program, ([[k]] for k in itertools.count())):
            raise ZeroDivisionError


def test_where_no_thread_can_start_it_is_told(program, monkeypatch):
    def refused(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(TrainingError, match="prefetched: expected a thread of its own, found none: can't"):
        next(prefetched(program, [[[1]]]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_that_the_thread_is_not_there(program):
    plans = prefetched(program, [[[1]], [[2]]])
    next(plans)
    child = os.fork()
    if child == 0:
        try:
            next(plans)
        except TrainingError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    plans.close()


ROWS = [[1.0] * n for n in (5, 1, 2, 2, 4)]
BATCHES = [[4, 0, 1], [2, 3]]
SUM = fb.Map(fb.Scalar()) >> fb.Sum()


def parallel(communicator):
    return DataParallel(fb.compile(SUM, "numpy"), communicator)


def test_ranks_run_every_example_once():
    def work(communicator):
        program = parallel(communicator)
        return [[batch[i] for i in program.places([ROWS[k] for k in batch])] for batch in BATCHES]

    assert in_threads(work, 2) == [[[0], [2]], [[4, 1], [3]]]


class Ordered:
    """A figure that depends on the order of values."""

    name, of, every = "ordered", "out", "value"

    def compute(self, values, labels):
        return [values.tolist(), labels]


def figures(communicator, examples=EXAMPLES):
    program = DataParallel(fb.compile(model(), "numpy"), communicator)
    return evaluate(program, [Accuracy("out"), Ordered()], examples, lambda: 0, lambda: None)


@pytest.mark.parametrize("count", [20, 1])
def test_ranks_see_what_one_process_sees(count):
    alone = figures(Alone(), EXAMPLES[:count])
    for each in in_threads(lambda communicator: figures(communicator, iter(EXAMPLES[:count])), 3):
        assert each["accuracy"] == alone["accuracy"] and np.isclose(each["loss"], alone["loss"])
        np.testing.assert_allclose(each["ordered"][0], alone["ordered"][0], rtol=1e-5)
        assert each["ordered"][1] == alone["ordered"][1]


def test_no_examples_are_refused_on_all_ranks():
    def work(communicator):
        with pytest.raises(TrainingError, match="one example or more"):
            figures(communicator, [])

    in_threads(work, 2)


def test_parts_are_of_one_size():
    assert [len(part) for part in in_parts(range(2 * EVALUATED + 3))] == [EVALUATED, EVALUATED, 3]
