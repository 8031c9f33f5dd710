"""A run under way: what it is asked for, the card, the trees, and what it has found so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.gpu.card import Card
from benchmarks.gpu.rates import QUICK, Sizes
from benchmarks.gpu.record import Budget, Record
from benchmarks.gpu.trees import WORDS
from foldbatch.trees import Tree
from foldbatch.types import BackendName


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked for; `quick` ones try everything on tiny models.

    Attributes:
        backend: that is measured.
        hidden: sizes of the SST Tree-LSTM, the first one in full.
        batches: numbers of trees.
        words: rows of the embedding.
        trees: how many are drawn where there is no treebank.
        repeats: the most runs of each task.
        race: about how many seconds one model with one size of batch may take.
        fold_size: of states in Fold's model, `fold_leaves` of its trees, and `fold_batches` of them.
        law: seconds of random programs; 0 checks nothing in other processes.
        rates: of what the card's rates are measured.
    """

    backend: BackendName
    hidden: tuple[int, ...] = (150, 300, 512, 1024)
    batches: tuple[int, ...] = (256, 1, 16, 64, 1024)
    words: int = WORDS
    trees: int = 4096
    repeats: int = 15
    race: float = 5.0
    fold_size: int = 1024
    fold_leaves: int = 128
    fold_batches: tuple[int, ...] = (256, 1, 32, 1024)
    law: float = 45.0
    rates: Sizes = field(default_factory=Sizes)


def quick(backend: BackendName) -> Settings:
    """Return settings that try everything in seconds, to see that it runs."""
    return Settings(backend, (6,), (3, 1), 60, 12, 3, 0.0, 6, 5, (2,), 0.0, QUICK)


@dataclass(slots=True)
class Run:
    """A run under way."""

    settings: Settings
    card: Card
    trees: Sequence[Tree]
    budget: Budget
    record: Record = field(default_factory=Record)

    def batches(self, size: int) -> list[list[Tree]]:
        """Return different batches of a size, the same ones each time: more of small ones.

        A tree is drawn again only when all have been.
        """
        count = max(2, min(16, 1024 // size)) if self.settings.race else 2
        rng = np.random.default_rng([1, size])
        order: list[int] = []
        while len(order) < count * size:
            order += rng.permutation(len(self.trees)).tolist()
        return [[self.trees[i] for i in order[k * size : (k + 1) * size]] for k in range(count)]
