"""Well-known models over sentences and their trees, written with blocks and layers as a user would.

All read a `Tree` of a sentiment treebank: words at leaves, a class at every node. Each infers scores and has
its loss on the side, the sum of cross-entropies over whatever it classifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.workload import CLASSES
from foldbatch import (
    RNN,
    AllOf,
    Block,
    ChildSumTreeLSTM,
    Composition,
    Embedding,
    ForwardDeclaration,
    Function,
    GetItem,
    InputTransform,
    Linear,
    Loss,
    LSTMCell,
    Map,
    Nth,
    OneOf,
    Record,
    Scalar,
    Slice,
    TreeLSTM,
    Void,
    Zip,
    ops,
)
from foldbatch.blocks import RNTN
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import OBJECT, SequenceType, TupleType, as_type

AnyBlock = Block[Any, Any]
LETTERS = 128  # of ASCII; others are one
LETTER_SIZE = 16


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the zoo.

    Attributes:
        block: made for a size of states and a vocabulary; reads what `example` makes of a tree.
        example: see above.
        size: of states where that of the others would be too large; None elsewhere.
    """

    block: Callable[[int, Vocabulary], AnyBlock]
    example: Callable[[Tree], Tree] = lambda tree: tree
    size: int | None = None


def tree_lstm(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return a binary Tree-LSTM that classifies every node.

    Source: Tai, Socher and Manning 2015, section 3.2.
    """
    cell, classify = TreeLSTM(size), Linear(CLASSES)
    tree = ForwardDeclaration(output_type=(size, size), name="tree")
    leaf = AllOf(_word(size, vocabulary), Record(())) >> cell
    node = AllOf(Void(), Record((tree(), tree()))) >> cell
    tree.resolve_to(_labelled(OneOf(lambda t: t.is_leaf, {True: leaf, False: node}), classify))
    return tree() >> GetItem(0) >> classify


def child_sum(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return a child-sum Tree-LSTM over dependency trees, see `dependencies`, that classifies every node.

    Source: Tai, Socher and Manning 2015, section 3.1.
    """
    cell, classify = ChildSumTreeLSTM(size), Linear(CLASSES)
    tree = ForwardDeclaration(output_type=(size, size), name="tree")
    node = AllOf(_word(size, vocabulary), GetItem("children") >> Map(tree())) >> cell
    tree.resolve_to(_labelled(node, classify))
    return tree() >> GetItem(0) >> classify


def rntn(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return a recursive neural tensor network that classifies every node.

    Source: Socher et al. 2013, section 4.3.
    """
    cell, classify = RNTN(size), Linear(CLASSES)
    tree = ForwardDeclaration(output_type=size, name="tree")
    node = AllOf(Void(), Record((tree(), tree()))) >> cell
    state = OneOf(lambda t: t.is_leaf, {True: _word(size, vocabulary), False: node})
    loss = Function(lambda h, label: ops.cross_entropy(classify(h), label)) >> Loss()
    tree.resolve_to(AllOf(state, _label()) >> AllOf(GetItem(0), loss) >> GetItem(0))
    return tree() >> classify


def tagger(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return a BiLSTM that classifies every word.

    Source: Huang, Xu and Yu 2015 (Bidirectional LSTM-CRF Models for Sequence Tagging), section 2.2.
    """
    states = _leaves() >> Map(_word(size, vocabulary)) >> _both_ways(size)
    scores = states >> Map(Linear(CLASSES))
    loss = Zip() >> Map(Function(ops.cross_entropy) >> Loss())
    return AllOf(scores, _leaves() >> Map(_label())) >> AllOf(GetItem(0), loss) >> GetItem(0)


def tree_over_words(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return a binary Tree-LSTM whose leaves are the states of a BiLSTM, and that classifies every node.

    Source: Tai, Socher and Manning 2015 for the tree; Neubig, Goldberg and Dyer 2017 time the combination.
    """
    cell, classify = TreeLSTM(size), Linear(CLASSES)
    both = TupleType((OBJECT, SequenceType(as_type(2 * size))))
    tree = ForwardDeclaration(both, as_type((size, size)), name="tree")

    leaf = Composition("leaf")
    with leaf.scope():
        word = Nth().reads(leaf.input[1], (GetItem("token") >> InputTransform(int)).reads(leaf.input[0]))
        leaf.output.reads(cell.reads(word, ()))
    node = Composition("node")
    with node.scope():
        states = [tree().reads(GetItem(side).reads(node.input[0]), node.input[1]) for side in (0, 1)]
        node.output.reads(cell.reads(Void(), states))

    state = OneOf(GetItem(0) >> InputTransform(lambda t: t.is_leaf), {True: leaf, False: node})
    loss = Function(lambda s, label: ops.cross_entropy(classify(s[0]), label)) >> Loss()
    labelled = AllOf(state, GetItem(0) >> _label())
    tree.resolve_to(labelled >> AllOf(GetItem(0), loss) >> GetItem(0))
    words = _leaves() >> Map(_word(size, vocabulary)) >> _both_ways(size)
    return AllOf(InputTransform(_numbered), words) >> tree() >> GetItem(0) >> classify


def letters_and_words(size: int, vocabulary: Vocabulary) -> AnyBlock:
    """Return an LSTM over words, each read by an LSTM over its letters; it classifies the sentence.

    Source: Ling et al. 2015 (Finding Function in Form), section 3, of which this is one direction.
    """
    code = InputTransform(lambda letter: min(ord(letter), LETTERS - 1)) >> Scalar("int32")
    letter = code >> Embedding(LETTERS, LETTER_SIZE, name="letters")
    word = InputTransform(list) >> Map(letter) >> _last(max(1, size // 3), "letter_lstm")
    classify = Linear(CLASSES)
    sentence = InputTransform(lambda tree: list(tree.words())) >> Map(word) >> _last(size, "word_lstm")
    scores = sentence >> classify
    loss = Function(ops.cross_entropy) >> Loss()
    return AllOf(scores, _label()) >> AllOf(GetItem(0), loss) >> GetItem(0)


def dependencies(tree: Tree) -> Tree:
    """Return a dependency tree of a sentence: a node for each word, which heads the phrases that it begins.

    A phrase's head is that of its first child, and the heads of its other children depend on it. No
    treebank of dependencies is needed for it; as trees they are as high and as wide as one finds.
    A node has its word, and the class of the largest phrase that it heads.

    >>> tree = Tree.from_nested((4, (2, (1, "a"), (3, "good")), (0, "film")))
    >>> print(dependencies(tree).draw())
    4 a
    ├─ 3 good
    └─ 0 film
    """
    heads: list[int] = []  # of each node
    dependents: dict[int, list[int]] = {}
    labels: dict[int, Any] = {}
    for node in tree.nodes():
        head, *others = [heads[child.index] for child in node] or [node.index]
        heads.append(head)
        dependents.setdefault(head, []).extend(others)
        labels[head] = node.label  # larger phrases come later
    return Tree.build(heads[-1], dependents.__getitem__, labels.__getitem__, tree.tokens.__getitem__)


def _labelled(state: AnyBlock, classify: Linear) -> AnyBlock:
    """Return a block that yields the state (h, c) of a node, whose h is classified on the side."""
    loss = Function(lambda s, label: ops.cross_entropy(classify(s[0]), label)) >> Loss()
    return AllOf(state, _label()) >> AllOf(GetItem(0), loss) >> GetItem(0)


def _label() -> AnyBlock:
    return GetItem("label") >> Scalar("int32")


def _word(size: int, vocabulary: Vocabulary) -> AnyBlock:
    number = GetItem("token") >> InputTransform(vocabulary.__getitem__) >> Scalar("int32")
    return number >> Embedding(len(vocabulary), size, name="words")


def _leaves() -> AnyBlock:
    return InputTransform(lambda tree: list(tree.leaves()))


def _both_ways(size: int) -> AnyBlock:
    """Return a BiLSTM: from a sequence of vectors to that of the states' h, joined."""
    there = RNN(LSTMCell(size, name="there")) >> GetItem(0)
    back = Slice(step=-1) >> RNN(LSTMCell(size, name="back")) >> GetItem(0) >> Slice(step=-1)
    return AllOf(there, back) >> Zip() >> Map(Function(lambda a, b: ops.concat([a, b])))


def _last(size: int, name: str) -> AnyBlock:
    """Return an LSTM from a sequence of vectors to the last h."""
    return RNN(LSTMCell(size, name=name)) >> GetItem(1) >> GetItem(0)


def _numbered(tree: Tree) -> Tree:
    """Return a tree whose leaves have their places in the sentence as words."""
    places = iter(range(tree.size))
    kids = [len(node) for node in tree.nodes()]
    return Tree(tree.parents, tree.labels, [None if count else str(next(places)) for count in kids])


MODELS = {
    "Tree-LSTM": Model(tree_lstm),
    "child-sum Tree-LSTM": Model(child_sum, dependencies),
    "RNTN": Model(rntn, size=32),
    "BiLSTM tagger": Model(tagger),
    "tree over BiLSTM": Model(tree_over_words),
    "letters and words": Model(letters_and_words),
}
