"""The benchmark's model in DyNet with automatic batching: a graph per batch, made node by node.

DyNet finds the batches itself (``autobatch=1``, no slower here than 2 or 3). What its user can do is done:
gates are one affine transform of both children, which are not joined for it, and the leaf of a word that
occurs several times in a batch is made once. It runs on one thread; its wheel (``dynet38``) has no other
way. Memory is taken ahead, as it cannot grow.

Source: Neubig, Goldberg and Dyer 2017 (On-the-fly Operation Batching in Dynamic Computation Graphs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree
from foldbatch.errors import BackendError

Array = NDArray[Any]
Expression = Any  # dynet.Expression; DyNet is optional

LEARNING_RATE, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8
MEGABYTES = "800,800,300,600"  # forward, backward, parameters, scratch: enough for 256 trees of hidden 300


def import_dynet() -> Any:
    """Return the module dynet, set up with automatic batching.

    Raises:
        BackendError: when it is not installed.
    """
    try:
        import_module("dynet_config").set(mem=MEGABYTES, random_seed=1, autobatch=1)
        dynet = import_module("dynet")  # reads its settings when it is imported
    except ImportError as error:
        fix = "pip install dynet38 into an environment, and name its python: --peer-python dynet=PATH"
        raise BackendError("DyNet peer", "DyNet to be installed", str(error), fix) from None
    return dynet


def dynet_version() -> str:
    """Return the version of DyNet, as its package says.

    Raises:
        BackendError: when it is not installed.
    """
    import_dynet()
    return version("dynet38")


class DynetAutobatch:
    """The model, with the interface of `benchmarks.peers.TorchPeer`.

    Args:
        hidden: size of h, c and the embedding.
        parameters: by the names and in the shapes of `benchmarks.peers.parameter_shapes`; copied.

    Raises:
        BackendError: when DyNet is not installed.
    """

    def __init__(self, hidden: int, parameters: Mapping[str, Array]) -> None:
        self.dynet = dynet = import_dynet()
        self.hidden = hidden
        self._collection = dynet.ParameterCollection()
        arrays = dict(parameters)
        left, right = np.split(arrays.pop("node_weight"), 2)
        arrays |= {"node_left": left, "node_right": right}
        self._embedding = self._collection.lookup_parameters_from_numpy(arrays.pop("embedding"))
        self._weights = {  # DyNet's vectors are columns
            name: self._collection.parameters_from_numpy(np.ascontiguousarray(a.T))
            for name, a in arrays.items()
        }
        self._adam = dynet.AdamTrainer(self._collection, LEARNING_RATE, *BETAS, EPS)
        self._adam.set_clip_threshold(0.0)
        self._adam.set_sparse_updates(True)

    def step(self, trees: Sequence[FlatTree]) -> float:
        """Train on a batch: forward, backward, Adam; return the loss before the update."""
        loss = self._loss(trees)
        value = float(loss.value())
        loss.backward()
        self._adam.update()
        return value

    def loss(self, trees: Sequence[FlatTree]) -> float:
        """Return the loss of a batch, without learning from it."""
        return float(self._loss(trees).value())

    def infer(self, trees: Sequence[FlatTree]) -> Array:
        """Return the logits of the roots: ``[trees, 5]``."""
        self.dynet.renew_cg()
        leaves: dict[int, tuple[Expression, Expression]] = {}
        roots = [self._classify(self._states(tree, leaves)[-1]) for tree in trees]
        logits: Array = self.dynet.concatenate_cols(roots).npvalue()
        return logits.reshape(-1, len(trees)).T

    def _loss(self, trees: Sequence[FlatTree]) -> Expression:
        dynet = self.dynet
        dynet.renew_cg()
        leaves: dict[int, tuple[Expression, Expression]] = {}
        losses = [
            dynet.pickneglogsoftmax(self._classify(h), label)
            for tree in trees
            for h, label in zip(self._states(tree, leaves), tree.labels.tolist(), strict=True)
        ]
        return dynet.esum(losses) / len(trees)

    def _classify(self, h: Expression) -> Expression:
        weights = self._weights
        return self.dynet.affine_transform([weights["out_bias"], weights["out_weight"], h])

    def _states(self, tree: FlatTree, leaves: dict[int, tuple[Expression, Expression]]) -> list[Expression]:
        """Return h of each node; leaves are taken from, and added to, those of the batch."""
        found: list[Expression] = []
        waiting: list[tuple[Expression, Expression]] = []  # whose parent is still to come, in post-order
        for word in tree.words.tolist():
            if word < 0:
                right, left = waiting.pop(), waiting.pop()
                state = self._node(left, right)
            else:
                if word not in leaves:
                    leaves[word] = self._leaf(word)
                state = leaves[word]
            waiting.append(state)
            found.append(state[0])
        return found

    def _leaf(self, word: int) -> tuple[Expression, Expression]:
        dynet, size, weights = self.dynet, self.hidden, self._weights
        x = dynet.lookup(self._embedding, word)
        gates = dynet.affine_transform([weights["leaf_bias"], weights["leaf_weight"], x])
        sigmoids = dynet.logistic(dynet.pick_range(gates, 0, 2 * size))
        c = dynet.cmult(
            dynet.pick_range(sigmoids, 0, size), dynet.tanh(dynet.pick_range(gates, 2 * size, 3 * size))
        )
        return dynet.cmult(dynet.pick_range(sigmoids, size, 2 * size), dynet.tanh(c)), c

    def _node(
        self, left: tuple[Expression, Expression], right: tuple[Expression, Expression]
    ) -> tuple[Expression, Expression]:
        dynet, size, weights = self.dynet, self.hidden, self._weights
        products = [weights["node_left"], left[0], weights["node_right"], right[0]]
        gates = dynet.affine_transform([weights["node_bias"], *products])
        sigmoids = dynet.logistic(dynet.pick_range(gates, 0, 4 * size))
        i, f_left, f_right, o = (dynet.pick_range(sigmoids, k * size, (k + 1) * size) for k in range(4))
        u = dynet.tanh(dynet.pick_range(gates, 4 * size, 5 * size))
        c = dynet.cmult(i, u) + dynet.cmult(f_left, left[1]) + dynet.cmult(f_right, right[1])
        return dynet.cmult(o, dynet.tanh(c)), c
