"""A small run of a case prints its rows; a padded batch of the JAX peer computes what the batch does."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.command import main
from benchmarks.flat import level_order
from benchmarks.jax_peer import common_shape, padded
from tests.benchmarks.flat_trees import batch_loss, random_parameters, random_trees, sigmoid


def test_a_small_run_writes_a_row_for_each_model_and_door(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    options = "--examples 2 --hidden 3 --no-peers --repeats 1 --backend numpy".split()
    assert main(["one", *options, "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["model"], row["who"]) for row in rows] == [
        ("tree", "blocks"),
        ("tree", "function"),
        ("sentence", "blocks"),
        ("record", "blocks"),
        ("record", "function"),
        ("child-sum", "blocks"),
        ("child-sum", "function"),
    ]
    assert all(row["median"] >= row["least"] > 0 for row in rows)


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
