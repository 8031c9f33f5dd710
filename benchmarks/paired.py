"""Two checkouts of foldbatch in one run: ``python -m benchmarks.paired OLD NEW --data DIR``.

Each is a process of its own; they take turns, so that what else the machine does falls on both. Rates are per
second of CPU time, which a busy neighbour changes least; ratios are medians of pairs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.options import positive

SIDE = Path(__file__).with_name("paired_side.py")
TASKS = ("train", "train-new", "gradients", "infer", "infer-new")
CASES = ("sst", "child-sum", "chain")


def compare(
    sides: Sequence[Sequence[str]],
    sizes: Sequence[int],
    repeats: int,
    seconds: float,
    tasks: Sequence[str] = TASKS,
) -> dict[tuple[str, int], tuple[float, float, float]]:
    """Return, by task and batch size, the rates of both sides and the second's as a multiple of the first's.

    Args:
        sides: two commands that answer as `paired_side` does, each run in the folder that is its first word.
        sizes: of batches.
        repeats: pairs of measurements.
        seconds: of CPU time, each.
        tasks: what is measured.
    """
    processes = [
        subprocess.Popen(  # noqa: S603 - our own script
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for folder, *command in sides
    ]
    try:
        figures = {}
        for task, size in ((task, size) for task in tasks for size in sizes):
            pairs = [[_ask(p, f"{task} {size} {seconds}") for p in processes] for _ in range(repeats)]
            old, new = (statistics.median(rates) for rates in zip(*pairs, strict=True))
            figures[task, size] = old, new, statistics.median(b / a for a, b in pairs)
        return figures
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _ask(process: subprocess.Popen[str], question: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{question}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise SystemExit(f"{process.args!r}: expected an answer to {question!r}, found none")
    return float(json.loads(answer))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired", description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--data", type=Path, required=True, help="the folder with SST's train.txt")
    parser.add_argument("--case", choices=CASES, default="sst")
    parser.add_argument("--hidden", type=positive, default=150)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--precision", default="fp32", help="of NEW's products (default fp32, that of OLD's)")
    parser.add_argument("--task", choices=TASKS, nargs="+", default=TASKS)
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 64, 256])
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    given = parser.parse_args(arguments)
    file = (given.data / "train.txt").resolve()
    if not file.is_file():
        parser.error(f"--data: expected a folder with train.txt, found {given.data}")
    for folder in (given.old, given.new):
        if not (folder / "foldbatch").is_dir():
            parser.error(f"expected a checkout of foldbatch, found {folder}")
    words = [sys.executable, str(SIDE), given.case, str(given.hidden), given.backend, str(file)]
    checkouts = (given.old, "fp32"), (given.new, given.precision)
    sides = [[str(folder.resolve()), *words, precision] for folder, precision in checkouts]
    print(f"{given.case}, hidden {given.hidden}, backend {given.backend}: examples per CPU second")
    print(f"{'task':<10} {'batch':>5} {'old':>8} {'new':>8} {'new / old':>9}")
    figures = compare(sides, given.batch, given.repeats, given.seconds, given.task)
    for (task, size), (old, new, ratio) in figures.items():
        print(f"{task:<10} {size:>5} {old:>8.0f} {new:>8.0f} {ratio:>8.2f}x", flush=True)


if __name__ == "__main__":
    main()
