"""``python -m benchmarks.jobs.expressions``: which way to write a polynomial has the fewest operations?

A model sees an expression and says which of three ways is best; `benchmarks.jobs.polynomials` makes the data.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import foldbatch as fb
from benchmarks.jobs.contest import Defaults, run
from benchmarks.jobs.expression_model import name_of, walk_of
from benchmarks.jobs.job import Example, Job, parted
from benchmarks.options import positive

COUNT = 10_000
DEFAULTS = Defaults(epochs=20, lr=3e-3, recurrent_epochs=10)


def tokens(tree: Any) -> list[str]:
    """Return the names of nodes, operations before their operands, with how many these are."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(f"{name_of(node)} {len(node.children)}" if len(node.children) else name_of(node))
        waiting += reversed(list(node.children))
    return found


def features(tree: Any) -> dict[str, float]:
    """Return counts: of nodes, of pairs and triples along the way down, of runs of tokens; size and depth."""
    found: Counter[str] = Counter()
    waiting, deepest = [(tree, "", "", 0)], 0
    while waiting:
        node, above, higher, depth = waiting.pop()
        name = f"{name_of(node)} {len(node.children)}" if len(node.children) else name_of(node)
        found.update([name, f"{above} > {name}", f"{higher} > {above} > {name}", f"{name} at {depth}"])
        deepest = max(deepest, depth)
        waiting += [(child, name, above, depth + 1) for child in node.children]
    words = tokens(tree)
    found.update(" ".join(pair) for pair in pairwise(words))
    found.update(" ".join(three) for three in zip(words, words[1:], words[2:], strict=False))
    found.update({"size": len(words), "depth": deepest, "top " + words[0]: 1})
    return dict(found)


def job(count: int = COUNT, seed: int = 0) -> Job:
    """Return the job: expressions that the seed draws, each a group of its own."""
    from benchmarks.jobs.polynomials import WAYS, polynomials  # noqa: PLC0415 - SymPy is optional

    examples = [
        Example(fb.trees.from_(expression), way, str(expression))
        for expression, way in polynomials(count, seed)
    ]
    parts = parted(examples)
    return Job(
        "the shortest of three ways",
        WAYS,
        parts["train"],
        parts["dev"],
        parts["test"],
        walk=partial(walk_of, classes=len(WAYS)),
        features=features,
        tokens=tokens,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Hold the contest."""
    parser = ArgumentParser(
        "python -m benchmarks.jobs.expressions", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--count", type=positive, default=COUNT, metavar="N", help=f"expressions (default {COUNT})"
    )
    parser.add_argument("--seed", type=int, default=0, help="draws the expressions (default 0)")
    return run(parser, lambda options: job(options.count, options.seed), DEFAULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
