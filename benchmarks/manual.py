"""Fold's benchmark model, batched by hand for one tree shape: what scheduling is measured against.

In: one shape, known beforehand, and per batch the words of its leaves. Nothing is scheduled: which
rows a level reads and writes follows from the shape and is worked out once, buffers and all. Then a
step is a loop over levels: GEMMs that write where their result is needed, one fused pass of elementwise work
before and after each, every weight's gradient one GEMM over all nodes of the batch. A level's results go
straight to the rows where the next level reads them, and gates become their own cotangents in place,
which is more than our compiler does. Products and loops are compiled as our backend's are (`compiling`;
NumPy's where llvmlite is missing, and the loops for float64), so kernels are the same on both sides.

The model: a leaf is a row of a table; a node has ``h = relu([l; r] W + b)``, gates f_l, f_r, i (sigmoid)
and u (tanh) from ``h U + c``, and the state ``f_l l + f_r r + i u``. The loss is half the square of the root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inside import (
    compile_loop,
    compiled_product,
    in_threads,
    segment_sum,
    single_threaded_blas,
    total,
)
from foldbatch.errors import BackendError, ExampleError
from foldbatch.params.parameters import Gradient, SparseRows
from foldbatch.trees import Tree

Array = NDArray[Any]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """A binary tree's shape, inner nodes numbered level by level from the lowest.

    A state lies in a slot, where its parent looks: node k reads slots 2 k and 2 k + 1, the root's is last.

    Attributes:
        levels: how many nodes each level has; a node lies one level above the higher of its children.
        node_slots: ``[inner nodes]``, where each node's state goes.
        leaf_slots: ``[leaves]``, where each leaf's goes, from left to right.
    """

    levels: tuple[int, ...]
    node_slots: Rows
    leaf_slots: Rows


def shape_of(tree: Tree) -> Shape:
    """Return the shape of a binary tree of two leaves or more.

    >>> shape_of(Tree.from_nested((0, (1,), (0, (2,), (3,)))))
    Shape(levels=(1, 1), node_slots=array([3, 4]), leaf_slots=array([2, 0, 1]))
    """
    parents, sizes = tree.parents.tolist(), [len(node) for node in tree.nodes()]
    if len(parents) < 3 or set(sizes) != {0, 2}:
        raise ExampleError("shape_of", "a binary tree of two leaves or more", f"{tree.size} nodes")
    heights = [0] * len(parents)
    for node, parent in enumerate(parents[:-1]):
        heights[parent] = max(heights[parent], heights[node] + 1)
    inner = sorted((node for node, size in enumerate(sizes) if size), key=heights.__getitem__)
    number = {node: k for k, node in enumerate(inner)}
    slots, seen = [2 * len(inner)] * len(parents), [0] * len(parents)
    for node, parent in enumerate(parents[:-1]):  # in post-order a left sibling comes first
        slots[node] = 2 * number[parent] + seen[parent]
        seen[parent] += 1
    leaves = [slots[node] for node, size in enumerate(sizes) if not size]
    levels = np.bincount([heights[node] for node in inner])[1:]
    return Shape(tuple(levels.tolist()), np.array([slots[node] for node in inner]), np.array(leaves))


class Manual:
    """The model for batches of one shape, written by hand.

    Args:
        shape: of every tree.
        batch: how many trees there are.
        parameters: ``leaf.weight``, ``hidden.weight``, ``hidden.bias``, ``gates.weight``, ``gates.bias``, as
            our program names them; used, not copied.
        parts: into how many sub-batches the batch is cut, each in a thread of its own with BLAS held to one;
            0 leaves the batch whole, and BLAS as many threads as it likes.
    """

    def __init__(self, shape: Shape, batch: int, parameters: Mapping[str, Array], *, parts: int = 1) -> None:
        self.parameters = parameters
        cuts = np.linspace(0, batch, max(1, min(parts, batch)) + 1).astype(int).tolist()
        self._cuts = [slice(*cut) for cut in pairwise(cuts)]
        self._blas_threads = parts == 0
        dtype = parameters["hidden.weight"].dtype.name
        multiply = _blas if self._blas_threads else _product(dtype)
        self._parts = [_Part(shape, cut.stop - cut.start, parameters, multiply) for cut in self._cuts]
        self._pool = ThreadPoolExecutor(max(1, len(self._parts) - 1))

    def value_and_grad(self, words: Rows, *, by_node: bool = False) -> tuple[float, dict[str, Gradient]]:
        """Return the summed loss and its gradients, which the next batch overwrites.

        Args:
            words: ``[batch, leaves]``, rows of the table.
            by_node: every node is a level of its own, and the gradients of weights are added node by node:
                a network unrolled along one tree, as TensorFlow ran Fold's baseline.
        """
        found = self._each(partial(_Part.value_and_grad, by_node=by_node), words)
        gradients = {name: total([part[name] for _, part in found]) for name in found[0][1]}
        return sum(loss for loss, _ in found), gradients

    def run(self, words: Rows, *, by_node: bool = False) -> Array:
        """Return the states of the roots: ``[batch, size]``; arguments as above."""
        return np.concatenate(self._each(partial(_Part.run, by_node=by_node), words))

    def _each(self, method: Callable[..., Any], words: Rows) -> list[Any]:
        tasks = [partial(method, part, words[cut]) for part, cut in zip(self._parts, self._cuts, strict=True)]
        if self._blas_threads:
            return [tasks[0]()]
        with single_threaded_blas():
            return in_threads(self._pool, tasks)


class _Part:
    """One sub-batch: its buffers, and the loops over levels.

    Rows of states are numbered (slot of a node's pair, tree, side), so that a level's operands are one
    slice ``[nodes, batch, 2 size]``; roots come last.
    """

    def __init__(
        self, shape: Shape, batch: int, parameters: Mapping[str, Array], multiply: Callable[..., object]
    ) -> None:
        self.parameters, self.batch, self.multiply = parameters, batch, multiply
        inner, size = sum(shape.levels), len(parameters["hidden.bias"])
        dtype = parameters["hidden.weight"].dtype
        self.loops = _loops(size, dtype.name)
        self.leaf_rows = rows_of(shape.leaf_slots, batch, inner)
        self.node_rows = rows_of(shape.node_slots, batch, inner)
        self.levels, self.nodes = (
            [slice(*level) for level in pairwise((np.cumsum([0, *widths]) * batch).tolist())]
            for widths in (shape.levels, [1] * inner)
        )
        rows, widest = inner * batch, max(shape.levels) * batch

        def empty(*extents: int) -> Array:
            return np.empty(extents, dtype)

        self.states, self.d_states = (empty(2 * rows + batch, size) for _ in range(2))
        self.hidden, self.d_hidden = empty(rows, size), empty(rows, size)
        self.gates = empty(rows, 4 * size)
        self.scratch = empty(widest, 2 * size)
        self.gradients, self.products = (
            {name: np.empty_like(array) for name, array in parameters.items() if name != "leaf.weight"}
            for _ in range(2)
        )

    def value_and_grad(self, words: Rows, *, by_node: bool) -> tuple[float, dict[str, Any]]:
        """Return the loss and the gradients of a sub-batch."""
        roots = self._forward(words, by_node=by_node, training=True)
        loss = 0.5 * float(np.vdot(roots, roots))
        self.d_states[-self.batch :] = roots
        return loss, self._backward(words, by_node=by_node)

    def run(self, words: Rows, *, by_node: bool) -> Array:
        """Return the roots' states, which the next batch overwrites."""
        return self._forward(words, by_node=by_node, training=False)

    def _forward(self, words: Rows, *, by_node: bool, training: bool) -> Array:
        p, size = self.parameters, self.states.shape[1]
        self.states[self.leaf_rows] = p["leaf.weight"][words.T.reshape(-1)]
        pairs = self.states[: -self.batch].reshape(-1, 2 * size)
        for level in self.nodes if by_node else self.levels:
            # inference keeps nothing, so each level uses the same memory
            at = level if training else slice(level.stop - level.start)
            x, h, g = pairs[level], self.hidden[at], self.gates[at]
            self.multiply(x, p["hidden.weight"], h)
            self.loops.hidden(len(h), h, p["hidden.bias"])
            self.multiply(h, p["gates.weight"], g)
            self.loops.gates(len(g), g, p["gates.bias"], x, self.node_rows[level], self.states)
        return self.states[-self.batch :]

    def _backward(self, words: Rows, *, by_node: bool) -> dict[str, Any]:
        p, size = self.parameters, self.states.shape[1]
        pairs, d_pairs = (a[: -self.batch].reshape(-1, 2 * size) for a in (self.states, self.d_states))
        hidden, gates = p["hidden.weight"].T, p["gates.weight"].T
        for level in reversed(self.nodes if by_node else self.levels):
            x, dx, h, dh, g = (a[level] for a in (pairs, d_pairs, self.hidden, self.d_hidden, self.gates))
            self.loops.d_gates(len(g), g, x, self.node_rows[level], self.d_states, dx)
            self.multiply(g, gates, dh)
            self.loops.d_hidden(len(dh), dh, h)
            products = self.scratch[: len(dh)]
            self.multiply(dh, hidden, products)
            np.add(dx, products, out=dx)
            if by_node:
                self._add_gradients(x, h, dh, g, first=level.stop == len(self.gates))
        if not by_node:
            self._add_gradients(pairs, self.hidden, self.d_hidden, self.gates, first=True)
        return self.gradients | {"leaf.weight": self._leaves_backward(words.T.reshape(-1))}

    def _add_gradients(self, x: Array, h: Array, dh: Array, g: Array, *, first: bool) -> None:
        """Add the gradients of some nodes to those of the nodes before them, or start with them."""
        into = self.gradients if first else self.products
        np.sum(g, axis=0, out=into["gates.bias"])
        self.multiply(h.T, g, into["gates.weight"])
        np.sum(dh, axis=0, out=into["hidden.bias"])
        self.multiply(x.T, dh, into["hidden.weight"])
        if not first:
            for name, gradient in self.gradients.items():
                np.add(gradient, into[name], out=gradient)

    def _leaves_backward(self, words: Rows) -> SparseRows:
        """Return the table's gradient: the leaves' rows gathered by word, and summed in runs."""
        order = np.argsort(words, kind="stable")
        ranked = words[order]
        starts = np.flatnonzero(np.diff(ranked, prepend=-1))
        table = self.parameters["leaf.weight"]
        sums = np.empty((len(starts), table.shape[1]), table.dtype)
        gathered = self.d_states[self.leaf_rows[order]]
        segment_sum(gathered, starts, np.diff(starts, append=len(words)), sums)
        return SparseRows(ranked[starts], sums, table.shape)


def rows_of(slots: Rows, batch: int, inner: int) -> Rows:
    """Return the rows of slots, tree by tree within each."""
    pairs, sides = np.divmod(slots, 2)
    # the root's slot has no sibling
    rows = np.where(
        slots[:, None] == 2 * inner,
        2 * inner * batch + np.arange(batch),
        2 * (pairs[:, None] * batch + np.arange(batch)) + sides[:, None],
    )
    return rows.reshape(-1)


# -- elementwise work, by LLVM or by NumPy


@dataclass(frozen=True, slots=True)
class _Loops:
    hidden: Callable[..., None]
    gates: Callable[..., None]
    d_gates: Callable[..., None]
    d_hidden: Callable[..., None]


def _product(dtype: str) -> Callable[..., object]:
    """Return the product that our kernels call, where there is one; else NumPy's."""
    return compiled_product(dtype) or _blas


def _blas(a: Array, b: Array, out: Array) -> None:
    np.matmul(a, b, out=out)


@cache
def _loops(size: int, dtype: str) -> _Loops:
    """Return the elementwise passes, compiled where that is possible."""
    if dtype == "float32":
        try:
            return _Loops(*(compile_loop(text.replace("SIZE", f"u8({size})")) for text in _TEXTS))
        except BackendError:
            pass
    return _Loops(_hidden, _gates, _d_gates, _d_hidden)


_TEXTS = (
    """# f4 f4
def loop(n, h, b, s):
    for r in range(n):
        for j in range(SIZE):
            t = h[r * SIZE + j] + b[j]
            h[r * SIZE + j] = f4(0) if t < f4(0) else t
""",
    """# f4 f4 f4 i8 f4
def loop(n, g, b, x, rows, out, s):
    for r in range(n):
        for j in range(SIZE * u8(3)):
            g[r * SIZE * u8(4) + j] = sigmoid(g[r * SIZE * u8(4) + j] + b[j])
        to = u8(rows[r]) * SIZE
        for j in range(SIZE):
            u = tanh(g[(r * u8(4) + u8(3)) * SIZE + j] + b[SIZE * u8(3) + j])
            left = g[r * SIZE * u8(4) + j] * x[r * SIZE * u8(2) + j]
            right = g[(r * u8(4) + u8(1)) * SIZE + j] * x[(r * u8(2) + u8(1)) * SIZE + j]
            g[(r * u8(4) + u8(3)) * SIZE + j] = u
            out[to + j] = left + right + g[(r * u8(4) + u8(2)) * SIZE + j] * u
""",
    """# f4 f4 i8 f4 f4
def loop(n, g, x, rows, d_states, dx, s):
    for r in range(n):
        at = u8(rows[r]) * SIZE
        for j in range(SIZE):
            dy = d_states[at + j]
            left, right = g[r * SIZE * u8(4) + j], g[(r * u8(4) + u8(1)) * SIZE + j]
            i, u = g[(r * u8(4) + u8(2)) * SIZE + j], g[(r * u8(4) + u8(3)) * SIZE + j]
            dx[r * SIZE * u8(2) + j] = dy * left
            dx[(r * u8(2) + u8(1)) * SIZE + j] = dy * right
            g[r * SIZE * u8(4) + j] = dy * x[r * SIZE * u8(2) + j] * left * (f4(1) - left)
            right_child = x[(r * u8(2) + u8(1)) * SIZE + j]
            g[(r * u8(4) + u8(1)) * SIZE + j] = dy * right_child * right * (f4(1) - right)
            g[(r * u8(4) + u8(2)) * SIZE + j] = dy * u * i * (f4(1) - i)
            g[(r * u8(4) + u8(3)) * SIZE + j] = dy * i * (f4(1) - u * u)
""",
    """# f4 f4
def loop(n, dh, h, s):
    for j in range(n * SIZE):
        dh[j] = dh[j] if f4(0) < h[j] else f4(0)
""",
)


def _hidden(n: int, h: Array, bias: Array) -> None:
    np.add(h, bias, out=h)
    np.maximum(h, 0, out=h)


def _gates(n: int, g: Array, bias: Array, x: Array, rows: Rows, states: Array) -> None:
    size = x.shape[1] // 2
    np.add(g, bias, out=g)
    sigmoids = g[:, : 3 * size]  # as tanh, which is the fastest of NumPy's functions
    np.multiply(sigmoids, 0.5, out=sigmoids)
    np.tanh(g, out=g)
    np.multiply(sigmoids, 0.5, out=sigmoids)
    np.add(sigmoids, 0.5, out=sigmoids)
    left, right, i, u = np.split(g, 4, axis=1)
    states[rows] = left * x[:, :size] + right * x[:, size:] + i * u


def _d_gates(n: int, g: Array, x: Array, rows: Rows, d_states: Array, dx: Array) -> None:
    size = x.shape[1] // 2
    dy = d_states[rows]
    left, right, i, u = np.split(g, 4, axis=1)
    np.multiply(dy, left, out=dx[:, :size])
    np.multiply(dy, right, out=dx[:, size:])
    d_left, d_right = dx[:, :size] * x[:, :size], dx[:, size:] * x[:, size:]
    d_i, d_u = dy * i * u, dy * i
    np.multiply(d_left, 1 - left, out=left)
    np.multiply(d_right, 1 - right, out=right)
    np.multiply(d_i, 1 - i, out=i)
    np.multiply(d_u, 1 - u * u, out=u)


def _d_hidden(n: int, dh: Array, h: Array) -> None:
    np.multiply(dh, h > 0, out=dh)
