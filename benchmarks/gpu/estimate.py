"""``python -m benchmarks.gpu.estimate``: what a training step may take on a card not measured yet.

Launches, products, bytes and copies are counted by the engine itself, on the CPU; rates of the card are
assumed. A step takes at least the largest of its parts, and about that much if the others hide behind it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from benchmarks.floor import count
from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.cost import Cost, least_bytes
from benchmarks.gpu.steps import direction_costs, levels, step_floor
from benchmarks.gpu.trees import WORDS, sst_like_trees
from benchmarks.options import positive
from foldbatch.trees import Tree

# Of an H200, in the units of `benchmarks.gpu.rates.measure`; see docs/gpu.md for where each is from.
H200: Mapping[str, float] = {
    "copy": 4.3e12,
    "upload": 50e9,
    "product fp32": 67e12,
    "product tf32": 495e12,
    "product bf16": 788e12,
    "launch": 7e-6,
    "launch in a graph": 1.5e-6,
}


def step_cost(trees: Sequence[Tree], hidden: int, words: int = WORDS) -> Cost:
    """Return what a training step of the SST Tree-LSTM asks of a card; nothing is computed."""
    ours = OurModel(MODELS[SST], hidden, words, "cuda-on-cpu")
    direction_costs(ours, trees, dry=True)  # brings parameters to the device, which happens once
    return sum(direction_costs(ours, trees, dry=True).values(), Cost())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.estimate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--hidden", type=positive, nargs="+", default=[150, 300, 512, 1024], metavar="H")
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 64, 256, 1024], metavar="N")
    options = parser.parse_args(arguments)
    trees = sst_like_trees(max(options.batch))
    print("| hidden | batch | levels | launches | products | copies in | GFLOP | MB | control MB", end=" ")
    print("| fp32 products ms | tf32 ms | bytes ms | copies in ms | launches ms | in a graph ms |")
    print("|---" * 15 + "|", flush=True)
    for hidden in options.hidden:
        for batch in options.batch:
            examples = trees[:batch]
            cost = step_cost(examples, hidden)
            counts = count([examples])
            operations = counts.operations(hidden, training=True, shared=True)
            seconds = step_floor(cost, H200, hidden, examples)
            tf32 = step_floor(cost, H200, hidden, examples, "tf32")["products"]
            parts = seconds["products"], tf32, seconds["bytes"], seconds["copies in"], seconds["launches"]
            numbers = [
                *(
                    str(n)
                    for n in (hidden, batch, levels(examples), cost.submitted - cost.products, cost.products)
                ),
                str(cost.copies_in),
                f"{operations / 1e9:.2f}",
                f"{least_bytes(counts, hidden) / 1e6:.0f}",
                f"{cost.bytes_in / 1e6:.2f}",
                *(f"{part * 1e3:.3f}" for part in (*parts, seconds["launches in a graph"])),
            ]
            print(f"| {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
