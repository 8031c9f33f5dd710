"""The plain tree network, the tensor network and the tree GRU against their papers' equations.

A tree here is ``(x or None, [children])``; a child may be None, which stands for a missing one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from tests.blocks.layers.checks import check_layer, sigmoid

SIZE, WIDTH = 3, 4
STATE = fb.types.as_type([SIZE, "float64"])
ZERO = np.zeros(SIZE)
X = fb.Vector(WIDTH, "float64")
Parameters = dict[str, np.ndarray]


def random_tree(rng: np.random.Generator, arity: int, *, missing: bool, every_x: bool, depth: int = 0) -> Any:
    count = 0 if depth == 3 else int(rng.integers(0, arity + 1))
    x = rng.normal(size=WIDTH).tolist() if every_x or count == 0 or rng.random() < 0.5 else None
    options = {"missing": missing, "every_x": every_x, "depth": depth + 1}
    children = [random_tree(rng, arity, **options) for _ in range(count)]
    if missing and count > 1 and rng.random() < 0.4:
        children[int(rng.integers(count))] = None
    return x, children


def in_places(cell: fb.Block, arity: int) -> fb.Block:
    """A recursive block over trees whose children have places."""
    tree = fb.ForwardDeclaration(output_type=STATE, name="tree")
    x = {True: X, False: fb.Void()}
    child = {True: tree(), False: fb.Void()}
    keys = [(has_x, *there) for has_x in x for n in range(arity + 1) for there in np.ndindex((2,) * n)]

    def node(has_x: bool, *there: int) -> fb.Block:
        return fb.Record((x[has_x], fb.Record(tuple(child[bool(is_)] for is_ in there)))) >> cell

    cases = {key: node(*key) for key in keys if key[0] or any(key[1:])}
    tree.resolve_to(fb.OneOf(lambda t: (t[0] is not None, *(int(c is not None) for c in t[1])), cases))
    return tree()


def network(node: Any, p: Parameters, arity: int, kind: str = "tree_rnn") -> np.ndarray:
    """One node of a TreeRNN, or of an RNTN, after its children."""
    x, children = node
    states = [ZERO if child is None else network(child, p, arity, kind) for child in children]
    z = np.concatenate(states + [ZERO] * (arity - len(states)))
    total = z @ p[f"{kind}.recurrent"] + p[f"{kind}.bias"]
    if x is not None:
        total = total + np.asarray(x) @ p[f"{kind}.weight"]
    if kind == "rntn":  # one bilinear form for each element: z' V[:, :, k] z
        total = total + [z @ p["rntn.tensor"][:, :, k] @ z for k in range(SIZE)]
    return np.tanh(total)


@pytest.mark.parametrize("arity", [1, 2, 3])
def test_a_tree_rnn_is_one_affine_map_of_x_and_its_children(arity: int) -> None:
    rng = np.random.default_rng(arity)
    trees = [random_tree(rng, arity, missing=True, every_x=False) for _ in range(12)]
    check_layer(in_places(fb.blocks.TreeRNN(SIZE, arity), arity), lambda t, p: network(t, p, arity), trees)


def test_an_rntn_is_a_tree_rnn_with_a_bilinear_form_for_each_element() -> None:
    rng = np.random.default_rng(5)
    trees = [random_tree(rng, 2, missing=True, every_x=False) for _ in range(12)]
    check_layer(in_places(fb.blocks.RNTN(SIZE), 2), lambda t, p: network(t, p, 2, "rntn"), trees)


def gru(node: Any, p: Parameters) -> np.ndarray:
    """One node of a TreeGRU, after its children."""
    x, children = node
    states = [gru(child, p) for child in children if child is not None]
    total = sum(states, ZERO)
    w_u, w_z, w_r = np.split(p["tree_gru.weight"], 3, axis=1)
    b_u, b_z, b_r = np.split(p["tree_gru.bias"], 3)
    u_u, u_z, u_r = np.split(p.get("tree_gru.recurrent", np.zeros((SIZE, 3 * SIZE))), 3, axis=1)
    x = np.zeros(WIDTH) if x is None else np.asarray(x)
    z = sigmoid(x @ w_z + total @ u_z + b_z)
    r = [sigmoid(x @ w_r + h @ u_r + b_r) for h in states]
    kept = sum((r_k * h for r_k, h in zip(r, states, strict=True)), ZERO)
    candidate = np.tanh(x @ w_u + kept @ u_u + b_u)
    return (1 - z) * total + z * candidate


def test_a_tree_gru_takes_any_number_of_children_in_one_kind_of_call() -> None:
    rng = np.random.default_rng(7)
    tree = fb.ForwardDeclaration(output_type=STATE, name="tree")
    x = fb.GetItem(0) >> X
    tree.resolve_to(fb.AllOf(x, fb.GetItem(1) >> fb.Map(tree())) >> fb.blocks.TreeGRU(SIZE))
    trees = [random_tree(rng, 4, missing=False, every_x=True) for _ in range(8)]
    check_layer(tree(), gru, trees)
