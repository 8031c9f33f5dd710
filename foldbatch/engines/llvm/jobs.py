"""Jobs: functions on arrays, one after the other in one compiled call; a helper takes parts of large ones.

Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.llvm import team
from foldbatch.engines.llvm.compiling import Native, compiled_function
from foldbatch.engines.llvm.objects import DATA
from foldbatch.engines.llvm.team import Team, share
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.words import at, call, i8, u8
from foldbatch.params.parameters import Array
from foldbatch.system.lines import address_of

HEAD, STATIC = 6, 5  # numbers of a job before its places; which of them its function is told
EACH, MOST = 16_384, 64  # the work of a part, as of `Jobs.add`, and parts of a job
WORTH = 8 * EACH  # the work from which asking for the helper pays


def _run(jobs: Any, count: Any, words: Any, room: Any, checks: Any, answer: Any) -> None:
    """Run jobs.

    Args:
        jobs: address of the jobs. Each is its function, how many arrays that takes, units, parts, work, and a
            number that the function is told; then the addresses of the arrays' objects, and the bytes of a
            unit in each.
        count: how many there are.
        words: address of what is shared with a helper, see `team`; 0 where there is none.
        room: address of memory for the arguments of all parts of a job.
        checks: after so many jobs the others are left if the answer is not 0.
        answer: address of a number.
    """
    where = jobs
    for number in range(count):
        if number == checks and at(answer)[0] != 0:
            return
        here = at(where)
        places, units, parts = here[1], here[2], here[3] if words != 0 else 1
        given, apart, static = moved(here, HEAD), places + 2, where + 8 * STATIC
        for part in range(parts):
            to = moved(at(room), part * apart)
            first = i8(u8(units * part) // u8(parts))
            last = i8(u8(units * (part + 1)) // u8(parts))
            to[0], to[places + 1] = last - first, static
            for p in range(places):
                to[p + 1] = at(given[p] + DATA)[0] + first * given[places + p]
        if parts > 1:
            share(words, here[0], here[1], room, apart, parts, i8(u8(here[4]) // u8(parts)))
        else:
            call(here[0], at(room), at(static))
        where += 8 * (HEAD + 2 * here[1])


class Jobs:
    """Jobs that are put together one by one, and then run."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._arrays: list[Array] = []  # which live until the jobs have run
        self._count, self._work, self._room, self._checks = 0, 0, 0, 0
        self.answer = np.zeros(1, np.int64)  # ``[1] int64``: what checks write a 1 to where they find a fault

    def add(
        self,
        # what is called with a number of units, the addresses of arrays, and a whole number
        function: Native,
        units: int,  # how many units there are, one after the other
        arrays: Sequence[Array],  # see there
        steps: Sequence[int],  # the bytes from one unit to the next in each array
        work: int,  # how many numbers the job changes, or a quarter of those that it only reads
        static: int = 0,  # the whole number
    ) -> None:
        parts, count = max(1, min(work // EACH, units, MOST)) if work > EACH else 1, len(arrays)
        self._numbers += (function.address, count, units, parts, work, static, *map(id, arrays), *steps)
        self._arrays += arrays
        self._count += 1
        self._work += work
        self._room = max(self._room, parts * (count + 2))

    def end_checks(self) -> None:
        """Let jobs that are added from now on depend on `answer`: unless it is 0, they will not run."""
        self._checks = self._count

    def run(self, helper: Team | None) -> bool:
        """Run them, large ones together with a helper, if it is idle; return whether all have run."""
        run = compiled_function(_run, "i8 i8 i8 i8 i8 i8", sys.modules[__name__], team)
        numbers, room = np.array(self._numbers, np.int64), np.empty(self._room, np.int64)
        words = helper.take() if helper is not None and self._work >= WORTH else 0
        given = address_of(numbers), self._count, words, address_of(room)
        try:
            run(*given, self._checks, address_of(self.answer))
        finally:
            if words and helper is not None:
                helper.leave()
        return not self.answer[0]
