"""Random walks with data to run them on, for the laws of models that are plain functions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

import foldbatch as fb
from tests.oracle import Meaning
from tests.programs.recipes import Source
from tests.walks import exact
from tests.walks.both import program_of
from tests.walks.maker import Walks
from tests.walks.ways import WAYS, walk_of

__all__ = ["WalkProgram", "drawn_of_both", "drawn_walk"]


@dataclass(frozen=True, slots=True)
class WalkProgram:
    """A whole walk with examples to run it on; attributes are as in `tests.programs.recipes.BlockProgram`."""

    block: Callable[[Any], Any]
    examples: list[Any]
    seed: int
    poisoned: Sequence[Any] = ()  # the same examples without labels
    known: dict[Any, Any] = field(default_factory=dict)

    def meant(self, example: Any) -> Meaning:
        walk = exact.block(self.block) if isinstance(self.block, fb.Block) else self.block
        return exact.meaning(walk, example, self.known)

    def __repr__(self) -> str:
        return f"WalkProgram(seed={self.seed})\nexamples\n  " + "\n  ".join(map(repr, self.examples))


def drawn_walk(
    seed: int, choices: int, *, size: int = 30, depth: int = 6, examples: int = 4, dropout: bool = False
) -> WalkProgram:
    """Return the random walk of a seed; after so many choices, all others are the simplest."""
    part = walk_of(Walks(Random(seed), choices, size, WAYS, dropout), depth)
    return _drawn(part, seed, examples, poisons=True)


def drawn_of_both(
    seed: int, choices: int, *, size: int = 30, depth: int = 6, examples: int = 4, dropout: bool = False
) -> WalkProgram:
    """Return the random program of a seed in which walks and blocks call each other."""
    part = program_of(Random(seed), choices, size, depth, dropout=dropout)
    return _drawn(part, seed, examples, poisons=False)  # programs of blocks in walks read all that they can


def _drawn(part: Any, seed: int, examples: int, *, poisons: bool) -> WalkProgram:
    data = []
    for poisoned in (False, poisons):
        source = Source(np.random.default_rng(seed), poisoned=poisoned)
        data.append([part.data(replace(source), 3) for _ in range(1 + source.number(examples))])
    return WalkProgram(part.run, data[0], seed, data[1])
