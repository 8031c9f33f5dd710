"""Calls deeper than Python's limit, in a process that has no room for the stack of another thread."""

import sys
import threading

import pytest

import foldbatch as fb
from foldbatch.errors import BackendError

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

    def start(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(2):
        with pytest.raises(BackendError, match=r"^deep calls: expected 1 GiB .* ulimit -v"):
            program.run([DEEP])
    assert sys.getrecursionlimit() == before
    monkeypatch.undo()
    assert program.run([DEEP])[0] == 3000
