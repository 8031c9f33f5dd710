"""``python -m benchmarks.gpu.small``: steps of a small model, for tools that look into the card."""

from __future__ import annotations

import argparse

from benchmarks.gpu.card import imported
from benchmarks.gpu.contenders import MODELS, SST, OurModel
from benchmarks.gpu.trees import sst_like_trees


def main() -> None:
    """Run two steps and an inference, and print the loss."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.small", description=__doc__)
    parser.add_argument("--backend", default="cuda")
    backend = parser.parse_args().backend
    cupy = imported("cupy") if backend == "cuda" else None
    if cupy is not None:
        cupy.cuda.set_allocator(None)  # no pool: a read beyond an array is then beyond what was allocated
    trees = sst_like_trees(4, seed=3, words=40)
    ours = OurModel(MODELS[SST], 20, 40, backend)
    for _ in range(2):
        loss = ours.step(trees, len(trees))
    ours.infer(trees)
    print(f"loss {float(loss):.6f}")


if __name__ == "__main__":
    main()
