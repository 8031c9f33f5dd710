"""The side of the peer: a process that answers commands, one JSON object a line, until its input ends.

First it says who it is: ``{"version", "variants": [{"name", "batched"}], "memory"}``, or ``{"missing"}``,
the parts of the error that says so.
Then each command has one answer, or ``{"failed"}``:

- ``{"do": "setup", "file", "variants"}``: reads a task, makes the models; ``{"memory"}``.
- ``{"do": "loss", "variant", "batch"}``: ``{"loss"}`` of the batch of that number.
- ``{"do": "train" or "infer", "variant", "batches"}``: ``{"seconds"}`` that all of them took.
- ``{"do": "memory"}``: ``{"memory"}``, bytes: the most the process has held.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from benchmarks.task import Task, load_task
from benchmarks.variants import PEERS, Model, Variant
from foldbatch.errors import BackendError

STATUS = Path("/proc/self/status")


def main(name: str) -> None:
    """Serve the peer of that name on this process's pipes."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not stand among the answers
    serve(name, sys.stdin, answers)


def serve(name: str, commands: TextIO, answers: TextIO) -> None:
    """Answer commands until they end."""

    def answer(found: Mapping[str, Any]) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    peer = PEERS[name]
    try:
        version = peer.version()
    except BackendError as error:
        answer({"missing": error.args})
        return
    variants = {variant.name: variant for variant in peer.variants()}
    listed = [{"name": variant.name, "batched": variant.batched} for variant in variants.values()]
    answer({"version": version, "variants": listed, "memory": peak_memory()})
    known = _Commands(variants)
    for line in commands:
        command = json.loads(line)
        do: Callable[..., dict[str, Any]] = getattr(known, command.pop("do"))
        try:
            found = do(**command)
        except Exception as error:  # noqa: BLE001 - whatever a library raises, the other side should know
            found = {"failed": f"{type(error).__name__}: {error}"}
        answer(found)


class _Commands:
    """The commands, as methods."""

    def __init__(self, variants: Mapping[str, Variant]) -> None:
        self._variants = variants
        self._models: dict[str, Model] = {}
        self._task: Task | None = None

    def setup(self, file: str, variants: list[str]) -> dict[str, Any]:
        self._task = load_task(Path(file))
        self._models = {}  # those of another task are given up first
        self._models = {name: self._variants[name].make(self._task) for name in variants}
        return self.memory()

    def loss(self, variant: str, batch: int) -> dict[str, Any]:
        model, (trees,) = self._ready(variant, [batch])
        return {"loss": float(model.loss(trees))}

    def train(self, variant: str, batches: list[int]) -> dict[str, Any]:
        model, found = self._ready(variant, batches)
        return {"seconds": _timed(model.step, found)}

    def infer(self, variant: str, batches: list[int]) -> dict[str, Any]:
        model, found = self._ready(variant, batches)
        return {"seconds": _timed(model.infer, found)}

    def memory(self) -> dict[str, Any]:
        return {"memory": peak_memory()}

    def _ready(self, variant: str, batches: list[int]) -> tuple[Model, list[Any]]:
        assert self._task is not None, "setup comes first"
        self._variants[variant].set_threads()
        return self._models[variant], [self._task.batches[k] for k in batches]


def _timed(run: Callable[[Any], object], batches: list[Any]) -> float:
    start = time.perf_counter()
    for trees in batches:
        run(trees)
    return time.perf_counter() - start


def peak_memory() -> int:
    """Return the most bytes this process has held in memory since its program was started.

    Linux counts in ``ru_maxrss`` what the process that started it held, so it is asked elsewhere.
    """
    if STATUS.exists():
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    import resource  # noqa: PLC0415 - not on every system

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
