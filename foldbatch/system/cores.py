"""Cores: how many a process may use, by its affinity, the quota of its container, and what the user says.

Where cores have nodes of memory of their own, a thread can be kept on one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import ceil, inf
from pathlib import Path

from foldbatch.errors import BackendError

VARIABLE = "FOLDBATCH_THREADS"
CONTROL = Path("/sys/fs/cgroup")
NODES = Path("/sys/devices/system/node")


def available_cores() -> int:
    """Return the cores this process may use; ``FOLDBATCH_THREADS`` in the environment decides."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        if not wanted.isascii() or not wanted.isdigit() or int(wanted) < 1:
            raise BackendError(VARIABLE, "a number of threads, 1 or more", repr(wanted), "or leave it unset")
        return int(wanted)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, quota()))


@cache
def quota() -> int:
    """Return how many cores' time the control groups of a container grant; many where they do not say."""
    granted = inf
    with suppress(OSError, ValueError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        path = next((line[3:] for line in lines if line.startswith("0::")), "/")
        group = CONTROL / path.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(CONTROL):
                granted = min(granted, _share(folder / "cpu.max"))
    with suppress(OSError, ValueError):  # control groups of the first kind
        folder = CONTROL / "cpu"
        limit, period = (int((folder / f"cpu.cfs_{word}_us").read_text()) for word in ("quota", "period"))
        granted = min(granted, limit / period) if limit > 0 else granted
    return 1_000_000 if granted == inf else max(1, ceil(granted))


def _share(file: Path) -> float:
    """Return the cores that a file grants: it holds microseconds, or ``max``, and those of a period."""
    if not file.exists():
        return inf
    limit, period = file.read_text(encoding="utf-8").split()
    return inf if limit == "max" else int(limit) / int(period)


@contextmanager
def on_node(place: int) -> Iterator[None]:
    """Keep this thread on the cores of one node of memory, the same one for equal places.

    Memory lies on the node of the thread that first writes to it. Nothing happens where this thread's cores
    are of one node, or where the system does not tell.
    """
    before = os.sched_getaffinity(0) if nodes() else set[int]()
    usable = [node & before for node in nodes() if node & before]
    if len(usable) < 2:
        yield
        return
    os.sched_setaffinity(0, usable[place % len(usable)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@cache
def nodes() -> list[set[int]]:
    """Return the cores of each node of memory of this machine; none where there is one node."""
    cores_of_node = []
    with suppress(OSError, ValueError):
        for file in sorted(NODES.glob("node*/cpulist")):
            runs = [run.split("-") for run in file.read_text(encoding="utf-8").strip().split(",") if run]
            cores_of_node.append({core for run in runs for core in range(int(run[0]), int(run[-1]) + 1)})
    return cores_of_node if len(cores_of_node) > 1 and hasattr(os, "sched_setaffinity") else []
