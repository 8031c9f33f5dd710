"""Readings: whether the walks of a batch may read its examples a second time.

A second reading is wanted where a datum is refused after the walks have ended, to tell the line of its call
and to let the walk handle the error, and where a walk calls itself deeper than Python lets it. It is done
where `foldbatch.model.rereading` shows that the first one has left the examples as they were. Else the first
reading counts: its error is raised, or the batch is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from foldbatch.errors import ExampleError, ExamplePlace, WalkError
from foldbatch.model.rereading import Obstacle, Snapshot, obstacle

T = TypeVar("T")

# batches of a walk of which snapshots are taken; later ones would be slower for them
SNAPSHOT_BATCHES: Final = 8
CHECKED: Final = 8  # batches whose data are checked call by call after an error whose call is not known
LATER: Final = "foldbatch: in the next runs data are checked call by call, so an error comes from its line"


@dataclass(slots=True)
class Readings:
    """The readings of one walk so far."""

    walk: Any = None
    batches: int = 0  # how many batches were read, counted up to `SNAPSHOT_BATCHES`
    checked: int = 0  # how many batches to come are checked call by call
    handles: bool = False  # whether the walk handles the errors of data, so that all batches are checked
    deep: bool = False  # whether the walk begins with room for deep calls
    refused: int = 0  # how many data the present reading has refused at their call

    def read(
        self, examples: Sequence[object], numbers: Sequence[int], work: Callable[[Reading, bool], T]
    ) -> T:
        """Return the result of `work`, which runs the walk on examples, if need be a second time.

        Args:
            examples: the examples of the batch.
            numbers: their numbers in the batch, for errors.
            work: runs the walk, given the reading, and whether each datum is checked at its call.

        Raises:
            ExampleError: when a datum is refused, and the walk does not handle that.
        """
        self.refused = 0
        before = None
        if self.batches < SNAPSHOT_BATCHES:
            self.batches += 1
            before = Snapshot(examples)
        reading = Reading(examples, numbers, self, before)
        careful = self.handles or self.checked > 0
        try:
            result = work(reading, careful)
        except ExampleError as error:
            if careful and not error.late:
                self.checked = 0  # the walk does not handle it
            if careful or not error.late:
                raise
            first = error
        else:
            if careful:
                self.handles |= self.refused > 0
                self.checked -= self.checked > 0
            return result
        if reading.obstacle() is not None:
            self.checked = CHECKED
            first.add_note(LATER)
            raise first
        reading = Reading(examples, numbers, self, before)
        result = work(reading, True)  # noqa: FBT003 - `work` is a function of the package
        if not self.refused:  # the walk depends on more than its example, and has not read the datum again
            raise first
        self.handles = True
        return result


@dataclass(slots=True)
class Reading:
    """One reading of the examples of a batch."""

    examples: Sequence[Any]
    numbers: Sequence[int]  # the numbers of the examples in the batch, for errors
    history: Readings  # the earlier readings of the walk
    before: Snapshot | None = None  # the contents of the examples before it, if they are kept

    def tail(self, count: int) -> Reading:
        """Return the reading without its first examples, so many as `count`, which have been traced."""
        if not count:
            return self
        before = None if self.before is None else self.before.tail(count)
        return Reading(self.examples[count:], self.numbers[count:], self.history, before)

    def obstacle(self) -> Obstacle | None:
        """Return the reason why the examples cannot be read again; None where they can."""
        return obstacle(self.examples, self.before)

    def refuse_second(self, why: str, remedy: str = "") -> None:
        """Check that the examples can be read again; for a caller that is about to do so.

        Args:
            why: the reason for the second reading, for the error.
            remedy: a further remedy, for the error.

        Raises:
            WalkError: when an example cannot be read again.
        """
        if (obstacle := self.obstacle()) is not None:
            where = ExamplePlace("walk", self.numbers[obstacle.place])
            expected = f"data that can be read again, as {why}"
            raise WalkError(where, expected, obstacle.actual, obstacle.fix + remedy)
