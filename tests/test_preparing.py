"""Tracing in worker processes: the same traces and the same errors, whatever functions do."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import preparing
from foldbatch.errors import BackendError, BlockValueError, ExampleError
from foldbatch.train import load_prepared, prepare
from foldbatch.workers import in_processes

HERE = os.getpid()

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.timeout(60),  # a worker that waits for a lock waits for ever
]


@pytest.fixture(autouse=True)
def runs(monkeypatch):
    """The numbers of parts that workers were given; parts are small, and the first example is traced here."""
    given: list[int] = []

    def spy(work, parts, processes):
        given.append(parts)
        yield from in_processes(work, parts, processes)

    monkeypatch.setattr(preparing, "in_processes", spy)
    monkeypatch.setattr(preparing, "LARGEST", 5)
    return given


def compiled(function=lambda x: x) -> fb.Program:
    """A program with ids, floats, sequences and labels among its feeds, which reads ids by a function."""
    word = fb.GetItem("id") >> fb.InputTransform(function) >> fb.Scalar("int32") >> fb.Embedding(100, 2)
    words = fb.Map(fb.AllOf(word, fb.GetItem("x") >> fb.Vector(2)) >> fb.Concat()) >> fb.Sum()
    seen = fb.AllOf(fb.GetItem(0) >> words, fb.GetItem(1)) >> fb.Metric("seen")
    counted = fb.GetItem(0) >> fb.InputTransform(len) >> fb.Scalar()
    return fb.compile(fb.AllOf(seen, counted) >> fb.GetItem(1), "numpy")


def examples(count: int) -> list:
    rng = np.random.default_rng(3)
    return [
        ([{"id": int(rng.integers(99)), "x": rng.normal(size=2)} for _ in range(rng.integers(1, 5))], f"{n}")
        for n in range(count)
    ]


def content(prepared) -> list:
    return [preparing._content(example.trace) for example in prepared]


def test_traces_are_those_of_one_process(runs):
    program, batch = compiled(), examples(43)
    expected = content(program.prepare(batch, processes=1))
    assert runs == []
    assert content(program.prepare(batch, processes=2)) == expected
    assert content(program.prepare(iter(batch), processes=3, progress=False)) == expected
    assert runs == [14, 21]
    assert content(program.prepare([], processes=2)) == []
    assert content(program.prepare(batch[:1], processes=2)) == expected[:1]


def test_workers_are_used_where_they_pay(runs, monkeypatch):
    program, batch = compiled(), examples(12)
    program.prepare(batch)
    assert runs == []
    for name, value in {
        "PAYS": 0.0,
        "LOOK": 0.0,
        "available_cores": lambda: 2,
        "forks_safely": lambda: True,
    }.items():
        monkeypatch.setattr(preparing, name, value)
    program.prepare(batch)
    assert len(runs) == 1
    monkeypatch.setattr(preparing, "forks_safely", lambda: False)
    monkeypatch.setattr(preparing, "can_fork", lambda: False)
    program.prepare(batch)
    program.prepare(batch, processes=2)
    assert len(runs) == 1


@pytest.mark.parametrize("bad", [1, 7, 22, 42])
def test_errors_are_those_of_one_process(bad):
    program, batch = compiled(), examples(43)
    batch[bad][0][0]["id"] = "seven"
    batch[42][0][0]["x"] = [1.0]
    raised = []
    for processes in (1, 2):
        with pytest.raises(ExampleError, match=f"at example {bad} ") as error:
            program.prepare(batch, processes=processes)
        raised.append((type(error.value), str(error.value), repr(error.value.__cause__)))
    assert raised[0] == raised[1]


def test_a_function_that_remembers_is_called_here(runs):
    """Each worker would give numbers of its own to what it meets first."""
    numbers: dict[int, int] = {}
    program, batch = compiled(lambda x: numbers.setdefault(x, len(numbers))), examples(43)
    twice = content(program.prepare(batch, processes=2)), content(program.prepare(batch, processes=1))
    assert len(runs) == 1
    assert twice[0] == twice[1]
    assert len(numbers) > 50


def test_objects_of_examples_stay_the_same_objects(runs):
    batch = [(data, [name]) for data, name in examples(12)]
    assert all(label is name for label, (_, name) in zip(seen(compiled(), batch), batch, strict=True))
    assert runs == []  # the first example shows it
    batch = [(data, [name] if name == "9" else name) for data, name in examples(12)]
    assert seen(compiled(), batch)[9] is batch[9][1]
    assert len(runs) == 1


def seen(program: fb.Program, batch: list) -> list:
    prepared = program.prepare(batch, processes=2)
    return [label for example in prepared for columns in example.trace.labels for x in columns for label in x]


def test_a_worker_that_dies_is_one_error():
    program = compiled(lambda x: x if os.getpid() == HERE else os._exit(3))
    with pytest.raises(BackendError, match="worker process: .* exit status 3; give processes=1"):
        program.prepare(examples(12), processes=2)


def test_trees_are_known_afterwards(runs):
    read: list[str] = []
    leaf = (
        fb.GetItem("token") >> fb.InputTransform(lambda word: read.append(word) or len(word)) >> fb.Scalar()
    )
    program = fb.compile(leaf, "numpy")
    trees = [fb.trees.parse_brackets(f"(0 {'x' * n})", labels=int) for n in range(1, 13)]
    program.prepare(trees, processes=2)
    assert len(runs) == 1
    read.clear()
    assert [float(x) for x in program.run(trees)] == list(range(1, 13))
    assert read == []


def test_what_columns_trace_is_not_sent_to_workers(runs):
    leaf = (
        fb.GetItem("token") >> fb.InputTransform(fb.trees.Vocabulary(["x"]).__getitem__) >> fb.Scalar("int32")
    )
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: a + b)
    word = leaf >> fb.Embedding(2, 3) >> fb.Function(fb.ops.sum)
    tree.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: word, False: pair}))
    program = fb.compile(tree(), "numpy")
    assert not isinstance(program.lowered.columns, str)
    text = "(0 (0 x) (0 y))"
    for _ in range(5):
        text = f"(0 {text} {text})"
    program.prepare([fb.trees.parse_brackets(text, labels=int) for _ in range(12)], processes=2)
    assert runs == []


def test_a_file_is_written_from_workers(runs, tmp_path):
    program, batch = compiled(), examples(12)
    prepare(program, batch, tmp_path / "a", processes=1)
    prepare(program, batch, tmp_path / "b", processes=2)
    assert len(runs) == 1
    assert content(load_prepared(program, tmp_path / "b")) == content(load_prepared(program, tmp_path / "a"))


@pytest.mark.parametrize("processes", [0, -1, 1.5, True])
def test_processes_are_a_whole_number(processes):
    with pytest.raises(BlockValueError, match="processes: expected a whole number of 1 or more"):
        compiled().prepare([], processes=processes)


def test_a_bar_is_told_of_every_example(monkeypatch):
    class Bar:
        def __init__(self, title, total, *, shown):
            steps.append((title, total, shown))

        def advance(self, count):
            steps.append(count)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            steps.append("end")

    steps: list = []
    monkeypatch.setattr(preparing, "Bar", Bar)
    for processes in (1, 2):
        steps.clear()
        compiled().prepare(examples(23), processes=processes)
        begin, *counts, end = steps
        assert (begin, sum(counts), end) == (("tracing", 23, True), 23, "end")


@contextmanager
def in_thread(work):
    """Call a function again and again in another thread."""
    begun, ended = threading.Event(), threading.Event()

    def repeat():
        while not ended.is_set():
            work()
            begun.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_workers_start_while_other_threads_run_and_trace(runs):
    """Whatever locks these hold, no worker waits for them."""
    block = (
        fb.Map(fb.Vector(2) >> fb.Linear(2)) >> fb.Sum() >> fb.Function(lambda x: fb.ops.sum(x)) >> fb.Loss()
    )
    other = fb.compile(block, "numba" if find_spec("numba") else "numpy", threads=2)
    program, batch = compiled(), examples(43)
    expected = content(program.prepare(batch, processes=1))
    matrix = np.ones((400, 400), np.float32)
    assert (matrix @ matrix).any()  # now BLAS has threads
    with (
        in_thread(lambda: other.value_and_grad([[[1, 2], [3, 4]]] * 20)),
        in_thread(lambda: program.prepare(batch, processes=1)),
    ):
        for _ in range(3):
            assert content(program.prepare(batch, processes=2)) == expected
    assert (matrix @ matrix).any()
    assert len(runs) == 3
