"""A race: tasks run in turn on one device, and everybody waits for the device before a clock is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from benchmarks.measure import Timing, timing

FEWEST = 3  # runs of each task, whatever time they take


@dataclass(frozen=True, slots=True)
class Task:
    """What is timed: `run`, each time after `before`, which is not."""

    run: Callable[[], object]
    before: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Lap:
    """Seconds of one part of a task.

    Attributes:
        whole: until the device had done it.
        host: until the call returned, which had only enqueued the work; the median.
    """

    whole: Timing
    host: float


@dataclass(slots=True)
class Raced:
    """What a race found: laps by task, and by task that dropped out, why."""

    laps: dict[str, Lap] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def race(
    tasks: Mapping[str, Task], wait: Callable[[], None], repeats: int, seconds: float, parts: int = 1
) -> Raced:
    """Warm every task up, then run all of them in turn, `repeats` times or until the seconds are over.

    Args:
        tasks: by name. One that raises drops out with what it said.
        wait: returns when the device has nothing left to do.
        repeats: the most runs of a task that count.
        seconds: about how long the race may take; each task has `FEWEST` runs all the same.
        parts: alike, of which a task consists; a lap is one of them.

    >>> found = race({"a": Task(lambda: None), "b": Task(lambda: 1 // 0)}, lambda: None, 5, 1.0)
    >>> found.laps["a"].whole.runs, found.failed
    (5, {'b': 'ZeroDivisionError: integer division or modulo by zero'})
    """
    found, stop = Raced(), time.perf_counter() + seconds
    whole: dict[str, list[float]] = {name: [] for name in tasks}
    host: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(1 + repeats):
        if turn > FEWEST and time.perf_counter() > stop:
            break
        for name, task in tasks.items():
            if name in found.failed:
                continue
            try:
                task.before()
                wait()
                start = time.perf_counter()
                task.run()
                returned = time.perf_counter()
                wait()
                done = time.perf_counter()
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the others go on
                found.failed[name] = described(error)
                continue
            if turn:
                whole[name].append(done - start)
                host[name].append(returned - start)
    for name, values in whole.items():
        if name not in found.failed:
            found.laps[name] = Lap(timing(values, parts), median(host[name]) / parts)
    return found


def described(error: BaseException) -> str:
    """Return an error in one line of 200 characters at most."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
