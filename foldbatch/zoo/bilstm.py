"""The bidirectional LSTM: the words of a tree or of a list in both directions, without the tree."""

from __future__ import annotations

from typing import Literal

from foldbatch.blocks import RNN, AllOf, Concat, GetItem, InputTransform, LSTMCell, Map, Mean
from foldbatch.errors import BlockValueError
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, scorer
from foldbatch.zoo.words import Words, reversed_words_of, word_vector, words_of

POOLINGS = ("last", "mean")


def bilstm(
    words: Words, task: Task, *, hidden: int = 150, pooling: Literal["last", "mean"] = "last"
) -> AnyBlock:
    """Return a bidirectional LSTM over words: what trees are compared with.

    It reads the words of a tree, those of a list, or those of a string between blanks.

    Args:
        words: how the words become vectors.
        task: what is to be told; not ``nodes``, since it has none.
        hidden: extent of the state of each direction.
        pooling: what is classified: the ``last`` state of each direction, or the ``mean`` of its outputs.

    Raises:
        BlockValueError: when the task is ``nodes``, or `pooling` is another word.

    Source: Graves and Schmidhuber 2005, Framewise Phoneme Classification with Bidirectional LSTM; as a
    baseline of trees: Tai, Socher and Manning 2015, section 5.1.

    >>> from foldbatch import compile, trees
    >>> model = bilstm(Words(trees.Vocabulary(["good", "film"]), size=4), Task(classes=2), hidden=3)
    >>> compile(model, "numpy").run([("a good film", None)])[0].shape
    (2,)
    """
    if task.kind == "nodes":
        fix = "train it on roots, with Task('root')"
        raise BlockValueError("bilstm", "a task of whole examples", "nodes", fix)
    if pooling not in POOLINGS:
        raise BlockValueError("bilstm", "pooling last or mean", repr(pooling), "choose one of them")
    word = word_vector(words)
    ends = []
    for name, read in (("forward", words_of), ("backward", reversed_words_of)):
        outputs_and_last = InputTransform(read) >> Map(word) >> RNN(LSTMCell(hidden, name=name))
        pooled = GetItem(0) >> Mean() if pooling == "mean" else GetItem(1) >> GetItem(0)
        ends.append(outputs_and_last >> pooled)
    return of_example(AllOf(*ends) >> Concat(), scorer(task), task)
