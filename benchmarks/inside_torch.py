"""What a module of PyTorch costs beside the program itself: ``python -m benchmarks.inside_torch --data DIR``.

Each way trains the Tree-LSTM of `workload` on the same batches, in turns within one process, on one thread.
Milliseconds are medians; ratios are medians of the pairs of one turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foldbatch as fb
from benchmarks.options import positive
from benchmarks.workload import CLASSES, draw_batches, load_trees, tree_lstm
from foldbatch.torch import Module
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

Batch = list[Tree]


def ways(hidden: int, words: Vocabulary, backend: BackendName) -> dict[str, Callable[[Batch], Any]]:
    """Return what is compared, by name: pairs, of which the second is held against the first."""
    program = fb.compile(tree_lstm(hidden, words), backend, threads=1)
    dense, sparse = (
        Module(tree_lstm(hidden, words), backend, threads=1, sparse=sparse) for sparse in (False, True)
    )
    ours, lazy = fb.Adam(lr=1e-4), fb.train.LazyAdam(lr=1e-4)
    table: list[Any] = []
    others: list[Any] = []
    for name, parameter in sparse.named_parameters():
        (table if name.startswith("embedding") else others).append(parameter)
    adam = torch.optim.Adam(dense.parameters(), 1e-4)
    halves = torch.optim.SparseAdam(table, 1e-4), torch.optim.Adam(others, 1e-4)
    ones = np.ones(CLASSES, np.float32)

    def backward(module: Module, batch: Batch) -> None:
        module.zero_grad()
        module.loss(batch).backward()

    def results(batch: Batch) -> None:
        sparse.zero_grad()
        sparse(batch).sum().backward()

    def again(batch: Batch) -> None:
        program.run(batch)
        program.vjp(batch, [ones] * len(batch))

    def stepped(batch: Batch) -> None:
        backward(dense, batch)
        adam.step()

    def stepped_sparse(batch: Batch) -> None:
        backward(sparse, batch)
        for half in halves:
            half.step()

    return {
        "value_and_grad": program.value_and_grad,
        "loss.backward()": lambda batch: backward(sparse, batch),
        "run and vjp": again,
        "results, backward()": results,
        "with our Adam": lambda batch: ours.update(program.params, program.value_and_grad(batch)[1]),
        "with torch's Adam": stepped,
        "with our LazyAdam": lambda batch: lazy.update(program.params, program.value_and_grad(batch)[1]),
        "with torch's SparseAdam": stepped_sparse,
    }


def compare(
    compared: dict[str, Callable[[Batch], Any]], batches: Sequence[Batch], turns: int
) -> list[tuple[str, str, float, float, float]]:
    """Return for each pair both names, both medians in milliseconds, and the second as a multiple."""
    seconds: dict[str, list[float]] = {name: [] for name in compared}
    for turn in range(turns + 1):
        for batch in batches:
            for name, run in compared.items():
                start = time.perf_counter()
                run(batch)
                if turn:  # the first one compiles
                    seconds[name].append(time.perf_counter() - start)
    names = list(compared)
    lines = []
    for one, other in zip(names[::2], names[1::2], strict=True):
        ratio = statistics.median(b / a for a, b in zip(seconds[one], seconds[other], strict=True))
        first, second = (1e3 * statistics.median(seconds[name]) for name in (one, other))
        lines.append((one, other, first, second, ratio))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inside_torch", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="holds train.txt")
    parser.add_argument("--hidden", type=positive, default=150)
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 64])
    parser.add_argument("--turns", type=positive, default=20, help="of four batches each")
    parser.add_argument("--limit", type=positive, default=1000, help="trees to draw from")
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    trees = load_trees(options.data, options.limit)
    compared = ways(
        options.hidden, Vocabulary.count(word for tree in trees for word in tree.words()), options.backend
    )
    for size in options.batch:
        for one, other, first, second, ratio in compare(
            compared, draw_batches(trees, size)[:4], options.turns
        ):
            print(f"{size:4} trees: {other} {second:.2f} ms, {one} {first:.2f} ms: {ratio:.2f}x", flush=True)


if __name__ == "__main__":
    main()
