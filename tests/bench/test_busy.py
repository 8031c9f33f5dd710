"""Neighbours are busy while they are awake, and gone afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from foldbatch.bench.busy import Neighbours


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def _becomes(pid: int, states: str) -> bool:
    for _ in range(500):
        if _state(pid) in states:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_neighbours_sleep_until_they_are_woken() -> None:
    with Neighbours(2) as neighbours:
        pids = [process.pid for process in neighbours._processes]
        assert all(_becomes(pid, "T") for pid in pids)
        neighbours.wake()
        assert all(_becomes(pid, "R") for pid in pids)
        neighbours.sleep()
        assert all(_becomes(pid, "T") for pid in pids)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
