"""Rows on their way between kernels and arenas, by the tests of NumPy's kernels; and rows that many add to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.cuda.steps import BLOCKS
from foldbatch.static.op import CALL
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Result, Routine, Slot
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import by_cuda, kernel_of_routine, together  # noqa: F401 - a fixture
from tests.engines.numpy.launching import At, Batch, poisoned
from tests.engines.numpy.test_text import (  # noqa: F401 - the same tests
    test_cotangents_of_operands_are_stored_or_added,
    test_cotangents_of_sequences_are_stored_by_their_offsets,
    test_cotangents_of_shared_calls_are_summed,
    test_cotangents_to_the_same_rows_are_added_by_operand,
    test_each_launch_has_its_own_rows,
    test_gradients_are_stored_or_added_up,
    test_losses_metrics_and_gradients_of_data_lie_by_rank,
    test_operands_are_a_part_of_an_arena_or_copies_of_its_rows,
    test_parts_of_a_concatenation_may_stand_where_they_belong,
    test_rows_of_sequences_are_counted_by_their_offsets,
    test_rows_side_by_side_are_one_row_of_the_kernel,
    test_statements_read_parameters_constants_and_what_is_kept_for_the_batch,
    test_values_go_to_the_rows_of_their_readers,
    test_views_are_made_again_where_the_number_of_rows_changes,
)

pytestmark = needs_compiler


def whole(number: int, shape: tuple[int, ...], *, turned: bool = False) -> Place:
    """Return all of a slot of two axes; or with its axes turned round."""
    a, b = shape
    return Place(number, CALL, a * b, 0, (b, a) if turned else shape, (1, b) if turned else (b, 1))


def given_routine(kind: str, shape: tuple[int, int], dtype: str, *, turned: bool) -> Routine:
    """Return a routine that does nothing but bring a feed's rows to an arena."""
    slot = Slot(Binding("feed", 0), TensorType(shape, dtype), CALL)
    return Routine("give", (slot,), (), (Result(Binding(kind, 0), whole(0, shape, turned=turned)),))


GIVEN = [
    (kind, shape, dtype, turned)
    for kind in ("value", "cotangent")
    for shape in ((2, 4), (3, 1))
    for dtype in ("float32", "float64")
    for turned in (False, True)
]


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    for width in (1, 2):
        fields = [0, 0, -1, width, -1, 0, -1]
        together().prepare(
            kernel_of_routine(given_routine(kind, shape, dtype, turned=turned), [0, 0, 1, *fields, *fields])
            for kind, shape, dtype, turned in GIVEN
            if shape[turned] % width == 0
        )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_rows_are_given_to_rows_that_may_repeat(data: st.DataObject) -> None:
    """Written or added, in the order of the calls, from values that lie in any order, some rows side by side."""
    kind, shape, dtype, turned = data.draw(st.sampled_from(GIVEN))
    width = data.draw(st.sampled_from([1, 2])) if kind == "cotangent" and shape[turned] % 2 == 0 else 1
    calls = data.draw(st.integers(0, 5))
    first = data.draw(st.sampled_from([-1, 0, 1]))
    stores = first >= 0 and data.draw(st.booleans())
    if kind == "value":
        rows = data.draw(st.permutations(range(8)))[:calls]
    else:
        rows = data.draw(st.lists(st.integers(0, 11), min_size=calls * width, max_size=calls * width))
    if first >= 0:
        rows = list(range(first, first + calls * width))
    rng = np.random.default_rng(calls)
    values = rng.normal(size=(calls, *shape)).astype(dtype)
    seen = values.transpose(0, 2, 1) if turned else values
    grain = shape[0] * shape[1] // width
    arena = rng.normal(size=(12, grain)).astype(dtype)
    expected = arena.copy()
    parts = seen.reshape(len(rows), grain)
    for row in dict.fromkeys(rows):
        own = [part for at, part in zip(rows, parts, strict=True) if at == row]
        if kind == "value" or stores:
            expected[row] = own[-1]
        else:
            total = np.sum(own, axis=0, dtype="float64").astype(dtype)  # terms first, and then what is there
            expected[row] = expected[row] + total
    end = At(arena, first, rows if first < 0 else None, width, stores=stores)
    routine = given_routine(kind, shape, dtype, turned=turned)
    Batch({("feed", 0): At(values)}, {(kind, 0): end}).run(routine, [(0, calls)])
    np.testing.assert_allclose(arena, expected, rtol=1e-15)


def test_more_rows_than_blocks_are_done_in_turns() -> None:
    """And a level has as many as it has."""
    calls = 3 * BLOCKS * 256
    rows = np.arange(calls, dtype="float32").reshape(calls, 1)
    slot = Slot(Binding("feed", 0), TensorType((1,)), CALL)
    place = Place(0, CALL, 1, 0, (1,), (1,))
    out = poisoned(TensorType((1,)), calls)
    routine = Routine("metric", (slot,), (), (Result(Binding("metric", 0), place),))
    Batch({("feed", 0): At(rows)}, {("metric", 0): At(out)}).run(routine, [(0, calls)])
    np.testing.assert_array_equal(out, rows)


@pytest.mark.parametrize(("width", "loaded"), [(4, "x1 = *(const f4x4*)(d + "), (3, "x1 = ")])
@pytest.mark.parametrize("kind", ["cotangent", "gradient"])
def test_what_is_stored_is_not_read_before(kind: str, width: int, loaded: str) -> None:
    routine = given_routine(kind, (1, width), "float32", turned=False)
    lines = kernel_of_routine(routine, None).text.splitlines()
    (at,) = [number for number, line in enumerate(lines) if loaded in line and "{{" not in line]
    condition = lines[at - 1].strip() if width == 4 else lines[at].partition("x1 = ")[2].partition(" ? ")[0]
    assert condition.removeprefix("if (!").removesuffix(")") == "o[15]"  # STORES of the second binding
