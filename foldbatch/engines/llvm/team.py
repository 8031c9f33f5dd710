"""A team: the thread that walks a batch, and a helper on another core that takes parts of instructions.

An instruction that is cut into parts is a *job*. The walking thread takes its parts from the first one on,
the helper from the last one on, until they meet. So each core keeps its own columns of a weight in its cache.
Where the helper sleeps, the walking thread does all parts. The helper waits in three ways: it spins for some
microseconds, then it gives way to other threads, then it sleeps.

A busy neighbour may take the helper's core while it is at a part, and the walking thread has to wait. That is
a *stall*. After one, or where the helper had no core at all, it is left alone for a while, and sleeps: giving
way again and again it would be in the way of the walking thread on a core that many want. It is longer each
time, until stalls are rare.

The words that threads share, `Lines`, lie in different lines of the cache.
Importing this needs llvmlite.

Source: taking work from the other end, Blumofe and Leiserson 1999, "Scheduling multithreaded computations by
work stealing".
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from math import inf

import numpy as np
from numpy.typing import NDArray

from foldbatch.loops.compiling import compiled_function
from foldbatch.loops.records import Header, Record
from foldbatch.loops.words import at, call, count, give_way, i8, load, pause, store, swap, u8
from foldbatch.system.cores import available_cores
from foldbatch.system.processes import start_in_each_process

LINE_WORDS = 16  # words of two lines of a cache, which processors fetch in pairs
LINE = 8 * LINE_WORDS  # its bytes


class Lines(Record):
    """The words that threads share; a field is the number of the line at whose beginning it lies."""

    state: int  # the number of the job, its first free part, and the one after its last free part
    job: int  # the `Job`
    completed: int  # how many parts the helper has done
    awake: int  # whether the helper is there
    asleep: int  # whether it is to sleep at once
    stalls: int  # how often the walking thread has waited for too long
    yields: int  # the address of the system's function that lets other threads run


class Job(Header):
    """An instruction that is cut into parts."""

    function: int  # the address of the function that is called for each part
    pointers: int  # how many it takes
    arguments: int  # the address of those of the first part
    apart: int  # words from there to the arguments of the next part


PART, JOBS = 256, 65536  # what a part, and a job, count in the state

SPINS, YIELDING_LOOKS = (
    1500,
    10_000,
)  # looks for a job before the helper gives way at each, and then until it sleeps
STALL_LOOKS, FAIR = 4000, 200  # looks at a part under way until it is a stall: so many, and work / FAIR more
MIN_JOBS = 8  # jobs of a batch in which the helper, if it has a core, finds something to do
WAKING = 0.002  # seconds that waking it may take
MIN_REST, MAX_REST = 0.003, 0.5  # seconds without the helper after a stall, and after many
RARE = 0.02  # seconds a stall: a helper that has them no more often is worth what they take


def _do_part(words: int, part: int) -> None:
    """Do a part of the job. Its arguments are rows, pointers, and the address of its integers."""
    memory = at(words + LINE * Lines.job)
    job = Job(memory)
    arguments = at(job.arguments + 8 * part * job.apart)
    call(job.function, arguments, at(arguments[job.pointers + 1]))


def share(
    words: int, function: int, pointers: int, arguments: int, apart: int, parts: int, work: int
) -> None:
    """Do a job together with the helper, and return when all its parts are done.

    Args:
        words: address of the words that threads share.
        function: address of the function that is called for each part.
        pointers: number of pointers that it takes.
        arguments: address of the arguments of the first part, as `_do_part` reads them.
        apart: words from there to the arguments of the next part.
        parts: number of parts, below 256.
        work: multiplications of a part, about.
    """
    memory = at(words + LINE * Lines.job)
    job = Job(memory)
    job.function, job.pointers, job.arguments, job.apart = function, pointers, arguments, apart
    before, taken = load(words + LINE * Lines.completed), 0
    store(words + LINE * Lines.state, i8((u8(load(words + LINE * Lines.state)) // JOBS + 1) * JOBS) + parts)
    while True:
        state = u8(load(words + LINE * Lines.state))
        first, last = state // PART % PART, state % PART
        if first == last:
            break
        if swap(words + LINE * Lines.state, state, state + PART):
            _do_part(words, i8(first))
            taken += 1
    looks, patience = 0, STALL_LOOKS + i8(u8(work) // FAIR)
    while load(words + LINE * Lines.completed) - before < parts - taken:
        looks += 1
        if looks < patience:
            pause()
        else:
            give_way(at(words + LINE * Lines.yields)[0])
    if looks >= patience:
        store(words + LINE * Lines.stalls, load(words + LINE * Lines.stalls) + 1)


def _take_parts(words: int) -> None:
    """Take parts of jobs, the last ones first, until there have been none for a while."""
    looks = 0
    while looks < SPINS + YIELDING_LOOKS:
        state = u8(load(words + LINE * Lines.state))
        first, last = state // PART % PART, state % PART
        if first == last:
            looks += 1
            if looks < SPINS:
                pause()
            elif load(words + LINE * Lines.asleep) != 0:
                looks = SPINS + YIELDING_LOOKS
            else:
                give_way(at(words + LINE * Lines.yields)[0])
        elif swap(words + LINE * Lines.state, state, state - 1):
            _do_part(words, i8(last) - 1)
            count(words + LINE * Lines.completed)
            looks = 0
    store(words + LINE * Lines.awake, 0)


class Team:
    """The helper of a process, which serves one walking thread at a time."""

    def __init__(self) -> None:
        start_in_each_process(self, Team._start)

    def _start(self) -> None:
        """Set up the shared integers and the locks, without a thread; a forked process calls it again."""
        self._lock = threading.Lock()
        self._gate = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._words = np.zeros(LINE_WORDS * (Lines.size + 1), np.int64)
        self._lines = self._words[::LINE_WORDS]  # the word of each line
        self._lines[Lines.yields] = _yields()
        self._until, self._rest_seconds, self._woken = -inf, MIN_REST, 0.0
        self._counted, self._alone = -inf, False

    @property
    def jobs(self) -> int:
        """How many jobs there have been."""
        return int(self._lines[Lines.state]) // JOBS

    @property
    def helped(self) -> int:
        """How many of their parts the helper has done."""
        return int(self._lines[Lines.completed])

    @property
    def stalls(self) -> int:
        """How often a walking thread has waited too long for the helper."""
        return int(self._lines[Lines.stalls])

    def take(self) -> int:
        """Return the address of the words, with the helper awake; 0 if there is no helper to be had now.

        After any result but 0, `leave` must be called.
        """
        now = time.monotonic()
        if now >= self._counted + RARE:  # cores may come and go; to count them takes 4 us
            self._alone = available_cores() == 1
            self._counted = now
        if self._alone or now < self._until or not self._lock.acquire(blocking=False):
            return 0
        words: int = self._words.ctypes.data
        self._before = self.jobs, self.helped, self.stalls
        self._lines[Lines.asleep] = 0
        if not self._lines[Lines.awake]:
            try:
                self._wake()
            except RuntimeError:  # the process may start no more threads
                self._until = time.monotonic() + MAX_REST
                self._lock.release()
                return 0
        return words

    def _wake(self) -> None:
        """Wake the helper, and start its thread at the first time."""
        if self._thread is None:
            arguments = compiled_function(_take_parts, "i8", sys.modules[__name__]), self._words, self._gate
            thread = threading.Thread(target=_serve, args=arguments, name="foldbatch-helper", daemon=True)
            thread.start()
            self._thread = thread
        self._lines[Lines.awake] = 1
        self._woken = time.monotonic()
        self._gate.release()

    def leave(self) -> None:
        """Release the helper; after a stall, or if it was no help, it rests before it can be taken again."""
        jobs, helped, stalls = self._before
        now = time.monotonic()
        stalled = self.stalls - stalls
        idle = self.helped == helped and self.jobs > jobs + MIN_JOBS and now > self._woken + WAKING
        if idle or stalled:
            rare = not idle and now - self._until >= RARE * stalled
            self._rest_seconds = MIN_REST if rare else min(2 * self._rest_seconds, MAX_REST)
            self._until = now + self._rest_seconds
            self._lines[Lines.asleep] = 1
        self._lock.release()


def _serve(take_parts: Callable[[int], int], words: NDArray[np.int64], gate: threading.Semaphore) -> None:
    """Run in the helper's thread for ever: wait at the gate, then take parts of jobs until there are none.

    Args:
        take_parts: compiled code, given the address of `words`.
        words: the integers that both threads share; this reference keeps them alive.
        gate: the semaphore that wakes the thread.
    """
    address = words.ctypes.data
    while True:
        gate.acquire()
        take_parts(address)


def _yields() -> int:
    """Return the address of the system's function that lets other threads run."""
    library, name = ("kernel32", "SwitchToThread") if sys.platform == "win32" else (None, "sched_yield")
    return ctypes.cast(getattr(ctypes.CDLL(library), name), ctypes.c_void_p).value or 0


@cache
def team() -> Team:
    """Return the helper of this process."""
    return Team()
