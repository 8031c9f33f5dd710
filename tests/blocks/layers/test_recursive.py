"""Tree networks against the equations of their papers. A tree is ``(x or None, [children])``; a child may be None, which is missing."""

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


@pytest.mark.parametrize("arity", [1, 2])
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


SIZE, WIDTH = 3, 4
State = tuple[np.ndarray, np.ndarray]


def n_ary(node: Any, p: Parameters, arity: int) -> State:
    """One node of an N-ary Tree-LSTM, after its children."""
    x, children = node
    states = [None if child is None else n_ary(child, p, arity) for child in children]
    states += [None] * (arity - len(states))
    zero = np.zeros(SIZE)
    h = [zero if s is None else s[0] for s in states]
    c = [zero if s is None else s[1] for s in states]
    w_u, w_i, w_o, w_f = np.split(p["weight"], 4, axis=1) if x is not None else [np.zeros((WIDTH, SIZE))] * 4
    b_u, b_i, b_o, b_f = np.split(p["bias"], 4)
    x = np.zeros(WIDTH) if x is None else np.array(x)

    def from_children(gate: int) -> np.ndarray:
        """sum_l U_l h_l for one gate: u, i, o are 0, 1, 2 and f_k is 3 + k."""
        if all(s is None for s in states):
            return zero
        columns = slice(gate * SIZE, (gate + 1) * SIZE)
        blocks = [p["recurrent"][k * SIZE : (k + 1) * SIZE, columns] for k in range(arity)]
        return sum(h_l @ u_l for h_l, u_l in zip(h, blocks, strict=True))

    i = sigmoid(x @ w_i + from_children(1) + b_i)  # (9)
    f = [sigmoid(x @ w_f + from_children(3 + k) + b_f) for k in range(arity)]  # (10)
    o = sigmoid(x @ w_o + from_children(2) + b_o)  # (11)
    u = np.tanh(x @ w_u + from_children(0) + b_u)  # (12)
    cell = i * u + sum(f_k * c_k for f_k, c_k in zip(f, c, strict=True))  # (13)
    return o * np.tanh(cell), cell  # (14)


def test_a_missing_child_counts_as_a_state_of_zeros() -> None:
    """The right child alone uses the right child's weights."""
    cell = fb.TreeLSTM(SIZE, name="cell")
    leaf = fb.Record((fb.Vector(WIDTH, "float64"), fb.Record(()))) >> cell
    block = fb.AllOf(fb.Void(), fb.AllOf(fb.Void(), fb.GetItem(0) >> leaf)) >> cell
    program = fb.compile(block)
    parameters = {name.partition(".")[2]: value for name, value in program.params.items()}
    x = [1.0, -1.0, 0.5, 2.0]
    expected = n_ary((None, [None, (x, [])]), parameters, 2)
    np.testing.assert_allclose(program.run([[(x, [])]])[0], expected, rtol=1e-12)


@pytest.mark.parametrize("kind", [fb.TreeLSTM, fb.ChildSumTreeLSTM])
@pytest.mark.parametrize("leaves", [1, 2])
def test_recurrent_dropout_drops_candidates_and_keeps_memory(kind: Any, leaves: int) -> None:
    """A leaf's x opens the input gate, which is shut in a node above: what that remembers is of its leaves."""
    n, rate, wide = 401, 0.25, 40.0  # 0.75 n is no whole number: nothing dropped is seen
    cell = kind(n, dropout=rate)
    state = fb.AllOf(fb.Vector(WIDTH), fb.Record(())) >> cell
    if leaves == 2:
        state = fb.AllOf(fb.Void(), fb.Record((state, state))) >> cell
    memory = state >> fb.GetItem(1) >> fb.Function(fb.ops.sum)
    program = fb.compile(memory >> fb.AllOf(fb.Identity(), fb.Loss()), "numpy")
    x = np.ones(WIDTH)
    example = [x] if leaves == 1 else [(x, x)]
    program.run(example)  # the shapes of parameters are known
    for name, value in program.params.items():
        kept = np.zeros_like(value)
        if name.endswith("bias"):
            kept[:] = np.repeat([1.0, -wide, wide, wide], n)  # u, i, o, f
        if name.endswith("weight"):
            kept[:, n : 2 * n] = 2 * wide / WIDTH
        program.params[name] = kept
    u = np.tanh(1.0)
    assert program.run(example)[0][0] == pytest.approx(leaves * n * u, rel=1e-5)  # inference drops nothing
    count = program.value_and_grad(example)[0] * (1 - rate) / u  # of elements that stayed
    assert count == pytest.approx(round(count), abs=1e-2)
    assert 0.65 < count / (leaves * n) < 0.85


@pytest.mark.parametrize("kind", [fb.TreeLSTM, fb.ChildSumTreeLSTM])
@pytest.mark.parametrize("rate", [1, -0.1, "half", True])
def test_a_share_to_drop_is_from_0_up_to_1(kind: Any, rate: Any) -> None:
    with pytest.raises(
        fb.errors.BlockValueError, match=f"{kind.__name__} dropout: expected a rate from 0 up to 1"
    ):
        kind(3, dropout=rate)
