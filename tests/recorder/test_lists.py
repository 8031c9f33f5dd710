"""Both doors note calls in lists of one form, and several threads may trace at once."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.recorder.lists import CallLists

linear = fb.Linear(3, name="linear")
word = fb.Scalar("int32") >> fb.Embedding(5, 3, name="word")


@fb.cell
def joined(states: list) -> Any:
    return fb.ops.tanh(linear(fb.ops.segment_sum(states)))


def walk(example: Any) -> Any:
    return word(example) if isinstance(example, int) else joined([walk(part) for part in example])


def block() -> fb.Block:
    state = fb.ForwardDeclaration(output_type=3, name="state")
    inner = fb.Map(state()) >> fb.Sum() >> linear >> fb.Function(fb.ops.tanh)
    state.resolve_to(fb.OneOf(lambda example: isinstance(example, int), {True: word, False: inner}))
    return state()


EXAMPLES = [[1, [2, 3]], 4, [[0, 1, 2], [3]], [[[4]], 2]]


@pytest.fixture
def often_switched() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_switched")
def test_both_doors_may_trace_at_once_in_several_threads() -> None:
    programs = [fb.compile(door, "numpy", seed=3, threads=1) for door in (walk, block(), walk, block())]
    batches = [[EXAMPLES[(k + n) % 4] for n in range(6)] for k in range(4)]
    expected = [[np.array(program.run(batch)) for batch in batches] for program in programs]
    wrong, start = list[tuple[int, int]](), threading.Barrier(8)

    def work(place: int, turn: int) -> None:
        start.wait()
        for k in range(12):
            number = (k + turn) % 4
            if not np.array_equal(np.array(programs[place].run(batches[number])), expected[place][number]):
                wrong.append((place, number))

    threads = [threading.Thread(target=work, args=(place, turn)) for place in range(4) for turn in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_walk_and_a_block_append_to_lists_of_one_class() -> None:
    sums = fb.Map(word) >> fb.Sum()
    of_blocks, of_walks = fb.compile(sums, "numpy"), fb.compile(lambda xs: sums(xs), "numpy")
    for program in (of_blocks, of_walks):
        program.run([[1, 2]])
    lowered: Any = of_blocks.lowered
    tracer: Any = of_walks.lowered
    assert {type(lists) for lists in lowered.unused[0][1].lists} == {CallLists}
    assert {type(cell.spare) for cell in tracer.learnt.cells} == {CallLists}


@pytest.mark.parametrize("door", [walk, block()], ids=["walk", "block"])
def test_a_datum_that_no_feed_reads_names_its_example_and_leaves_nothing(door: Any) -> None:
    program = fb.compile(door, "numpy", seed=3)
    before = np.array(program.run(EXAMPLES))
    with pytest.raises(ExampleError, match="example 1"):
        program.run([[1, 2], [3, 7], 2])
    np.testing.assert_array_equal(np.array(program.run(EXAMPLES)), before)
