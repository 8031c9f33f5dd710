"""What policies are compared on: the calls that well-known models make, as plain traces.

A structure is a function that walks one example and says which cell is called on which earlier
results. Nothing is computed, so cells here are as coarse or fine as papers count them: a
classifier at each node is a cell of its own, where the block compiler would make it part of the
node's cell and let no policy see it. `models` has the same structures written with blocks.

Source: Neubig, Goldberg and Dyer 2017 (DyNet) for the taggers; Bowman et al. 2016
(SPINN), section 3, for the shift-reduce model; Zhang and Yang 2018, section 3.3, for the lattice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from foldbatch.model.drafts import components
from foldbatch.scheduler.layout import by_consumer
from foldbatch.scheduler.levels import lower_bound
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES, levels
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from foldbatch.trees import Tree

RARE = 0.15  # the share of tokens whose words are spelled out
SPANS = 1.0  # words of a lattice for each of its characters
LONGEST = 4  # characters in such a word
CHARACTERS = 2  # of a sentence, for each word of the treebank's sentence

ROOT = "Tree-LSTM, root only"
OUTPUTS = "Tree-LSTM, every node"
TAGGER = "BiLSTM tagger"
SPELLING = f"BiLSTM, {RARE:.0%} spelled"
TREE_OVER_TAGGER = "tree over BiLSTM"
SHIFT_REDUCE = "shift-reduce (SPINN)"
LATTICE = "lattice LSTM"

Structure: TypeAlias = Callable[["Calls", Any], None]


class Calls:
    """The calls of one example: ``calls("node", left, right)`` records one and returns its result."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def __call__(self, cell: str, *arguments: int) -> int:
        """Record a call on earlier results; return its own."""
        self.made.append((cell, arguments))
        return len(self.made) - 1

    def chain(self, cell: str, inputs: Iterable[int]) -> list[int]:
        """Record a recurrent cell along some inputs; returns its result at each."""
        states: list[int] = []
        for x in inputs:
            states.append(self(cell, *states[-1:], x))
        return states


@dataclass(frozen=True, slots=True)
class Batch:
    """The calls of a batch of examples: cells, traces whose levels do not matter, number of arenas."""

    cells: tuple[CellSignature, ...]
    traces: tuple[Trace, ...]
    arenas: int = 1


@dataclass(frozen=True, slots=True)
class Counts:
    """How many groups of calls a batch needs, by policy, and how many no schedule can do without."""

    calls: int
    groups: dict[str, int]
    bound: int


def tree_lstm(calls: Calls, tree: Tree, *, outputs: bool = False) -> None:
    """Combine children along a tree; with `outputs`, classify every node."""
    _tree(calls, tree, [calls("leaf", calls("word")) for _ in tree.words()], outputs=outputs)


def _tree(calls: Calls, tree: Tree, leaves: Sequence[int], *, outputs: bool) -> None:
    words = iter(leaves)
    stack: list[int] = []
    for node in tree.nodes():
        count = len(node)
        stack[len(stack) - count :] = [calls("node", *stack[-count:]) if count else next(words)]
        if outputs:
            calls("output", stack[-1])


def tagger(calls: Calls, tree: Tree) -> None:
    """Read a sentence in both directions, then tag each word: a hidden layer and a classifier."""
    _tag(calls, _both_ways(calls, [calls("word") for _ in tree.words()]))


def spelling_tagger(calls: Calls, tree: Tree, rare: frozenset[str]) -> None:
    """Tag each word; rare words are first read letter by letter, in both directions."""
    words = []
    for word in tree.words():
        if word not in rare:
            words.append(calls("word"))
            continue
        letters = [calls("letter") for _ in word]
        ends = [calls.chain("spell", letters)[-1], calls.chain("spell back", letters[::-1])[-1]]
        words.append(calls("spelled word", *ends))
    _tag(calls, _both_ways(calls, words))


def tree_over_tagger(calls: Calls, tree: Tree) -> None:
    """Read a sentence in both directions, then combine the words along its tree; classify every node."""
    states = _both_ways(calls, [calls("word") for _ in tree.words()])
    _tree(calls, tree, [calls("leaf", *both) for both in states], outputs=True)


def _both_ways(calls: Calls, words: Sequence[int]) -> list[tuple[int, int]]:
    there = calls.chain("forward", words)
    back = calls.chain("backward", words[::-1])
    return list(zip(there, back[::-1], strict=True))


def _tag(calls: Calls, states: Iterable[tuple[int, int]]) -> None:
    for both in states:
        calls("tag", calls("hidden", *both))


def shift_reduce(calls: Calls, tree: Tree) -> None:
    """Build a tree by its transitions; before each a tracker reads the stack's top two and the next word.

    A classifier reads the tracker to predict the transition; the composition reads it, too. So every
    composition waits for those before it, wherever they stand in the tree.
    """
    buffer = [calls("word") for _ in tree.words()][::-1]
    stack: list[int] = []
    tracker: list[int] = []
    for node in tree.nodes():
        tracker = [calls("track", *tracker, *stack[-2:], *buffer[-1:])]
        calls("transition", *tracker)
        if node.is_leaf:
            stack.append(buffer.pop())
        else:
            stack[-len(node) :] = [calls("compose", *stack[-len(node) :], *tracker)]


Lattice: TypeAlias = "list[list[int]]"  # by character: how far back the words begin that end there


def lattice(calls: Calls, words: Lattice) -> None:
    """Read a sentence by character; each word over it reads its first character's state.

    Where words end, a merge of all of them with the character becomes the character's state.
    """
    states: list[int] = []
    for starts in words:
        state = calls("character", calls("embed"), *states[-1:])
        if starts:
            inside = [calls("word", calls("embed word"), states[-back]) for back in starts]
            state = calls("merge", state, *inside)
        states.append(state)
        calls("tag", state)


def random_lattice(rng: np.random.Generator, characters: int) -> Lattice:
    """Return words of 2 to 4 characters over a sentence, each length at any place with the same chance."""
    chance = SPANS / (LONGEST - 1)
    lengths = range(2, LONGEST + 1)
    return [[n - 1 for n in lengths if n <= at + 1 and rng.random() < chance] for at in range(characters)]


def rare_words(trees: Iterable[Tree], share: float = RARE) -> frozenset[str]:
    """Return the least frequent words that make up a share of all tokens."""
    counts = Counter(word for tree in trees for word in tree.words())
    left = share * sum(counts.values())
    found = []
    for word, times in reversed(counts.most_common()):
        left -= times
        if left < 0:
            break
        found.append(word)
    return frozenset(found)


def random_lattices(trees: Iterable[Tree], seed: int = 0) -> list[Lattice]:
    """Return a lattice for each sentence of a batch, in length as its translation into Chinese might be."""
    rng = np.random.default_rng(seed)
    return [random_lattice(rng, CHARACTERS * len(tree.words())) for tree in trees]


def structures(trees: Sequence[Tree], lattices: Sequence[Lattice]) -> dict[str, Batch]:
    """Return the calls of each structure on a batch, by its name."""
    rare = rare_words(trees)
    return {
        ROOT: batch_of(tree_lstm, trees),
        OUTPUTS: batch_of(partial(tree_lstm, outputs=True), trees),
        TAGGER: batch_of(tagger, trees),
        SPELLING: batch_of(partial(spelling_tagger, rare=rare), trees),
        TREE_OVER_TAGGER: batch_of(tree_over_tagger, trees),
        SHIFT_REDUCE: batch_of(shift_reduce, trees),
        LATTICE: batch_of(lattice, lattices),
    }


def batch_of(structure: Structure, examples: Iterable[Any]) -> Batch:
    """Return the calls that a structure makes on some examples.

    Every cell takes one sequence of results, however many, and yields one.

    >>> batch = batch_of(lambda calls, n: calls.chain("step", [calls("word") for _ in range(n)]), [2, 3])
    >>> [(cell.name, cell.component, cell.recursive) for cell in batch.cells]
    [('word', 0, False), ('step', 1, True)]
    >>> [trace.size for trace in batch.traces]
    [4, 6]
    """
    made = []
    for example in examples:
        calls = Calls()
        structure(calls, example)
        made.append(calls.made)
    reads: dict[str, dict[str, None]] = {}
    for calls_made in made:
        for cell, arguments in calls_made:
            known = reads.setdefault(cell, {})
            known.update((calls_made[x][0], None) for x in arguments)
    names = list(reads)
    readers: dict[str, list[str]] = {name: [] for name in names}
    for reader, sources in reads.items():
        for source in sources:
            readers[source].append(reader)
    component = components(names, readers)
    sizes = Counter(component.values())
    operand = (Operand(0, (), 0),)
    cells = tuple(
        CellSignature(
            name, component[name], sizes[component[name]] > 1 or name in reads[name], operand, (0,), 0, (1,)
        )
        for name in names
    )
    return Batch(cells, tuple(_trace(names, calls_made) for calls_made in made))


def _trace(names: Sequence[str], made: Sequence[tuple[str, tuple[int, ...]]]) -> Trace:
    calls: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
    elements: dict[str, list[int]] = {name: [] for name in names}
    for value, (cell, arguments) in enumerate(made):
        calls[cell].append((value, len(arguments)))
        elements[cell] += arguments
    return Trace(
        tuple(np.array(rows, np.int32).reshape(-1, 2) for rows in calls.values()),
        tuple((np.array(part, np.int32).reshape(-1, 1),) for part in elements.values()),
        tuple(np.zeros(len(rows), np.int32) for rows in calls.values()),
        ((),) * len(names),
        ((),) * len(names),
        len(made),
    )


def count(batch: Batch) -> Counts:
    """Schedule a batch by every policy and count groups."""
    groups = {}
    merged = merge(batch.traces, batch.cells)
    trace = merged.trace
    for name, policy in POLICIES.items():
        found = levels(policy, batch.cells, trace.calls, trace.elements, trace.values)
        leveled = merged._replace(trace=replace(trace, levels=found))
        groups[name] = build(leveled, batch.cells, policy, by_consumer, batch.arenas).groups
    bound = lower_bound(batch.cells, trace.calls, trace.elements, trace.values)
    return Counts(trace.size, groups, bound)
