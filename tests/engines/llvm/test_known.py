"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.reference import Evaluation
from foldbatch.params.parameters import SparseRows
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.sharing import SHARES
from tests.engines import unfused
from tests.engines.random_cells import Runnable, runnables

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvmlite is not installed"),
]


def thresholds(**others: float) -> Any:
    from foldbatch.engines.llvm import known  # noqa: PLC0415 - it needs llvmlite

    return mock.patch.multiple(known, **{"FEWEST": 1, "LEAST": 0.0, **others})


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    with thresholds(), mock.patch("foldbatch.engines.llvm.known.SMALLEST", 1):
        yield


def dense(gradient: Any) -> Any:
    return gradient.dense() if isinstance(gradient, SparseRows) else gradient


@given(runnables(once=True), st.sampled_from(list(LAYOUTS.values())), st.sampled_from(list(SHARES)))
@settings(max_examples=60, deadline=None)
def test_any_batch_gives_what_the_oracle_gives(runnable: Runnable, layout: Any, share: str | None) -> None:
    """Whatever cells there are, and however the batch is laid out; loops are not fused, as each is compiled."""
    batch = runnable.batch(layout, share)
    engine = unfused.load(runnable.model, EngineSettings(debug=True))
    feeds = [[data.astype(np.int64) for data in columns] for columns in batch.feeds]
    run = engine.forward(engine.ready(batch, training=True), feeds, engine.memory())
    oracle = Evaluation(runnable.model.signatures, batch.merged.trace, cells=runnable.model.cells)
    oracle.forward()
    gradients, expected = run.backward(), oracle.backward()
    assert set(gradients) == set(expected)
    for parameter, gradient in gradients.items():
        np.testing.assert_allclose(dense(gradient), expected[parameter], rtol=1e-9, atol=1e-10)


def tree_model(*, again: bool, added: bool) -> Any:
    """A recursion by one product, whose weight the head reads again, or whose children are added to it."""
    weight = fb.Parameter([8, 4], np.sin(np.arange(32.0) * 3).reshape(8, 4) / 2, name="weight")
    words = fb.Parameter([9, 4], np.sin(np.arange(36.0)).reshape(9, 4), name="words")
    bias = fb.Parameter([4], 0.1, name="bias")

    @fb.cell
    def leaf(word: int) -> Any:
        return ops.gather(words, word)

    @fb.cell
    def node(left: Any, right: Any) -> Any:
        return ops.tanh(ops.concat([left, right]) @ weight + bias) + (left * 0.5 if added else 0.0)

    @fb.cell
    def head(h: Any) -> None:
        fb.loss(ops.sum((ops.concat([h, h]) @ weight if again else h) * h))

    def state(tree: Any) -> Any:
        if isinstance(tree, int):
            return leaf(tree)
        children = [state(child) for child in tree]
        return node(children[0], children[-1])  # an only child is read twice

    return lambda tree: head(state(tree))


def grown(rng: np.random.Generator, depth: int, alone: float) -> Any:
    """Return a tree; so many of its children have no sibling."""
    if depth and rng.random() < 0.8:
        return tuple(grown(rng, depth - 1, alone) for _ in range(1 + (rng.random() >= alone)))
    return int(rng.integers(3))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_what_else_makes_a_gradient_is_kept(again: bool, added: bool, share: Any) -> None:
    """Where a product's known rows are multiplied apart, its gradients add to what is there, and others to them."""
    programs = [
        fb.compile(tree_model(again=again, added=added), name, options={"share": share})
        for name in ("llvm", "numpy")
    ]
    rng = np.random.default_rng(0)
    for alone in (0.0, 0.3, 0.0, 0.3):
        trees = [grown(rng, 4, alone) for _ in range(5)]
        (loss, found), (same, expected) = (program.value_and_grad(trees) for program in programs)
        np.testing.assert_allclose(loss, same, rtol=1e-5)
        for name, gradient in expected.items():
            np.testing.assert_allclose(dense(found[name]), dense(gradient), rtol=2e-4, atol=2e-5)
