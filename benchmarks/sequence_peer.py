"""The sequence model in PyTorch: torch.nn.LSTM or torch.nn.GRU on the packed words of sentences.

In: sentences as flat trees in which the parent of each word is the next one (`flat_sentence`), and the
model's parameters as NumPy arrays. Everything from the arrays on is the peer's own work and counts.

The model looks words up, runs the LSTM or GRU along them from a state of zeros, and classifies its last h
by a linear softmax; the loss is the cross-entropy, summed and divided by the batch size. Adam, with the rows
of the embedding updated sparsely.

What PyTorch recommends is done: sentences are packed, longest first, straight from the embedding's rows, so
no row is padding. PyTorch has two biases where foldbatch has one. They are added, so the second one stays
zero where it stands for the same number; both sides learn the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree
from benchmarks.peers import TorchPeer

Array = NDArray[Any]
Tensor = Any  # torch.Tensor; torch is optional

CLASSES = 5
GATES = {"lstm": 4, "gru": 3}


def flat_sentence(words: Sequence[int], label: int) -> FlatTree:
    """Return a sentence and its class as a flat tree.

    >>> flat_sentence([7, 4], 3)
    FlatTree(parents=array([ 1, -1]), labels=array([3, 3]), words=array([7, 4]))
    """
    parents = np.arange(1, len(words) + 1)
    parents[-1] = -1
    return FlatTree(parents, np.full(len(words), label), np.array(words))


@dataclass(frozen=True, slots=True)
class Packed:
    """The words of a batch, word by word over all sentences, the longest sentence first.

    Attributes:
        words: ``[all words] int64``: the first words of all sentences, then the second ones, and so on.
        sizes: ``[longest] int64``: how many sentences have a word at each place.
        order: ``[sentences] int64``: which sentence stands in which row.
    """

    words: NDArray[np.int64]
    sizes: NDArray[np.int64]
    order: NDArray[np.int64]


def pack(sentences: Sequence[FlatTree]) -> Packed:
    """Return the packed words of sentences.

    >>> packed = pack([flat_sentence([7], 0), flat_sentence([1, 2, 3], 0), flat_sentence([4, 5], 0)])
    >>> packed.words, packed.sizes, packed.order
    (array([1, 4, 7, 2, 5, 3]), array([3, 2, 1]), array([1, 2, 0]))
    """
    lengths = np.array([len(sentence.words) for sentence in sentences])
    order = np.argsort(-lengths, kind="stable")
    starts = np.cumsum(lengths) - lengths
    places = np.arange(lengths.max())[:, None]
    there = places < lengths[order]
    words = np.concatenate([sentence.words for sentence in sentences])[(starts[order] + places)[there]]
    return Packed(words.astype(np.int64), there.sum(axis=1), order)


class TorchRecurrent(TorchPeer):
    """The model with ``torch.nn.LSTM`` or ``torch.nn.GRU``; see `TorchPeer` for arguments and errors."""

    kind: str

    def __init__(
        self, hidden: int, vocabulary_size: int, parameters: Mapping[str, Array], *, device: str = "cpu"
    ) -> None:
        super().__init__(hidden, vocabulary_size, parameters, device=device)
        nn = self.torch.nn
        self._layer: Any = getattr(nn, self.kind.upper())(hidden, hidden)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            parameter = nn.Parameter(self.parameters[name].detach())
            setattr(self._layer, f"{name}_l0", parameter)
            self.parameters[name] = parameter
        if self.kind == "lstm":
            del self.parameters["bias_hh"]
            self._layer.bias_hh_l0.requires_grad_(requires_grad=False)
        self._adam = self._optimizer()

    @classmethod
    def shapes(cls, hidden: int, vocabulary_size: int) -> dict[str, tuple[int, ...]]:
        """Return the shapes that its parameters must have, by name: the layer's are those of PyTorch."""
        rows = GATES[cls.kind] * hidden
        return {
            "embedding": (vocabulary_size, hidden),
            "weight_ih": (rows, hidden),
            "weight_hh": (rows, hidden),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
            "out_weight": (hidden, CLASSES),
            "out_bias": (CLASSES,),
        }

    def _loss(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        packed = pack(trees)
        labels = np.array([tree.labels[-1] for tree in trees])[packed.order]
        distinct, places = np.unique(packed.words, return_inverse=True)
        rows, expand, answers = self._put([distinct, places, labels.astype(np.int64)])
        x = self.embedding.index_select(0, rows).requires_grad_()
        h = self._last(x.index_select(0, expand), packed)
        return self._cross_entropy(h, answers) / len(trees), rows, x

    def _backward(self, trees: Sequence[FlatTree]) -> tuple[Tensor, Tensor, Tensor]:
        found = super()._backward(trees)
        if self.kind == "gru":  # two of the second biases are only added to the first ones
            self._layer.bias_hh_l0.grad[: 2 * self.hidden].zero_()
        return found

    def _roots(self, trees: Sequence[FlatTree]) -> Tensor:
        packed = pack(trees)
        rows, back = self._put([packed.words, np.argsort(packed.order)])
        return self._last(self.embedding.index_select(0, rows), packed).index_select(0, back)

    def _last(self, x: Tensor, packed: Packed) -> Tensor:
        """Return the last h of each sentence, the longest first; ``x: [all words, hidden]``."""
        sizes = self.torch.from_numpy(packed.sizes)  # always on the CPU
        sequence = self.torch.nn.utils.rnn.PackedSequence(x, sizes)
        state = self._layer(sequence)[1]
        return (state[0] if self.kind == "lstm" else state)[0]


class TorchLSTM(TorchRecurrent):
    """The model with ``torch.nn.LSTM``."""

    kind = "lstm"


class TorchGRU(TorchRecurrent):
    """The model with ``torch.nn.GRU``."""

    kind = "gru"
