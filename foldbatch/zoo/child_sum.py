"""The child-sum Tree-LSTM, for trees of any arity: dependency and syntax trees."""

from operator import attrgetter

from foldbatch import blocks as fb
from foldbatch.errors import BlockValueError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.zoo.tasks import AnyBlock, Task, of_example, of_node, scorer
from foldbatch.zoo.votes import votes
from foldbatch.zoo.words import Words, name_of, token_vector, words_to_rows


def child_sum(
    words: Words,
    task: Task,
    *,
    kinds: Vocabulary | None = None,
    hidden: int = 150,
    counts: bool = False,
    dropout: float = 0.0,
    features: Vocabulary | None = None,
) -> AnyBlock:
    """Return a child-sum Tree-LSTM over trees of any arity.

    The input x of a node is the vector of its word, zeros where it has none, plus that of its kind, if
    `kinds` are given.

    Args:
        words: how the words of nodes become vectors.
        task: what is to be told.
        kinds: the labels of nodes, as in syntax trees; for tasks whose examples are pairs.
        hidden: extent of h and c.
        counts: whether the classifier sees more than the root: of `hidden` features, computed at each node of
            its x and h and never negative, the logarithm of 1 + their sum over the tree.
        dropout: the share of x that is dropped while training.
        features: of whole trees, as `foldbatch.zoo.votes.features_of` names them. Each adds numbers of its
            own to the scores.

    Raises:
        BlockValueError: when `kinds` or `features` are given and the labels of nodes are classes.

    Source: Tai, Socher and Manning 2015, Improved Semantic Representations From Tree-Structured Long Short-
    Term Memory Networks, section 3.1: equations 2 to 8. Kinds, counts and features are not of
    the paper.

    >>> kinds = fb.trees.Vocabulary(["Module", "Assign", "Name", "Constant:int"])
    >>> words = Words(fb.trees.Vocabulary(["x", "y"]), size=4)
    >>> model = child_sum(words, Task(classes=3), kinds=kinds, hidden=5)
    >>> fb.compile(model, "numpy").run([(fb.trees.python_tree("x = 1"), None)])[0].shape
    (3,)
    """
    if (kinds is not None or features is not None) and task.reads_tree:
        fix = (
            f"give pairs (tree, label) and Task('class'), or no kinds: {task.kind!r} reads labels as classes"
        )
        raise BlockValueError("child_sum", "labels that are kinds or classes", "both", fix)
    content = token_vector(words)
    if kinds is not None:
        table = fb.Embedding(len(kinds), words.size, words.initial(), name="kinds")
        kind = fb.GetItem("label") >> fb.InputTransform(name_of) >> words_to_rows(kinds, table, words.dropout)
        content = fb.AllOf(content, kind) >> fb.Function(ops.add)
    if dropout:
        content = content >> fb.Dropout(dropout)
    cell, scores = fb.ChildSumTreeLSTM(hidden), scorer(task)
    tree = fb.ForwardDeclaration(output_type=(hidden,) * (3 if counts else 2), name="tree")
    children: AnyBlock = fb.GetItem("children") >> fb.Map(tree())
    if not counts:
        leaf, node = fb.AllOf(content, fb.Record(())) >> cell, fb.AllOf(content, children) >> cell
    else:
        see = fb.Linear(hidden, "relu", name="see")
        seen_below: AnyBlock = fb.Map(fb.GetItem(2))
        parts = fb.AllOf(fb.Map(fb.AllOf(fb.GetItem(0), fb.GetItem(1))), seen_below >> fb.Sum())
        leaf = content >> fb.AllOf(fb.Identity(), fb.AllOf(fb.Identity(), fb.Void()) >> cell) >> _seen(see)
        node = fb.AllOf(content, children >> parts) >> _counted_node(cell, see)
    state = fb.OneOf(attrgetter("is_leaf"), {True: leaf, False: node})
    classified = fb.Function(logarithms) if counts else fb.GetItem(0)
    tree.resolve_to(of_node(state, classified, scores, task))
    beside = None if features is None else votes(features, task)
    return of_example(tree() >> classified, scores, task, beside)


def logarithms(h: Node, c: Node, seen: Node) -> Node:
    """Return the features of a counted model: ``h, c, seen: [N, size]`` to ``[N, 2 size]``."""
    return ops.concat([ops.log(1 + seen), h])


def _seen(see: AnyBlock) -> AnyBlock:
    h = fb.GetItem(1) >> fb.GetItem(0)
    return fb.AllOf(h, fb.GetItem(1) >> fb.GetItem(1), fb.AllOf(fb.GetItem(0), h) >> fb.Concat() >> see)


def _counted_node(cell: AnyBlock, see: AnyBlock) -> AnyBlock:
    """Return a block of a node: its cell's state, and the features counted in it and below."""
    state = fb.AllOf(fb.GetItem(0), fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.GetItem(0)) >> cell) >> _seen(
        see
    )
    state_and_count = fb.AllOf(state, fb.GetItem(1) >> fb.GetItem(1))
    total = fb.AllOf(fb.GetItem(0) >> fb.GetItem(2), fb.GetItem(1)) >> fb.Function(ops.add)
    return state_and_count >> fb.AllOf(fb.GetItem(0) >> fb.GetItem(0), fb.GetItem(0) >> fb.GetItem(1), total)
