"""Memory under a budget: ``python -m benchmarks.budget`` trains long recursions whole, and within a share.

Each measurement is a process of its own, and those of one model take turns. Memory is the most that the
process held while it trained, less what it held before; seconds are of CPU time, which a busy neighbour
changes least.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import foldbatch as fb
from benchmarks.options import positive
from foldbatch import ops

WORDS = 1_000
CLASSES = 5
PAGE = resource.getpagesize()


class Load(NamedTuple):
    """A model and the batch that it trains on."""

    examples: int
    length: int  # words of each example
    hidden: int


LOADS = {"lstm": Load(256, 500, 256), "gru": Load(256, 500, 256), "chain": Load(8, 10_000, 150)}


class Measured(NamedTuple):
    """What one process found."""

    needed: int  # bytes that `Program.describe` said beforehand
    peak: int  # bytes that were held at most, beyond those held before
    seconds: float  # of CPU time, of a step after the first one
    loss: float


def sequence_model(kind: str, hidden: int) -> Any:
    """Return a block that reads word ids and a class, as of a sentence; its loss is the class's."""
    cell = fb.LSTMCell(hidden) if kind == "lstm" else fb.GRUCell(hidden)
    word = fb.Scalar("int32") >> fb.Embedding(WORDS, hidden)
    last = fb.GetItem(0) >> fb.Map(word) >> fb.RNN(cell) >> fb.GetItem(1)
    logits = (last >> fb.GetItem(0) if kind == "lstm" else last) >> fb.Linear(CLASSES)
    return (
        fb.AllOf(logits, fb.GetItem(1) >> fb.Scalar("int32")) >> fb.Function(ops.cross_entropy) >> fb.Loss()
    )


def chain_model(hidden: int) -> Any:
    """Return a walk: a Tree-LSTM over a tree that leans to the left, with a loss at every node."""
    lstm, embed, classify = fb.TreeLSTM(hidden), fb.Embedding(WORDS, hidden), fb.Linear(CLASSES)

    @fb.cell
    def leaf(word: Any) -> Any:
        return lstm(embed(word), ())

    @fb.cell
    def node(left: Any, right: Any, label: Any) -> Any:
        state = lstm(None, (left, right))
        fb.loss(ops.cross_entropy(classify(state[0]), label))
        return state

    def chain(example: Any) -> Any:
        words, labels = example
        state = leaf(words[0])
        for word, label in zip(words[1:], labels[1:], strict=True):
            state = node(state, leaf(word), label)
        return ()

    return chain


def examples_of(kind: str, load: Load) -> list[Any]:
    """Return the batch: word ids with the class of each word for a chain, else with one class."""
    generator = np.random.default_rng(0)
    classes = load.length if kind == "chain" else None
    draws = (generator.integers(0, WORDS, load.length).tolist() for _ in range(load.examples))
    return [(words, generator.integers(0, CLASSES, classes).tolist()) for words in draws]


def measure(kind: str, memory: int | None, backend: Any, repeats: int, load: Load) -> Measured:
    """Train one model in this process."""
    examples = examples_of(kind, load)
    model = chain_model(load.hidden) if kind == "chain" else sequence_model(kind, load.hidden)
    options: Any = {} if memory is None else {"memory": memory}
    program = fb.compile(model, backend, threads=1, options=options)
    prepared = program.prepare(examples)
    words, classes = examples[0]
    program.value_and_grad([(words[:3], classes[:3] if kind == "chain" else classes)])  # kernels are compiled
    before = held()
    seconds, loss = [], 0.0
    for _ in range(1 + repeats):
        start = time.process_time()
        total, _ = program.value_and_grad(prepared)
        seconds.append(time.process_time() - start)
        loss = float(total)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    report = program.describe(prepared, compare=False)
    needed = report.buffer_bytes if report.bound is None else report.bound.nbytes
    return Measured(needed, peak, statistics.median(seconds[1:] or seconds), loss)


def held() -> int:
    """Return the bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def apart(kind: str, memory: int | None, arguments: argparse.Namespace) -> Measured:
    """Return what a process of its own measures."""
    command = [sys.executable, "-m", "benchmarks.budget", "--one", kind, "--backend", arguments.backend]
    command += ["--repeats", str(arguments.repeats), "--scale", str(arguments.scale)]
    command += [] if memory is None else ["--memory", str(memory)]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own script
    return Measured(*json.loads(answer.stdout))


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.budget", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--models", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--share", type=float, default=0.4, help="of what the batch takes as a whole")
    parser.add_argument("--backend", choices=("llvm", "numpy"), default="llvm")
    parser.add_argument("--repeats", type=positive, default=2, help="steps that are timed, in each process")
    parser.add_argument("--turns", type=positive, default=2, help="processes of each kind")
    parser.add_argument("--scale", type=positive, default=1, help="divides the lengths, for a quick look")
    parser.add_argument("--one", choices=LOADS, help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=positive, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what each model takes as a whole and under the budget."""
    options = options_of(arguments)
    if options.one:
        load = LOADS[options.one]
        load = load._replace(length=load.length // options.scale)
        found = measure(options.one, options.memory, options.backend, options.repeats, load)
        sys.stdout.write(json.dumps(found))
        return
    table = Table(
        "model", "batch", "as a whole", "under the budget", "memory", "time", title="One training step"
    )
    for kind in options.models:
        load = LOADS[kind]
        pairs = []
        for _ in range(options.turns):
            whole = apart(kind, None, options)
            bounded = apart(kind, int(whole.needed * options.share), options)
            pairs.append((whole, bounded))
            if abs(whole.loss - bounded.loss) > 1e-5 * abs(whole.loss):
                raise SystemExit(f"{kind}: losses differ: {whole.loss} and {bounded.loss}")
        table.add_row(
            kind,
            f"{load.examples} x {load.length // options.scale}, H = {load.hidden}",
            *(f"{shown(pairs, side)}" for side in (0, 1)),
            f"{statistics.median(b.peak / a.peak for a, b in pairs):.0%}",
            f"{statistics.median(b.seconds / a.seconds for a, b in pairs):.2f}x",
        )
    Console().print(table)


def shown(pairs: Sequence[tuple[Measured, Measured]], side: int) -> str:
    """Return the medians of one side: megabytes that were foreseen and that were held, and seconds."""
    needed, peak, seconds = (statistics.median(pair[side][i] for pair in pairs) for i in range(3))
    return f"{needed / 1e6:,.0f} MB foreseen, {peak / 1e6:,.0f} held, {seconds:.2f} s"


if __name__ == "__main__":
    main()
