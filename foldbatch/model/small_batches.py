"""The notes of small batches and of rounds: `Engine.run_small` runs them without a schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from foldbatch.params.parameters import Array
from foldbatch.scheduler.trace import Index


@dataclass(eq=False, slots=True)
class SmallBatch:
    """The calls of a batch of blocks before they become a trace; later batches use the same lists."""

    # rows of each cell, number by number, and elements of each sequence argument
    lists: Sequence[Sequence[int]]
    ends: list[list[int]]  # after each example, the lengths of these arrays
    offsets: list[int]  # the first value number of each example in the batch, and the end
    feeds: Sequence[Sequence[list[object]]]  # per cell, the data that were read
    # returns those of a cell and feed as an array
    column: Callable[[int, int], Array]
    results: Sequence[object]  # per example, as of `Trace`

    @property
    def examples(self) -> int:
        return len(self.ends)

    @property
    def values(self) -> int:
        """How many value numbers the examples have taken."""
        return self.offsets[-1]


class ListNotes(NamedTuple):
    """A list that the model's cell reads, as walks note it."""

    column: int  # the place of its length among the arguments of the model's cell
    elements: Sequence[int]  # the numbers of its elements
    pattern: Sequence[int]  # per member of an element, the slot that reads it


class CellNotes(NamedTuple):
    """A cell that walks call, and the lists to which its calls are appended."""

    cell: int  # its number in the model
    outputs: int  # of a call
    first_output: int  # the number of its first output, through those of all cells
    rows: Sequence[int]
    # per number of a row, the slot that reads it, or `CALL_NUMBER`, `LENGTH` or `LEFT_OUT` of `model.rounds`
    pattern: Sequence[int]
    columns: int  # how many numbers of a row the model's cell has
    lists: Sequence[ListNotes]
    # per feed, the list of data, and whether these are plain numbers; else Python brings them as an array
    feeds: Sequence[tuple[list[object], bool]]


class RoundForm(NamedTuple):
    """The lists, cells and wires that rounds have while a walk brings no new cell or wire."""

    outputs: int  # of all cells
    imports: Sequence[tuple[int, int]]  # of each import cell its number, and that of the class of its values
    arenas: Sequence[
        tuple[int, int]
    ]  # of each arena whose values are kept its number, and that of their class
    cells: Sequence[CellNotes]
    wires: Index  # ``[slots, outputs]``: 1 where the slot has read the output within a round
    kinds: Index  # ``[slots]``: the import cell whose values the slot has read, or -1
    arena_of: Index  # ``[outputs + 1]``: the arena of each output, -1 if it has none
    scalars: Mapping[int, str]  # of each class of values without axes, by number: the dtype


class Turns(NamedTuple):
    """The lists that tell which example has taken which value numbers of a batch, and what walks wait for."""

    owners: list[int]  # per turn of a walk, the place of its example in the batch
    ends: list[int]  # per turn, the number after the last one that it has taken
    requested: list[int]  # the numbers of the values that walks wait for
    start: int  # the first number of the batch


class StoreArrays(NamedTuple):
    """The arrays of the store of computed values."""

    example: Index  # ``[values]``: the place of its example in the batch
    kind: Index  # ``[values]``: the number of its class
    place: Index  # ``[values]``: its place among those of its class
    table: Index  # `model.rounds.ValueClass`, a row for each class


@dataclass(eq=False, slots=True)
class Round:
    """The notes of a round of walks, or of a small batch of walks that have ended.

    An engine that has run one runs the next ones of the same object faster; `turns` and `store` are other
    objects where their lists and arrays are.
    """

    form: Callable[[], RoundForm]  # asked for once
    # returns the data of a cell and feed, in the order of calls; None if the cell has no calls
    column: Callable[[int, int], Array | None]
    reserve: Callable[[int, int], None]  # makes room for so many values of a class in the store
    turns: Turns
    store: StoreArrays
    first: int = 0  # the first number of the round, from the beginning of the batch
    values: int = 0  # how many numbers it has
    is_batch: bool = False  # whether it is a small batch; else a round of walks that go on

    @property
    def examples(self) -> int:
        return len(self.turns.owners)


class SmallRun(Protocol):
    """A small batch or a round that has run."""

    @property
    def requested(self) -> list[object]:
        """The numbers that the walks of a round wait for, in order; empty if they are of several types.

        All are in the store, too.
        """

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return values of a `SmallBatch` by their numbers."""
