"""A simulated card takes its time, and so do steps that wait for it."""

from itertools import cycle
from typing import Any

import foldbatch as fb
from benchmarks.gpu import nothing
from benchmarks.gpu.stream import Clock, simulated, times
from benchmarks.workers import model
from benchmarks.workload import random_trees, words_of
from foldbatch.engines.cuda.captured import FIRST_LEARNED

MS = 20.0  # of a graph: much longer than the host needs


def test_steps_in_a_stream_take_what_the_card_takes() -> None:
    trees = random_trees(4)
    with simulated(MS / 1e3):
        backend: Any = nothing.NAME
        program = fb.compile(model(words_of(trees)), backend, launch="captured")
        wall, cpu = times(program, cycle([program.plan(trees)]), len(trees), FIRST_LEARNED)
    assert wall >= MS
    assert cpu < wall  # who waits, sleeps


def test_a_graph_begins_when_the_one_before_ends() -> None:
    clock = Clock(1000.0)
    clock.launch()
    first = clock.end
    clock.launch()
    assert clock.end == first + 1000.0
