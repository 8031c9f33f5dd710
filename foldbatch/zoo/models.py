"""The models of the zoo by name: those for phrases and for records; `child_sum` has a module of its own."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal

from foldbatch import blocks as fb
from foldbatch.errors import BlockValueError
from foldbatch.zoo.child_sum import child_sum
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, of_node, scorer
from foldbatch.zoo.words import Words, leaf_vector, reversed_words_of, word_vector, words_of


def tree_lstm(words: Words, task: Task, *, hidden: int = 150, dropout: float = 0.0) -> AnyBlock:
    """Return a binary Tree-LSTM: its leaves have a word, its inner nodes two children.

    The scores of a node are ``W h + b`` of its state ``(h, c)``; c is not seen.

    Args:
        words: how the leaves' words become vectors.
        task: what is to be told.
        hidden: extent of h and c.
        dropout: the share of each node's candidate that training drops; see `foldbatch.TreeLSTM`.

    Raises:
        ExampleError: when it is run on a node with one child, or with three or more.

    Source: Tai, Socher and Manning 2015, Improved Semantic Representations From Tree-Structured Long Short-
    Term Memory Networks, section 3.2 and 4.1: equations 9 to 14.

    >>> words = Words(fb.trees.Vocabulary(["good", "film"]), size=4)
    >>> model = tree_lstm(words, Task("nodes", classes=5), hidden=3)
    >>> tree = fb.trees.parse_brackets("(3 (4 good) (2 film))", labels=int)
    >>> fb.compile(model, "numpy").run([tree])[0].shape
    (5,)
    """
    tree = fb.ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    cell, scores = fb.TreeLSTM(hidden, dropout=dropout), scorer(task)
    leaf = fb.AllOf(leaf_vector(words), fb.Record(())) >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    state = fb.OneOf(attrgetter("is_leaf"), {True: leaf, False: node})
    tree.resolve_to(of_node(state, fb.GetItem(0), scores, task))
    return of_example(tree() >> fb.GetItem(0), scores, task)


def rntn(words: Words, task: Task, *, hidden: int | None = None) -> AnyBlock:
    """Return a recursive neural tensor network over binary trees.

    A leaf is its word's vector x, as in the paper; where `hidden` is another size than that of the vectors,
    it is ``tanh(W x + b)``. Unlike the paper, inner nodes add a bias to the bilinear form.

    Args:
        words: how the leaves' words become vectors; the paper has 25 to 35 numbers a word.
        task: what is to be told.
        hidden: extent of a node's vector; by default that of the words'.

    Raises:
        ExampleError: when it is run on a node with one child, or with three or more.

    Source: Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment Treebank,
    section 4.3.

    >>> model = rntn(Words(fb.trees.Vocabulary(["good", "film"]), size=4), Task("nodes", classes=5))
    >>> tree = fb.trees.parse_brackets("(3 (4 good) (2 film))", labels=int)
    >>> fb.compile(model, "numpy").run([tree])[0].shape
    (5,)
    """
    size = words.size if hidden is None else hidden
    tree = fb.ForwardDeclaration(output_type=size, name="tree")
    cell, scores = fb.RNTN(size), scorer(task)
    leaf = leaf_vector(words)
    if size != words.size:
        leaf = leaf >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    state = fb.OneOf(attrgetter("is_leaf"), {True: leaf, False: node})
    tree.resolve_to(of_node(state, fb.Identity(), scores, task))
    return of_example(tree(), scores, task)


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

    >>> model = bilstm(Words(fb.trees.Vocabulary(["good", "film"]), size=4), Task(classes=2), hidden=3)
    >>> fb.compile(model, "numpy").run([("a good film", None)])[0].shape
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
        outputs_and_last = fb.InputTransform(read) >> fb.Map(word) >> fb.RNN(fb.LSTMCell(hidden, name=name))
        pooled = fb.GetItem(0) >> fb.Mean() if pooling == "mean" else fb.GetItem(1) >> fb.GetItem(0)
        ends.append(outputs_and_last >> pooled)
    return of_example(fb.AllOf(*ends) >> fb.Concat(), scorer(task), task, trees=False)


def json(record: AnyBlock, task: Task, *, hidden: int = 64) -> AnyBlock:
    """Return a model of pairs ``(record, label)``.

    Args:
        record: from a record to a vector, for example the block of a schema inferred from samples.
        task: what is to be told: ``class`` or ``number``.
        hidden: extent of a layer of the record's vector, which the scores see beside that vector; 0: none.

    Raises:
        BlockValueError: when the task reads trees.

    Source: Mandlik, Racinsky, Lisy and Pevny 2022, JsonGrinder.jl: automated differentiable neural
    architecture for embedding arbitrary JSON data.

    >>> model = json(fb.GetItem("sizes") >> fb.Vector(3), Task("number"))
    >>> fb.compile(model, "numpy").run([({"sizes": [1, 2, 3]}, None)])[0].shape
    ()
    """
    if task.reads_tree:
        fix = "use Task('class') or Task('number')"
        raise BlockValueError("json", "a task whose examples are pairs", task.kind, fix)
    if hidden:
        record = record >> fb.AllOf(fb.Identity(), fb.Linear(hidden, "relu", name="hidden")) >> fb.Concat()
    return of_example(record, scorer(task), task, trees=False)


MODELS: dict[str, Callable[..., Any]] = {
    "tree_lstm": tree_lstm,
    "child_sum": child_sum,
    "rntn": rntn,
    "bilstm": bilstm,
    "json": json,
}
