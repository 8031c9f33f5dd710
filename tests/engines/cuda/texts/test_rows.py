"""Rows looked up by id, on sequences, drawn, and checked."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.static import ops
from foldbatch.static.graph import Graph, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.ops.random import random_bits
from foldbatch.static.places import Place
from foldbatch.static.routines import ON_SEQUENCES
from foldbatch.static.statements import Binding, Routine, Slot, Statement
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import by_cuda, kernel_of_routine, prepare, together  # noqa: F401 - a fixture
from tests.engines.numpy.launching import At, Batch
from tests.engines.numpy.test_text import (  # noqa: F401 - the same tests
    test_an_id_of_a_sequence_or_of_all_rows_is_that_of_a_call,
)
from tests.static.run_kernel import Rows, interpret, random_rows, run_graph

pytestmark = needs_compiler
M = ragged()
WHOLE = [name for name in sorted(ON_SEQUENCES) if name not in ("repeat", "segment_position")]


def on_sequences() -> Graph:
    """Return a graph of all ops on sequences, of rows that lie side by side and with gaps."""
    x = input_node(TensorType((3, 2), "float64"), M)
    turned = ops.transpose(x)
    nodes = [apply(name, y) for name in WHOLE for y in (x, turned)]
    return Graph((x,), (*nodes, apply("segment_position", x)))


def drawn(dtype: str) -> Graph:
    keys = input_node(TensorType((), "int64"))
    return Graph((keys,), (apply("random", keys, site=7, shape=(2, 3), dtype=dtype),))


def table(dtype: str) -> Graph:
    ids = input_node(TensorType((2,), "int64"))
    rows = constant(np.arange(20).reshape(5, 2, 2).astype(dtype))
    return Graph((ids,), (apply("gather", rows, ids), apply("gather", ops.transpose(rows, (0, 2, 1)), ids)))


GRAPHS = [
    on_sequences(),
    *(drawn(dtype) for dtype in ("float32", "float64")),
    table("float32"),
    table("bool"),
]


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    prepare([(graph, ()) for graph in GRAPHS])
    together().prepare([kernel_of_routine(CHECK)])


def test_sequences_of_any_length() -> None:
    """Empty ones too, level by level; a NaN is the greatest, and the first of the greatest is the one."""
    graph = GRAPHS[0]
    rows = random_rows(np.random.default_rng(0), graph, 5, lengths=[0, 3, 1, 0, 70])
    rows.values[0][1, 0] = np.nan
    rows.values[0][2, 1] = rows.values[0][1, 1]
    rows.values[0][40] = -np.inf
    expected = interpret(graph, rows)
    for levels in ([(0, 5)], [(0, 1), (1, 3), (3, 5)], [(4, 5), (0, 4)]):
        for found, right in zip(run_graph(graph, rows, levels=levels), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_random_numbers_are_those_of_the_keys(dtype: str) -> None:
    graph = GRAPHS[1] if dtype == "float32" else GRAPHS[2]
    keys = np.array([1, -5, 2**62])
    found = run_graph(graph, Rows(3, (keys,), {}))[0]
    right = random_bits(keys, 7, (2, 3)) * 2.0**-24
    np.testing.assert_array_equal(found, right.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_rows_are_looked_up_and_ids_out_of_range_read_no_other_memory(dtype: str) -> None:
    """What checks ids may be another kernel."""
    graph = GRAPHS[3] if dtype == "float32" else GRAPHS[4]
    whole = graph.outputs[0].inputs[0].attrs["value"]
    ids = np.array([[4, 0], [2, 2]])
    plain, turned = run_graph(graph, Rows(2, (ids,), {}))
    np.testing.assert_array_equal(plain, whole[ids])
    np.testing.assert_array_equal(turned, whole.transpose(0, 2, 1)[ids])


CHECK = Routine(
    "check",
    (
        Slot(Binding("feed", 0), TensorType((2,), "int32"), CALL),
        Slot(Binding("parameter", None), TensorType((), "int32"), UNBATCHED),
    ),
    (Statement("check_range", CALL, (Place(0, CALL, 2, 0, (2,), (1,)),), None, {"size": 3}),),
    (),
)


@pytest.mark.parametrize("levels", [[(0, 3)], [(0, 1), (1, 3)], [(2, 3), (0, 2)]])
def test_one_id_out_of_range_is_told_with_its_call(levels: list[tuple[int, int]]) -> None:
    """Whichever a thread meets first; ids in range are not."""
    routine = Routine("check", CHECK.slots[:1], CHECK.statements, ())
    Batch({("feed", 0): At(np.array([[0, 2]] * 3, np.int32))}).run(routine, levels)
    for bad, (call, place) in [(3, (1, 1)), (-1, (2, 0)), (2**31 - 1, (0, 1))]:
        ids = np.zeros((3, 2), np.int32)
        ids[call, place] = bad
        with pytest.raises(IndexError) as error:
            Batch({("feed", 0): At(ids)}).run(routine, levels)
        assert error.value.args[:3] == (call, bad, 3)


def test_rows_are_repeated_for_elements() -> None:
    x = input_node(TensorType((2,), "int64"))
    graph = Graph((x, input_node(TensorType((), "bool"), M)), (apply("repeat", x, axis=M),))
    rows = random_rows(np.random.default_rng(0), graph, 3, lengths=[2, 0, 3])
    np.testing.assert_array_equal(run_graph(graph, rows)[0], interpret(graph, rows)[0])
