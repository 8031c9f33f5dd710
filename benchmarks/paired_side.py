"""One side of a paired run: a process that imports one checkout of foldbatch and times its steps when asked.

It is run as a script and imports nothing of the benchmarks, so that the checkout may be an older one. Lines
on standard input ask: ``TASK BATCH SECONDS``; each is answered by examples per second of CPU time. ``infer``
runs for results alone, on examples traced before; ``infer-new`` and ``train-new``, on trees never seen.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.engine import Precision
from foldbatch.types import BackendName


def sst(trees: list[Any], hidden: int) -> tuple[fb.Block, list[Any]]:
    """Return the SST Tree-LSTM, and trees."""
    vocabulary = _vocabulary(trees)
    leaf_gates, node_gates = fb.Linear(3 * hidden, name="leaf"), fb.Linear(5 * hidden, name="node")
    embedding = fb.Embedding(len(vocabulary), hidden, name="embedding")

    def leaf(word: Any) -> Any:
        gates = leaf_gates(embedding(word))
        i, o = ops.split(ops.sigmoid(gates[: 2 * hidden]), 2)
        c = i * ops.tanh(gates[2 * hidden :])
        return o * ops.tanh(c), c

    def node(left: Any, right: Any) -> Any:
        gates = node_gates(ops.concat([left[0], right[0]]))
        i, f_left, f_right, o = ops.split(ops.sigmoid(gates[: 4 * hidden]), 4)
        c = i * ops.tanh(gates[4 * hidden :]) + f_left * left[1] + f_right * right[1]
        return o * ops.tanh(c), c

    word = fb.GetItem("token") >> fb.InputTransform(vocabulary.__getitem__) >> fb.Scalar("int32")
    tree = fb.ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    pair = fb.Record((tree(), tree())) >> fb.Function(node)
    return _classified(tree, word >> fb.Function(leaf), pair), trees


def child_sum(trees: list[Any], hidden: int) -> tuple[fb.Block, list[Any]]:
    """Return a child-sum Tree-LSTM, and trees."""
    vocabulary = _vocabulary(trees)
    cell = fb.ChildSumTreeLSTM(hidden, name="cell")
    tree = fb.ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    word = fb.GetItem("token") >> fb.InputTransform(vocabulary.__getitem__) >> fb.Scalar("int32")
    word = word >> fb.Embedding(len(vocabulary), hidden, name="embedding")
    leaf = fb.AllOf(word, fb.InputTransform(lambda t: []) >> fb.Map(tree())) >> cell
    pair = fb.AllOf(fb.Zeros(hidden), fb.InputTransform(list) >> fb.Map(tree())) >> cell
    return _classified(tree, leaf, pair), trees


def chain(trees: list[Any], hidden: int) -> tuple[fb.Block, list[Any]]:
    """Return an LSTM over sequences of 1,000 numbers, and sequences."""
    rng = np.random.default_rng(0)
    data = [list(rng.normal(size=1000).astype("float32")) for _ in range(300)]
    numbers = fb.Map(fb.Scalar() >> fb.Function(lambda x: ops.reshape(x, (1,))))
    last = numbers >> fb.RNN(fb.LSTMCell(hidden)) >> fb.GetItem(0) >> fb.GetItem(-1)
    return last >> fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss(), data


def _vocabulary(trees: list[Any]) -> Any:
    return fb.trees.Vocabulary(sorted({word for tree in trees for word in tree.tokens if word}))


def _classified(tree: Any, leaf: fb.Block, node: fb.Block) -> fb.Block:
    """Return a recursion with a classifier and a loss at every node."""
    classify = fb.Linear(5, name="out")
    loss = fb.Function(lambda s, label: ops.cross_entropy(classify(s[0]), label)) >> fb.Loss()
    state = fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: node})
    labelled = fb.AllOf(state, fb.GetItem("label") >> fb.Scalar("int32"))
    tree.resolve_to(labelled >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0))
    root: fb.Block = tree() >> fb.GetItem(0) >> classify
    return root


CASES: dict[str, Callable[[list[Any], int], tuple[fb.Block, list[Any]]]] = {
    "sst": sst,
    "child-sum": child_sum,
    "chain": chain,
}


def main(case: str, hidden: str, backend: BackendName, file: str, precision: Precision) -> None:
    """Answer the lines of standard input, one by one."""
    trees = [tree for _, tree in zip(range(2000), fb.trees.read_sst(file), strict=False)]
    block, data = CASES[case](trees, int(hidden))
    program = fb.compile(block, backend, options={"precision": precision})
    optimizer = fb.train.LazyAdam(lr=1e-3)

    def train(batch: list[Any]) -> None:
        _, gradients = program.value_and_grad(batch)
        optimizer.update(program.params, gradients, scale=1 / len(batch))

    tasks: dict[str, Callable[[list[Any]], Any]] = {
        "train": train,
        "train-new": train,
        "gradients": program.value_and_grad,
        "infer": program.run,
        "infer-new": program.run,
    }
    batches: dict[int, list[list[Any]]] = {}
    for line in sys.stdin:
        task, size, seconds = line.split()
        if int(size) not in batches:
            batches[int(size)] = _batches(program, data, int(size), kept=case != "chain")
        new = task.endswith("-new")
        print(json.dumps(_rate(tasks[task], batches[int(size)], float(seconds), new=new)), flush=True)


def _batches(program: Any, data: list[Any], size: int, *, kept: bool) -> list[list[Any]]:
    """Return different batches of a size: 16 of single examples, 2 of the largest; traced ahead."""
    count = max(2, min(16, 64 // size))
    order = np.random.default_rng(size).integers(len(data), size=count * size)
    batches = [[data[i] for i in order[k * size : (k + 1) * size]] for k in range(count)]
    return batches if kept else [program.prepare(batch) for batch in batches]


def _rate(
    task: Callable[[list[Any]], Any], batches: list[list[Any]], seconds: float, *, new: bool = False
) -> float:
    """Return the examples per second of CPU time, of all threads together; of `new` trees, copies are run."""
    for batch in batches:
        task(batch)
    done, spent = 0, 0.0
    while not done or spent < seconds:
        given = [list(map(_copy, batch)) for batch in batches] if new else batches
        start = time.process_time()
        for batch in given:
            task(batch)
            done += len(batch)
        spent += time.process_time() - start
    return done / spent


def _copy(example: Any) -> Any:
    """Return a copy of a tree, which no program has traced; other examples as they are."""
    is_tree = isinstance(example, fb.trees.Tree)
    return fb.trees.Tree(example.parents, example.labels, example.tokens) if is_tree else example


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type] # as `command` wrote them
