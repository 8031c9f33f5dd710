"""Where one training step's time goes, what it asks of the card, and how that grows with a tree's levels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from benchmarks.floor import count
from benchmarks.gpu.card import Card
from benchmarks.gpu.contenders import OurModel, launch_due
from benchmarks.gpu.cost import Cost, counting, floor, least_bytes
from benchmarks.inside import Stages, device_of, stages_of
from foldbatch.trees import Tree

DIRECTIONS = "forward", "backward"
HELD, FILLS = 2**30, 100  # bytes that are filled, and how often, to keep the card busy for some 30 ms
COUNTS = "launches", "products", "copies", "fills", "copies_in", "copies_out"


def step_costs(
    ours: OurModel,
    hidden: int,
    examples: Sequence[Tree],
    card: Card,
    rates: Mapping[str, float],
    repeats: int,
) -> dict[str, Any]:
    """Return where the time of a training step of the SST Tree-LSTM goes, in a run of its own.

    ``phases`` are median seconds: of the host until a phase returned (``merge`` to ``update``), and ``wait``
    after each of forward, backward and update until the card had done it. ``cost`` is what was asked of the
    card by direction, where the engine has one; ``floor`` the least seconds for it. ``device`` is for how
    long the card works on a whole step, see `device_seconds`.
    """
    phases: dict[str, list[float]] = {}
    for turn in range(1 + max(1, repeats)):
        for name, seconds in _phases(ours, examples, card.wait).items():
            if turn:  # the first makes kernels and memory
                phases.setdefault(name, []).append(seconds)
    found: dict[str, Any] = {
        "batch": len(examples),
        "levels": levels(examples),
        "phases": {name: median(values) for name, values in phases.items()},
    }
    device = device_of(ours.program)
    if card.is_gpu and card.cupy is not None and device is not None:
        runs = [
            device_seconds(card.cupy, device, lambda: _stepped(ours, examples)) for _ in range(1 + repeats)
        ]
        found["device"] = median(runs[1:])
    if costs := direction_costs(ours, examples):
        found |= {
            "cost": {name: asdict(cost) for name, cost in costs.items()},
            "floor": step_floor(sum(costs.values(), Cost()), rates, hidden, examples),
        }
    return found


def _stepped(ours: OurModel, examples: Sequence[Tree]) -> None:
    ours.step(examples, len(examples))
    launch_due(ours.program)


def device_seconds(cupy: Any, device: Any, task: Callable[[], object]) -> float:
    """Return for how many seconds the card works on a task, by events, without gaps where the host is slower.

    The card is first kept busy, so that all of the task is enqueued before the card comes to it. The task may
    wait for nothing.
    """
    driver, stream = device.driver, device.stream
    held = driver.allocate(HELD)
    first, last = cupy.cuda.Event(), cupy.cuda.Event()
    for _ in range(FILLS):
        driver.fill(held.pointer, 0, HELD, stream)
    first.record(stream)
    task()
    last.record(stream)
    last.synchronize()
    return float(cupy.cuda.get_elapsed_time(first, last)) / 1e3


def step_floor(
    cost: Cost, rates: Mapping[str, float], hidden: int, examples: Sequence[Tree], precision: str = "fp32"
) -> dict[str, float]:
    """Return the least seconds for a training step of the SST Tree-LSTM, by what takes them; see `floor`."""
    counts = count([examples])
    operations = counts.operations(hidden, training=True, shared=True)
    return floor(cost, rates, operations, least_bytes(counts, hidden), precision)


def levels(examples: Sequence[Tree]) -> int:
    """Return the levels of inner nodes of the highest tree."""
    return max(tree.height for tree in examples)


def direction_costs(ours: OurModel, examples: Sequence[Tree], *, dry: bool = False) -> dict[str, Cost]:
    """Return what a training step asks of the card, forward, backward and to update; nothing without a card.

    With `dry` nothing is computed, and parameters are void afterwards.
    """
    device = device_of(ours.program)
    if device is None:
        return {}
    found = {}
    stages = stages_of(ours.program, examples)
    for name, stage in (
        ("ready", stages.ready),
        *zip(DIRECTIONS, (stages.forward, stages.backward), strict=True),
    ):
        with counting(device, dry=dry) as cost:
            stage()
            device.flush()
        found[name] = cost
    with counting(device, dry=dry):
        _, gradients = ours.program.value_and_grad(examples)
        device.flush()
    with counting(device, dry=dry) as cost:
        ours.optimizer.update(ours.program.params, gradients, scale=1.0 / len(examples))
    found["update"] = cost
    return found


def launch_model(ours: OurModel, trees: Sequence[Tree]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return what a step asks of the card as ``(fixed, per level)``, by direction and kind, from counts.

    A batch of the lowest trees is compared with one of the highest: what they differ by is the levels' doing.
    Trees are those with an inner node at least. Nothing is returned without a card, or where all trees are as
    high.
    """
    inner = sorted((tree for tree in trees if tree.height), key=lambda tree: tree.height)
    many = max(1, len(inner) // 4)
    low, high = inner[:many], inner[-many:]
    if not inner or levels(low) == levels(high):
        return {}
    direction_costs(ours, low)  # brings parameters to the card, which happens once
    small, large = direction_costs(ours, low), direction_costs(ours, high)
    more = levels(high) - levels(low)
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for direction in small:
        for kind in COUNTS:
            first, second = getattr(small[direction], kind), getattr(large[direction], kind)
            slope = (second - first) / more
            found.setdefault(direction, {})[kind] = (first - slope * levels(low), slope)
    return found


def _phases(ours: OurModel, examples: Sequence[Tree], wait: Callable[[], None]) -> dict[str, float]:
    program = ours.program
    stages: Stages = stages_of(program, examples)
    found = dict(stages.seconds)
    for name, stage in (("ready", stages.ready), ("forward", stages.forward), ("backward", stages.backward)):
        wait()
        start = time.perf_counter()
        stage()
        found[name] = time.perf_counter() - start
        if name != "ready":
            start = time.perf_counter()
            wait()
            found[f"wait for {name}"] = time.perf_counter() - start
    _, gradients = program.value_and_grad(examples)
    wait()
    start = time.perf_counter()
    ours.optimizer.update(program.params, gradients, scale=1.0 / len(examples))
    found["update"] = time.perf_counter() - start
    start = time.perf_counter()
    wait()
    found["wait for update"] = time.perf_counter() - start
    return found
