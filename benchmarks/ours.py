"""Our own model in the benchmark: a training step, inference, and the way from flat arrays to our trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree
from benchmarks.inside import backend_name
from benchmarks.workload import tree_lstm, walk_of
from foldbatch import Program, compile
from foldbatch.params.parameters import Gradient
from foldbatch.train import LazyAdam
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

Array = NDArray[Any]


class Step:
    """A training step of our own: loss, gradients, update."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.optimizer = LazyAdam(lr=1e-3)

    def __call__(self, trees: Sequence[Tree]) -> float:
        """Train on a batch; return its mean loss."""
        loss, gradients = self.program.value_and_grad(trees)
        self.update(gradients, len(trees))
        return loss / len(trees)

    def update(self, gradients: dict[str, Gradient], count: int) -> None:
        """Update the parameters by the gradient of the mean loss over `count` trees."""
        self.optimizer.update(self.program.params, gradients, scale=1.0 / count)


class Ours:
    """The model with the interface of `benchmarks.peers.TorchPeer`, of our trees.

    Args:
        hidden: size of h, c and the embedding.
        vocabulary: of the words.
        backend: see `foldbatch.compile`.
        walks: whether the model is a plain function, not blocks.

    Attributes:
        program: that trains.
        step: a training step of it.
        backend: the one chosen.
    """

    def __init__(
        self, hidden: int, vocabulary: Vocabulary, backend: BackendName = "auto", *, walks: bool = False
    ) -> None:
        model = walk_of(hidden, vocabulary) if walks else tree_lstm(hidden, vocabulary)
        self.program = compile(model, backend)
        self.step = Step(self.program)
        self.backend, self._vocabulary = backend_name(backend), vocabulary

    def loss(self, trees: Sequence[Tree]) -> float:
        """Return the mean loss of a batch, without learning from it."""
        return self.program.value_and_grad(trees)[0] / len(trees)

    def infer(self, trees: Sequence[Tree]) -> Array:
        """Return the logits of the roots: ``[trees, 5]``. No losses are computed."""
        return np.stack(list(self.program.run(trees)))

    def parameters(self) -> dict[str, Array]:
        """Return copies of the parameters by the names that peers have for them."""
        return {_peers_name(name): np.array(self.program.params[name]) for name in self.program.params}

    def flat(self, tree: Tree) -> FlatTree:
        """Return a tree as peers read it."""
        words = [-1 if token is None else self._vocabulary[token] for token in tree.tokens]
        return FlatTree(np.asarray(tree.parents), np.array(tree.labels), np.array(words))


def _peers_name(name: str) -> str:
    return "embedding" if name == "embedding.weight" else name.replace(".", "_")


class OursOfFlat:
    """Our model for those who have flat arrays: trees are made of them once.

    Args:
        hidden: as of `Ours`.
        parameters: by the peers' names, in the shapes of `benchmarks.peers.parameter_shapes`.
    """

    def __init__(self, hidden: int, parameters: Mapping[str, Array]) -> None:
        self._words = [f"w{i}" for i in range(len(parameters["embedding"]))]
        self._ours = Ours(hidden, Vocabulary(self._words[1:], unknown=self._words[0]))
        for name in self._ours.program.params:
            self._ours.program.params[name] = parameters[_peers_name(name)]
        self._trees: dict[int, tuple[FlatTree, Tree]] = {}

    def step(self, trees: Sequence[FlatTree]) -> float:
        """Train on a batch; return its mean loss."""
        return self._ours.step(self._known(trees))

    def loss(self, trees: Sequence[FlatTree]) -> float:
        """Return the mean loss of a batch, without learning from it."""
        return self._ours.loss(self._known(trees))

    def infer(self, trees: Sequence[FlatTree]) -> Array:
        """Return the logits of the roots: ``[trees, 5]``."""
        return self._ours.infer(self._known(trees))

    def _known(self, trees: Sequence[FlatTree]) -> list[Tree]:
        return [self._tree(tree) for tree in trees]

    def _tree(self, flat: FlatTree) -> Tree:
        if id(flat) not in self._trees:
            tokens = [None if word < 0 else self._words[word] for word in flat.words.tolist()]
            self._trees[id(flat)] = flat, Tree(flat.parents, flat.labels.tolist(), tokens)
        return self._trees[id(flat)][1]
