"""What the benchmarks take from inside the package, beyond its public names, in one place.

When the package moves one of these, this module follows and no case has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foldbatch import Program
from foldbatch.engines.batch import SubBatch
from foldbatch.engines.engine import choose_engine
from foldbatch.engines.threads import single_threaded_blas
from foldbatch.static.graph import Node
from foldbatch.system.cores import available_cores

__all__ = [
    "Node",
    "Stages",
    "available_cores",
    "backend_name",
    "device_of",
    "single_threaded_blas",
    "stages_of",
]


def backend_name(name: str) -> str:
    """Return the backend that computes when `name` is asked for: of ``auto``, the one that it picks."""
    return choose_engine(name)


@dataclass(frozen=True, slots=True)
class Stages:
    """A training step cut into what can be timed, to be called once each and in this order.

    Attributes:
        seconds: of merging and scheduling, which is done.
        ready: makes the launch tables.
        forward: runs forward; `backward` backward, each on what the one before made.
    """

    seconds: Mapping[str, float]
    ready: Callable[[], None]
    forward: Callable[[], None]
    backward: Callable[[], None]


def stages_of(program: Program, examples: Sequence[Any]) -> Stages:
    """Return a training step of a batch, run whole, cut into stages; the batch is traced and scheduled."""
    runner = program._runner
    traces = program._trace_all(examples)
    batch = runner.scheduled(traces)
    made: list[Any] = []

    def ready() -> None:
        made.append(runner.engine.ready(batch, training=True))

    def forward() -> None:
        made.append(runner._forward(SubBatch(0, traces, batch), (batch, made[0]), runner._memories[0], 0))

    def backward() -> None:
        made[1].backward()

    return Stages(dict(batch.seconds), ready, forward, backward)


def device_of(program: Program) -> Any:
    """Return the device that a program computes on, a `foldbatch.engines.cuda.device.Device`; else None."""
    return getattr(program._runner.engine, "device", None)
