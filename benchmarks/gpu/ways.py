"""A model whose training steps are launched one way: made ready, and what a step asks of the card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu.contenders import OurModel, launch_due
from benchmarks.gpu.cost import counting
from benchmarks.gpu.race import described
from benchmarks.gpu.record import Check, Record
from benchmarks.inside import device_of
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree

WAYS = ("straight", "captured")
WARMED = 3  # rounds of all batches before anything is counted: graphs are captured meanwhile
TOLERANCE = {
    "fp32": 1e-4,
    "3xtf32": 1e-4,
    "tf32": 2e-2,
    "bf16": 5e-2,
}  # relative difference of losses after these rounds

Batches = Sequence[Sequence[Tree]]


def ways_of(
    make: Callable[[str], OurModel], batches: Batches, record: Record, where: str, precision: str = "fp32"
) -> dict[str, OurModel]:
    """Return a warm model for each way that the engine really takes.

    Counts, and whether all ways compute the same, go to the record; for other ways, why they are left out.

    Args:
        make: returns our model for a way, see `foldbatch.compile`.
        batches: that will be run.
        record: of the run.
        where: the model, its size and that of the batches, in words.
        precision: of products.
    """
    found: dict[str, OurModel] = {}
    losses: dict[str, float] = {}
    for way in WAYS:
        try:
            ours = make(way)
            prepare(ours, batches)
        except (FoldbatchError, AssertionError) as error:
            record.left_out[f"{where}, {way}"] = described(error)
            continue
        if way != "straight" and not launchers_of(ours):
            record.left_out[f"{where}, {way}"] = "batches run straight"
            continue
        found[way] = ours
        record.ways.append({"where": where, "way": way, **asked(ours, batches)})
        losses[way] = ours.loss(batches[0])
        if way != "straight" and "straight" in losses:
            record.checks.append(_agrees(f"{where}, {way}", losses[way], losses["straight"], precision))
    return found


def _agrees(name: str, loss: float, straight: float, precision: str) -> Check:
    limit = TOLERANCE[precision]
    told = f"loss {loss:.6g}, straight {straight:.6g}; {limit:g} allowed"
    right = abs(loss - straight) <= limit * abs(straight)
    return Check(f"{name}: trains as straight does", "passed" if right else "failed", told)


def prepare(ours: OurModel, batches: Batches) -> None:
    """Train for some rounds, until all is there that later steps use: kernels, memory and graphs."""
    if ours.engine == "captured":
        ours.program.warm([tree for trees in batches for tree in trees], len(batches[0]))
    for _ in range(WARMED):
        for trees in batches:
            ours.step(trees, len(trees))
        launch_due(ours.program)


def asked(ours: OurModel, batches: Batches) -> dict[str, float]:
    """Return what a warm training step asks of the card, the mean of all batches; nothing without a device.

    ``launches`` are all that the card is told to do: kernels, products, graphs, fills and copies on the card.
    ``bytes in`` are those copied to the card: the control table and the data of examples. Of graphs, the
    share of batches that fitted, their number, and the milliseconds of the slowest capture.
    """
    device = device_of(ours.program)
    if device is None:
        return {}
    with counting(device) as cost:
        for trees in batches:
            ours.step(trees, len(trees))
        launch_due(ours.program)
    count = len(batches)
    found = {
        "launches": cost.submitted / count,
        "products apart": cost.products / count,
        "copies in": cost.copies_in / count,
        "bytes in": cost.bytes_in / count,
        "copies out": cost.copies_out / count,
        "waits": cost.waits / count,
    }
    for launcher in launchers_of(ours)[:1] if ours.engine == "captured" else ():  # of training
        told = launcher.captures()
        found["hit rate"] = told.hit_rate
        found["graphs"] = len(told.milliseconds)
        found["capture ms"] = max(told.milliseconds, default=0.0)
    return found


def launchers_of(ours: OurModel) -> list[Any]:
    """Return what launches a model's batches, for training first; nothing where they run straight."""
    launcher = getattr(ours.program._runner.engine, "launcher", lambda *, training: None)
    return [made for training in (True, False) if (made := launcher(training=training)) is not None]
