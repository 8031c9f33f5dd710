"""What one run of the benchmark found, as plain data, and the seconds that it has left."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.gpu.race import Lap


@dataclass(frozen=True, slots=True)
class Row:
    """What one contender takes for one batch.

    Attributes:
        model: the model's name.
        task: ``train`` or ``infer``.
        who: the contender.
        hidden: size of states.
        batch: number of examples.
        seconds: of one batch, until the device had done it; the median.
        low: the first quartile; `high` the third.
        host: seconds until the call returned, which had only enqueued the work; the median.
        runs: how many counted.
    """

    model: str
    task: str
    who: str
    hidden: int
    batch: int
    seconds: float
    low: float
    high: float
    host: float
    runs: int

    @property
    def rate(self) -> float:
        """Examples per second."""
        return self.batch / self.seconds


def row(model: str, task: str, who: str, hidden: int, batch: int, lap: Lap) -> Row:
    """Return a row of a lap."""
    whole = lap.whole
    return Row(model, task, who, hidden, batch, whole.median, whole.low, whole.high, lap.host, whole.runs)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold on the card.

    Attributes:
        name: what was checked.
        state: ``passed``, ``failed`` or ``skipped``.
        found: in words.
    """

    name: str
    state: str
    found: str


@dataclass(slots=True)
class Record:
    """What a run found.

    Attributes:
        facts: of the machine and of the run, by name.
        rates: measured rates of the card, by name, in units of seconds, bytes and operations.
        checks: in order.
        rows: times, in order.
        steps: for one training step of a model: where the time goes, launches, copies, bytes, floor.
        ways: for each way to launch a training step of a model: launches, copies, bytes, graphs.
        left_out: by part, why it was not run, or not to its end.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    ways: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.state != "failed" for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data that JSON can hold."""
        return asdict(self)


class Budget:
    """Seconds that a run may take, from now on.

    >>> Budget(60.0).left() > 59
    True
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._start = time.monotonic()

    def spent(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self._start

    def left(self) -> float:
        """Return the seconds that are left; below 0 when too many are spent."""
        return self.seconds - self.spent()
