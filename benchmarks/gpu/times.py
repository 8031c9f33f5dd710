"""Times of models over trees: ours beside PyTorch on the same card, one run of all batches each, in turn.

A training step is loss, gradients and Adam's update (the embedding's rows sparsely); inference yields results
on the host and computes no losses. Before it is timed, a peer must have our loss of a batch, and again after
a step on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.gpu.contenders import (
    MODELS,
    SST,
    Contender,
    OurModel,
    captured_contenders,
    our_contenders,
    our_ways,
    torch_contender,
)
from benchmarks.gpu.race import Task, described, race
from benchmarks.gpu.record import row
from benchmarks.gpu.run import Run
from benchmarks.gpu.torch_models import TorchCompiled
from benchmarks.gpu.ways import ways_of
from benchmarks.peers import TorchPeer
from foldbatch.trees import Tree

TOLERANCE = {"fp32": 1e-4, "3xtf32": 1e-4, "tf32": 2e-2, "bf16": 5e-2}  # relative difference of losses
BY_NODE, GRAPH = "node by node", "by level, CUDA graph"
FEW = 2  # batches on which slow peers are timed


def times(run: Run, name: str, hidden: int, size: int, precision: str = "fp32") -> None:
    """Time a model on batches of a size; rows and what is left out go to the run's record."""
    model = MODELS[name]
    batches = [[model.example(tree) for tree in trees] for trees in run.batches(size)]
    ours = OurModel(model, hidden, run.settings.words, run.settings.backend, precision)
    where = f"{name}, hidden {hidden}, batch {size}" + ("" if precision == "fp32" else f", {precision}")
    contenders = our_contenders(ours, batches, precision)
    if model is MODELS[SST] and ours.backend.startswith("cuda"):
        words, backend = run.settings.words, run.settings.backend
        make = partial(OurModel, model, hidden, words, backend, precision, "float32")
        contenders += our_ways(ways_of(make, batches, run.record, where, precision), batches, precision)
    if run.card.torch is None:
        run.record.left_out["PyTorch"] = "it is not installed, or finds no card"
    else:
        contenders += _peers(run, ours, hidden, batches, precision, where)
    run_race(run, name, hidden, size, contenders, len(batches))
    run.card.forget()


def times_by_node(run: Run, hidden: int, size: int) -> None:
    """Time the SST Tree-LSTM as PyTorch runs it node by node, beside ours, on a few batches."""
    _times_beside(run, hidden, size, BY_NODE, MODELS[SST].peers[BY_NODE])


def times_compiled(run: Run, hidden: int, size: int) -> None:
    """Time the SST Tree-LSTM by level, its cell by ``torch.compile``, beside ours, on a few batches."""
    _times_beside(run, hidden, size, "by level, torch.compile", TorchCompiled)


def _times_beside(run: Run, hidden: int, size: int, name: str, make: Callable[..., TorchPeer]) -> None:
    if run.card.torch is None:
        return
    batches = run.batches(size)[:FEW]
    ours = OurModel(MODELS[SST], hidden, run.settings.words, run.settings.backend)
    flat = [[ours.flat(tree) for tree in trees] for trees in batches]
    parameters = ours.parameters()
    peer = make(hidden, len(parameters["embedding"]), parameters, device=run.card.device)
    contender = torch_contender(name, peer, flat)
    known, *_ = our_contenders(ours, batches)
    if why := differs(contender, *_ours_before_and_after(ours, batches[0]), TOLERANCE["fp32"]):
        run.record.left_out[f"{SST}, hidden {hidden}, batch {size}, {name}"] = why
        return
    beside = replace(known, name=f"{known.name}, beside {name}")
    run_race(run, SST, hidden, size, [beside, contender], len(batches))


def _peers(
    run: Run, ours: OurModel, hidden: int, batches: Sequence[Sequence[Tree]], precision: str, where: str
) -> list[Contender]:
    """Return the peers that compute what we do; why others do not goes to the record."""
    flat = [[ours.flat(tree) for tree in trees] for trees in batches]
    parameters = ours.parameters()
    words, device = len(parameters["embedding"]), run.card.device

    def by_level(name: str, make: Callable[..., Any]) -> list[Contender]:
        return [torch_contender(name, make(hidden, words, parameters, device=device), flat, precision)]

    makers: dict[str, Callable[[], list[Contender]]] = {
        name: partial(by_level, name, make) for name, make in ours.model.peers.items() if name != BY_NODE
    }
    if ours.model is MODELS[SST]:
        makers[GRAPH] = partial(captured_contenders, ours, hidden, flat, device, precision)
    made: list[list[Contender]] = []
    for name, make in makers.items():
        try:
            made.append(make())
        except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the others go on
            run.record.left_out[f"{where}, PyTorch {name}"] = described(error)
    before, after = _ours_before_and_after(ours, batches[0])
    found = []
    for contenders in made:  # of one peer
        if why := differs(contenders[0], before, after, TOLERANCE[precision]):
            run.record.left_out[f"{where}, {contenders[0].name}"] = why
        else:
            found += contenders
    return found


def _ours_before_and_after(ours: OurModel, batch: Sequence[Tree]) -> tuple[float, float]:
    """Return our loss of a batch, and that after a training step on it."""
    before = ours.loss(batch)
    ours.step(batch, len(batch))
    return before, ours.loss(batch)


def differs(contender: Contender, before: float, after: float, tolerance: float) -> str:
    """Return in what a contender's model differs from ours on the first batch; nothing if it does not."""
    try:
        for what, ours in (("before", before), ("after", after)):
            theirs = contender.loss(0)
            if not abs(theirs - ours) <= tolerance * abs(ours):
                return f"its loss is {theirs:.6g}, ours {ours:.6g}, {what} a training step: the models differ"
            contender.step(0)
    except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the others go on
        return described(error)
    return ""


def run_race(
    run: Run, name: str, hidden: int, size: int, contenders: Sequence[Contender], batches: int
) -> None:
    """Time contenders on so many batches of a size, in turn; rows and who failed go to the run's record."""

    def whole(method: Callable[[int], object]) -> Callable[[], None]:
        def do() -> None:
            for k in range(batches):
                method(k)

        return do

    tasks = {}
    for who in contenders:
        tasks["train", who.name] = Task(whole(who.step), who.before)
        tasks["infer", who.name] = Task(whole(who.infer), who.before)
    named = {f"{task}: {who}": todo for (task, who), todo in tasks.items()}
    seconds = min(run.settings.race, max(0.0, run.budget.left()))
    found = race(named, run.card.wait, run.settings.repeats, seconds, batches)
    for task, whom in tasks:
        if lap := found.laps.get(f"{task}: {whom}"):
            run.record.rows.append(row(name, task, whom, hidden, size, lap))
    for key, why in found.failed.items():
        run.record.left_out[f"{name}, hidden {hidden}, batch {size}, {key}"] = why
