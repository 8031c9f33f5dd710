"""``python -m benchmarks.workers``: what a batch that workers prepare costs the process that trains on it.

Batches of the SST Tree-LSTM come ready for the engine, and none is run: planned by this process, of trees
that were traced before and of new ones, or by workers, which open the treebank or are sent the trees.
Milliseconds are of this process's CPU time, its threads included: the wall clock counts what neighbours do.
"""

from __future__ import annotations

import pickle
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import foldbatch as fb
from benchmarks.options import add_batch, positive
from benchmarks.workload import load_trees, random_trees, unseen, untraced, words_of
from foldbatch.engines.batch import Planned
from foldbatch.system.showing import table
from foldbatch.train import prefetched
from foldbatch.trees import Tree

HIDDEN, WARM = 150, 8  # batches that are not counted
PAUSE = 0.1  # seconds between batches, about those of a step


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; return the exit status."""
    parser = ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    add_batch(parser, 256)
    parser.add_argument("--data", type=Path, metavar="DIR", help="with train.txt (default: random trees)")
    parser.add_argument("--backend", default="auto", help="numpy or llvm")
    parser.add_argument("--workers", type=positive, default=2, metavar="N", help="processes (default 2)")
    parser.add_argument("--batches", type=positive, default=40, metavar="N", help="that count (default 40)")
    options = parser.parse_args(arguments)
    trees = trees_of(options.data)
    program = fb.compile(model(words_of(trees)), options.backend)
    header = ["batches", "until it is here, ms", "launch table, ms"]
    print(table(header, rows(program, trees, options)))
    return 0


def trees_of(folder: Path | None) -> list[Tree]:
    """Return the trees of a folder, or random ones."""
    return random_trees(8544) if folder is None else load_trees(folder)


def model(words: fb.trees.Vocabulary) -> Any:
    """Return a Tree-LSTM that tells the class of each node; another process can open it."""
    return fb.zoo.tree_lstm(fb.zoo.Words(words, HIDDEN), fb.zoo.Task("nodes", classes=5), hidden=HIDDEN)


def batches_of(trees: Sequence[Tree], size: int) -> Iterator[list[Tree]]:
    """Yield batches without end."""
    while True:
        for start in range(0, len(trees) - size + 1, size):
            yield list(trees[start : start + size])


def opened(folder: Path | None, size: int) -> Iterator[Iterator[Tree]]:
    """Yield batches of trees that were never traced, without end: what a worker opens.

    A tree is made when its batch is read, so a worker makes none of a batch that is another worker's turn.
    """
    return (map(untraced, batch) for batch in batches_of(trees_of(folder), size))


def rows(program: Any, trees: Sequence[Tree], options: Any) -> list[list[str]]:
    """Return the rows of the table: how batches are prepared, and medians of milliseconds."""
    size, count = options.batch, options.batches
    known = batches_of(trees, size)
    here: Callable[[Iterable[Any]], Iterator[Planned]] = partial(map, program.plan)
    for batch in islice(known, len(trees) // size):
        ready(program, program.plan(batch))
    sending = partial(prefetched, program, workers=options.workers)
    measured = {
        "planned here, known trees": here(known),
        "planned here, new trees": here(unseen(batch) for batch in batches_of(trees, size)),
        "by workers that open them": sending(partial(opened, options.data, size)),
        "by workers that are sent them": sending(batches_of(trees, size)),
        "only pickled": (pickle.dumps(batch) for batch in batches_of(trees, size)),
    }
    made = []
    for name, plans in measured.items():
        made.append([name, *[f"{ms:.2f}" for ms in milliseconds(program, plans, count)]])
        if hasattr(plans, "close"):
            plans.close()
    return made


def ready(program: Any, plan: Any) -> None:
    """Make a plan ready for the engine, as the first run of it does."""
    if isinstance(plan, Planned):
        runner = program._ready.runner
        for part in plan.parts:
            runner._ready(part, training=True)


def milliseconds(program: Any, plans: Iterator[Any], count: int) -> list[float]:
    """Return medians of this process's CPU time for a batch, and for its launch table.

    Between batches it waits, so that workers are ahead as they are where batches run. The first ones do not
    count.
    """
    spent = []
    for _ in range(WARM + count):
        time.sleep(PAUSE)
        begin = time.process_time()
        plan = next(plans)
        middle = time.process_time()
        ready(program, plan)
        spent.append((middle - begin, time.process_time() - middle))
    return [1000 * median(column) for column in zip(*spent[WARM:], strict=True)]


if __name__ == "__main__":
    raise SystemExit(main())
