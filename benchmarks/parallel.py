"""``python -m benchmarks.parallel``: training steps of one process and of two, each pinned to a core.

Runs of one process, of two over MPI and, with PyTorch installed, of two over torch.distributed take turns;
medians count. The step is that of the SST Tree-LSTM: loss, gradients, their exchange, and LazyAdam's update.
The same batches run in all. Whole steps are timed by the wall clock, which neighbours disturb; loss and
gradients of a share, and the update, by the processor's time.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from statistics import fmean, median
from subprocess import PIPE, run
from typing import Any

import numpy as np

from benchmarks.options import add_data, positive, trees_of
from foldbatch.train.parallel import deal

WARM = 3  # steps that are not counted
RANKS = (2, 4, 8, 16, 32, 64)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print tables or JSON; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.worker:
        work(options)
        return 0
    print(json.dumps(measure(options), indent=1) if options.json else tables(measure(options)))
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="python -m benchmarks.parallel", description=__doc__)
    add_data(parser)
    parser.add_argument("--hidden", type=positive, default=150, metavar="H", help="width (default 150)")
    parser.add_argument("--batch", type=positive, default=64, metavar="N", help="trees a batch (default 64)")
    parser.add_argument("--steps", type=positive, default=30, metavar="N", help="timed steps (default 30)")
    parser.add_argument("--repeats", type=positive, default=3, metavar="N", help="turns (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--worker", action="store_true", help="be one of the processes")
    return parser


def measure(options: Namespace) -> dict[str, Any]:
    """Return what was measured, with one process and with two in turn, and the imbalance of dealing."""
    trees, source = trees_of(options, 1100, whole=True)
    kinds = {"1": ("mpiexec", 1), "2": ("mpiexec", 2)}
    if find_spec("torch"):
        kinds["gloo"] = ("torchrun", 2)
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for _ in range(options.repeats):
        for kind, (launcher, count) in kinds.items():
            runs[kind].append(_launched(options, launcher, count))
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    costs = [tree.size for tree in trees]
    return {
        "trees": source,
        "batch": options.batch,
        "hidden": options.hidden,
        "load": load,
        "runs": {kind: _medians(done) for kind, done in runs.items()},
        "imbalance": {
            str(size): {str(n): _rounded(imbalance(costs, size, n)) for n in RANKS if n <= size}
            for size in sorted({options.batch, 256, 1024})
            if size <= len(costs)
        },
    }


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The dearest share of a batch, over the mean share: 1 is perfect.

    Attributes:
        dealt: as `deal` deals, by cost.
        counted: where ranks get equally many examples, in the order of the batch.
    """

    dealt: float
    counted: float


def imbalance(costs: Sequence[int], batch: int, ranks: int, batches: int = 20, seed: int = 0) -> Imbalance:
    """Return the mean imbalance over random batches.

    >>> imbalance([1] * 64, 8, 4)
    Imbalance(dealt=1.0, counted=1.0)
    """
    rng = np.random.default_rng(seed)
    dealt, counted = [], []
    for _ in range(batches):
        drawn = rng.choice(costs, batch, replace=False).tolist()
        mean = sum(drawn) / ranks
        dealt.append(max(sum(drawn[i] for i in share) for share in deal(drawn, ranks)) / mean)
        counted.append(max(sum(drawn[rank::ranks]) for rank in range(ranks)) / mean)
    return Imbalance(fmean(dealt), fmean(counted))


def _rounded(found: Any) -> list[float]:
    return [round(found.dealt, 3), round(found.counted, 3)]


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median of each figure over runs that have the same figures."""
    return {name: median(run[name] for run in runs) for name in runs[0]}


def _launched(options: Namespace, launcher: str, count: int) -> dict[str, Any]:
    """Return what `count` processes of a launcher measured."""
    given = ["--hidden", str(options.hidden), "--batch", str(options.batch), "--steps", str(options.steps)]
    given += ["--data", str(options.data)] if options.data else []
    module = ["-m", "benchmarks.parallel", "--worker", *given]
    if launcher == "torchrun":
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
        command = [sys.executable, *torchrun, *module]
    else:
        folder = Path(sys.executable).parent
        found = which(launcher, path=f"{folder}{os.pathsep}{os.environ.get('PATH', '')}") or launcher
        command = [found, "-n", str(count), sys.executable, *module]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = run(command, stdout=PIPE, text=True, check=True, env=environment)  # noqa: S603 - our own
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def work(options: Namespace) -> None:
    """Train as one of the processes, on a core of its own; rank 0 prints what it measured as JSON."""
    import foldbatch as fb  # noqa: PLC0415 - the launcher's process needs none of it
    from benchmarks.workload import tree_lstm  # noqa: PLC0415

    communicator = fb.communicators.find()
    pinned = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {pinned[communicator.rank % len(pinned)]})
    trees, _ = trees_of(options, options.batch * (options.steps + WARM))
    vocabulary = fb.trees.Vocabulary.count(word for tree in trees for word in tree.words())
    program = fb.compile(tree_lstm(options.hidden, vocabulary), threads=1)
    parallel = fb.train.DataParallel(program, communicator)
    prepared = parallel.prepare(trees)
    batches = [prepared[i : i + options.batch] for i in range(0, len(prepared), options.batch)]
    optimizer = fb.train.LazyAdam()
    steps, busy, updates, computes = [], [], [], []
    warm = 0  # bytes that were sent by the steps that are not counted
    for number, batch in enumerate(batches):
        if number == WARM:
            warm = parallel.sent
        start, begun = time.perf_counter(), time.process_time()
        _, gradients = parallel.value_and_grad(batch)
        before = time.process_time()
        optimizer.update(program.params, gradients, scale=1 / len(batch))
        steps.append(time.perf_counter() - start)
        busy.append(time.process_time() - begun)
        updates.append(time.process_time() - before)
        part = [batch[place] for place in parallel.places(batch)]
        before = time.process_time()
        program.value_and_grad(part)
        computes.append(time.process_time() - before)
    sent = (parallel.sent - warm) / max(1, len(batches) - WARM)
    dense = sum(g.nbytes for g in gradients.values() if not isinstance(g, fb.params.SparseRows))
    rows = [g for g in gradients.values() if isinstance(g, fb.params.SparseRows)]
    answer: dict[str, Any] = {
        "step": median(steps[WARM:]),
        "update": median(updates[WARM:]),
        "busy": median(busy[WARM:]),
        "share": median(computes[WARM:]),
        "sent": sent,
        "dense": dense,
        "rows": sum(g.rows.nbytes + g.values.nbytes for g in rows),
    }
    if communicator.rank == 0:
        print(json.dumps(answer))


def tables(found: dict[str, Any]) -> str:
    """Return the measured figures as lines of text."""
    one, two, batch = found["runs"]["1"], found["runs"]["2"], found["batch"]
    lines = [f"{found['trees']}; width {found['hidden']}, batch {batch}, over MPI"]
    lines.append(f"load of the machine at the end: {found['load']}")
    gloo = found["runs"].get("gloo")
    named = [("1 process", one), ("2 processes", two), ("2 processes over gloo", gloo)]
    for count, each in named:
        if each is None:
            continue
        rate = batch / each["step"]
        lines.append(f"{count}: {rate:.0f} sentences/s, {each['step'] * 1e3:.2f} ms a step")
        share, update = each["share"] * 1e3, each["update"] * 1e3
        spent = f"{each['busy'] * 1e3:.2f} ms, of that {share:.2f} for the share, {update:.2f} for the update"
        lines.append(f"  the processor's time of a step: {spent}")
        lines.append(f"  sent by a rank in a step: {each['sent'] / 1e3:.0f} kB")
    gain = one["step"] / two["step"]
    lines.append(f"speed-up {gain:.2f}, efficiency {gain / 2:.0%}")
    if gloo:
        lines.append(f"the rate over gloo is {two['step'] / gloo['step']:.0%} of that over MPI")
    shares, steps = (one[key] / two[key] / 2 for key in ("share", "busy"))
    what = "over MPI, whose waiting is busy, of no use"
    lines.append(f"efficiency by the processor's time: {shares:.0%} of shares, {steps:.0%} of steps ({what})")
    lines.append("imbalance, dealt by cost (by count):")
    for size, of_ranks in found["imbalance"].items():
        parts = [f"N={n} {dealt:.3f} ({counted:.3f})" for n, (dealt, counted) in of_ranks.items()]
        lines.append(f"  batch {size}: {', '.join(parts)}")
    return "\n".join(lines)


if __name__ == "__main__":
    from foldbatch.errors import FoldbatchError

    try:
        sys.exit(main())
    except (FoldbatchError, OSError) as error:
        sys.exit(f"error: {error}")
