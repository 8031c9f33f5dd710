"""Columns: whether a tracing program can be applied to many examples by array operations, and doing so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from foldbatch.blocks.columnar.clock import Frame
from foldbatch.blocks.columnar.joining import Bounds, differences, join, number
from foldbatch.blocks.columnar.kinds import Column, ObjectColumn, Refused, StoredColumn
from foldbatch.blocks.columnar.reading import planted
from foldbatch.blocks.columnar.scope import CallLog, Scope
from foldbatch.blocks.columnar.statements import Interpreter
from foldbatch.blocks.drafts import Procedure
from foldbatch.model.model import Model
from foldbatch.model.wires import components
from foldbatch.scheduler.record import TraceColumns
from foldbatch.trees import Tree
from foldbatch.trees.records import Records

MANY, MOST_EXAMPLES = 1_000_000, 10_000  # nodes and examples of a record, about
FEW = 1300  # nodes: fewer are traced one by one, which takes no longer
FEW_VALUES = 1500  # of Arrow data, likewise
MOST_SKIPPED = 64  # batches, after many have been refused in turn


@dataclass(slots=True)
class Refusals:
    """Batches that had no columns in spite of the model: the more in turn, the less often they are tried."""

    pause: int = 0  # how many batches are left to the program before the next try
    skipped: int = 0  # how many of these are left
    last: str = ""  # why the last one was refused; empty if none was


@dataclass(frozen=True, slots=True)
class Columns:
    """A tracing program whose functions are applied to all their visits at once."""

    functions: Interpreter  # the functions of the program, the root's first
    model: Model  # the model that traces fit
    bounds: Bounds  # per cell and feed, the number that ids must be below, or None
    width: int  # how many value numbers each call reserves
    refusals: Refusals = field(default_factory=Refusals)  # the batches that had no columns

    @property
    def recurs(self) -> bool:
        """Whether the program recurs. Where it only has loops, it takes no longer than columns."""
        return bool(self.functions.recursive)

    def pay(self, examples: Sequence[Any]) -> bool:
        """Return whether columns take less time than the program run on each example."""
        if isinstance(examples, Records):
            return examples.values >= FEW_VALUES
        return self.recurs and sum(map(_size, examples)) >= FEW

    def records(self, examples: Sequence[Any], max_calls: int) -> list[TraceColumns] | None:
        """Return the calls that examples make, in a few records; None where the program must be run on each.

        Args:
            examples: what the root block reads.
            max_calls: how many calls an example may make.
        """
        refusals = self.refusals
        if not self.pay(examples):
            return None
        if refusals.skipped:
            refusals.skipped -= 1
            return None
        try:
            found = [self.record(part, max_calls) for part in parts_of(examples)]
        except Refused as refused:
            refusals.pause = min(2 * refusals.pause + 1, MOST_SKIPPED)
            refusals.skipped, refusals.last = refusals.pause - 1, str(refused)
            return None
        refusals.pause = 0
        return found

    def record(self, examples: Sequence[Any], max_calls: int) -> TraceColumns:
        """Return the calls that examples make.

        Raises:
            Refused: where some example does not fit, or is such that the program must be run on it.
        """
        root = next(iter(self.functions.procedures))
        argument: Column
        if isinstance(examples, Records):
            argument = StoredColumn(examples.store(), examples.rows)
        else:
            argument = planted(ObjectColumn(np.arange(len(examples)), examples))
        run, frame = CallLog(len(self.model.cells), self.width), Frame(len(examples))
        results = self.functions.visit(Scope(run, frame, None, len(examples)), root, [argument])
        numbers = number(run, frame)
        if len(numbers.ends) and differences(numbers.ends).max() > max_calls:
            raise Refused("an example makes more calls than it may")
        return join(self.model, self.bounds, run, numbers, results)


def find(functions: Sequence[Procedure], model: Model) -> Columns | str:
    """Return the columns of a tracing program, or what keeps it from having any: a block and a reason.

    Args:
        functions: the functions of the program, the root's first.
        model: the model that traces fit.
    """
    try:
        columns = Columns(_functions(functions), model, model.bounds, _width(model))
        columns.record([], 0)
    except Refused as refused:
        return str(refused)
    return columns


def parts_of(examples: Sequence[Any]) -> list[Sequence[Any]]:
    """Return examples in parts of about as many, each for one record, so that numbers stay within 32 bits."""
    size = examples.values if isinstance(examples, Records) else sum(map(_size, examples))
    count = 1 + max(size // MANY, len(examples) // MOST_EXAMPLES)
    bounds = [len(examples) * i // count for i in range(count + 1)]
    return [examples[first:last] for first, last in pairwise(bounds)]


def _size(example: Any) -> int:
    """Return about how many nodes an example has: a tree, or a tuple or list with trees."""
    if type(example) is Tree:
        return len(example.labels)
    parts = example if type(example) in (tuple, list) else ()
    return 1 + sum(part.size for part in parts if type(part) is Tree)


def _width(model: Model) -> int:
    return max([1, *(len(signature.outputs) for signature in model.signatures)])


def _functions(functions: Sequence[Procedure]) -> Interpreter:
    calls = {function.name: function.calls for function in functions}
    component = components(list(calls), calls)
    recursive = {
        name for name, called in calls.items() for each in called if component[each] == component[name]
    }
    return Interpreter({function.name: function for function in functions}, frozenset(recursive))
