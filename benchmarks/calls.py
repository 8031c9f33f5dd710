"""Ways to write a call in a walk, and a model's first step: ``python -m benchmarks.calls``.

A way is noted 400 times in each of 8 examples, and only traced. A first step is that of a Tree-LSTM of cells,
once in a new process with nothing on disk, and once more with what that left there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.functions import walk_of
from benchmarks.options import add_backend, add_repeats
from foldbatch import ops
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Vocabulary, parse_brackets
from foldbatch.types import BackendName

CALLS, EXAMPLES, HIDDEN = 400, 8, 150
Kind = Enum("Kind", ["ONE", "OTHER"])
Way = Callable[[Any, int], Any]  # given a value and the number of the call, returns the next value


def ways() -> dict[str, Way]:
    """Return ways to write a call, by how they are written."""
    embed, linear, weight = fb.Embedding(100, 4), fb.Linear(4), fb.Parameter([4, 4], name="w")
    row, ids = np.ones(4, np.float32), np.arange(CALLS) % 7

    class Held(fb.Module):
        @fb.cell
        def __call__(self, a: Any, b: Any) -> Any:
            return ops.tanh(a + b)

    held = Held()
    node = fb.cell(lambda a, b: ops.tanh(a + b))
    looked = fb.cell(lambda a, i: a + embed(i))
    chosen = fb.cell(_chosen)
    added = fb.cell(lambda a, v: a + v)
    return {
        "node(a, b)": lambda x, i: node(x, x),
        "module(a, b)": lambda x, i: held(x, x),
        "node(a, kind=Kind.ONE)": lambda x, i: chosen(x, kind=Kind.ONE),
        "node(a, 3)": lambda x, i: looked(x, 3),
        "node(a, array[i])": lambda x, i: looked(x, ids[i]),
        "node(a, array)": lambda x, i: added(x, row),
        "linear(a)": lambda x, i: linear(x),
        "a + b": lambda x, i: x + x,
        "a + array": lambda x, i: x + row,
        "a @ parameter": lambda x, i: x @ weight,
        "concat, a[:4]": lambda x, i: ops.concat([x, x])[:4],
        "reshape": lambda x, i: ops.reshape(x, [4]),
        "mean": lambda x, i: x + x.mean(),
        "cross_entropy(a, 2)": lambda x, i: x + ops.cross_entropy(x, 2),
        "tensor of a list": lambda x, i: x + fb.tensor([1.0, 2.0, 3.0, 4.0]),
    }


def _chosen(a: Any, *, kind: Kind) -> Any:
    return ops.tanh(a) if kind is Kind.ONE else a


def noted(way: Way, repeats: int, backend: BackendName) -> float:
    """Return the least microseconds of CPU time that noting a call takes, the walk's own included."""

    def walk(count: int) -> Any:
        x = fb.tensor([0.5] * 4)
        for number in range(count):
            x = way(x, number)
        return x

    program, examples, spent = fb.compile(walk, backend), [CALLS] * EXAMPLES, list[float]()
    program.warm(examples)
    for _ in range(repeats):
        start = time.process_time()
        program.prepare(examples, progress=False)
        spent.append(time.process_time() - start)
    return 1e6 * min(spent) / (CALLS * EXAMPLES)


def first_step(backend: BackendName) -> float:
    """Return the seconds of compiling a model, and of its first step, in this process."""
    trees = [parse_brackets(text, labels=int) for text in ("(3 (2 a) (4 (1 b) (2 a)))", "(1 (0 b) (2 a))")]
    start = time.perf_counter()
    program = fb.compile(walk_of(HIDDEN, Vocabulary(["a", "b"])), backend)
    program.value_and_grad(trees)
    return time.perf_counter() - start


def first_steps(backend: BackendName) -> list[float]:
    """Return the same of two new processes: with nothing on disk, and with what the first one left."""
    command = [sys.executable, "-m", "benchmarks.calls", "--backend", backend, "--step"]
    with tempfile.TemporaryDirectory() as folder:
        given = {**os.environ, "FOLDBATCH_CACHE": f"{folder}/cache"}
        runs = [subprocess.run(command, env=given, check=True, capture_output=True) for _ in range(2)]  # noqa: S603
    return [float(run.stdout) for run in runs]


def main() -> None:
    """Print a line for each way, and for each first step."""
    parser = ArgumentParser("python -m benchmarks.calls", description=__doc__.split("\n")[0])
    add_backend(parser)
    add_repeats(parser, 5)
    parser.add_argument("--step", action="store_true", help="print the seconds of a first step alone")
    options = parser.parse_args()
    try:
        if options.step:
            print(first_step(options.backend))
            return
        for name, way in ways().items():
            print(f"{name:24}{noted(way, options.repeats, options.backend):6.2f} us", flush=True)
        for where, seconds in zip(("nothing", "all"), first_steps(options.backend), strict=True):
            print(f"first step, {where} on disk: {seconds:.2f} s")
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
