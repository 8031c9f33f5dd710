"""The floor of a step: its matrix products at the rate at which this machine multiplies, and nothing else.

Operations are counted by the model's formula, a multiplication and an addition being two: a leaf
multiplies H by 3H, an inner node 2H by 5H, and every node H by 5 to classify. Training multiplies three
times: forward, for the gradient of the operand, and for that of the weight. The rate is measured with
NumPy at the shapes of the model's inner node, which is where most of the operations are, over
many rows, on all cores at once with one thread of BLAS each, as programs run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np

from benchmarks.inside import available_cores, single_threaded_blas
from benchmarks.workload import CLASSES
from foldbatch.trees import Tree

ROWS = 1024  # of the products that are timed, per core


@dataclass(frozen=True, slots=True)
class Counts:
    """What some batches hold: `trees`, `leaves`, distinct `words` of each batch, added up, `inner` nodes."""

    trees: int
    leaves: int
    words: int
    inner: int

    @property
    def nodes(self) -> int:
        """All of them."""
        return self.leaves + self.inner

    def operations(self, hidden: int, *, training: bool, shared: bool) -> int:
        """Return the floating-point operations of all products, each distinct word of a batch once or not.

        >>> counts = Counts(trees=1, leaves=2, words=1, inner=1)
        >>> counts.operations(1, training=False, shared=True)
        36
        >>> counts.operations(1, training=True, shared=False)
        186
        """
        projected = self.words if shared else self.leaves
        leaf, node, out = 3 * hidden**2, 10 * hidden**2, CLASSES * hidden
        classified = self.nodes if training else self.trees
        total = 2 * (projected * leaf + self.inner * node + classified * out)
        return total * (3 if training else 1)


def count(batches: Sequence[Sequence[Tree]]) -> Counts:
    """Count the nodes of batches."""
    words = [[word for tree in batch for word in tree.words()] for batch in batches]
    leaves = sum(map(len, words))
    nodes = sum(tree.size for batch in batches for tree in batch)
    return Counts(sum(map(len, batches)), leaves, sum(len(set(found)) for found in words), nodes - leaves)


class Products:
    """The three products of the inner node on all cores, to be timed; a context that ends their threads.

    Attributes:
        operations: of one call, all cores together.
    """

    def __init__(self, hidden: int) -> None:
        cores = available_cores()
        self._pool = ThreadPoolExecutor(cores)
        self._operands = [_operands(hidden, seed) for seed in range(cores)]
        self.operations = cores * 3 * 2 * ROWS * 10 * hidden**2

    def seconds(self) -> float:
        """Multiply once; return the seconds it took."""
        with single_threaded_blas():
            start = time.perf_counter()
            for done in [self._pool.submit(_multiply, *operands) for operands in self._operands]:
                done.result()
            return time.perf_counter() - start

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown()


Operands = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _operands(hidden: int, seed: int) -> Operands:
    rng = np.random.default_rng(seed)
    children, weight, gates = (
        rng.standard_normal(shape, np.float32)
        for shape in ((ROWS, 2 * hidden), (2 * hidden, 5 * hidden), (ROWS, 5 * hidden))
    )
    return children, weight, gates, np.empty_like(gates), np.empty_like(children), np.empty_like(weight)


def _multiply(
    children: np.ndarray,
    weight: np.ndarray,
    gates: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    gradient: np.ndarray,
) -> None:
    np.matmul(children, weight, out=forward)
    np.matmul(gates, weight.T, out=backward)
    np.matmul(children.T, gates, out=gradient)
