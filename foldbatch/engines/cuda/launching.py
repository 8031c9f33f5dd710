"""A batch's calls, arranged by what launches them; and the table that they are read from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from foldbatch.engines.cuda.control import (
    Call,
    Ops,
    call_of_note,
    calls_before,
    calls_of,
    calls_of_flags,
    calls_of_losses,
    calls_of_sums,
    calls_of_zeros,
    flagged,
)
from foldbatch.engines.cuda.drivers.driver import Span, Touched
from foldbatch.engines.cuda.status import WORDS
from foldbatch.engines.cuda.steps import Step
from foldbatch.engines.cuda.texts.kernel_text import CONTROL_AT
from foldbatch.engines.cuda.texts.records import BARRIERS, NOTE
from foldbatch.engines.cuda.update_records import Update
from foldbatch.engines.launch import Ints

if TYPE_CHECKING:
    from foldbatch.engines.cuda.engine import Ready


class Arranged(Protocol):
    """Calls as a launcher runs them; it may hold more.

    Attributes:
        records: ``[*, RECORD] int64``.
    """

    @property
    def records(self) -> Ints: ...


class Launched(NamedTuple):
    """A table that will be on the device when the stream comes to what is launched now.

    Attributes:
        table: where it lies.
        words: where `BARRIERS` words lie that are 0, for barriers to count in.
        update: the update of parameters that comes last, or None.
        straight: enqueues a step with its own arguments.
        touched: all memory that may be read or written.
    """

    table: Span
    words: int
    update: Update | None
    straight: Callable[[Step], None]
    touched: Callable[[], Touched]


class Launcher(Protocol):
    """What runs the calls of a table in few launches."""

    def arranged(self, forward: Sequence[Call], backward: Sequence[Call], numbers: Ints) -> Arranged | None:
        """Return calls arranged as records, or None where they are to run straight.

        The numbers are those of the packed table, which tell how many rows each call has.
        """
        ...

    def launch(self, arranged: Any, launched: Launched) -> int:
        """Run arranged calls, and then the update; return how many launches it took."""
        ...


class Calls(NamedTuple):
    """The calls of a batch and their table, but for addresses.

    Attributes:
        forward: what computes values, losses and metrics.
        backward: what computes gradients and sums of rows, and looks at them; then the status is noted.
        arranged: both.
        numbers: the packed table, words of barriers, the note and the status, and the records.
        words_at: where the words of barriers begin.
        status_at: where the status begins.
        records_at: where the records begin.
        flags: how many gradients are looked at.
    """

    forward: Sequence[Call]
    backward: Sequence[Call]
    arranged: Arranged
    numbers: Ints
    words_at: int
    status_at: int
    records_at: int
    flags: int


def calls_for(ops: Ops, ready: Ready, launcher: Launcher) -> Calls | None:
    """Return the calls of a batch, arranged by a launcher; None where it must run straight."""
    bound, packed, schedule = ready.phase.bound, ready.packed, ready.batch.schedule
    if not len(ready.tables.forward.launches):
        return None
    for k, cell in enumerate(bound.model.cells if bound.training else ()):
        if len(schedule.cells[k].order) and any((k, i) not in packed.sums for i in range(len(cell.sums))):
            return None  # a cell computes ids: the host must look at them before their rows are summed
    forward = [
        *calls_before(ops, bound, ready.tables, schedule),
        *calls_of(ops, packed.forward.steps),
        *calls_of_losses(ops, bound, schedule),
    ]
    backward = [call_of_note(ops)]
    if packed.backward is not None:
        backward = [
            *calls_of_zeros(ops, bound, packed),
            *calls_of(ops, packed.backward.steps),
            *calls_of_sums(ops, bound, packed),
            *calls_of_flags(ops, bound, ready.tables, packed),
            *backward,
        ]
    arranged = launcher.arranged(forward, backward, packed.numbers)
    if arranged is None:
        return None
    flags = len(list(flagged(bound, ready.tables, packed)))
    status = WORDS + len(bound.brought["loss"]) + flags
    words_at = len(packed.numbers)
    status_at = words_at + BARRIERS + NOTE
    records_at = status_at + status
    room = np.zeros(BARRIERS + NOTE + status, np.int64)
    numbers = np.concatenate([packed.numbers, room, arranged.records.reshape(-1)])
    numbers[CONTROL_AT] = records_at
    return Calls(forward, backward, arranged, numbers, words_at, status_at, records_at, flags)
