"""Busy neighbours: processes that compute flat out beside what is measured, switched on and off."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Self

COMPUTE = "while True: pass"


class Neighbours:
    """Some processes that compute all the time, pinned to nothing; a context that ends them.

    They sleep until `wake`: signals stop and continue them, as systems other than Windows have them.

    Args:
        count: of processes.
    """

    def __init__(self, count: int) -> None:
        self._processes = [subprocess.Popen([sys.executable, "-S", "-c", COMPUTE]) for _ in range(count)]  # noqa: S603
        self.sleep()

    def wake(self) -> None:
        """Let them compute."""
        self._send(signal.SIGCONT)

    def sleep(self) -> None:
        """Stop them."""
        self._send(signal.SIGSTOP)

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
