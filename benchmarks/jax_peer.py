"""The benchmark's model in JAX, hand-batched by level: padded to fixed shapes and compiled once for each.

XLA compiles for shapes, and no two batches have the same. So each batch size has one shape: as many
levels, and each as wide, as the widest of all batches of that size that will be run. That favours
JAX: over a whole treebank the padding would be larger. Levels are unrolled, words looked up once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree, LevelOrder, level_order
from foldbatch.errors import BackendError

Array = NDArray[Any]
State = tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]  # parameters, means, squares, steps

LEARNING_RATE, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8
ROUND = 8  # widths are rounded up to multiples of it


def import_jax() -> Any:
    """Return the module jax.

    Raises:
        BackendError: when it is not installed.
    """
    try:
        jax = import_module("jax")
    except ImportError as error:
        fix = "pip install jax into an environment, and name its python: --peer-python jax=PATH"
        raise BackendError("JAX peer", "JAX to be installed", str(error), fix) from None
    return jax


def jax_version() -> str:
    """Return the version of JAX.

    Raises:
        BackendError: when it is not installed.
    """
    return str(import_jax().__version__)


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape that the batches of one size are padded to; levels from the deepest to the roots.

    Attributes:
        inner: inner nodes per level, `leaves` likewise.
        words: distinct words.
    """

    inner: tuple[int, ...]
    leaves: tuple[int, ...]
    words: int


def common_shape(orders: Sequence[LevelOrder]) -> Shape:
    """Return the least shape that all batches fit, widths rounded up."""
    depth = max(len(order.sizes) for order in orders)
    leaves, inner = np.zeros(depth, int), np.zeros(depth, int)
    for order in orders:
        mine = slice(depth - len(order.sizes), None)
        leaves[mine] = np.maximum(leaves[mine], order.leaves)
        inner[mine] = np.maximum(inner[mine], np.subtract(order.sizes, order.leaves))
    words = max(len(order.words) for order in orders)
    return Shape(tuple(map(_rounded, inner.tolist())), tuple(map(_rounded, leaves.tolist())), _rounded(words))


def _rounded(count: int) -> int:
    return -(-count // ROUND) * ROUND if count > ROUND else count


def padded(order: LevelOrder, shape: Shape, absent: int) -> dict[str, Any]:
    """Return the integers of a batch in that shape.

    Args:
        order: the batch.
        shape: into which it fits.
        absent: stands for a word where there is none.

    Returns:
        ``words: [shape.words]``; per level ``children: [inner, 2]``, rows of the level below, and
        ``leaves: [leaves]``, positions in `words`; ``labels`` and ``weights: [rows]`` of all levels, a
        level's inner nodes before its leaves, where a weight of 0 marks padding.
    """
    levels = len(shape.inner)
    skip = levels - len(order.sizes)
    words = np.full(shape.words, absent, np.int32)
    words[: len(order.words)] = order.words
    children = [np.zeros((n, 2), np.int32) for n in shape.inner]
    leaves = [np.zeros(n, np.int32) for n in shape.leaves]
    widths = np.add(shape.inner, shape.leaves)
    labels, weights = np.zeros(widths.sum(), np.int32), np.zeros(widths.sum(), np.float32)
    row = leaf = 0
    first = int(widths[:skip].sum())
    below = np.zeros(0, np.int32)
    for level, (size, count) in enumerate(zip(order.sizes, order.leaves, strict=True), skip):
        inner = size - count
        place = order.sources[row : row + size].astype(np.int32)
        place = np.where(place < inner, place, place - inner + shape.inner[level])
        children[level][:inner] = below.reshape(-1, 2)
        leaves[level][:count] = order.word_of_leaf[leaf : leaf + count]
        labels[first + place] = order.labels[row : row + size]
        weights[first + place] = 1.0
        below, row, leaf, first = place, row + size, leaf + count, first + int(widths[level])
    return {"words": words, "children": children, "leaves": leaves, "labels": labels, "weights": weights}


class JaxByLevel:
    """The model, with the interface of `benchmarks.peers.TorchPeer`.

    Args:
        hidden: size of h, c and the embedding.
        parameters: by the names and in the shapes of `benchmarks.peers.parameter_shapes`; copied.
        batches: all that will be run; of each size there should be some.

    Raises:
        BackendError: when JAX is not installed.
    """

    def __init__(
        self, hidden: int, parameters: Mapping[str, Array], batches: Sequence[Sequence[FlatTree]]
    ) -> None:
        self.jax = jax = import_jax()
        self.hidden = hidden
        found = {name: jax.numpy.array(array) for name, array in parameters.items()}
        self._absent = len(found["embedding"])
        means, squares = ({name: jax.numpy.zeros_like(a) for name, a in found.items()} for _ in range(2))
        self._state: State = (found, means, squares, jax.numpy.zeros((), "int32"))
        orders: dict[int, list[LevelOrder]] = {}
        for batch in batches:
            orders.setdefault(len(batch), []).append(level_order(batch))
        self._shapes = {size: common_shape(alike) for size, alike in orders.items()}
        self._step = jax.jit(self._trained, donate_argnums=0)
        self._infer = jax.jit(self._root_logits)
        self._loss = jax.jit(
            lambda p, b: self._mean_loss(p, p["embedding"].at[b["words"]].get(mode="clip"), b)
        )

    def step(self, trees: Sequence[FlatTree]) -> float:
        """Train on a batch: forward, backward, Adam; return the loss before the update."""
        self._state, loss = self._step(self._state, self._batch(trees))
        self.jax.block_until_ready(self._state)
        return float(loss)

    def loss(self, trees: Sequence[FlatTree]) -> float:
        """Return the loss of a batch, without learning from it."""
        return float(self._loss(self._state[0], self._batch(trees)))

    def infer(self, trees: Sequence[FlatTree]) -> Array:
        """Return the logits of the roots: ``[trees, 5]``."""
        order = level_order(trees)
        logits = np.asarray(self._infer(self._state[0], self._batch(trees, order)))
        place = order.sources[len(order.labels) - len(trees) :]  # roots that are leaves stand last
        inner = len(trees) - order.leaves[-1]
        found: Array = logits[
            np.where(place < inner, place, place - inner + self._shapes[len(trees)].inner[-1])
        ]
        return found

    def _batch(self, trees: Sequence[FlatTree], order: LevelOrder | None = None) -> dict[str, Any]:
        batch = padded(order or level_order(trees), self._shapes[len(trees)], self._absent)
        return batch | {"count": np.float32(len(trees))}

    # -- traced by JAX

    def _trained(self, state: State, batch: dict[str, Any]) -> tuple[State, Any]:
        parameters, means, squares, steps = state
        rows = batch["words"]
        x = parameters["embedding"].at[rows].get(mode="clip")
        dense = {name: a for name, a in parameters.items() if name != "embedding"}
        loss, (gradients, dx) = self.jax.value_and_grad(self._mean_loss, argnums=(0, 1))(dense, x, batch)
        steps = steps + 1
        new: tuple[dict[str, Any], ...] = ({}, {}, {})
        for name, gradient in gradients.items():
            for table, value in zip(
                new, self._adam(dense[name], means[name], squares[name], gradient, steps), strict=True
            ):
                table[name] = value
        tables = (parameters["embedding"], means["embedding"], squares["embedding"])
        old, mean, square = (table.at[rows].get(mode="clip") for table in tables)
        for table, whole, value in zip(new, tables, self._adam(old, mean, square, dx, steps), strict=True):
            table["embedding"] = whole.at[rows].set(value, mode="drop")  # rows that stand for no word
        return (*new, steps), loss

    def _adam(self, value: Any, mean: Any, square: Any, gradient: Any, steps: Any) -> tuple[Any, Any, Any]:
        mean = BETAS[0] * mean + (1 - BETAS[0]) * gradient
        square = BETAS[1] * square + (1 - BETAS[1]) * gradient * gradient
        first, second = (1 - beta**steps for beta in BETAS)
        root = self.jax.numpy.sqrt(square / second) + EPS
        return value - LEARNING_RATE / first * mean / root, mean, square

    def _mean_loss(self, parameters: Mapping[str, Any], x: Any, batch: dict[str, Any]) -> Any:
        h = self.jax.numpy.concatenate(self._levels(parameters, x, batch))
        logits = h @ parameters["out_weight"] + parameters["out_bias"]
        log_p = self.jax.nn.log_softmax(logits)
        picked = self.jax.numpy.take_along_axis(log_p, batch["labels"][:, None], 1)[:, 0]
        return -(picked * batch["weights"]).sum() / batch["count"]

    def _root_logits(self, parameters: Mapping[str, Any], batch: dict[str, Any]) -> Any:
        x = parameters["embedding"].at[batch["words"]].get(mode="clip")
        return self._levels(parameters, x, batch)[-1] @ parameters["out_weight"] + parameters["out_bias"]

    def _levels(self, parameters: Mapping[str, Any], x: Any, batch: dict[str, Any]) -> list[Any]:
        """Return h of each level, inner nodes before leaves; ``x: [words, hidden]``."""
        numpy, nn, size = self.jax.numpy, self.jax.nn, self.hidden
        gates = x @ parameters["leaf_weight"] + parameters["leaf_bias"]
        i, o = numpy.split(nn.sigmoid(gates[:, : 2 * size]), 2, 1)
        word_c = i * numpy.tanh(gates[:, 2 * size :])
        word_h = o * numpy.tanh(word_c)
        levels: list[Any] = []
        h = c = numpy.zeros((1, size), x.dtype)
        for children, leaves in zip(batch["children"], batch["leaves"], strict=True):
            parts = []
            if len(children):
                gates = (
                    h[children].reshape(-1, 2 * size) @ parameters["node_weight"] + parameters["node_bias"]
                )
                i, f_left, f_right, o = numpy.split(nn.sigmoid(gates[:, : 4 * size]), 4, 1)
                below = c[children]
                new = i * numpy.tanh(gates[:, 4 * size :]) + f_left * below[:, 0] + f_right * below[:, 1]
                parts.append((o * numpy.tanh(new), new))
            if len(leaves):
                parts.append((word_h[leaves], word_c[leaves]))
            h, c = (numpy.concatenate(part) for part in zip(*parts, strict=True))
            levels.append(h)
        return levels
