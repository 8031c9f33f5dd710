"""Products taken out of a recursion change nothing but the time, whatever is known before it starts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.params.parameters import dense
from foldbatch.planning.sharing import SHARES
from tests.backends import always_known, needs_llvm

pytestmark = needs_llvm


@pytest.fixture(autouse=True)
def _small_ones_too() -> Iterator[None]:
    with always_known():
        yield


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
