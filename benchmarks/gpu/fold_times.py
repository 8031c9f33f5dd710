"""Table 1 of TensorFlow Fold's paper on the card: ours against PyTorch by hand for one tree shape.

Trees of 128 leaves, states of 1024; a step is loss and gradients, nothing is updated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.fold_model import Rows, fold_model, random_tree, shape_of, words_of
from benchmarks.gpu.contenders import launch_due
from benchmarks.gpu.race import Task, described, race
from benchmarks.gpu.record import row
from benchmarks.gpu.run import Run
from benchmarks.gpu.torch_fold import TorchFold
from foldbatch import Program, compile
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree

FOLD = "Fold's Table 1"
TOLERANCE = 1e-3
BY_THREE: Any = "3xtf32"
WAYS: dict[str, dict[str, bool]] = {
    "by level": {},
    "by level, CUDA graph": {"captured": True},
    "node by node": {"by_node": True},
    "node by node, CUDA graph": {"by_node": True, "captured": True},
}
TREES = 8  # at least so many run at each time, as single trees differ in height


def fold_times(run: Run, size: int) -> None:
    """Time batches of a size; rows and what is left out go to the run's record."""
    settings, rng = run.settings, np.random.default_rng(size)
    leaves = settings.fold_leaves
    program = compile(fold_model(settings.fold_size, leaves), settings.backend)
    shapes = sorted((random_tree(rng, leaves) for _ in range(33)), key=lambda tree: tree.height)
    shape = shapes[len(shapes) // 2]  # of median height
    count = max(1, TREES // size)
    identical = [[words_of(shape, rng) for _ in range(size)] for _ in range(count)]
    different = [[random_tree(rng, leaves) for _ in range(size)] for _ in range(count)]
    words = [_words(trees) for trees in identical]
    due, infer = partial(launch_due, program), partial(_run, program)
    tasks = _tasks("foldbatch, identical trees", program.value_and_grad, infer, identical, due)
    tasks |= _tasks("foldbatch, different trees", program.value_and_grad, infer, different, due)
    where = f"{FOLD}, batch {size}"
    loss = float(program.value_and_grad(identical[0])[0])
    parameters = {name: np.array(program.params[name]) for name in program.params}
    _add_by_three(run, where, tasks, parameters, loss, identical, different)
    if run.card.torch is None:
        run.record.left_out["PyTorch"] = "it is not installed, or finds no card"
    else:
        run.card.torch.backends.cuda.matmul.allow_tf32 = False
        for name, way in WAYS.items():
            try:
                peer = TorchFold(shape_of(shape), size, parameters, device=run.card.device, **way)
                theirs = float(peer.value_and_grad(words[0])[0])
            except Exception as error:  # noqa: BLE001 - a peer may fail in any way; the others go on
                run.record.left_out[f"{where}, PyTorch {name}"] = described(error)
                continue
            if abs(theirs - loss) <= TOLERANCE * abs(loss):
                tasks |= _tasks(f"PyTorch {name}", peer.value_and_grad, peer.run, words)
            else:
                run.record.left_out[f"{where}, PyTorch {name}"] = f"its loss is {theirs:.6g}, ours {loss:.6g}"
    seconds = min(settings.race, max(0.0, run.budget.left()))
    found = race(tasks, run.card.wait, settings.repeats, seconds, count)
    for key, lap in found.laps.items():
        task, _, who = key.partition(": ")
        run.record.rows.append(row(FOLD, task, who, settings.fold_size, size, lap))
    for key, why in found.failed.items():
        run.record.left_out[f"{where}, {key}"] = why
    run.card.forget()


def _add_by_three(
    run: Run,
    where: str,
    tasks: dict[str, Task],
    parameters: dict[str, Any],
    loss: float,
    identical: Sequence[Any],
    different: Sequence[Any],
) -> None:
    """Add our tasks in the precision `BY_THREE`, with the same parameters, or say why they are left out."""
    settings = run.settings
    try:
        block = fold_model(settings.fold_size, settings.fold_leaves)
        program = compile(block, settings.backend, options={"precision": BY_THREE})
        for name, value in parameters.items():
            program.params[name] = value
        ours = float(program.value_and_grad(identical[0])[0])
    except FoldbatchError as error:
        run.record.left_out[f"{where}, foldbatch in {BY_THREE}"] = described(error)
        return
    if abs(ours - loss) > TOLERANCE * abs(loss):
        run.record.left_out[f"{where}, foldbatch in {BY_THREE}"] = f"its loss is {ours:.6g}, not {loss:.6g}"
        return
    due, infer = partial(launch_due, program), partial(_run, program)
    for kind, batches in (("identical", identical), ("different", different)):
        tasks |= _tasks(f"foldbatch, {kind} trees, {BY_THREE}", program.value_and_grad, infer, batches, due)


def _tasks(
    who: str,
    train: Callable[[Any], object],
    infer: Callable[[Any], object],
    batches: Sequence[Any],
    last: Callable[[], object] = lambda: None,
) -> dict[str, Task]:
    def whole(method: Callable[[Any], object]) -> Callable[[], None]:
        def do() -> None:
            for batch in batches:
                method(batch)
            last()

        return do

    return {f"train: {who}": Task(whole(train)), f"infer: {who}": Task(whole(infer))}


def _run(program: Program, trees: Sequence[Tree]) -> list[Any]:
    return list(program.run(trees))


def _words(trees: Sequence[Tree]) -> Rows:
    """Return the words of trees of one shape: ``[trees, leaves]``."""
    return np.array([[label for label in tree.labels if label is not None] for tree in trees])
