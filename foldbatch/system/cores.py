"""Cores: how many a process may use, by its affinity, the quota of its container, and what the user says."""

import os
from contextlib import suppress
from functools import cache
from math import ceil, inf
from pathlib import Path

from foldbatch.errors import BackendError

VARIABLE = "FOLDBATCH_THREADS"
CONTROL = Path("/sys/fs/cgroup")


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
        own = next((line[3:] for line in lines if line.startswith("0::")), "/")
        group = CONTROL / own.strip("/")
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
