"""A contest: ours and peers on the same batches, first shown to compute the same, then timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from benchmarks.busy import Neighbours
from benchmarks.measure import Timing, timing
from benchmarks.remote import Remote
from benchmarks.variants import OURS
from foldbatch.errors import BackendError, FoldbatchError

TOLERANCE = 1e-4  # relative difference of losses above which a peer is not the same model
ENOUGH_RUNS, ENOUGH_SECONDS = 3, 10.0  # of a contender's task: it is not run again once it has had both
TASKS = TRAIN, INFER = "train", "infer"
NEW = ", new examples"  # ends the name of a contender of ours that traces every batch anew
WALK = ", plain function"  # stands in the name of one whose model is a plain function, not blocks

Seconds = dict[tuple[str, str], list[float]]  # of all runs, by contender and task
Timings = dict[str, dict[str, Timing]]  # by contender, then by task


class Timed(Protocol):
    """A model of ours that takes part."""

    backend: str

    def step(self, batch: Any, /) -> float:
        """Train on a batch; return its mean loss before the update."""

    def loss(self, batch: Any, /) -> float:
        """Return the mean loss of a batch, without learning from it."""

    def infer(self, batch: Any, /) -> Any:
        """Return the results of a batch; no losses are computed."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part; batches are named by number.

    Attributes:
        name: in tables.
        loss: returns the mean loss of a batch.
        train: takes a step on each of some batches; returns the seconds of all. `infer` likewise.
        batched: whether it gains from batches; what does not is not run on large ones.
    """

    name: str
    loss: Callable[[int], float]
    train: Callable[[list[int]], float]
    infer: Callable[[list[int]], float]
    batched: bool = True


def our_contender(
    ours: Timed, batches: Sequence[Any], fresh: Callable[[Any], Any] | None = None, kind: str = ""
) -> Contender:
    """Return us.

    Args:
        ours: our model.
        batches: that it runs.
        fresh: makes of a batch one that has never been traced; then the contender runs these.
        kind: stands in its name.
    """

    def timed(run: Callable[[Any], object], numbers: list[int]) -> float:
        chosen = [batches[k] if fresh is None else fresh(batches[k]) for k in numbers]
        start = time.perf_counter()
        for batch in chosen:
            run(batch)
        return time.perf_counter() - start

    name = f"{OURS} ({ours.backend})" + kind + ("" if fresh is None else NEW)
    return Contender(
        name, lambda k: ours.loss(batches[k]), partial(timed, ours.step), partial(timed, ours.infer)
    )


def contenders_of(remote: Remote, task: Path) -> list[Contender]:
    """Have a peer make its models of a task; return its variants as contenders.

    Raises:
        BackendError: when it fails.
    """

    def contender(name: str, *, batched: bool) -> Contender:
        return Contender(
            f"{remote.title} {name}",
            lambda k: float(remote.ask("loss", variant=name, batch=k)["loss"]),
            lambda numbers: float(remote.ask("train", variant=name, batches=numbers)["seconds"]),
            lambda numbers: float(remote.ask("infer", variant=name, batches=numbers)["seconds"]),
            batched,
        )

    remote.ask("setup", file=str(task), variants=[variant.name for variant in remote.variants])
    return [contender(variant.name, batched=variant.batched) for variant in remote.variants]


def verify(contender: Contender, losses: Mapping[int, float], after: tuple[int, float]) -> None:
    """Check that a contender computes our model, and learns as ours does.

    Args:
        contender: not trained yet.
        losses: ours, by batch, before any training.
        after: a batch, and our loss of it after one training step on it; the contender takes that step.

    Raises:
        FoldbatchError: when a loss differs by more than `TOLERANCE`, which would make the comparison void.
        BackendError: when it fails.
    """
    compare(contender, losses)
    k, ours = after
    contender.train([k])
    _compare(f"{contender.name}, after a training step", ours, contender.loss(k))


def compare(contender: Contender, losses: Mapping[int, float]) -> None:
    """Check that a contender has our losses, by batch; errors are those of `verify`."""
    for k, ours in losses.items():
        _compare(contender.name, ours, contender.loss(k))


def _compare(name: str, ours: float, theirs: float) -> None:
    if not abs(ours - theirs) <= TOLERANCE * abs(ours):  # NaN is refused too
        where = f"benchmarks, {name}"
        raise FoldbatchError(where, f"a loss of {ours:.6f}", f"{theirs:.6f}", "the models differ")


@dataclass(frozen=True, slots=True)
class Result:
    """What a contest found.

    Attributes:
        quiet: the timings, of one batch.
        busy: the same beside busy neighbours; empty without them.
        further: seconds of all runs of the further tasks.
        failed: by contender, why it dropped out; it has no timings.
    """

    quiet: Timings
    busy: Timings
    further: dict[str, list[float]]
    failed: dict[str, str]


def contest(
    contenders: Sequence[Contender],
    numbers: list[int],
    repeats: int,
    further: Mapping[str, Callable[[], float]],
    neighbours: Neighbours | None = None,
) -> Result:
    """Warm up contenders, then time them in turn; a run is all of the batches, after one that is not timed.

    Args:
        contenders: in the order in which they take their turns; ours may not fail.
        numbers: of the batches.
        repeats: of each run; slow contenders have fewer (`ENOUGH_RUNS`, `ENOUGH_SECONDS`).
        further: tasks that take turns with them and return seconds of their own.
        neighbours: beside which everything is run once more in each turn.
    """
    result = Result({}, {}, {name: [] for name in further}, {})
    quiet: Seconds = {}
    busy: Seconds = {}
    _take_turns(contenders, numbers, {}, result.failed)  # what is compiled for a shape is compiled now
    for _ in range(repeats):
        _take_turns(contenders, numbers, quiet, result.failed)
        for name, task in further.items():
            result.further[name].append(task())
        if neighbours:
            neighbours.wake()
            try:
                _take_turns(contenders, numbers, busy, result.failed)
            finally:
                neighbours.sleep()
    for seconds, timings in ((quiet, result.quiet), (busy, result.busy)):
        for (who, kind), values in seconds.items():
            if who not in result.failed:
                timings.setdefault(who, {})[kind] = timing(values, len(numbers))
    return result


def _take_turns(
    contenders: Sequence[Contender], numbers: list[int], seconds: Seconds, failed: dict[str, str]
) -> None:
    for who in contenders:
        for task, run in ((TRAIN, who.train), (INFER, who.infer)):
            mine = seconds.setdefault((who.name, task), [])
            if who.name not in failed and (len(mine) < ENOUGH_RUNS or sum(mine) < ENOUGH_SECONDS):
                try:
                    run(numbers[-1:])  # brings back into caches what others have driven out; not timed
                    mine.append(run(numbers))
                except BackendError as error:
                    failed[who.name] = str(error)
