"""Calls deeper than Python's limit: without room for a stack, and broken off by handlers of signals."""

import os
import signal
import sys
import time
from unittest.mock import Mock

import pytest

import foldbatch as fb
from foldbatch.errors import BackendError
from foldbatch.system.processes import in_depth
from tests.backends import LLVM

DEEP = 0.0
for _ in range(3000):
    DEEP = (1.0, DEEP)


@fb.cell
def add(x, rest):
    return x + rest


def walk(part):
    return add(part[0], walk(part[1])) if isinstance(part, tuple) else add(part, 0.0)


def block():
    total = fb.ForwardDeclaration(output_type="float32")
    pair = fb.Record((fb.Scalar(), total())) >> fb.Function(fb.ops.add)
    total.resolve_to(fb.OneOf(lambda part: isinstance(part, tuple), {False: fb.Scalar(), True: pair}))
    return total()


@pytest.mark.parametrize("model", [lambda: walk, block])
def test_no_room_for_a_stack_is_told_and_python_keeps_its_limit(model, monkeypatch):
    program, before = fb.compile(model(), "numpy"), sys.getrecursionlimit()

    none = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr("_thread.start_new_thread", none)
    for _ in range(2):
        with pytest.raises(BackendError, match=r"^deep calls: expected 1 GiB .* ulimit -v"):
            program.run([DEEP])
    assert sys.getrecursionlimit() == before
    monkeypatch.undo()
    assert program.run([DEEP])[0] == 3000


@pytest.fixture
def raising():
    """Let a signal raise a TimeoutError."""

    def handler(*_):
        raise TimeoutError

    former = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, former)


@pytest.mark.usefixtures("raising")
def test_a_handler_that_raises_breaks_off_what_runs_deep():
    """Else it would be deeper than Python's limit, which ends the process."""
    turns, before = [0], sys.getrecursionlimit()

    def endless():
        while True:
            turns[0] += 1
            if turns[0] == 1000:
                os.kill(os.getpid(), signal.SIGUSR1)

    with pytest.raises(TimeoutError):
        in_depth(endless, 10**5)
    assert sys.getrecursionlimit() == before
    count = turns[0]
    time.sleep(0.05)
    assert turns[0] == count


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("backend", ["numpy", *LLVM])
def test_a_program_runs_again_after_a_deep_walk_was_broken_off(backend):
    def slow(part):
        if part == "slow":
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.2)
            return 0.0
        return add(part[0], slow(part[1])) if isinstance(part, tuple) else add(part, 0.0)

    program, deep = fb.compile(slow, backend), "slow"
    for _ in range(3000):
        deep = (1.0, deep)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            program.run([deep])
        assert program.run([DEEP, (2.0, 1.0)]) == [3000, 3]
