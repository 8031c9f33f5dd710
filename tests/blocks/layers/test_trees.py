"""The tree cells are the equations of Tai, Socher and Manning 2015, node by node, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops

SIZE, WIDTH = 2, 3
FLOAT = "float64"
STATE = ([SIZE, FLOAT], [SIZE, FLOAT])
Array = np.ndarray
Weights = Mapping[str, Array]
Node = dict[str, Any]  # perhaps an "x", and "kids": nodes, or None where a child is missing


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gate(weights: Weights, k: int) -> tuple[Array, Array]:
    """W and b of a gate: 0 is u, 1 is i, 2 is o, 3 is f. Without x in the data there is no W."""
    part = slice(k * SIZE, (k + 1) * SIZE)
    weight = weights.get("weight", np.zeros((WIDTH, 4 * SIZE)))
    return weight[:, part].T, weights["bias"][part]


def nary(weights: Weights, arity: int, node: Node) -> tuple[Array, Array]:
    """The N-ary Tree-LSTM, equations 9 to 14; a missing child, or a leaf's, is a state of zeros."""
    x = np.array(node.get("x", [0.0] * WIDTH))
    none = np.zeros(SIZE)
    kids = [*node["kids"], *[None] * (arity - len(node["kids"]))]
    states = [(none, none) if kid is None else nary(weights, arity, kid) for kid in kids]
    h = [h for h, _ in states]
    c = [c for _, c in states]
    recurrent = weights.get("recurrent", np.zeros((arity * SIZE, (3 + arity) * SIZE)))

    def U(k: int, child: int) -> Array:
        return recurrent[child * SIZE : (child + 1) * SIZE, k * SIZE : (k + 1) * SIZE].T

    (W_u, b_u), (W_i, b_i), (W_o, b_o), (W_f, b_f) = (gate(weights, k) for k in range(4))
    every = range(arity)
    i = sigmoid(W_i @ x + sum(U(1, m) @ h[m] for m in every) + b_i)  # 9
    f = [sigmoid(W_f @ x + sum(U(3 + k, m) @ h[m] for m in every) + b_f) for k in every]  # 10
    o = sigmoid(W_o @ x + sum(U(2, m) @ h[m] for m in every) + b_o)  # 11
    u = np.tanh(W_u @ x + sum(U(0, m) @ h[m] for m in every) + b_u)  # 12
    c_j = i * u + sum(f[k] * c[k] for k in every)  # 13
    h_j = o * np.tanh(c_j)  # 14
    return h_j, c_j


def child_sum(weights: Weights, node: Node) -> tuple[Array, Array]:
    """The child-sum Tree-LSTM, equations 2 to 8."""
    x = np.array(node.get("x", [0.0] * WIDTH))
    states = [child_sum(weights, kid) for kid in node["kids"]]
    recurrent = weights.get("recurrent", np.zeros((SIZE, 3 * SIZE)))
    U_u, U_i, U_o = (recurrent[:, k * SIZE : (k + 1) * SIZE].T for k in range(3))
    U_f = weights.get("recurrent_forget", np.zeros((SIZE, SIZE))).T
    (W_u, b_u), (W_i, b_i), (W_o, b_o), (W_f, b_f) = (gate(weights, k) for k in range(4))
    h = sum((h_k for h_k, _ in states), np.zeros(SIZE))  # 2
    i = sigmoid(W_i @ x + U_i @ h + b_i)  # 3
    f = [sigmoid(W_f @ x + U_f @ h_k + b_f) for h_k, _ in states]  # 4
    o = sigmoid(W_o @ x + U_o @ h + b_o)  # 5
    u = np.tanh(W_u @ x + U_u @ h + b_u)  # 6
    c_j = i * u + sum((f_k * c_k for f_k, (_, c_k) in zip(f, states, strict=True)), np.zeros(SIZE))  # 7
    h_j = o * np.tanh(c_j)  # 8
    return h_j, c_j


def presence(node: Node) -> tuple[bool, ...]:
    """What a node has: an x, and which children."""
    return ("x" in node, *(kid is not None for kid in node["kids"]))


def nary_model(arity: int, shapes: set[tuple[bool, ...]]) -> fb.Block:
    """A model with a case for every shape of node that the data has."""
    cell = fb.TreeLSTM(SIZE, arity)
    tree = fb.ForwardDeclaration(output_type=STATE, name="tree")

    def case(has_x: bool, *kids: bool) -> fb.Block:
        x = fb.GetItem("x") >> fb.Vector(WIDTH, FLOAT) if has_x else fb.Void()
        states = [fb.GetItem(k) >> tree() if kid else fb.Void() for k, kid in enumerate(kids)]
        return fb.AllOf(x, fb.GetItem("kids") >> fb.AllOf(*states)) >> cell

    tree.resolve_to(fb.OneOf(presence, {shape: case(*shape) for shape in sorted(shapes)}))
    return tree()


def child_sum_model() -> fb.Block:
    cell = fb.ChildSumTreeLSTM(SIZE)
    tree = fb.ForwardDeclaration(output_type=STATE, name="tree")
    kids = fb.GetItem("kids") >> fb.Map(tree())
    with_x = fb.AllOf(fb.GetItem("x") >> fb.Vector(WIDTH, FLOAT), kids) >> cell
    tree.resolve_to(fb.OneOf(lambda node: "x" in node, {True: with_x, False: fb.AllOf(fb.Void(), kids) >> cell}))
    return tree()


def random_tree(rng: np.random.Generator, arity: int, depth: int, *, missing: bool, inner_x: bool) -> Node:
    """A tree whose leaves have an x, its inner nodes perhaps, with children perhaps missing."""
    kids: list[Node | None] = []
    if depth:
        kids = [random_tree(rng, arity, depth - 1 - rng.integers(2) * (depth > 1), missing=missing, inner_x=inner_x)]
        for _ in range(arity - 1):
            gone = missing and rng.random() < 0.4
            kids.append(None if gone else random_tree(rng, arity, int(rng.integers(depth)), missing=missing, inner_x=inner_x))
        rng.shuffle(kids)
    node: Node = {"kids": kids}
    if not kids or (inner_x and rng.random() < 0.7):
        node["x"] = rng.normal(size=WIDTH).tolist()
    return node


def shapes_in(node: Node) -> set[tuple[bool, ...]]:
    return {presence(node)}.union(*(shapes_in(kid) for kid in node["kids"] if kid is not None))


def check(model: fb.Block, reference: Callable[[Weights, Node], tuple[Array, Array]], trees: list[Node]) -> None:
    """Compare states, and the gradients of a random projection of them, element by element."""
    rng = np.random.default_rng(1)
    p, q = rng.normal(size=(2, SIZE))
    loss = fb.Function(lambda h, c: ops.sum(h * p) + ops.sum(c * q)) >> fb.Loss()
    program = fb.compile(model >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0), debug=True)
    for array in program.params.values():
        array[...] = rng.normal(0, 0.7, array.shape)
    weights = {name.split(".")[1]: array for name, array in program.params.items()}

    for (h, c), tree in zip(program.run(trees), trees, strict=True):
        h_right, c_right = reference(weights, tree)
        np.testing.assert_allclose(h, h_right, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(c, c_right, rtol=1e-12, atol=1e-13)

    def total() -> float:
        return sum(float(h @ p + c @ q) for h, c in (reference(weights, tree) for tree in trees))

    value, gradients = program.value_and_grad(trees)
    assert value == pytest.approx(total(), rel=1e-12)
    step = 1e-6
    for name, array in program.params.items():
        found = gradients[name]
        for at in np.ndindex(array.shape):
            old = array[at]
            array[at] = old + step
            up = total()
            array[at] = old - step
            down = total()
            array[at] = old
            assert found[at] == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-7), (name, at)


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("inner_x", [False, True])
def test_tree_lstm_is_equations_9_to_14(arity, missing, inner_x):
    rng = np.random.default_rng([arity, missing, inner_x])
    trees = [random_tree(rng, arity, depth, missing=missing and arity > 1, inner_x=inner_x) for depth in (0, 1, 2, 3)]
    shapes = set().union(*map(shapes_in, trees))
    check(nary_model(arity, shapes), lambda weights, tree: nary(weights, arity, tree), trees)


def test_a_unary_node_has_the_missing_child_at_either_place():
    leaf = {"x": [0.5, -1.0, 2.0], "kids": []}
    trees = [{"kids": [leaf, None]}, {"kids": [None, leaf]}, {"x": [1.0, 0.0, -1.0], "kids": [None, None]}]
    check(nary_model(2, set().union(*map(shapes_in, trees))), lambda weights, tree: nary(weights, 2, tree), trees)


def test_fewer_children_than_the_arity_leave_the_last_places_empty():
    cell = fb.TreeLSTM(SIZE, 3)
    leaf = fb.GetItem("x") >> fb.Vector(WIDTH, FLOAT) >> fb.AllOf(fb.Identity(), fb.AllOf()) >> cell
    one = fb.AllOf(fb.Void(), fb.GetItem("kids") >> fb.Record((leaf,))) >> cell
    tree = {"kids": [{"x": [1.0, -2.0, 0.5], "kids": []}]}
    check(one, lambda weights, tree: nary(weights, 3, tree), [tree])


@pytest.mark.parametrize("inner_x", [False, True])
def test_child_sum_tree_lstm_is_equations_2_to_8(inner_x):
    rng = np.random.default_rng(inner_x)
    trees = [random_tree(rng, arity, depth, missing=False, inner_x=inner_x) for arity, depth in [(1, 0), (1, 2), (4, 1), (3, 3)]]
    check(child_sum_model(), child_sum, trees)


def test_child_sum_of_an_empty_sequence_is_that_of_a_leaf():
    x = [0.5, -1.0, 2.0]
    check(child_sum_model(), child_sum, [{"x": x, "kids": []}, {"x": x, "kids": [{"x": x, "kids": []}]}, {"kids": []}])


def test_child_sum_takes_a_tuple_of_states_too():
    cell = fb.ChildSumTreeLSTM(SIZE)
    x = fb.GetItem("x") >> fb.Vector(WIDTH, FLOAT)
    leaf, other = fb.AllOf(x, fb.Void()) >> cell, fb.AllOf(x, fb.AllOf()) >> cell
    root = fb.AllOf(fb.Void(), fb.GetItem("kids") >> fb.Record((leaf, other, leaf))) >> cell
    kids = [{"x": [float(k), 1.0, -1.0], "kids": []} for k in range(3)]
    check(root, child_sum, [{"kids": kids}])


def test_the_order_of_children_is_nothing_to_child_sum():
    program = fb.compile(child_sum_model())
    kids = [{"x": [float(k), 1.0, -1.0], "kids": []} for k in range(3)]
    results = program.run([{"x": [0.0, 0.0, 0.0], "kids": list(order)} for order in itertools.permutations(kids)])
    for h, c in results:
        np.testing.assert_allclose(h, results[0][0], rtol=1e-12)
        np.testing.assert_allclose(c, results[0][1], rtol=1e-12)


@pytest.mark.parametrize("arity", [2, 3])
def test_tree_lstm_has_these_parameters(arity):
    shapes = {(True,), (True, *[True] * arity)}
    program = fb.compile(nary_model(arity, shapes))
    assert {name: array.shape for name, array in program.params.items()} == {
        "tree_lstm.weight": (WIDTH, 4 * SIZE),
        "tree_lstm.bias": (4 * SIZE,),
        "tree_lstm.recurrent": (arity * SIZE, (3 + arity) * SIZE),
    }
    assert program.params["tree_lstm.bias"].tolist() == [0.0] * 3 * SIZE + [1.0] * SIZE


def test_child_sum_tree_lstm_has_these_parameters():
    program = fb.compile(child_sum_model())
    assert {name: array.shape for name, array in program.params.items()} == {
        "child_sum_tree_lstm.weight": (WIDTH, 4 * SIZE),
        "child_sum_tree_lstm.bias": (4 * SIZE,),
        "child_sum_tree_lstm.recurrent": (SIZE, 3 * SIZE),
        "child_sum_tree_lstm.recurrent_forget": (SIZE, SIZE),
    }
    assert program.params["child_sum_tree_lstm.bias"].tolist() == [0.0] * 3 * SIZE + [1.0] * SIZE


def test_a_cell_without_x_has_no_weight_for_it():
    program = fb.compile(nary_model(2, {(False, True, True), (True,)}))
    assert sorted(program.params) == ["tree_lstm.bias", "tree_lstm.recurrent", "tree_lstm.weight"]
    leaf = fb.AllOf(fb.Vector(SIZE, FLOAT), fb.Vector(SIZE, FLOAT))
    only = fb.AllOf(fb.Void(), fb.AllOf(leaf, leaf)) >> fb.TreeLSTM(SIZE)
    assert sorted(fb.compile(only).params) == ["tree_lstm.bias", "tree_lstm.recurrent"]


def test_the_cells_print_as_they_are_written():
    assert repr(fb.TreeLSTM(150)) == "TreeLSTM(150, arity=2)"
    assert repr(fb.ChildSumTreeLSTM(150)) == "ChildSumTreeLSTM(150)"
