"""The models of `structures` written with blocks: what a policy makes of them after compilation.

The compiler joins what always runs together into one cell and takes classifiers and projections
out of the recursion, so there are fewer cells than papers count, and often nothing is left for a
policy to gain. Words are read by their length, and no model is trained here: only the calls matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.inside import Node
from benchmarks.structures import (
    LATTICE,
    LONGEST,
    OUTPUTS,
    ROOT,
    SHIFT_REDUCE,
    SPELLING,
    TAGGER,
    TREE_OVER_TAGGER,
    Batch,
    Lattice,
    rare_words,
)
from foldbatch import (
    RNN,
    AllOf,
    Block,
    Broadcast,
    Composition,
    Embedding,
    Fold,
    ForwardDeclaration,
    Function,
    GetItem,
    Identity,
    InputTransform,
    Linear,
    Loss,
    LSTMCell,
    Map,
    Nth,
    OneOf,
    Scalar,
    Slice,
    Sum,
    TreeLSTM,
    Void,
    Zeros,
    Zip,
    compile,
    ops,
)
from foldbatch.errors import ExampleError
from foldbatch.trees import Tree
from foldbatch.types import OBJECT, SequenceType, TupleType, as_type

SIZE = 4  # of every vector: calls are counted, not timed
CLASSES = 5
LENGTHS = 64  # words and letters are known by a number below this
State = tuple[Node, Node]
STATE = as_type((SIZE, SIZE))


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a treebank: words as numbers or, if rare, as lists of numbers; its tree; its transitions.

    `tree` holds at leaves the word's place, else two subtrees. In `transitions`, which is the tree
    again, a leaf is ``(word, None, None)`` and a node ``(next word, left, right)``, the last word's
    successor being 0.
    """

    words: list[Any]
    tree: Any
    transitions: Any


def sentence(tree: Tree, rare: frozenset[str] = frozenset()) -> Sentence:
    """Return what the models read of a binary tree.

    Raises:
        ExampleError: when a node has one child, or more than two.
    """
    words = tree.words()
    numbers = [1 + len(word) % (LENGTHS - 1) for word in words]
    read = 0
    stack: list[tuple[Any, Any]] = []
    for node in tree.nodes():
        if node.is_leaf:
            stack.append((read, (numbers[read], None, None)))
            read += 1
        else:
            if len(node) != 2:
                raise ExampleError("sentence", "a binary tree", f"a node with {len(node)} children")
            (left, left_steps), (right, right_steps) = stack[-2:]
            following = numbers[read] if read < len(numbers) else 0
            stack[-2:] = [((left, right), (following, left_steps, right_steps))]
    spelled = [
        [ord(letter) % LENGTHS for letter in word] if word in rare else number
        for word, number in zip(words, numbers, strict=True)
    ]
    return Sentence(spelled, *stack[-1])


def _embedding(name: str) -> Block[Any, Any]:
    return Scalar("int32") >> Embedding(LENGTHS, SIZE, name=name)


def _loss(name: str) -> Block[Any, Any]:
    """Classify a vector; the answer is always the first class."""
    return Linear(CLASSES, name=name) >> Function(lambda logits: ops.cross_entropy(logits, 0)) >> Loss()


def _attribute(name: str) -> Block[Any, Any]:
    return InputTransform(lambda example: getattr(example, name))


def tree_lstm(*, outputs: bool) -> Block[Any, Any]:
    """Return a Tree-LSTM over a `Sentence`; with `outputs`, every node is classified."""
    words = _attribute("words") >> Map(_embedding("word"))
    return AllOf(_attribute("tree"), words) >> _tree(outputs=outputs) >> GetItem(0)


def _tree(*, outputs: bool) -> Block[Any, Any]:
    """Return a Tree-LSTM that reads a tree and the sequence of its leaves' vectors."""
    cell = TreeLSTM(SIZE, name="tree")
    vector = as_type(SIZE)
    both = TupleType((OBJECT, SequenceType(vector)))
    tree = ForwardDeclaration(both, STATE, name="tree")
    branch = Composition("node")
    with branch.scope():
        halves, words = branch.input[0], branch.input[1]
        children = [tree().reads(halves[side], words) for side in (0, 1)]
        branch.output.reads(cell.reads(Void(), children))
    leaf = Composition("leaf")
    with leaf.scope():
        leaf.output.reads(cell.reads(Nth().reads(leaf.input[1], leaf.input[0]), ()))
    state: Block[Any, Any] = OneOf(
        GetItem(0) >> InputTransform(lambda t: isinstance(t, int)), {True: leaf, False: branch}
    )
    if outputs:
        state = state >> AllOf(Identity(), GetItem(0) >> _loss("output")) >> GetItem(0)
    tree.resolve_to(state)
    return tree()


def _both_ways() -> Block[Any, Any]:
    """Return a BiLSTM: from a sequence of vectors to that of the states' h, joined."""
    there = RNN(LSTMCell(SIZE, name="forward")) >> GetItem(0)
    back = Slice(step=-1) >> RNN(LSTMCell(SIZE, name="backward")) >> GetItem(0) >> Slice(step=-1)
    return AllOf(there, back) >> Zip() >> Map(Function(lambda a, b: ops.concat([a, b])))


def tagger() -> Block[Any, Any]:
    """Return a BiLSTM tagger over a `Sentence`; rare words are read by their letters."""
    ends = [
        Map(_embedding("letter")) >> Slice(step=step) >> Fold(_step(f"spell {name}"), Zeros((SIZE, SIZE)))
        for name, step in (("there", None), ("back", -1))
    ]
    spelled = AllOf(*ends) >> Function(lambda a, b: ops.concat([a[0], b[0]])) >> Linear(SIZE, name="spelled")
    word = OneOf(lambda word: isinstance(word, list), {True: spelled, False: _embedding("word")})
    tag = Linear(SIZE, name="hidden") >> Function(ops.tanh) >> _loss("tag")
    return _attribute("words") >> Map(word) >> _both_ways() >> Map(tag)


def _step(name: str) -> Block[Any, Any]:
    """Return an LSTM's step as `Fold` wants it: from (state, element) to the next state."""
    return AllOf(GetItem(1), GetItem(0)) >> LSTMCell(SIZE, name=name) >> GetItem(1)


def tree_over_tagger() -> Block[Any, Any]:
    """Return a Tree-LSTM over a BiLSTM over a `Sentence`; every node is classified."""
    project = Map(Linear(SIZE, name="project"))
    words = _attribute("words") >> Map(_embedding("word")) >> _both_ways() >> project
    return AllOf(_attribute("tree"), words) >> _tree(outputs=True) >> GetItem(0)


def shift_reduce() -> Block[Any, Any]:
    """Return a shift-reduce model with a tracker over a `Sentence`.

    The stack is the recursion's own: what shifts and reduces a subtree is told what is on top of
    the stack, twice, and the tracker's state, and yields the subtree's state and the tracker's. The
    next word, of which the tracker reads the vector, comes with the data.
    """
    tracker, compose = LSTMCell(SIZE, name="tracker"), TreeLSTM(SIZE, name="compose")
    given = TupleType((OBJECT, STATE, STATE, STATE))  # transitions, tracker, top of the stack, below it
    run = ForwardDeclaration(given, TupleType((STATE, STATE)), name="transitions")
    word, predict = _embedding("word"), _loss("transition")
    top_two = Function(lambda top, below, word: ops.concat([top[0], below[0], word]))

    shift = Composition("shift")
    with shift.scope():
        vector = word.reads(shift.input[0][0])
        tracked = tracker.reads(top_two.reads(shift.input[2], shift.input[3], vector), shift.input[1])[1]
        predict.reads(tracked[0])
        shift.output.reads(Function(lambda x: (x, ops.tanh(x))).reads(vector), tracked)

    reduce = Composition("reduce")
    with reduce.scope():
        steps, before, top, below = (reduce.input[i] for i in range(4))
        left = run().reads(steps[1], before, top, below)
        right = run().reads(steps[2], left[1], left[0], top)
        read = top_two.reads(right[0], left[0], word.reads(steps[0]))
        tracked = tracker.reads(read, right[1])[1]
        predict.reads(tracked[0])
        reduce.output.reads(compose.reads(tracked[0], (left[0], right[0])), tracked)

    is_leaf = GetItem(0) >> InputTransform(lambda steps: steps[1] is None)
    run.resolve_to(OneOf(is_leaf, {True: shift, False: reduce}))
    start = Zeros((SIZE, SIZE))
    return AllOf(_attribute("transitions"), start, start, start) >> run() >> GetItem(0) >> GetItem(0)


def lattice() -> Block[Any, Any]:
    """Return a lattice LSTM over a `Lattice`: a fold whose state is the last characters' states."""
    character, word = LSTMCell(SIZE, name="character"), LSTMCell(SIZE, name="word")
    backs = range(1, LONGEST)
    window = TupleType((STATE,) * len(backs))
    merged = Composition("merge")
    with merged.scope():
        starts, own, before = (merged.input[i] for i in range(3))
        pairs = Zip().reads(starts, Broadcast().reads(before))
        read = AllOf(GetItem(1), GetItem(0) >> InputTransform(lambda back: back - 1)) >> Nth()
        inside = Map(AllOf(GetItem(0) >> _embedding("words"), read) >> word >> GetItem(1)).reads(pairs)
        sums = [Sum().reads(Map(GetItem(i)).reads(inside)) for i in (0, 1)]
        blend = Function(lambda own, h, c: (ops.tanh(own[0] + h), own[1] + c))
        merged.output.reads(blend.reads(own, *sums))
    step = Composition("step")
    with step.scope():
        before, starts = step.input[0], step.input[1]
        vector = (InputTransform(len) >> _embedding("characters")).reads(starts)
        own = character.reads(vector, before[0])[1]
        choice = OneOf(GetItem(0) >> InputTransform(bool), {True: merged, False: GetItem(1)})
        state = choice.reads(starts, own, before)
        _loss("tag").reads(state[0])
        step.output.reads(state, *(before[i] for i in range(len(backs) - 1)))
    return Map(InputTransform(list)) >> Fold(step, Zeros(window)) >> GetItem(0) >> GetItem(0)


def models(trees: Sequence[Tree], lattices: Sequence[Lattice]) -> dict[str, Batch]:
    """Return the calls of each model on a batch, by the names that `structures` has for them."""
    sentences, rare = [sentence(tree) for tree in trees], rare_words(trees)
    return {
        ROOT: batch_of(tree_lstm(outputs=False), sentences),
        OUTPUTS: batch_of(tree_lstm(outputs=True), sentences),
        TAGGER: batch_of(tagger(), sentences),
        SPELLING: batch_of(tagger(), [sentence(tree, rare) for tree in trees]),
        TREE_OVER_TAGGER: batch_of(tree_over_tagger(), sentences),
        SHIFT_REDUCE: batch_of(shift_reduce(), sentences),
        LATTICE: batch_of(lattice(), lattices),
    }


def batch_of(model: Block[Any, Any], examples: Iterable[Any]) -> Batch:
    """Compile a model and trace examples.

    >>> [(cell.name, cell.recursive) for cell in batch_of(shift_reduce(), []).cells]
    [('transitions.case(True).shift', True), ('transitions.case(False).reduce', True), ('model', False)]
    """
    program = compile(model, "numpy")  # calls are the same by any backend, and this one compiles fastest
    traces = tuple(prepared.trace for prepared in program.prepare(examples))
    return Batch(program.model.signatures, traces, len(program.model.arenas))
