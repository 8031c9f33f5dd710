"""The benchmark's model in PyTorch: hand-batched by level, and one node at a time.

In: trees as flat arrays (`FlatTree`) and the model's parameters as NumPy arrays. Everything from
the arrays on is the peer's own work and counts. PyTorch is optional and imported when a peer is made.

The model is the SST Tree-LSTM: a leaf has gates i, o, u from W x + b, ``c = sig(i) tanh(u)``,
``h = sig(o) tanh(c)``; a node has gates i, f_l, f_r, o, u from [h_l; h_r] U + b; a linear
softmax and cross-entropy stand at every node, summed and divided by the batch size. Adam, with the
rows of the embedding updated sparsely.

A peer is only worth beating if it is as fast as its framework allows, so: words that occur
several times are looked up and projected once, nodes are numbered so that siblings are
neighbours (`level_order`), all leaves are one GEMM, and so is the classifier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree, LevelOrder, level_order
from foldbatch.errors import BackendError, ParameterError

Array = NDArray[Any]
Tensor = Any  # torch.Tensor; torch is optional

LEARNING_RATE, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8  # torch.optim.Adam's defaults


def import_torch() -> Any:
    """Return the module torch.

    Raises:
        BackendError: when it is not installed.
    """
    try:
        import torch  # noqa: PLC0415 - optional, and slow to import
    except ImportError as error:
        fix = "pip install 'foldbatch[torch]', or leave the peers out"
        raise BackendError("PyTorch peer", "PyTorch to be installed", str(error), fix) from None
    return torch


def torch_version() -> str:
    """Return the version of PyTorch.

    Raises:
        BackendError: when it is not installed.
    """
    return str(import_torch().__version__)


def set_torch_threads(count: int) -> None:
    """Let PyTorch use that many threads within one operation.

    Raises:
        BackendError: when it is not installed.
    """
    import_torch().set_num_threads(count)


def parameter_shapes(hidden: int, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
    """Return the parameters' shapes by name; leaf gates are i, o, u, node gates i, f_l, f_r, o, u.

    >>> parameter_shapes(2, 7)["node_weight"]
    (4, 10)
    """
    return {
        "embedding": (vocabulary_size, hidden),
        "leaf_weight": (hidden, 3 * hidden),
        "leaf_bias": (3 * hidden,),
        "node_weight": (2 * hidden, 5 * hidden),
        "node_bias": (5 * hidden,),
        "out_weight": (hidden, 5),
        "out_bias": (5,),
    }


@dataclass(frozen=True, slots=True)
class Placed:
    """The index arrays of a `LevelOrder` as tensors on a device, by its names."""

    labels: Tensor
    inner_rows: Tensor
    leaf_rows: Tensor
    words: Tensor
    word_of_leaf: Tensor
    sources: Tensor


class TorchPeer:
    """What the peers share: parameters, Adam, and the rows of the embedding that a batch reads.

    Args:
        hidden: size of h, c and the embedding.
        vocabulary_size: rows of the embedding.
        parameters: by the names of `parameter_shapes`, in its shapes; copied.
        device: where PyTorch computes: ``cpu``, or ``cuda``, where only what returns numbers or arrays waits
            for it.

    Raises:
        BackendError: when PyTorch is not installed.
        ParameterError: when a parameter is missing, or has another shape.
    """

    def __init__(
        self, hidden: int, vocabulary_size: int, parameters: Mapping[str, Array], *, device: str = "cpu"
    ) -> None:
        self.torch = torch = import_torch()
        self.hidden, self.device = hidden, device
        shapes = self.shapes(hidden, vocabulary_size)
        found = {name: np.shape(array) for name, array in parameters.items()}
        if found != shapes:
            raise ParameterError("PyTorch peer", str(shapes), str(found), "name and shape them so")
        tensors = {name: torch.tensor(np.asarray(a), device=device) for name, a in parameters.items()}
        self.embedding: Tensor = tensors.pop("embedding")
        self.parameters = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
        self._adam = self._optimizer()
        self._mean, self._square = torch.zeros_like(self.embedding), torch.zeros_like(self.embedding)
        self._steps = 0

    def _optimizer(self) -> Any:
        weights = self.parameters.values()
        return self.torch.optim.Adam(weights, lr=LEARNING_RATE, betas=BETAS, eps=EPS, fused=True)

    @staticmethod
    def shapes(hidden: int, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that its parameters must have, by name."""
        return parameter_shapes(hidden, vocabulary_size)

    def step(self, trees: Sequence[FlatTree]) -> float:
        """Train on a batch: forward, backward, Adam; return the loss before the update."""
        return float(self.advance(trees))

    def advance(self, trees: Sequence[FlatTree]) -> Tensor:
        """Train on a batch; return the loss before the update as a tensor, for which nobody has waited."""
        loss, rows, gradient = self._backward(trees)
        self._adam.step()
        self._adam.zero_grad()
        with self.torch.no_grad():
            self._update_embedding(rows, gradient)
        return loss

    def gradients(self, trees: Sequence[FlatTree]) -> dict[str, Array]:
        """Return the gradients of the loss by parameter name; the embedding's is dense."""
        _, rows, gradient = self._backward(trees)
        absent = self.torch.zeros_like  # without inner nodes PyTorch has no gradient for their weights
        found = {
            name: (absent(tensor) if tensor.grad is None else tensor.grad).detach().cpu().numpy().copy()
            for name, tensor in self.parameters.items()
        }
        self._adam.zero_grad()
        values = gradient.cpu().numpy()
        found["embedding"] = np.zeros(tuple(self.embedding.shape), values.dtype)
        found["embedding"][rows.cpu().numpy()] = values
        return found

    def loss(self, trees: Sequence[FlatTree]) -> float:
        """Return the loss of a batch, without learning from it."""
        with self.torch.no_grad():
            return float(self._loss(trees)[0])

    def infer(self, trees: Sequence[FlatTree]) -> Array:
        """Return the logits of the roots: ``[trees, 5]``."""
        with self.torch.no_grad():
            logits: Array = self._classify(self._roots(trees)).cpu().numpy()
            return logits

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss, the embedding's rows that were read, and the leaf tensor made of them."""
        raise NotImplementedError

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        """Return the h of the roots: ``[trees, hidden]``."""
        raise NotImplementedError

    def _backward(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        """Set the parameters' gradients; return the loss, and the embedding's rows and their gradient."""
        loss, rows, x = self._loss(trees)
        loss.backward()
        return loss.detach(), rows, x.grad

    def _place(self, order: LevelOrder) -> Placed:
        """Return the index arrays of a batch, brought to the device in one copy."""
        names = ("labels", "inner_rows", "leaf_rows", "words", "word_of_leaf", "sources")
        return Placed(*self._put([getattr(order, name) for name in names]))

    def _put(self, arrays: Sequence[Array]) -> Sequence[Tensor]:
        """Return arrays of int64 on the device, brought there in one copy for which nobody waits."""
        if self.device == "cpu":
            return [self.torch.from_numpy(array) for array in arrays]
        joined = self.torch.from_numpy(np.concatenate(arrays)).pin_memory()
        found: Sequence[Tensor] = joined.to(self.device, non_blocking=True).split([len(a) for a in arrays])
        return found

    def _classify(self, h: Tensor) -> Tensor:
        return self.torch.addmm(self.parameters["out_bias"], h, self.parameters["out_weight"])

    def _cross_entropy(self, h: Tensor, labels: Tensor) -> Tensor:
        return self.torch.nn.functional.cross_entropy(self._classify(h), labels, reduction="sum")

    def _leaves(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c of leaves from their words' embeddings: ``x: [n, hidden]``."""
        size = self.hidden
        gates = self.torch.addmm(self.parameters["leaf_bias"], x, self.parameters["leaf_weight"])
        i, o = gates[:, : 2 * size].sigmoid().split(size, 1)
        c = i * gates[:, 2 * size :].tanh()
        return o * c.tanh(), c

    def _nodes(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """Return h and c of nodes from their children's, siblings in neighbouring rows: ``[2 n, hidden]``."""
        torch, size = self.torch, self.hidden
        gates = torch.addmm(
            self.parameters["node_bias"], h.view(-1, 2 * size), self.parameters["node_weight"]
        )
        i, f_left, f_right, o = gates[:, : 4 * size].sigmoid().split(size, 1)
        left, right = c.view(-1, 2, size).unbind(1)
        c = i * gates[:, 4 * size :].tanh()
        c = torch.addcmul(torch.addcmul(c, f_left, left), f_right, right)
        return o * c.tanh(), c

    def _update_embedding(self, rows: Tensor, gradient: Tensor) -> None:
        """Adam on the rows that the batch read, as in torch.optim.SparseAdam."""
        self._steps += 1
        first, second = (1 - beta**self._steps for beta in BETAS)
        mean = self._mean.index_select(0, rows).lerp_(gradient, 1 - BETAS[0])
        square = self._square.index_select(0, rows).mul_(BETAS[1])
        square.addcmul_(gradient, gradient, value=1 - BETAS[1])
        self._mean.index_copy_(0, rows, mean)
        self._square.index_copy_(0, rows, square)
        divisor = square.sqrt_().div_(math.sqrt(second)).add_(EPS)
        values = self.embedding.index_select(0, rows).addcdiv_(mean, divisor, value=-LEARNING_RATE / first)
        self.embedding.index_copy_(0, rows, values)


class TorchByLevel(TorchPeer):
    """The model hand-batched by level, with PyTorch's automatic differentiation."""

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        order = level_order(trees)
        at = self._place(order)
        x = self.embedding.index_select(0, at.words).requires_grad_()
        h = self.torch.cat(self._levels(order, at, x))
        return self._cross_entropy(h, at.labels) / len(trees), at.words, x

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        order = level_order(trees)
        at = self._place(order)
        return self._levels(order, at, self.embedding.index_select(0, at.words))[-1]

    def _levels(self, order: LevelOrder, at: Placed, x: Tensor) -> list[Tensor]:
        """Return h of each level, deepest first; ``x: [distinct words, hidden]``."""
        torch, expand = self.torch, at.word_of_leaf
        leaf_h, leaf_c = (state.index_select(0, expand).split(order.leaves) for state in self._leaves(x))
        sources = at.sources.split(order.sizes)
        h, c = leaf_h[0], leaf_c[0]
        levels = [h]
        for level in range(1, len(order.sizes)):
            h, c = self._nodes(h, c)
            if order.leaves[level]:
                h = torch.cat([h, leaf_h[level]]).index_select(0, sources[level])
                c = torch.cat([c, leaf_c[level]]).index_select(0, sources[level])
            levels.append(h)
        return levels


class TorchPerNode(TorchPeer):
    """The model as it is first written: one tree after another, one node at a time."""

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        torch = self.torch
        words = np.concatenate([tree.words for tree in trees])
        distinct = np.unique(words[words >= 0]).astype(np.int64)
        rows, *all_labels = self._put([distinct, *(tree.labels.astype(np.int64) for tree in trees)])
        x = self.embedding.index_select(0, rows).requires_grad_()
        losses = []
        for tree, labels in zip(trees, all_labels, strict=True):
            states = self._states(tree, x, distinct)
            losses += [self._cross_entropy(h, labels[k : k + 1]) for k, (h, _) in enumerate(states)]
        return torch.stack(losses).sum() / len(trees), rows, x

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        everything = np.arange(len(self.embedding))
        return self.torch.cat([self._states(tree, self.embedding, everything)[-1][0] for tree in trees])

    def _states(self, tree: FlatTree, x: Tensor, words: Array) -> list[tuple[Tensor, Tensor]]:
        """Return h and c of each node, each ``[1, hidden]``; row k of `x` belongs to word ``words[k]``."""
        states: list[tuple[Tensor, Tensor]] = []
        waiting: list[int] = []  # nodes whose parent is still to come, in post-order
        for node, word in enumerate(tree.words.tolist()):
            if word >= 0:
                row = int(np.searchsorted(words, word))
                states.append(self._leaves(x[row : row + 1]))
            else:
                pair = [states[child] for child in waiting[-2:]]
                del waiting[-2:]
                h, c = (self.torch.cat(parts) for parts in zip(*pair, strict=True))
                states.append(self._nodes(h, c))
            waiting.append(node)
        return states


__all__ = [
    "FlatTree",
    "TorchByLevel",
    "TorchPeer",
    "TorchPerNode",
    "import_torch",
    "parameter_shapes",
    "set_torch_threads",
    "torch_version",
]
