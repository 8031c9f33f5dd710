"""Trees that a model finds by itself: nested operations as flat lists of tokens, joined two by two.

    python examples/trees/beam_trees.py

An example is a list such as ``[MAX 2 9 [MIN 4 7 ] 0 ]`` in tokens, and its value, a digit. No example says
which tokens belong together. The model joins two neighbours at a time until one vector is left, and a score
says how good each join is. Several orders of joining, the *beams*, are followed at once: at every step each
beam is continued by each join that it allows, and the best ones go on. The answer is read from the roots of
the last beams, weighted by the softmax of their scores; through these weights the scores are learnt.

Scores are computed, and decide what is computed next, so the walk asks for them (docs/deciding.md). Beside
the beams stand two models of the same layers: one that is given the brackets, and one that reads from left to
right. All are tested on longer lists, too, than they were trained on.

The task is a part of ListOps (Nangia and Bowman 2018). The model follows Ray Chowdhury and Caragea 2023,
"Beam Tree Recursive Cells", but adds plain scores where they add logarithms of chances.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import foldbatch as fb
from foldbatch.blocks import LayerNorm

Tokens: TypeAlias = "list[str]"
Example: TypeAlias = "tuple[Tokens, int]"
Beam: TypeAlias = (
    "tuple[float, tuple[int, ...], tuple[Any, ...]]"  # the sum of its scores, its row, its scores
)

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
OPERATIONS: dict[str, Callable[[Sequence[int]], int]] = {"[MIN": min, "[MAX": max}
WORDS = fb.trees.Vocabulary([*map(str, range(10)), *OPERATIONS, "]"])
NESTED = 0.35  # the chance that an argument is an operation
LENGTHS = 5, 20  # the fewest and most tokens of the lists to train on
LONGER = 21, 40
EXPECTED = 0.9  # share of test lists of the lengths of training told right


def operation(rng: random.Random, depth: int) -> Example:
    """Return the tokens and the value of a random operation with at most `depth` levels of others inside."""
    name = rng.choice([*OPERATIONS])
    tokens, values = [name], []
    for _ in range(rng.randint(2, 4)):
        if depth and rng.random() < NESTED:
            inner, value = operation(rng, depth - 1)
        else:
            value = rng.randrange(10)
            inner = [str(value)]
        tokens += inner
        values.append(value)
    return [*tokens, "]"], OPERATIONS[name](values)


def data(rng: random.Random, count: int, lengths: tuple[int, int]) -> list[Example]:
    """Return `count` distinct operations of so many tokens, with their values."""
    shortest, longest = lengths
    values: dict[tuple[str, ...], int] = {}
    while len(values) < count:
        tokens, value = operation(rng, 6)
        if shortest <= len(tokens) <= longest:
            values[tuple(tokens)] = value
    return [([*tokens], value) for tokens, value in values.items()]


class Cells(NamedTuple):
    """The cells of the model."""

    token: Any  # the vector of a token, given its number
    join: Any  # the vector of two neighbours, and its score
    sum: Any  # of a list of scores
    mean_root: Any  # the mean of roots, weighted by the softmax of their scores
    answer: Any  # scores of the ten digits, whose loss is computed beside


def cells(size: int) -> Cells:
    """Return the cells of a new model, whose vectors have `size` numbers."""
    embed, normal, normal_of_join = fb.Embedding(len(WORDS), size), LayerNorm(), LayerNorm()
    hidden, gates = fb.Linear(4 * size, "relu"), fb.Linear(4 * size)
    rate, score = fb.Linear(size, "relu"), fb.Linear(1)
    last, digits = fb.Linear(size, "relu"), fb.Linear(10)

    @fb.cell
    def token(word: Any) -> Any:
        return normal(embed(word))

    @fb.cell
    def join(left: Any, right: Any) -> Any:
        of_left, of_right, of_both, both = fb.ops.split(gates(hidden(fb.ops.concat([left, right]))), 4, -1)
        kept = fb.ops.sigmoid(of_left) * left + fb.ops.sigmoid(of_right) * right
        vector = normal_of_join(kept + fb.ops.sigmoid(of_both) * both)
        return vector, score(rate(vector))[0]

    @fb.cell
    def mean_root(beams: Any) -> Any:
        roots, scores = beams
        return fb.ops.segment_sum(fb.ops.segment_softmax(scores) * roots)

    @fb.cell
    def answer(root: Any, value: Any) -> Any:
        scores = digits(last(root))
        fb.loss(fb.ops.cross_entropy(scores, value))
        return scores

    return Cells(token, join, fb.cell(fb.ops.segment_sum), mean_root, answer)


def by_beams(model: Cells, vectors: list[Any], width: int) -> Any:
    """Return the root of the `width` best trees that are found. A beam names the vectors that it has left."""
    joins: dict[
        tuple[int, int], tuple[int, Any]
    ] = {}  # by two neighbours: the number and score of their join
    numbers: dict[tuple[int, int], float] = {}  # the scores once more, as numbers that Python has
    beams: list[Beam] = [(0.0, tuple(range(len(vectors))), ())]
    while len(beams[0][1]) > 1:
        pairs = dict.fromkeys(pair for _, row, _ in beams for pair in pairwise(row) if pair not in joins)
        for left, right in pairs:  # all are noted before one is read: so they are one round of the batch
            vector, score = model.join(vectors[left], vectors[right])
            joins[left, right] = len(vectors), score
            vectors.append(vector)
        numbers |= {pair: float(joins[pair][1]) for pair in pairs}
        longer: dict[tuple[int, ...], Beam] = {}  # the same joins in another order are the same tree
        for total, row, scores in beams:
            for place, pair in enumerate(pairwise(row)):
                joined, score = joins[pair]
                rest = (*row[:place], joined, *row[place + 2 :])
                longer.setdefault(rest, (total + numbers[pair], rest, (*scores, score)))
        beams = sorted(longer.values(), key=lambda beam: -beam[0])[:width]
    return model.mean_root([(vectors[row[0]], model.sum([*scores])) for _, row, scores in beams])


def by_brackets(model: Cells, vectors: list[Any], tokens: Tokens) -> Any:
    """Return the root of the tree that the brackets say: arguments are joined to their operation in turn."""
    stack: list[Any] = []
    for token, vector in zip(tokens, vectors, strict=True):
        if token in OPERATIONS:
            stack.append(vector)
            continue
        state = model.join(stack.pop(), vector)[0]
        if token == "]" and stack:  # noqa: S105 - it is no password
            state = model.join(stack.pop(), state)[0]
        stack.append(state)
    return stack[0]


def walk_of(model: Cells, reading: str, width: int) -> Callable[[Example], Any]:
    """Return the walk of one example, whose result is the scores of the ten digits.

    Args:
        model: the cells that it calls.
        reading: "beams"; "brackets", which are then given; or "left to right".
        width: how many beams are followed.
    """

    def walk(example: Example) -> Any:
        tokens, value = example
        vectors = [model.token(WORDS[token]) for token in tokens]
        if reading == "beams":
            root = by_beams(model, vectors, width)
        elif reading == "brackets":
            root = by_brackets(model, vectors, tokens)
        else:
            root = reduce(lambda state, vector: model.join(state, vector)[0], vectors)
        return model.answer(root, value)

    return walk


def train(program: fb.Program, examples: Sequence[Example], epochs: int, batch: int = 64) -> float:
    """Train a program; return the mean loss of the last epoch."""
    optimizer, rng, total = fb.Adam(0.002), np.random.default_rng(0), 0.0
    for epoch in range(epochs):
        optimizer.lr = 0.002 * (1 - epoch / (epochs + 1))
        order, total = rng.permutation(len(examples)), 0.0
        for start in range(0, len(order), batch):
            chosen = [examples[i] for i in order[start : start + batch]]
            loss, gradients = program.value_and_grad(chosen)
            clipped, _ = fb.train.clip_by_global_norm(gradients, float(len(chosen)))
            optimizer.update(program.params, clipped, scale=1 / len(chosen))
            total += float(loss)
    return total / len(examples)


def accuracy(program: fb.Program, examples: Sequence[Example]) -> float:
    """Return the share of examples whose value has the highest score."""
    told = np.argmax(list(program.run(examples)), axis=1)
    return float(np.mean(told == [value for _, value in examples]))


def main(examples: int = 4000, epochs: int = 8, size: int = 64, width: int = 4, backend: Any = "auto") -> int:
    """Train and test three ways of reading; return the exit status, 1 where beams find too little."""
    rng = random.Random(0)  # noqa: S311 - no secret is made of it
    lists = data(rng, examples + 500, LENGTHS)
    training, test, longer = lists[:examples], lists[examples:], data(rng, 500, LONGER)
    print(f"{examples} lists to train on, such as {' '.join(training[0][0])} = {training[0][1]}")
    shares = {}
    for reading in ("brackets", "beams", "left to right"):
        program = fb.compile(walk_of(cells(size), reading, width), backend, seed=0)
        start = time.process_time()
        train(program, training, epochs)
        seconds = time.process_time() - start
        shares[reading] = accuracy(program, test), accuracy(program, longer)
        near, far = shares[reading]
        print(f"{reading:13}  {near:.1%}, of lists up to twice as long {far:.1%}  ({seconds:.0f} s to train)")
    majority = fb.train.majority_share([value for _, value in test])
    print(f"expected of beams: at least {EXPECTED:.0%}; most frequent value: {majority:.1%}")
    return 0 if shares["beams"][0] >= EXPECTED else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    parser.add_argument("--width", type=int, default=4, help="how many beams are followed (default 4)")
    parser.add_argument("--epochs", type=int, default=8, help="of training (default 8)")
    parser.add_argument("--examples", type=int, default=4000, help="lists to train on (default 4000)")
    options = parser.parse_args()
    if min(options.width, options.epochs, options.examples) < 1:
        parser.error("expected --width, --epochs and --examples of 1 or more")
    try:
        sys.exit(main(options.examples, options.epochs, 64, options.width, options.backend))
    except fb.errors.BackendError as error:
        sys.exit(f"error: {error}")
