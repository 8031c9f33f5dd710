"""How fast an exported graph runs in onnxruntime, beside the program: ``python -m benchmarks.exported``.

The benchmark's Tree-LSTM tells the scores of each tree's root, on one thread each. Here that is from known
trees to results, planning included; there from tables to tensors. Beside it stands how fast tables are made.
Both take turns. The ratio is that of their speeds, onnxruntime's to ours: the median of the turns'.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import foldbatch as fb
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.workload import draw_batches, tree_lstm
from foldbatch.errors import FoldbatchError
from foldbatch.trees import Tree, Vocabulary


def seconds(run: Callable[[Any], object], batches: Sequence[Any]) -> float:
    """Return how long all batches take, one after the other."""
    start = time.perf_counter()
    for batch in batches:
        run(batch)
    return time.perf_counter() - start


def measured(
    program: fb.Program, exporter: Any, session: Any, batches: Sequence[list[Tree]], repeats: int
) -> tuple[float, float, float, float]:
    """Return trees per second here, in onnxruntime and of making tables, and the ratio of the first two."""
    tables = [exporter.tables(batch).inputs for batch in batches]
    tasks: list[tuple[Callable[[Any], object], Sequence[Any]]] = [
        (program.run, batches),
        (lambda table: session.run(None, table), tables),
        (exporter.tables, batches),
    ]
    for task in tasks:
        seconds(*task)
    turns = [[seconds(*task) for task in tasks] for _ in range(repeats)]
    trees = sum(map(len, batches))
    ours, theirs, tabling = (trees / median(column) for column in zip(*turns, strict=True))
    return ours, theirs, tabling, median(turn[0] / turn[1] for turn in turns)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exported", description=__doc__)
    add_data(parser)
    parser.add_argument("--trees", type=positive, default=1000)
    parser.add_argument("--hidden", type=positive, default=150)
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 256])
    add_repeats(parser, 9)
    add_backend(parser)
    options = parser.parse_args(arguments)
    try:
        report(options)
    except ImportError as error:
        parser.exit(1, f"error: {error}: expected onnx and onnxruntime; pip install 'foldbatch[onnx]'\n")
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


def report(options: argparse.Namespace) -> None:
    """Measure every size of batch, and print a line for each."""
    from foldbatch.exporting.exporter import Exporter, largest_difference, session_of  # noqa: PLC0415 - an extra

    trees, what = trees_of(options, options.trees)
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    program = fb.compile(tree_lstm(options.hidden, vocabulary), options.backend, threads=1)
    exporter = Exporter(program)
    data = exporter.proto().SerializeToString()
    session = session_of(data, threads=1)
    difference = largest_difference(program, exporter, data, trees)
    print(f"{what}, hidden {options.hidden}; largest difference {difference:.2g}")
    print(f"{'trees per second':<18}{'foldbatch':>11}{'onnxruntime':>13}{'tables':>9}{'ratio':>8}")
    for size in options.batch:
        ours, theirs, tabling, ratio = measured(
            program, exporter, session, draw_batches(trees, size), options.repeats
        )
        print(f"{f'batch {size}':<18}{ours:>11.0f}{theirs:>13.0f}{tabling:>9.0f}{ratio:>8.2f}")


if __name__ == "__main__":
    main()
