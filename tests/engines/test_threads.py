"""A batch in parts gives what it gives whole."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import numpy as numpy_engine
from foldbatch.engines import threads
from foldbatch.errors import BackendError
from tests.backends import LLVM


def blas() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def in_another_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@pytest.fixture
def blas_of_two() -> Iterator[None]:
    with threadpool_limits(2, user_api="blas"):
        yield


@pytest.mark.usefixtures("blas_of_two")
def test_blas_is_single_threaded_inside_and_restored_after() -> None:
    """The limit holds while a program runs, and no longer; in whichever thread."""

    def inside() -> list[int]:
        with threads.single_threaded_blas():
            return blas()

    for _ in range(2):
        for found in (inside(), in_another_thread(inside)):
            assert all(count == 1 for count in found)
            assert all(count == 2 for count in blas())


@pytest.mark.usefixtures("blas_of_two")
@pytest.mark.parametrize("last", ["this thread", "the other"])
def test_blas_stays_single_threaded_until_the_last_one_is_out(last: str) -> None:
    """Programs of several threads may be in it at once, in any order."""
    enter = threads.single_threaded_blas().__enter__
    leave = partial(threads.single_threaded_blas().__exit__, None, None, None)
    with ThreadPoolExecutor(1) as pool:
        enter()
        pool.submit(enter).result()
        leaves = [leave, lambda: pool.submit(leave).result()]
        for leave_next in leaves if last == "the other" else leaves[::-1]:
            assert all(count == 1 for count in blas())
            leave_next()
    assert all(count == 2 for count in blas())


@pytest.mark.usefixtures("blas_of_two")
@pytest.mark.parametrize("count", [1, 2])
def test_kernels_of_numpy_have_one_thread_each(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Whether a batch is cut into parts or not."""
    found, run = [], numpy_engine.run
    monkeypatch.setattr(numpy_engine, "run", lambda *given: (found.append(blas()), run(*given)))
    program = fb.compile(fb.Map(fb.Scalar() >> fb.Function(ops.tanh)), "numpy", threads=count)
    program.run([[1.0] * 1000] * 20)
    assert len(found) == count
    assert all(count == 1 for counts in found for count in counts)
    assert all(count == 2 for count in blas())


class PerThread:
    """A BLAS library on OpenMP: each thread has a number of its own."""

    threading_layer = "openmp"

    def __init__(self) -> None:
        self.local = threading.local()

    def get_num_threads(self) -> int:
        return getattr(self.local, "count", 8)

    def set_num_threads(self, count: int) -> None:
        self.local.count = count


def test_where_each_thread_has_a_limit_each_one_is_held_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a pool."""
    library = PerThread()
    monkeypatch.setattr(threads, "_libraries", lambda: (library,))

    def inside() -> int:
        with threads.single_threaded_blas():
            return library.get_num_threads()

    with threads.single_threaded_blas(), ThreadPoolExecutor(1) as pool:
        assert threads.in_threads(pool, [inside] * 2) == [1, 1]
        assert pool.submit(library.get_num_threads).result() == 8
    assert library.get_num_threads() == 8


@pytest.mark.parametrize("allowed", [0, 1])
def test_tasks_run_once_where_no_thread_can_be_started(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a thread can be started again: the pool has kept those that it could start none for."""
    begin, started, ran = threading.Thread.start, [], []

    def start(thread: threading.Thread) -> None:
        if len(started) == allowed:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        begin(thread)

    with ThreadPoolExecutor(3) as pool, monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        tasks = [partial(lambda n: ran.append(n) or n, n) for n in range(4)]
        assert threads.in_threads(pool, tasks) == [0, 1, 2, 3]
        patched.undo()
        assert threads.in_threads(pool, [list, tuple]) == [[], ()]
    assert sorted(ran) == [0, 1, 2, 3]


def test_a_handler_that_raises_waits_until_no_task_runs() -> None:
    """Else a task would write to what the next run reads."""
    ended: list[str] = []

    def interrupting() -> None:
        for _ in range(3):
            time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGUSR1)

    def raises(*_: object) -> None:
        raise TimeoutError

    def first() -> None:
        assert begun.wait(10)

    def slow() -> None:
        begun.set()
        sender.start()
        sender.join()
        time.sleep(0.2)
        ended.append("slow")

    former = signal.signal(signal.SIGUSR1, raises)
    begun, sender = threading.Event(), threading.Thread(target=interrupting)
    try:
        with ThreadPoolExecutor(2) as pool:
            with pytest.raises(TimeoutError):
                threads.in_threads(pool, [first, slow])
            assert ended
    finally:
        signal.signal(signal.SIGUSR1, former)


@pytest.mark.parametrize("backend", ["numpy", *LLVM])
def test_a_program_runs_where_no_thread_can_be_started(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "CALLS_PER_PART", 1)
    monkeypatch.setattr(threads, "MULTIPLICATIONS_PER_PART", 1)
    block = fb.Map(fb.Vector(2) >> fb.Linear(300)) >> fb.Sum() >> fb.Linear(300)
    batch = [[[1.0, 2.0]] * 4] * 8
    program = fb.compile(block, backend, threads=3)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        alone = program.run(batch)
    for one, other in zip(alone, program.run(batch), strict=True):
        np.testing.assert_array_equal(one, other)


def test_in_threads_keeps_order_and_raises_the_first_error() -> None:
    """Results come in the order of tasks; an error comes after all tasks have ended."""
    ended: list[int] = []

    def task(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        ended.append(number)
        return number

    with ThreadPoolExecutor(2) as pool:
        assert threads.in_threads(pool, [lambda n=n: task(n) for n in (0, 2, 3)]) == [0, 2, 3]
        ended.clear()
        with pytest.raises(ValueError, match="1"):
            threads.in_threads(pool, [lambda n=n: task(n) for n in (0, 1, 2)])
        assert sorted(ended) == [0, 2]


def test_a_runner_goes_on_after_a_handler_of_signals_raised_where_its_lock_is_taken():
    """On CPython 3.14 one may raise when the lock is taken and nothing gives it back."""

    class Torn:
        def __init__(self, lock):
            self.lock, self.raises = lock, True

        def __enter__(self):
            self.lock.acquire()
            if self.raises:
                self.raises = False
                raise TimeoutError

        def __exit__(self, *error):
            self.lock.release()

    loss = fb.Function(fb.ops.sum) >> fb.Loss()
    block = fb.Vector(2) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    program = fb.compile(block, "numpy", threads=1)
    for owner, run in (
        (program._variants, program.run),
        (program._runner, program.value_and_grad),
        (program._ready.derivatives, lambda xs: program.jvp(xs, {})),
    ):
        assert owner._lock.acquire(blocking=False)  # or the next run would wait for good
        assert owner._lock.acquire(blocking=False)
        owner._lock.release()
        owner._lock.release()
        owner._lock = Torn(owner._lock)
        with pytest.raises(TimeoutError):
            run([[1, 2]])
        assert run([[1, 2]]) is not None
    assert program.run([[1, 2]])[0].tolist() == [1, 2]


def test_a_run_within_a_run_of_the_same_program_is_refused(monkeypatch):
    program = fb.compile(fb.Vector(2), "numpy", threads=1)
    forward = program._runner._forward

    def interrupted(*given):
        program.run([[3, 4]])
        return forward(*given)

    with monkeypatch.context() as patch:
        patch.setattr(program._runner, "_forward", interrupted)
        with pytest.raises(
            BackendError, match="Program: expected one run after the other, found one within another"
        ):
            program.run([[1, 2]])
    assert program.run([[1, 2]])[0].tolist() == [1, 2]
    derivatives = program._ready.derivatives
    with monkeypatch.context() as patch:
        patch.setattr(derivatives, "_assign", lambda tangents: derivatives.jvp([], tangents, 0))
        with pytest.raises(BackendError, match="found one within another"):
            program.jvp([[1, 2]], {})
