"""One split for all contenders: to train on, to stop by, and to look at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.contest.examples import Examples

SHARES = 0.7, 0.1, 0.2  # of train, dev and test
EXAMPLES_A_MINUTE = 2000  # 10,000 in the five minutes that a comparison may take
NODES_A_MINUTE = 200_000


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts of examples that have none in common.

    Attributes:
        train: to learn from.
        dev: to stop early by and to choose settings by.
        test: to be answered once, at the end.
        seed: that of the draw.
    """

    train: Examples
    dev: Examples
    test: Examples
    seed: int

    def __str__(self) -> str:
        counts = f"{len(self.train):,} train, {len(self.dev):,} dev, {len(self.test):,} test"
        return f"{counts}, drawn with seed {self.seed}"


def split(examples: Examples, seed: int) -> Split:
    """Return examples in three parts, drawn at random; of classes, each part has its share of each class.

    >>> from foldbatch.contest.examples import examples_of
    >>> texts = [f"{subject} is {state}" for subject in "abcdefghij" for state in ("good", "bad")]
    >>> print(split(examples_of(texts, ["yes", "no"] * 10, "texts"), seed=0))
    14 train, 2 dev, 4 test, drawn with seed 0
    """
    rng = np.random.default_rng(seed)
    parts: list[list[int]] = [[], [], []]
    for places in _groups(examples):
        order = rng.permutation(places)
        counts = _counts(len(order))
        ends = np.cumsum(counts)
        for part, chosen in zip(parts, np.split(order, ends[:-1]), strict=True):
            part.extend(chosen.tolist())
    train, dev, test = (examples.taken(sorted(part)) for part in parts)
    return Split(train, dev, test, seed)


def _groups(examples: Examples) -> list[NDArray[np.generic]]:
    """Return the places of the examples of each class, or of all where they have numbers."""
    if examples.task == "number":
        return [np.arange(len(examples))]
    return [np.flatnonzero(examples.answers == number) for number in range(len(examples.classes))]


def _counts(count: int) -> list[int]:
    """Return how many of so many examples each part gets; one or more of three or more."""
    dev, test = (max(1, round(share * count)) for share in SHARES[1:])
    return [count - dev - test, dev, test]


def affordable(examples: Examples, minutes: float, limit: int | None, seed: int) -> tuple[Examples, str]:
    """Return as many examples as can be learnt in some minutes, drawn at random, and a sentence that says so.

    Args:
        examples: all of them.
        minutes: that the comparison may take.
        limit: the number of examples that the user asks for; None for what fits into the time.
        seed: of the draw.
    """
    count = len(examples)
    nodes = sum(map(size_of, examples.structures)) / count
    fitting = min(EXAMPLES_A_MINUTE * minutes, NODES_A_MINUTE * minutes / nodes)
    kept = min(count, max(int(fitting), 200) if limit is None else limit)
    if kept == count:
        return examples, ""
    rng = np.random.default_rng(seed)
    shares = [kept / count * len(places) for places in _groups(examples)]
    chosen = [
        rng.permutation(places)[: max(round(share), 3)]
        for places, share in zip(_groups(examples), shares, strict=True)
    ]
    drawn = examples.taken(sorted(np.concatenate(chosen).tolist()))
    reason = f"which {minutes:g} minutes allow" if limit is None else "as asked for"
    return drawn, f"{len(drawn):,} of {count:,} examples are compared, drawn at random, {reason}"


def size_of(structure: Any) -> int:
    """Return how many nodes, values or words a structure has.

    >>> size_of(("a", "film")), size_of({"a": [1, {"b": 2}], "c": None})
    (2, 6)
    """
    if isinstance(structure, tuple):
        return len(structure)
    if not isinstance(structure, dict):
        return int(structure.size)
    count, unread = 0, [structure]
    while unread:
        value = unread.pop()
        count += 1
        if isinstance(value, dict):
            unread.extend(value.values())
        elif isinstance(value, list | tuple):
            unread.extend(value)
    return count
