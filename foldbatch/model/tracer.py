"""The seam between front ends and what runs models: a `Tracer` turns examples into traces for its model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

from foldbatch.model.data import Data
from foldbatch.model.drafts import PrunedDraft
from foldbatch.model.model import Model
from foldbatch.model.reading_paths import ReadingPaths
from foldbatch.params.parameters import Array, Parameter
from foldbatch.planning.policies import Policy
from foldbatch.scheduler.trace import Trace

# Is given the data that were read before they become arrays, and may put others in their places: per cell and
# feed of the model, a list in the order of calls.
Look: TypeAlias = Callable[[Model, Sequence[Sequence[list[object]]]], None]
# From examples and their numbers in the batch, for errors.
TraceAll: TypeAlias = Callable[[Sequence[object], Sequence[int]], list[Trace]]


R = TypeVar("R")


class ExamplesNoted(Protocol):
    """The notes of examples: those of blocks are a `SmallBatch`, those of walks `functions.notes.Notes`."""

    @property
    def results(self) -> Sequence[object]:
        """Per example, what the origin returned."""


class ExamplesRead(Protocol):
    """Examples that a walk is about to read: `functions.readings.Reading`."""

    @property
    def examples(self) -> Sequence[object]:
        """The examples."""

    @property
    def numbers(self) -> Sequence[int]:
        """Their numbers in the batch, for errors."""


class Decide(Protocol):
    """Runs a walk whose examples ask for numbers."""

    def __call__(self, tracer: Tracer, reading: ExamplesRead, *, careful: bool = False) -> ExamplesNoted:
        """Run the walk of a tracer on examples; whenever all wait, compute the calls noted of all.

        With `careful`, each datum is checked when it is read.
        """


# Takes the notes of all examples, and their numbers; returns their results, or None where they become traces.
RunSmall: TypeAlias = Callable[[ExamplesNoted, Sequence[int]], R | None]

MAX_CALLS = 10_000_000  # calls of one example, by default


@dataclass(frozen=True, slots=True)
class Written:
    """A user's description of a model, as a file holds it."""

    plain: Data  # as plain data
    arrays: dict[str, Array] = field(default_factory=dict)  # those that are no parameters, by name
    # functions that have no import path, so that it cannot be written
    lost: list[str] = field(default_factory=list)


class Tracer(Protocol):
    """Turns examples into traces, and has the model that these fit.

    The model may grow while examples are traced; then it is another object. The traces that a call returns
    fit the model that the tracer has when the call returns.
    """

    @property
    def origin(self) -> object:
        """The user's object: a block, or a function."""

    @property
    def name(self) -> str:
        """The origin in a few words, for `repr`."""

    @property
    def model(self) -> Model:
        """The model that traces fit."""

    @property
    def parameters(self) -> Sequence[Parameter]:
        """The parameters of all cells that are known, whether or not something of the model reads them."""

    @property
    def grows(self) -> bool:
        """Whether the model may grow."""

    @property
    def runs_functions(self) -> bool:
        """Whether functions of the user run on parts of examples, and may change them."""

    @property
    def cells(self) -> Sequence[tuple[Hashable, PrunedDraft]]:
        """Per cell of the model an object that stays the same when the model grows, and what is left of it.

        Nothing where the model does not grow.
        """

    @property
    def policy(self) -> Policy:
        """The policy that the levels of traces are for."""

    @property
    def max_calls(self) -> int:
        """How many calls an example may make."""

    @property
    def asides(self) -> frozenset[str]:
        """Which of ``losses`` and ``metrics`` the model has, or would have."""

    @property
    def source(self) -> str:
        """The program that makes traces, as text; equal texts make equal traces of equal data."""

    @property
    def way(self) -> str:
        """How examples are traced, and why so, in a sentence or two."""

    @property
    def reached(self) -> Iterable[object]:
        """The objects that the program reads besides examples, vocabularies among them."""

    @property
    def decides(self) -> bool:
        """Whether numbers that the model computes have decided what an example calls; then traces pass."""

    def lock(self) -> AbstractContextManager[object]:
        """Keep other threads from tracing, where only one at a time can."""

    def trace_all(
        self,
        examples: Sequence[object],
        numbers: Sequence[int],  # their numbers in the batch, for errors
        look: Look | None = None,  # sees the data that were read; it may be called several times
        decide: Decide | None = None,  # computes for examples that ask for numbers; None refuses them
        run_small: RunSmall[R] | None = None,  # may run a small batch from its notes
    ) -> list[Trace] | R:
        """Return the traces of examples; or their results, where `run_small` returns them.

        Raises:
            ExampleError: when an example does not fit the model; it tells of the first one that does not.
        """

    def variant(self, asides: frozenset[str], policy: Policy | None = None) -> Tracer:
        """Return a tracer of the same origin whose model has only some asides, or for another policy."""

    def place_of(self, example: object, cell: int, call: int) -> str:
        """Return the part of an example that a call is for, as Python would index it, or an empty text."""

    def paths_of(self, example: object) -> ReadingPaths:
        """Return where in an example the data lie that calls read, as far as that is known.

        The example is read once more. Nothing is known behind the first number that decides.
        """

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        """Return sentences for a report on a batch; `calls` are the counts of each cell's calls."""

    def lengths(self, fewest: int) -> tuple[str, str] | None:
        """Describe the arrays that have a cell for each length, and how to do with one cell.

        None where no cell has so many.
        """

    def debug(self, example: object, begin: Callable[[Parameter], None]) -> object:
        """Run one example with real numbers, where the origin is a function.

        `begin` is given each parameter before it is read.

        Raises:
            BlockTypeError: when it is a block.
        """

    def written(self, parameters: Mapping[str, Parameter]) -> Written:
        """Return the origin as plain data, given the names of its parameters."""
