"""Samplers: which examples make up which batch, as lists of indices, epoch after epoch.

A number that is out of range, or none, raises `TrainingError`; examples that cannot be measured, which are
neither trees nor prepared, raise `ExampleTypeError`.
"""

import zlib
from collections.abc import Callable, Sequence, Sized
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import ExamplePlace, ExampleTypeError, TrainingError, UnknownNameError
from foldbatch.model.keys import call_keys
from foldbatch.program.traced import Prepared
from foldbatch.system.showing import Described
from foldbatch.train.numbers import whole_number
from foldbatch.trees import Tree
from foldbatch.types import describe_value

Index = NDArray[np.int64]


class Sampler(Described):
    """Makes the batches of epochs, in each every index once.

    Args:
        costs: ``[n]`` whole numbers: what each of n examples costs.
        limit: the most that a batch may cost; an example that costs more is a batch of its own.
        keys: ``[n]`` numbers: a batch holds neighbours in the order of their keys. Ties are shuffled,
            and so are batches. By default all examples are alike.
        seed: from which every epoch is shuffled.

    >>> sampler = Sampler(costs=[3, 1, 1, 5, 2], limit=4, seed=1)
    >>> sampler.epoch(0), sampler.epoch(1)
    ([[3], [2, 0], [4, 1]], [[2, 1], [3], [0], [4]])
    """

    def __init__(self, costs: ArrayLike, limit: int, *, keys: ArrayLike | None = None, seed: int = 0) -> None:
        self.costs = _numbers("costs", costs, counts=True)
        self.keys = np.zeros_like(self.costs) if keys is None else _numbers("keys", keys, counts=False)
        if len(self.keys) != len(self.costs):
            actual = f"{len(self.keys)} for {len(self.costs)}"
            raise TrainingError("Sampler keys", "a key for each cost", actual, "give as many")
        self.limit = whole_number("Sampler limit", limit, 1)
        self.seed = whole_number("Sampler seed", seed)

    def epoch(self, number: int) -> list[list[int]]:
        """Return all batches of an epoch, counted from 0; the same ones whenever they are asked for."""
        number = whole_number("Sampler epoch", number, 0)
        order = self._shuffled(number, len(self.costs), 0)
        alike = len(np.unique(self.keys)) <= 1
        if not alike:
            order = order[np.argsort(self.keys[order], kind="stable")]
        batches: list[list[int]] = []
        room = 0
        for example, cost in zip(order.tolist(), self.costs[order].tolist(), strict=True):
            if not batches or cost > room:
                batches.append([])
                room = self.limit
            batches[-1].append(example)
            room -= cost
        return batches if alike else [batches[i] for i in self._shuffled(number, len(batches), 1)]

    def digest(self) -> int:
        """Return a number that stands for costs, keys and limit."""
        data = self.costs.astype("<i8").tobytes() + self.keys.astype("<f8").tobytes()
        return zlib.crc32(data + b"%d" % self.limit)

    def _shuffled(self, epoch: int, count: int, purpose: int) -> Index:
        numbers = np.arange(count)
        return np.argsort(call_keys(self.seed, epoch, numbers, np.full(count, purpose)), kind="stable")


def joined(batches: Sequence[list[int]], count: int) -> list[list[int]]:
    """Return batches in groups of `count`, each as one batch; the last group may be smaller.

    >>> joined([[3, 0], [1, 4], [2]], 2)
    [[3, 0, 1, 4], [2]]
    """
    groups = [batches[first : first + count] for first in range(0, len(batches), count)]
    return [[index for batch in group for index in batch] for group in groups]


def sizes(examples: Sequence[object]) -> Index:
    """Return the size of each example, ``[n] int64``: a tree's nodes, or the calls of a prepared one.

    >>> sizes([Tree.leaf(), Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))])
    array([1, 3])
    """
    return _of_each("sizes", examples, lambda tree: tree.size, lambda prepared: prepared.trace.size)


def heights(examples: Sequence[object]) -> Index:
    """Return the height of each example, ``[n] int64``, to put examples of like height into one batch.

    It is the height of a tree, or the highest level of the calls of a prepared example.

    >>> heights([Tree.leaf(), Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))])
    array([0, 1])
    """

    def highest(prepared: Prepared) -> int:
        return max((int(levels.max()) for levels in prepared.trace.levels if len(levels)), default=0)

    return _of_each("heights", examples, lambda tree: tree.height, highest)


Measure: TypeAlias = Literal["height", "size"]
MEASURES: dict[str, Callable[[Sequence[Any]], Index]] = {"height": heights, "size": sizes}


def shuffled(examples: Sequence[object], batch_size: int, seed: int = 0) -> Sampler:
    """Return a sampler of batches of `batch_size` examples, whatever they are; the last one may be smaller.

    >>> shuffled("abcde", batch_size=2, seed=3).epoch(0)
    [[3, 0], [1, 4], [2]]
    """
    return Sampler(np.ones(_count("shuffled", examples), np.int64), batch_size, seed=seed)


def bucketed(examples: Sequence[object], batch_size: int, seed: int = 0, by: Measure = "height") -> Sampler:
    """Return a sampler of batches of `batch_size` examples that are alike.

    A batch runs as many levels as its highest example needs. Among its like, a tall one makes none
    wait, so an epoch has far fewer levels; but what is alike is now learnt from together.

    Args:
        examples: trees or prepared examples.
        batch_size: how many make a batch; the one of the largest may be smaller.
        seed: from which epochs are shuffled: examples of one height, and all batches.
        by: ``height``, or ``size`` so that batches of one epoch are of most different sizes.

    >>> tall, low = Tree.from_nested(("S", ("VP", "go"))), Tree.leaf("S", "no")
    >>> sorted(map(sorted, bucketed([low, tall, low, tall], batch_size=2).epoch(0)))
    [[0, 2], [1, 3]]
    """
    costs = np.ones(_count("bucketed", examples), np.int64)
    return Sampler(costs, batch_size, keys=_measure("bucketed", by)(examples), seed=seed)


def within_budget(
    examples: Sequence[object], nodes: int, seed: int = 0, by: Measure | None = None
) -> Sampler:
    """Return a sampler of batches of at most `nodes` nodes (of trees) or calls (of prepared examples).

    So the memory of a batch is bounded. An example that is larger is a batch of its own.

    Args:
        examples: trees or prepared examples.
        nodes: the most that a batch may hold.
        seed: from which epochs are shuffled.
        by: ``height`` or ``size`` puts those alike together, as `bucketed` does.

    >>> trees = [Tree.from_nested(("S", *[("NP", "I")] * n)) for n in (1, 2, 3, 4, 5)]
    >>> [sum(trees[i].size for i in batch) for batch in within_budget(trees, nodes=6).epoch(0)]
    [6, 5, 6, 3]
    """
    keys = None if by is None else _measure("within_budget", by)(examples)
    return Sampler(sizes(examples), nodes, keys=keys, seed=seed)


def _measure(where: str, name: str) -> Callable[[Sequence[object]], Index]:
    if name not in MEASURES:
        raise UnknownNameError(f"{where} by", f"one of {', '.join(MEASURES)}", repr(name), "name one of them")
    return MEASURES[name]


def _count(where: str, examples: object) -> int:
    if not isinstance(examples, Sized):
        fix = "make a list of them"
        raise ExampleTypeError(where, "a sequence of examples", describe_value(examples), fix)
    return len(examples)


def _of_each(
    where: str,
    examples: Sequence[object],
    of_tree: Callable[[Tree], int],
    of_prepared: Callable[[Prepared], int],
) -> Index:
    """Return each example's cost: of trees by `of_tree`, of prepared ones by `of_prepared`."""
    costs = np.zeros(_count(where, examples), np.int64)
    for number, example in enumerate(examples):
        if isinstance(example, Tree):
            costs[number] = of_tree(example)
        elif isinstance(example, Prepared):
            costs[number] = of_prepared(example)
        else:
            fix = "give what program.prepare(examples) returns"
            expected = "a Tree or a prepared example"
            raise ExampleTypeError(ExamplePlace(where, number), expected, describe_value(example), fix)
    return costs


def _numbers(where: str, values: ArrayLike, *, counts: bool) -> NDArray[np.generic]:
    """Return numbers as ``[n]`` int64, or float64 where they need not be whole."""
    kinds, expected = ("iu", "whole numbers of 0 or more") if counts else ("iuf", "finite numbers")
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros((), object)
    array = array.astype(np.int64) if array.shape == (0,) else array
    if array.ndim != 1 or array.dtype.kind not in kinds or not np.isfinite(array).all():
        raise TrainingError(f"Sampler {where}", expected, describe_value(values), "give one for each example")
    if counts and len(array) and array.min() < 0:
        raise TrainingError(f"Sampler {where}", expected, str(array.min()), "give one for each example")
    return array.astype(np.int64 if counts else np.float64)
