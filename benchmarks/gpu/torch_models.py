"""More of PyTorch: a compiled cell of the SST Tree-LSTM, the child-sum Tree-LSTM, the tagger by cuDNN.

All learn as the benchmark's first model does: words looked up once, Adam, and the embedding's rows sparsely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.flat import FlatTree, depths_of
from benchmarks.peers import Array, Tensor, TorchByLevel, TorchPeer
from benchmarks.workload import CLASSES

KINDS = 4  # gates


class TorchCompiled(TorchByLevel):
    """The SST Tree-LSTM by level with automatic differentiation, its cell compiled for any number of rows."""

    def __init__(
        self, hidden: int, vocabulary_size: int, parameters: Mapping[str, Array], *, device: str = "cpu"
    ) -> None:
        super().__init__(hidden, vocabulary_size, parameters, device=device)
        self._inner = self.torch.compile(super()._nodes, dynamic=True)

    def _nodes(self, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = self._inner(h, c)
        return found


class TorchChildSum(TorchPeer):
    """The child-sum Tree-LSTM, hand-batched by level, with automatic differentiation.

    Levels are depths below the root, so the children of a level are all rows of the one below. Every node of
    a `FlatTree` has a word here. Gates stand in the order u, i, o, f, as in `foldbatch.ChildSumTreeLSTM`.
    """

    @staticmethod
    def shapes(hidden: int, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that its parameters must have, by name."""
        return {
            "embedding": (vocabulary_size, hidden),
            "weight": (hidden, 4 * hidden),
            "bias": (4 * hidden,),
            "recurrent": (hidden, 3 * hidden),
            "recurrent_forget": (hidden, hidden),
            "out_weight": (hidden, CLASSES),
            "out_bias": (CLASSES,),
        }

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        h, rows, x, labels = self._states(trees, training=True)
        return self._cross_entropy(self.torch.cat(h), labels) / len(trees), rows, x

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        return self._states(trees, training=False)[0][-1]

    def _states(
        self, trees: Sequence[FlatTree], *, training: bool
    ) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
        """Return h of each level, deepest first, the embedding's rows and what was read there, and labels."""
        torch, w, size = self.torch, self.parameters, self.hidden
        sizes, *arrays = _level_arrays(trees)
        rows, word_of_node, labels, parent = self._put(arrays)
        x = self.embedding.index_select(0, rows)
        if training:
            x.requires_grad_()
        projected = torch.addmm(w["bias"], x, w["weight"]).index_select(0, word_of_node).split(sizes)
        parents = parent.split(sizes)
        h = c = None
        levels = []
        for level, given in enumerate(projected):
            gates, remembered = given[:, : 3 * size], None
            if h is not None:
                at, zeros = parents[level - 1], given.new_zeros(len(given), size)
                gates = torch.addmm(gates, zeros.index_add(0, at, h), w["recurrent"])
                forget = torch.addmm(
                    given[:, 3 * size :].index_select(0, at), h, w["recurrent_forget"]
                ).sigmoid()
                remembered = zeros.index_add(0, at, forget * c)
            i, o = gates[:, size:].sigmoid().split(size, 1)
            c = i * gates[:, :size].tanh()
            c = c if remembered is None else c + remembered
            h = o * c.tanh()
            levels.append(h)
        return levels, rows, x, labels


def _level_arrays(trees: Sequence[FlatTree]) -> tuple[list[int], Array, Array, Array, Array]:
    """Return levels' sizes, deepest first; distinct words; by row words, labels and places of parents."""
    counts = np.array([len(tree.parents) for tree in trees])
    depths = depths_of(trees)
    order = np.argsort(-depths, kind="stable")
    sizes = np.bincount(depths)[::-1]
    place = np.empty(len(order), np.int64)  # of each node in its level
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    parents = np.concatenate([tree.parents for tree in trees])
    parent = place[np.maximum(parents, 0) + np.repeat(np.cumsum(counts) - counts, counts)][order]
    words, word_of_node = np.unique(
        np.concatenate([tree.words for tree in trees])[order], return_inverse=True
    )
    labels = np.concatenate([tree.labels for tree in trees])[order]
    found = (a.astype(np.int64) for a in (words, word_of_node, labels, parent))
    return (sizes.tolist(), *found)


class TorchTagger(TorchPeer):
    """The BiLSTM tagger on packed sequences: with a GPU, cuDNN's LSTM.

    Gates stand in the order u, i, o, f, as in `foldbatch.LSTMCell`; PyTorch's i, f, u, o are made of them.
    PyTorch has a second bias, which is zero and is not trained.
    """

    def __init__(
        self, hidden: int, vocabulary_size: int, parameters: Mapping[str, Array], *, device: str = "cpu"
    ) -> None:
        super().__init__(hidden, vocabulary_size, parameters, device=device)
        torch = self.torch
        dtype = self.embedding.dtype
        self.lstm = torch.nn.LSTM(hidden, hidden, bidirectional=True, device=device, dtype=dtype)
        weights: dict[str, Any] = {name: self.parameters[name] for name in ("out_weight", "out_bias")}
        for direction, suffix in (("there", ""), ("back", "_reverse")):
            for ours, theirs in (("weight", "weight_ih"), ("recurrent", "weight_hh"), ("bias", "bias_ih")):
                weight = getattr(self.lstm, f"{theirs}_l0{suffix}")
                given = self.parameters[f"{direction}_{ours}"].detach()
                u, i, o, f = given.t().split(hidden) if given.dim() == 2 else given.split(hidden)
                with torch.no_grad():
                    weight.copy_(torch.cat([i, f, u, o]))
                weights[f"{direction}_{ours}"] = weight
            unused = getattr(self.lstm, f"bias_hh_l0{suffix}")
            with torch.no_grad():
                unused.zero_()
            unused.requires_grad_(requires_grad=False)
        self.parameters = weights
        self._adam = self._optimizer()

    @staticmethod
    def shapes(hidden: int, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that its parameters must have, by name."""
        directions = {
            f"{direction}_{name}": shape
            for direction in ("there", "back")
            for name, shape in (
                ("weight", (hidden, KINDS * hidden)),
                ("recurrent", (hidden, KINDS * hidden)),
                ("bias", (KINDS * hidden,)),
            )
        }
        rest = {"out_weight": (2 * hidden, CLASSES), "out_bias": (CLASSES,)}
        return {"embedding": (vocabulary_size, hidden), **directions, **rest}

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        states, rows, x, labels = self._states(trees, training=True)
        return self._cross_entropy(states, labels) / len(trees), rows, x

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        """Return the states of all words: what is inferred are their scores."""
        return self._states(trees, training=False)[0]

    def _states(self, trees: Sequence[FlatTree], *, training: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the words' states step by step, the embedding's rows, what was read there, labels."""
        torch = self.torch
        counts, *arrays = _steps(trees)
        rows, word_of_step, labels = self._put(arrays)
        x = self.embedding.index_select(0, rows)
        if training:
            x.requires_grad_()
        order = torch.nn.utils.rnn.PackedSequence(x.index_select(0, word_of_step), torch.from_numpy(counts))
        return self.lstm(order)[0].data, rows, x, labels


def _steps(trees: Sequence[FlatTree]) -> tuple[Array, Array, Array, Array]:
    """Return how many sentences have each step, distinct words, and each step's word and label."""
    leaves = [tree.words >= 0 for tree in trees]
    lengths = np.array([int(leaf.sum()) for leaf in leaves])
    longest_first = np.argsort(-lengths, kind="stable")
    sentence = np.empty(len(trees), np.int64)
    sentence[longest_first] = np.arange(len(trees))
    step = np.concatenate([np.arange(length) for length in lengths])
    order = np.lexsort((np.repeat(sentence, lengths), step))
    words, labels = (
        np.concatenate([getattr(tree, name)[leaf] for tree, leaf in zip(trees, leaves, strict=True)])[order]
        for name in ("words", "labels")
    )
    distinct, word_of_step = np.unique(words, return_inverse=True)
    counts = np.bincount(step).astype(np.int64)
    return counts, distinct.astype(np.int64), word_of_step.astype(np.int64), labels.astype(np.int64)
