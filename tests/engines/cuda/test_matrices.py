"""Which statements are products of a library, and where their matrices lie."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.cuda.matrices import FEW, SHORT, Multiplied, multiplied
from foldbatch.static import ops
from foldbatch.static.graph import INPUT, Graph, Node, apply, constant, input_node
from foldbatch.types import TensorType
from tests.static.run_kernel import routine_of_graph

K, N = 70, 20
W = constant(np.ones((K, N), "float32"))


def products(node: Node) -> list[Multiplied]:
    """Return the products of the one statement of a graph that may be some."""
    inputs = tuple(dict.fromkeys(x for x in Graph((), (node,)).nodes if x.op is INPUT))
    routine = routine_of_graph(Graph(inputs, (node,)))
    (statement,) = [s for s in routine.statements if s.op in ("linear", "matmul", "sum_outer")]
    return multiplied(routine, statement)


def test_rows_of_a_level_are_rows_of_one_matrix() -> None:
    """Together with the axes before the last, where they follow each other."""
    x = input_node(TensorType((3, K)))
    (made,) = products(x @ W)
    assert (made.by, made.m, made.n, made.k, made.count) == ("m", 3, N, K, 1)
    assert (made.a.lead, made.b.lead, made.c.lead) == (K, N, N)
    assert not made.a.across | made.b.across | made.c.across


def test_axes_with_gaps_are_products_side_by_side() -> None:
    """Each of all rows of the level."""
    x = input_node(TensorType((4, K)))
    (made,) = products(x[1:3] @ W)
    assert (made.by, made.m, made.count) == ("m", 1, 2)
    assert (made.a.offset, made.a.lead, made.c.lead, made.steps) == (K, 4 * K, 2 * N, (K, 0, N))


def test_a_turned_weight_lies_across() -> None:
    """As the gradient of an operand multiplies it."""
    g = input_node(TensorType((N,)))
    (made,) = products(g @ ops.transpose(constant(np.ones((2 * K, N), "float32"))))
    assert (made.b.across, made.b.lead, made.n, made.k) == (True, N, 2 * K, N)


def test_a_product_of_two_matrices_of_each_row() -> None:
    x, y = input_node(TensorType((2, K))), input_node(TensorType((3, K)))
    (made,) = products(x @ ops.transpose(y))
    assert (made.by, made.m, made.n, made.k) == ("count", 2, 3, K)
    assert made.steps == (2 * K, 3 * K, 6)
    assert made.b.across


def test_a_sum_of_outer_products_is_one_product_over_all_rows() -> None:
    x, g = input_node(TensorType((2, 5))), input_node(TensorType((2, 3)))
    (made,) = products(apply("sum_outer", x, g))
    assert (made.by, made.m, made.n, made.k, made.a.across, made.adds) == ("k", 5, 3, 2, True, False)
    gaps = ops.transpose(input_node(TensorType((3, 2))))
    assert products(apply("sum_outer", x, gaps)) == []  # columns with gaps are for a kernel


def test_several_products_are_added_up() -> None:
    """Where the axes before the last lie apart: the first one stores."""
    x, g = input_node(TensorType((4, 5))), input_node(TensorType((2, 3)))
    made = products(apply("sum_outer", x[1:3], g))
    assert [each.adds for each in made] == [False, True]
    assert [each.a.offset for each in made] == [5, 10]


@pytest.mark.parametrize(("k", "n", "by_library"), [(SHORT, FEW // SHORT, False), (SHORT + 1, 1, True)])
def test_a_small_weight_is_multiplied_by_a_kernel(k: int, n: int, by_library: bool) -> None:
    x = input_node(TensorType((k,)))
    assert bool(products(x @ constant(np.ones((k, n), "float32")))) is by_library


def test_what_no_library_multiplies_is_for_a_kernel() -> None:
    """Columns with gaps; nothing at all."""
    assert products(input_node(TensorType((2 * K,)))[::2] @ W) == []
    assert products(input_node(TensorType((K,))) @ constant(np.ones((K, 0), "float32"))) == []
