"""What becomes one kernel and what does not; and kernels on real threads compute what one thread computes."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain

import numpy as np
import pytest

from foldbatch.engines.cuda import kernels
from foldbatch.engines.cuda.kernels import BLOCK, LARGE, SUMMED, WIDE, Kernel
from foldbatch.static import ops
from foldbatch.static.graph import INPUT, Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Result, Routine, Slot
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.resource_table import kernels as trained
from tests.engines.cuda.resource_table import main_models, model_of
from tests.engines.cuda.walking import FUSED, MANY, Together, by_cuda, kernel_of_routine, prepare, use  # noqa: F401
from tests.ptx.driver import PtxDriver
from tests.ptx.needed import needs_ptx
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph

pytestmark = needs_compiler
V = TensorType((6,))


def kernel(*outputs: Node) -> Kernel:
    """Return the kernel of a graph with these outputs."""
    graph = Graph(tuple(node for node in Graph((), outputs).nodes if node.op is INPUT), outputs)
    return kernel_of_routine(routine_of_graph(graph, (), FUSED))


def test_parts_of_one_axis_are_one_kernel_with_barriers_where_one_reads_what_another_wrote() -> None:
    x = input_node(V)
    made = kernel(ops.softmax(ops.tanh(x) * 2.0))
    (task,) = made.tasks
    assert task.threads == (8, BLOCK // 8)
    assert made.text.count("BARRIER();") == 2
    assert task.axis is CALL


def test_parts_that_share_nothing_need_no_barrier() -> None:
    x = input_node(V)
    made = kernel(ops.max(x, 0), ops.argmax(x, 0), ops.logsumexp(x, 0))
    assert len(made.tasks) == 1
    lines = made.text.splitlines()
    assert lines.count("    BARRIER();") <= 1


def test_rows_along_another_axis_and_sums_of_rows_are_kernels_of_their_own() -> None:
    x, e = input_node(V), input_node(V, ragged())
    made = kernel(ops.tanh(x) * 2.0, ops.tanh(e) * 2.0, apply("sum_batch", ops.exp(x) + x))
    axes = {task.axis.rank for task in made.tasks}
    assert axes == {0, 1, 2}
    assert [task.threads for task in made.tasks if task.columns == 6 and "SHARED" in made.text] == [SUMMED]


def test_products_stand_between_kernels() -> None:
    x = input_node(TensorType((80,)))
    w = constant(np.ones((80, 90), "float32"))
    made = kernel(ops.tanh(ops.sigmoid(x) * 2.0 @ w) * 2.0)
    assert [bool(task.name) for task in made.tasks] == [True, False, True]
    assert made.tasks[1].multiplied is not None


def test_what_has_no_rows_is_done_by_many_blocks_if_it_is_large() -> None:
    """By one where it is small, so that it is a kernel with its neighbours."""
    for size, blocks in [(LARGE, False), (LARGE + 1, True)]:
        x = input_node(TensorType((size,)), UNBATCHED)
        made = kernel(ops.tanh(x) * 2.0)
        assert [bool(task.columns) for task in made.tasks] == [blocks] * len(made.tasks)


def test_threads_share_a_row_by_its_elements() -> None:
    for size, threads in [(1, (1, 256)), (3, (4, 64)), (64, (64, 4)), (1000, (WIDE, 2))]:
        x = input_node(TensorType((size,)))
        assert kernel(ops.exp(x) + x).tasks[-1].threads == threads


def two_adding(first_arena: int, second_arena: int) -> Kernel:
    """Return a kernel with two results that are added to cotangents."""
    slot = Slot(Binding("feed", 0), V, CALL)
    place = Place(0, CALL, 6, 0, (6,), (1,))
    routine = Routine("add", (slot,), (), tuple(Result(Binding("cotangent", i), place) for i in range(2)))
    fields = [
        [0, 0, -1, 1, -1, 0, -1],
        *([arena, -1, 0, 1, -1, 0, -1] for arena in (first_arena, second_arena)),
    ]
    return kernel_of_routine(routine, [0, 0, 1, *chain.from_iterable(fields)])


def test_what_may_meet_in_an_arena_is_added_one_after_the_other() -> None:
    """Results of two arenas are added by one kernel, before the plans."""
    apart, together = two_adding(1, 2), two_adding(1, 1)
    assert [task.planned for task in apart.tasks] == [-1, 1, 2]
    assert [task.planned for task in together.tasks] == [-1, 1, -1, 2]


def test_a_routine_without_work_has_no_kernel() -> None:
    made = kernel_of_routine(Routine("none", (), (), ()))
    assert (made.tasks, made.text) == ((), "")


# -- on any number of threads


def threaded_graph() -> Graph:
    """Return a graph of all that threads do together: sweeps, lines, sums of rows, sequences, checks."""
    m = ragged()
    x, e, ids = input_node(V), input_node(TensorType((3,)), m), input_node(TensorType((), "int32"))
    gates = ops.sigmoid(x * 2.0 + 1.0)
    cell = gates[:3] * ops.tanh(gates[3:])
    soft = ops.softmax(ops.tanh(cell) * 3.0)
    own = e * apply("repeat", soft, axis=m)
    weights = apply("segment_softmax", own)
    looked = ops.gather(constant(np.arange(12, dtype="float32").reshape(4, 3)), ids * 1)
    sums = apply("sum_batch", gates), apply("sum_batch", own), apply("sum_rows", cell, ids, size=4)
    return Graph((x, e, ids), (soft, ops.segment_sum(weights * e), looked, *sums))


@cache
def on_ptx() -> Together:
    return Together(PtxDriver())


@needs_ptx
@pytest.mark.parametrize(("block", "summed"), [(32, (2, 8)), (BLOCK, SUMMED)])
def test_kernels_by_many_threads_compute_what_one_thread_computes(
    block: int, summed: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On any number of them, without a race, without a stray access."""
    graph = threaded_graph()
    rows = random_rows(np.random.default_rng(0), graph, 11, below=4)
    monkeypatch.setattr(kernels, "BLOCK", block)
    monkeypatch.setattr(kernels, "SUMMED", summed)
    use(monkeypatch, FUSED)
    alone = run_graph(graph, rows)
    use(monkeypatch, FUSED, on_ptx())
    for found, one, right in zip(run_graph(graph, rows), alone, interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, one, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-5)


NARROW = re.compile(r"(?<!\(i8\))\b(?:at\d*|order|target|copies|live\d*)\[[^\]]+\][ )]*\* \d")


def test_numbers_of_rows_have_32_bits_but_no_product_of_them() -> None:
    """An arena may have more elements than 32 bits count."""
    texts = [
        made.text for block in main_models().values() for made in trained(model_of(block), training=True)
    ]
    assert NARROW.search("arena[at[r] * 5 + e]") and not NARROW.search("arena[(i8)at[r] * 5 + e]")
    assert any("(i8)at[" in text for text in texts)
    assert [found for text in texts for found in NARROW.findall(text)] == []
