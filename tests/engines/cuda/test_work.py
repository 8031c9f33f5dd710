"""What calls do: counted from steps, and by hand."""

from functools import cache

import foldbatch as fb
from foldbatch.engines.bindings import bind
from foldbatch.engines.cuda.control import (
    calls_before,
    calls_of,
    calls_of_losses,
    calls_of_sums,
    calls_of_zeros,
    ops_of,
)
from foldbatch.engines.cuda.kernels import kernels_of
from foldbatch.engines.cuda.packing import pack
from foldbatch.engines.cuda.texts.expressions import TARGET
from foldbatch.engines.cuda.work import operations_of, planned_of, works_of
from foldbatch.engines.launches import launch_tables

HIDDEN = 40
LENGTHS = (3, 1, 2)


@cache
def step():
    """Return the calls of a recurrent network's training step, and what they do; nothing is compiled."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(9, 3))
    block = words >> fb.RNN(fb.GRUCell(HIDDEN)) >> fb.GetItem(1) >> fb.Function(fb.ops.sum) >> fb.Loss()
    program = fb.compile(block, "numpy", policy="by_component", share=None)
    schedule = program.schedule([[1] * length for length in LENGTHS]).schedule
    bound = bind(program.model, TARGET, training=True)
    kernels, tables = kernels_of(bound), launch_tables(bound, schedule)
    ops, packed = ops_of(kernels), pack(bound, kernels, tables, schedule, {})
    calls = [
        *calls_before(ops, bound, tables, schedule),
        *calls_of(ops, packed.forward.steps),
        *calls_of_losses(ops, bound, schedule),
        *calls_of_zeros(ops, bound, packed),
        *calls_of(ops, packed.backward.steps),
        *calls_of_sums(ops, bound, packed),
    ]
    return calls, works_of(ops, calls, kernels, packed.numbers)


def test_products_of_a_recursion_have_the_rows_of_their_levels():
    _, works = step()
    products = [work for work in works if work.is_product and work.where.startswith("forward_step")]
    per_level = {}
    for work in products:
        per_level.setdefault(work.where, set()).add(work.product[0])
    at_least = [sum(length > level for length in LENGTHS) for level in range(max(LENGTHS))]
    assert list(per_level.values()) == [{rows} for rows in at_least]
    assert all(work.product[1] == HIDDEN for work in products)


def test_a_product_moves_its_operands_once_and_multiplies():
    calls, works = step()
    for call, work in zip(calls, works, strict=True):
        assert operations_of(call) == work.operations
        m, k, n, count = work.product
        if work.is_product and work.where.startswith("forward"):
            assert work.operations == 2 * m * k * n * count
            assert work.nbytes in (4 * (m * k + k * n + m * n), 4 * (m * k + k * n + 2 * m * n))


def test_kernels_of_levels_with_more_rows_move_more():
    _, works = step()
    moved = {}
    for work in works:
        if not work.is_product and work.where.startswith("forward_step"):
            moved.setdefault(work.name, []).append((work.rows, work.nbytes))
    assert any(len(levels) == max(LENGTHS) for levels in moved.values())
    for levels in moved.values():
        assert levels == sorted(levels, reverse=True)
        assert all(nbytes >= 4 * HIDDEN * rows for rows, nbytes in levels)


def test_each_level_forward_counts_its_rows_once():
    _, works = step()
    assert planned_of([work for work in works if work.where.startswith("forward_step")]) == sum(LENGTHS)
    assert planned_of([work for work in works if not work.where.startswith("forward")]) == 0


def test_what_runs_around_the_levels_moves_bytes_too():
    _, works = step()
    around = [work for work in works if not work.where]
    assert {work.name.split("_at_")[0] for work in around} >= {"total"}
    assert all(work.nbytes and not work.operations for work in around)
