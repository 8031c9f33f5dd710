"""Eve beside Adam, each at its best learning rate: ``python -m benchmarks.optimizers``.

Hayashi, Koushik and Neubig 2018 (arXiv 1611.01505, version 3) train a network with both at each of several
rates, keep the rate of the lowest loss in the end, and find that Eve's training loss falls faster and lower.
The task here is to tell the verb of a function's name from its syntax tree, with a small child-sum Tree-LSTM:
real data that every Python has. As in the paper there is no weight decay, the least loss is 0, and both
start from the same numbers and see the same batches.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import foldbatch as fb
from foldbatch import ops
from foldbatch.program.traced import Prepared

RATES = (0.005, 0.01, 0.02, 0.05)
KINDS = {"Adam": fb.Adam, "Eve": fb.train.Eve}
SHOWN = 5  # losses on the way


def model(kinds: fb.trees.Vocabulary, verbs: int, size: int) -> fb.Block:
    """Return the loss of an example, a pair (tree, verb)."""
    embedding, cell = fb.Embedding(len(kinds), size, name="kinds"), fb.ChildSumTreeLSTM(size, name="cell")
    content = fb.GetItem("label") >> fb.InputTransform(kinds.__getitem__) >> fb.Scalar("int32") >> embedding
    tree = fb.ForwardDeclaration(output_type=(size, size), name="tree")
    leaf = content >> fb.Function(lambda x: cell(x, ()))
    node = fb.AllOf(content, fb.GetItem("children") >> fb.Map(tree())) >> fb.Function(cell)
    tree.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: node}))
    scores = fb.GetItem(0) >> tree() >> fb.GetItem(0) >> fb.Linear(verbs, name="scores")
    label = fb.GetItem(1) >> fb.Scalar("int32")
    return fb.AllOf(scores, label) >> fb.Function(ops.cross_entropy) >> fb.Loss()


def task(
    nodes: int, folder: str | None = None
) -> tuple[list[tuple[fb.trees.Tree, int]], fb.trees.Vocabulary, int]:
    """Return the functions of at most so many nodes, the kinds of their nodes, and the number of verbs."""
    corpus = fb.trees.standard_library_functions(folder)
    examples = [(e.tree, e.verb) for e in corpus.train if len(e.tree.labels) <= nodes]
    kinds = fb.trees.Vocabulary.count(str(label) for tree, _ in examples for label in tree.labels)
    return examples, kinds, len(corpus.verbs)


def curve(
    program: fb.Program,
    examples: Sequence[Prepared],
    optimizer: fb.train.Optimizer,
    batch: int,
    epochs: int,
    seed: int,
) -> list[float]:
    """Train; return the mean loss of each epoch."""
    sampler, means = fb.train.shuffled(examples, batch, seed), []
    for epoch in range(epochs):
        total = 0.0
        for chosen in sampler.epoch(epoch):
            loss, gradients = program.value_and_grad([examples[i] for i in chosen])
            optimizer.update(program.params, gradients, scale=1 / len(chosen), loss=loss)
            total += loss
        means.append(float(total) / len(examples))
    return means


def curves(options: argparse.Namespace) -> dict[tuple[str, float], list[list[float]]]:
    """Return the curve of each seed, by optimizer and rate."""
    examples, kinds, verbs = task(options.nodes, options.folder)
    found: dict[tuple[str, float], list[list[float]]] = {
        (kind, rate): [] for kind in KINDS for rate in options.rates
    }
    for seed in range(options.seeds):
        program = fb.compile(model(kinds, verbs, options.hidden), options.backend, seed=seed)
        prepared = program.prepare(examples)
        start = {name: value.copy() for name, value in program.params.items()}
        for (kind, rate), runs in found.items():
            program.params.update(start)
            optimizer = KINDS[kind](lr=rate)
            runs.append(curve(program, prepared, optimizer, options.batch, options.epochs, seed))
    return found


def end(run: Sequence[float]) -> float:
    """Return the loss in the end: the mean of the last tenth of the epochs, since single ones leap."""
    return statistics.mean(run[-max(1, len(run) // 10) :])


def last(runs: Sequence[Sequence[float]]) -> float:
    """Return the loss in the end, the mean over seeds."""
    return statistics.mean(map(end, runs))


def text(found: dict[tuple[str, float], list[list[float]]], epochs: int) -> str:
    """Return the table of all rates, and the curves of the best."""
    rates = sorted({rate for _, rate in found})
    lines = ["loss in the last tenth of the epochs, mean and range over seeds", f"{'rate':>8}"]
    lines[1] += "".join(f"{kind:>26}" for kind in KINDS)
    for rate in rates:
        cells = [[end(run) for run in found[kind, rate]] for kind in KINDS]
        shown = [f"{statistics.mean(ends):.4f} ({min(ends):.4f} to {max(ends):.4f})" for ends in cells]
        lines.append(f"{rate:>8g}" + "".join(f"{cell:>26}" for cell in shown))
    steps = [max(1, epochs * part // SHOWN) for part in range(1, SHOWN + 1)]
    lines += ["", "each at its best rate: loss after epochs", f"{'':>16}" + "".join(f"{n:>9}" for n in steps)]
    best = {kind: min((last(found[kind, rate]), rate) for rate in rates)[1] for kind in KINDS}
    for kind, rate in best.items():
        means = [statistics.mean(run[n - 1] for run in found[kind, rate]) for n in steps]
        lines.append(f"{kind:<6} {rate:>8g} " + "".join(f"{mean:>9.4f}" for mean in means))
    target = last(found["Adam", best["Adam"]])
    eve = [statistics.mean(ends) for ends in zip(*found["Eve", best["Eve"]], strict=True)]
    reached = next((str(n + 1) for n, mean in enumerate(eve) if mean <= target), f"more than {epochs}")
    lines += ["", f"epochs in which Eve reaches the loss that Adam ends with: {reached} of {epochs}"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimizers", description=__doc__)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--nodes", type=int, default=60, help="functions of at most so many")
    parser.add_argument("--folder", help="of Python modules; by default the standard library")
    parser.add_argument("--backend", default="auto")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    print(text(curves(options), options.epochs))
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
