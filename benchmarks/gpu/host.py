"""``python -m benchmarks.gpu.host``: what the host does of a training step, without a card.

The SST Tree-LSTM on batches planned before, as when the same batches come again, on a card that does nothing
(`benchmarks.gpu.nothing`): milliseconds of the host until a step and its update were launched, what was
launched and copied for it, and the seconds that NVRTC takes for all kernels. Then captured batches of
training and of inference that are new, known or planned: the median, and how much of it makes the batch
ready. All are seconds of the processor, which neighbours change little. The exit status is 1 if a captured
step is anything but one launch, one copy to the card and one from it; 2 for what the user can mend.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.gpu import nothing
from benchmarks.gpu.contenders import MODELS, SST, OurModel, launch_due
from benchmarks.gpu.cost import Cost, counting
from benchmarks.gpu.trees import WORDS, numbered_words, sst_like_trees
from benchmarks.gpu.ways import WAYS, prepare
from benchmarks.options import DEFAULT_DATA, add_batch, add_data, add_repeats, positive
from benchmarks.workload import load_trees, unseen
from foldbatch.engines.cuda.engine import CudaEngine
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree

BATCHES = 4  # that come in turn
WARM = 4  # rounds of them before the first that counts
DRAWN = 4096  # trees, where there is no treebank
ARCHITECTURE = "sm_90"


@dataclass(frozen=True, slots=True)
class Found:
    """What a way to launch takes the host.

    Attributes:
        way: one of `foldbatch.engines.engine.LAUNCHES`.
        seconds: of each step, in the order in which they were timed.
        cost: what the card was asked for by one step.
    """

    way: str
    seconds: Sequence[float]
    cost: Cost

    def __str__(self) -> str:
        cost, least, middle = self.cost, 1e3 * min(self.seconds), 1e3 * median(self.seconds)
        return (
            f"{self.way:9} {least:.3f} ms at least, {middle:.3f} ms in the median; {cost.launches} launches, "
            f"{cost.products} products, {cost.copies_in} copies in ({cost.bytes_in / 1e6:.2f} MB), "
            f"{cost.copies_out} out"
        )

    @property
    def is_right(self) -> bool:
        """Whether a captured step is one launch, one copy to the card and one from it."""
        cost = self.cost
        return self.way != "captured" or (cost.submitted, cost.copies_in, cost.copies_out) == (1, 1, 1)


def host_of(way: str, hidden: int, words: int, batches: Sequence[Sequence[Tree]], repeats: int) -> Found:
    """Time the host's part of training steps, launched in a way, on each of some batches so often."""
    backend: Any = nothing.NAME  # none that `compile` has
    ours = OurModel(MODELS[SST], hidden, words, backend, engine=way)
    prepare(ours, batches)
    planned = [ours.program.plan(trees) for trees in batches]

    def stepped(batch: Any) -> float:
        start = time.thread_time()
        ours.step(batch, len(batch))
        launch_due(ours.program)
        return time.thread_time() - start

    for batch in planned * 4:  # each in both blocks of staging, first straight, then captured
        stepped(batch)
    with counting(nothing.device()) as cost:
        stepped(planned[0])
    return Found(way, [stepped(batch) for _ in range(repeats) for batch in planned], cost)


def times_by_kind(
    hidden: int, words: int, batches: Sequence[Sequence[Tree]], repeats: int
) -> Iterator[tuple[str, float, float]]:
    """Yield, for each kind of captured batch, median milliseconds, and of these what makes it ready."""
    backend: Any = nothing.NAME
    ours = OurModel(MODELS[SST], hidden, words, backend, engine="captured")
    prepare(ours, batches)
    planned = [ours.program.plan(trees) for trees in batches]
    kinds = ("new", lambda: map(unseen, batches)), ("known", lambda: batches), ("planned", lambda: planned)
    ready, made = CudaEngine.ready, [0.0]

    def timed(*arguments: Any, **options: Any) -> Any:
        start = time.thread_time()
        result = ready(*arguments, **options)
        made[0] += time.thread_time() - start
        return result

    def train(batch: Any) -> None:
        ours.step(batch, len(batches[0]))
        launch_due(ours.program)

    with mock.patch.object(CudaEngine, "ready", timed):
        for label, step in (("training", train), ("inference", ours.infer)):
            for kind, batches_of in kinds:
                seconds: tuple[list[float], list[float]] = [], []
                for turn in range(WARM + repeats):
                    for batch in batches_of():
                        made[0], start = 0.0, time.thread_time()
                        step(batch)
                        if turn >= WARM:
                            seconds[0].append(time.thread_time() - start)
                            seconds[1].append(made[0])
                step_ms, ready_ms = (1e3 * median(times) for times in seconds)
                yield f"{label}, {kind}", step_ms, ready_ms


def compiled(texts: Sequence[str]) -> tuple[float, int] | str:
    """Return the seconds that NVRTC takes for texts of kernels, and how many; else why it was not asked."""
    try:
        nvrtc: Callable[[], Any] = import_module("tests.engines.cuda.nvrtc").nvrtc
        library = nvrtc()
    except (ImportError, FoldbatchError) as error:
        return str(error)
    start = time.process_time()
    for text in texts:
        library.compile(text, ARCHITECTURE)
    return time.process_time() - start, sum(text.count("\nKERNEL") for text in texts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Time, count and compile; return the exit status."""
    parser = ArgumentParser(
        prog="python -m benchmarks.gpu.host", description=(__doc__ or "").partition("\n")[0]
    )
    add_data(parser)
    add_batch(parser, 256)
    add_repeats(parser, 100)
    parser.add_argument(
        "--hidden", type=positive, default=150, metavar="N", help="size of states (default 150)"
    )
    options = parser.parse_args(arguments)
    directory = options.data or (DEFAULT_DATA if DEFAULT_DATA.is_dir() else None)
    try:
        trees, words = numbered_words(load_trees(directory)) if directory else (sst_like_trees(DRAWN), WORDS)
    except (FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    source = "the treebank's" if directory else f"drawn like the treebank's, as there is no {DEFAULT_DATA}"
    print(f"{SST}, hidden {options.hidden}, {BATCHES} batches of {options.batch} trees, {source}; no card")
    order = np.random.default_rng(0).permutation(len(trees)).tolist()
    size = min(options.batch, len(trees))
    chosen = [order[k * size : (k + 1) * size] for k in range(min(BATCHES, len(trees) // size))]
    batches = [[trees[number] for number in numbers] for numbers in chosen]
    right = True
    for way in WAYS:
        with nothing.entered():
            found = host_of(way, options.hidden, words, batches, options.repeats)
        right &= found.is_right
        print(found, "" if found.is_right else ": expected 1 launch, 1 copy in, 1 out", sep="")
    texts = list(dict.fromkeys(nothing.loaded))
    with nothing.entered():
        for label, whole, ready in times_by_kind(options.hidden, words, batches, options.repeats):
            print(f"{label:18} {whole:.3f} ms, of these {ready:.3f} make it ready", flush=True)
    took = compiled(texts)
    if isinstance(took, str):
        print(f"NVRTC was not asked: {took}")
    else:
        seconds, kernels = took
        print(f"NVRTC takes {seconds:.1f} s for the {kernels} kernels of a training step, for {ARCHITECTURE}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
