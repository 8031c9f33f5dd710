"""Our own model over the words of a sentence: an LSTM or a GRU, and the class of the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.flat import FlatTree
from benchmarks.inside import backend_name
from benchmarks.ours import Step
from benchmarks.sequence_peer import CLASSES, flat_sentence
from foldbatch import (
    RNN,
    AllOf,
    Block,
    Embedding,
    Function,
    GetItem,
    GRUCell,
    InputTransform,
    Linear,
    Loss,
    LSTMCell,
    Map,
    Scalar,
    compile,
    ops,
)
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

Array = NDArray[Any]
Sentence = tuple[list[str], int]  # words, class

CELLS: dict[str, type[LSTMCell | GRUCell]] = {"lstm": LSTMCell, "gru": GRUCell}
# our gates in PyTorch's order: u, i, o, f become i, f, u, o; n, r, z become r, z, n
ORDER = {"lstm": (1, 3, 0, 2), "gru": (1, 2, 0)}


def sentence_of(tree: Tree) -> Sentence:
    """Return the words of a tree, and its class."""
    label = tree.labels[-1]
    assert isinstance(label, int), "the treebank's labels are numbers"
    return list(tree.words()), label


def recurrent(kind: str, hidden: int, vocabulary: Vocabulary) -> Block[Any, Any]:
    """Return the model for one sentence; its result is the logits, its loss their cross-entropy."""
    embed = Embedding(len(vocabulary), hidden, name="embedding")
    word = InputTransform(vocabulary.__getitem__) >> Scalar("int32") >> embed
    last = Map(word) >> RNN(CELLS[kind](hidden, name="cell")) >> GetItem(1)
    if kind == "lstm":
        last = last >> GetItem(0)
    logits = GetItem(0) >> last >> Linear(CLASSES, name="out")
    loss = Function(ops.cross_entropy) >> Loss()
    return AllOf(logits, GetItem(1) >> Scalar("int32")) >> AllOf(GetItem(0), loss) >> GetItem(0)


class OurSequences:
    """The model with the interface of `benchmarks.contest.Timed`; batches are of sentences, or prepared ones.

    Args:
        kind: ``lstm`` or ``gru``.
        hidden: size of the states and the embedding.
        vocabulary: of the words.
        backend: see `foldbatch.compile`.

    Attributes:
        hidden: see above.
        program: that trains.
        step: a training step of it.
        backend: the one chosen.
    """

    def __init__(self, kind: str, hidden: int, vocabulary: Vocabulary, backend: BackendName = "auto") -> None:
        self.program = compile(recurrent(kind, hidden, vocabulary), backend)
        self.hidden, self.step = hidden, Step(self.program)
        self.backend, self.kind, self._vocabulary = backend_name(backend), kind, vocabulary

    def loss(self, sentences: Sequence[Any]) -> float:
        """Return the mean loss of a batch, without learning from it."""
        return self.program.value_and_grad(sentences)[0] / len(sentences)

    def infer(self, sentences: Sequence[Any]) -> Array:
        """Return the logits of sentences: ``[sentences, 5]``."""
        return np.stack(list(self.program.run(sentences)))

    def parameters(self) -> dict[str, Array]:
        """Return copies of the parameters by the names, and in the shapes, that the peer has for them."""
        params = {name: np.array(array) for name, array in self.program.params.items()}

        def gates(name: str) -> Array:
            parts = np.split(params[f"cell.{name}"], len(ORDER[self.kind]), axis=-1)
            return np.concatenate([parts[gate] for gate in ORDER[self.kind]], axis=-1).T.copy()

        second = np.zeros_like(gates("bias"))
        if self.kind == "gru":
            second[-len(params["cell.recurrent_bias"]) :] = params["cell.recurrent_bias"]
        return {
            "embedding": params["embedding.weight"],
            "weight_ih": gates("weight"),
            "weight_hh": gates("recurrent"),
            "bias_ih": gates("bias"),
            "bias_hh": second,
            "out_weight": params["out.weight"],
            "out_bias": params["out.bias"],
        }

    def flat(self, sentence: Sentence) -> FlatTree:
        """Return a sentence as the peer reads it."""
        words, label = sentence
        return flat_sentence([self._vocabulary[word] for word in words], label)
