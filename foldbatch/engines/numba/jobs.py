"""Jobs: functions on arrays, one after the other in one compiled call; a helper takes parts of large ones.

Importing this needs Numba.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from ctypes import c_int64
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit

from foldbatch.engines.numba import atomics, memory, team
from foldbatch.engines.numba.compiling import FORM, Native, compile_text, digest
from foldbatch.engines.numba.memory import POINTERS, call, i8, moved, u8
from foldbatch.engines.numba.team import OPTIONS, Team, _share
from foldbatch.params import Array

HEAD, STATIC = 6, 5  # numbers of a job before its places; which of them its function is told
EACH, MOST = 16_384, 64  # numbers of an array that a part goes through, and parts of a job
WORTH = 4 * EACH  # numbers from which waking the helper pays
DATA = (
    object.__basicsize__
)  # where, in an array's object, the address of its numbers is: NumPy's `PyArray_DATA`
at = POINTERS["pointer_i8"]


def _run(jobs: Any, count: Any, words: Any, room: Any) -> None:
    """Run jobs.

    Args:
        jobs: address of the jobs. Each is its function, how many places that takes, units, parts, work, and a
            number that the function is told; then for every place the address of an array's object, and the
            bytes of a unit.
        count: how many there are.
        words: address of what is shared with a helper, see `team`; 0 where there is none.
        room: address of memory for the arguments of all parts of a job.
    """
    where = jobs
    for _ in range(u8(count)):
        here = at(where)
        places, units, parts = u8(here[1]), here[2], here[3] if words != 0 else i8(1)
        given, apart, static = moved(here, u8(HEAD)), places + u8(2), where + 8 * STATIC
        for part in range(u8(parts)):
            to = moved(at(room), part * apart)
            first, last = units * i8(part) // parts, units * (i8(part) + 1) // parts
            to[0], to[places + u8(1)] = last - first, static
            for p in range(places):
                begin = at(given[u8(2) * p] + DATA)[0]
                to[p + u8(1)] = begin + first * given[u8(2) * p + u8(1)]
        if parts > 1:
            _share(words, here[0], here[1], room, i8(apart), parts, here[4] // parts)
        else:
            call(here[0], at(room), at(static))
        where += 8 * (HEAD + 2 * here[1])


@cache
def compiled() -> Any:
    """Return `_run` compiled: once a process, read from the cache on disk where there is one."""
    text = "\n\n".join([team.source(), inspect.getsource(_run)])
    known = "\n".join(
        [FORM, str((HEAD, STATIC, DATA)), inspect.getsource(memory), inspect.getsource(atomics), text]
    )
    return compile_text(f"jobs_{digest(known)}", text, partial(_compiled, text))


def _compiled(text: str, filename: str, keep: bool) -> Any:  # noqa: FBT001 - called by position
    scope: dict[str, Any] = {**globals(), **vars(team)}
    exec(compile(text, filename, "exec"), scope)  # noqa: S102 - the text is our own
    scope = team.functions(scope)
    return njit("void(i8, i8, i8, i8)", cache=keep, **OPTIONS)(scope["_run"])


class Jobs:
    """Jobs that are put together one by one, and then run."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._arrays: list[Array] = []  # which live until the jobs have run
        self._count, self._work, self._room = 0, 0, 0

    def add(
        self, function: Native, units: int, places: Sequence[tuple[Array, int]], work: int, static: int = 0
    ) -> None:
        """Add a job.

        Args:
            function: what is called with a number of units, the places, and a whole number.
            units: how many units there are, one after the other.
            places: arrays, each with the bytes from one unit to the next.
            work: how many numbers of an array the job goes through.
            static: the whole number.
        """
        parts = max(1, min(work // EACH, units, MOST)) if work > EACH else 1
        numbers = self._numbers
        numbers += (function.address, len(places), units, parts, work, static)
        for array, step in places:
            numbers += (id(array), step)
            self._arrays.append(array)
        self._count += 1
        self._work += work
        self._room = max(self._room, parts * (len(places) + 2))

    def run(self, helper: Team | None) -> None:
        """Run them all; large ones together with a helper, if it is idle."""
        numbers, room = np.array(self._numbers, np.int64), np.empty(self._room, np.int64)
        words = helper.take() if helper is not None and self._work >= WORTH else 0
        compiled()(address_of(numbers), self._count, words, address_of(room))
        if words and helper is not None:
            helper.leave()


def address_of(array: Array) -> int:
    """Return where an array's numbers begin."""
    address: int = c_int64.from_address(id(array) + DATA).value
    return address
