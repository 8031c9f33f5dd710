"""Cases at toy size: each measures what it says, and whoever computes something else is caught before."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from benchmarks import fold_paper, functions, manual
from benchmarks.command import main
from benchmarks.flat import level_order
from benchmarks.fold_model import fold_model, random_tree, words_of
from benchmarks.fold_paper import PLAN, SIDES, TASKS
from benchmarks.fold_paper_tables import as_dict, tables
from benchmarks.jax_peer import common_shape, padded
from benchmarks.manual import Manual, shape_of
from foldbatch.errors import FoldbatchError
from foldbatch.params.parameters import dense
from tests.benchmarks.flat_trees import batch_loss, random_parameters, random_trees, sigmoid

FEW = "--repeats 1 --backend numpy"
RUNS = {
    "planning": (f"--cells 1 --batch 2 --hidden 2 {FEW}", 4),
    "schedule": (f"--batch 4 --hidden 3 --nodes 20 {FEW}", 3),
    "one": (f"--examples 2 --hidden 3 --no-peers {FEW}", 7),
    "functions": ("--trees 4 --hidden 3 --batch 2 --repeats 1", 2),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_small_run_writes_its_rows(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "CELLS", 10)  # of the model whose compiling is timed
    file = tmp_path / "rows.json"
    assert main([case, *RUNS[case][0].split(), "--json", str(file)]) == 0
    assert len(json.loads(file.read_text())["rows"]) >= RUNS[case][1]


def test_every_side_of_every_batch_is_timed():
    outcome = fold_paper.run(6, 4, (3, 1), repeats=2, seconds=0.0, backend="numpy")
    assert [row.batch for row in outcome.rows] == [1, 3]
    for row in outcome.rows:
        assert row.seconds.keys() == {f"{task} {side}" for task in TASKS for side in SIDES} | {PLAN}
        assert all(timing.median > 0 and timing.runs == 2 for timing in row.seconds.values())
        assert row.trace > 0
        assert all(3 <= levels <= 5 for levels in row.levels)
    assert outcome.options["backend"] == "numpy"
    assert json.loads(json.dumps(as_dict(outcome)))["rows"][1]["batch"] == 3
    assert [table.row_count for table in tables(outcome)] == [2, 2, 2, 2]


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_a_program_by_hand_that_computes_something_else_is_refused(monkeypatch, what):
    right = Manual.value_and_grad

    def wrong(self, words, **options):
        loss, gradients = right(self, words, **options)
        if what == "loss":
            return 1.01 * loss, gradients
        return loss, gradients | {"gates.bias": np.asarray(gradients["gates.bias"])[::-1]}

    monkeypatch.setattr(Manual, "value_and_grad", wrong)
    with pytest.raises(FoldbatchError, match=f"by hand: expected a {what}"):
        fold_paper.run(6, 4, (2,), repeats=2, seconds=0.0, backend="numpy")


def _loss(batch, p, hidden: int) -> float:
    """The model in NumPy, level by level over a padded batch; padding is computed and weighs nothing."""
    words = np.minimum(batch["words"], len(p["embedding"]) - 1)
    i, o, u = np.split(p["embedding"][words] @ p["leaf_weight"] + p["leaf_bias"], 3, 1)
    word_c = sigmoid(i) * np.tanh(u)
    word_h = sigmoid(o) * np.tanh(word_c)
    h = c = np.zeros((1, hidden))
    rows = []
    for children, leaves in zip(batch["children"], batch["leaves"], strict=True):
        gates = h[children].reshape(-1, 2 * hidden) @ p["node_weight"] + p["node_bias"]
        i, f_l, f_r, o, u = np.split(gates, 5, 1)
        new = sigmoid(i) * np.tanh(u) + sigmoid(f_l) * c[children][:, 0] + sigmoid(f_r) * c[children][:, 1]
        h = np.concatenate([sigmoid(o) * np.tanh(new), word_h[leaves]])
        c = np.concatenate([new, word_c[leaves]])
        rows.append(h)
    logits = np.concatenate(rows) @ p["out_weight"] + p["out_bias"]
    picked = np.take_along_axis(logits, batch["labels"][:, None], 1)[:, 0]
    return float(((np.log(np.exp(logits).sum(1)) - picked) * batch["weights"]).sum())


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.lists(st.integers(1, 12), min_size=3, max_size=3), min_size=1, max_size=3),
)
def test_a_padded_batch_computes_what_the_batch_does(seed, sizes) -> None:
    """In the shape that all have in common."""
    batches = [random_trees(seed + k, each) for k, each in enumerate(sizes)]
    orders = [level_order(batch) for batch in batches]
    shape, parameters = common_shape(orders), random_parameters(1, 2, 9)
    for batch, order in zip(batches, orders, strict=True):
        found = padded(order, shape, absent=9)
        assert [len(c) for c in found["children"]] == list(shape.inner)
        assert [len(leaf) for leaf in found["leaves"]] == list(shape.leaves)
        assert (found["words"][len(order.words) :] == 9).all()
        assert _loss(found, parameters, 2) / len(batch) == pytest.approx(batch_loss(batch, parameters, 2))


SIZE, LEAVES = 5, 7


def program_and_trees(seed: int, batch: int, leaves: int = LEAVES):
    rng = np.random.default_rng(seed)
    shape = random_tree(rng, leaves)
    trees = [words_of(shape, rng) for _ in range(batch)]
    program = fb.compile(fold_model(SIZE, leaves), "reference")
    for name in ("hidden.bias", "gates.bias"):
        program.params[name] = rng.normal(size=program.params[name].shape)
    return program, trees


def words(trees) -> np.ndarray:
    return np.array([[node.label for node in tree.leaves()] for tree in trees])


def as_double(program) -> dict[str, np.ndarray]:
    return {name: np.asarray(array, "float64") for name, array in program.params.items()}


@pytest.mark.parametrize("by_node", [False, True])
@pytest.mark.parametrize("parts", [0, 1, 2, 9])
@pytest.mark.parametrize(("batch", "leaves"), [(1, 2), (1, 7), (4, 7), (3, 12)])
def test_loss_and_gradients_are_those_of_the_oracle(batch, leaves, parts, by_node):
    program, trees = program_and_trees(batch, batch, leaves)
    expected, gradients = program.value_and_grad(trees)
    by_hand = Manual(shape_of(trees[0]), batch, as_double(program), parts=parts)
    for _ in range(2):  # buffers are used again
        loss, found = by_hand.value_and_grad(words(trees), by_node=by_node)
        assert loss == pytest.approx(expected, rel=1e-12)
        assert found.keys() == gradients.keys()
        assert any(np.abs(found["gates.bias"]) > 1e-6)
        for name, gradient in gradients.items():
            right = dense(gradient)
            np.testing.assert_allclose(dense(found[name]), right, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.llvm
def test_compiled_loops_compute_what_numpy_does():
    """In float32, up to rounding."""
    pytest.importorskip("llvmlite")
    program, trees = program_and_trees(0, 3)
    compiled = Manual(shape_of(trees[0]), 3, program.params)
    assert compiled._parts[0].loops.gates is not manual._gates
    loss, found = compiled.value_and_grad(words(trees))
    expected, gradients = Manual(shape_of(trees[0]), 3, as_double(program)).value_and_grad(words(trees))
    assert loss == pytest.approx(expected, rel=1e-5)
    for name in gradients.keys() - {"leaf.weight"}:
        np.testing.assert_allclose(found[name], gradients[name], rtol=1e-4, atol=1e-6, err_msg=name)
