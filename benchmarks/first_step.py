"""How long a model's first step takes: ``python -m benchmarks.first_step``.

A Tree-LSTM written as a plain function is compiled and takes one training step in a new process: once with an
empty cache of compiled code, and once with the cache that the first process left. A third process times
``import foldbatch``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser

import foldbatch as fb
from benchmarks.options import add_backend
from benchmarks.workload import walk_of
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Vocabulary, parse_brackets
from foldbatch.types import BackendName

HIDDEN = 150
IMPORT = "import time; start = time.perf_counter(); import foldbatch; print(time.perf_counter() - start)"


def first_step(backend: BackendName) -> float:
    """Return the seconds in which this process compiles a model and takes its first training step."""
    trees = [parse_brackets(text, labels=int) for text in ("(3 (2 a) (4 (1 b) (2 a)))", "(1 (0 b) (2 a))")]
    start = time.perf_counter()
    program = fb.compile(walk_of(HIDDEN, Vocabulary(["a", "b"])), backend)
    program.value_and_grad(trees)
    return time.perf_counter() - start


def measured(backend: BackendName) -> dict[str, float]:
    """Return the seconds of ``import foldbatch``, and of a first step without and with a cache on disk."""
    step = ["-m", "benchmarks.first_step", "--backend", backend, "--step"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "FOLDBATCH_CACHE": f"{folder}/cache"}

        def seconds(arguments: list[str]) -> float:
            command = [sys.executable, *arguments]
            return float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)  # noqa: S603

        return {
            "import foldbatch": seconds(["-c", IMPORT]),
            "first step, empty cache": seconds(step),
            "first step, code on disk": seconds(step),
        }


def main() -> None:
    """Print a line for each figure."""
    parser = ArgumentParser("python -m benchmarks.first_step", description=__doc__.split("\n")[0])
    add_backend(parser)
    parser.add_argument(
        "--step", action="store_true", help="take a step in this process, and print its seconds"
    )
    options = parser.parse_args()
    try:
        if options.step:
            print(first_step(options.backend))
            return
        for name, seconds in measured(options.backend).items():
            print(f"{name}: {seconds:.2f} s")
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
