"""Sentiment of sentences from their parse trees: a binary Tree-LSTM on the Stanford Sentiment Treebank.

    python examples/trees/sentiment.py --data DIR [--vectors glove.6B.100d.txt.gz]

DIR holds train.txt, dev.txt and test.txt, a tree in brackets a line: (LABEL LEFT RIGHT) or
(LABEL WORD), labels 0 (very negative) to 4 (very positive) at every node. The model is Tai,
Socher and Manning's constituency Tree-LSTM (2015) with a softmax loss at every node. While
training, 40 % of each word's vector and 20 % of each node's h is dropped, and vectors learn as fast as the
rest. The parameters of the best epoch on dev are the ones tested.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import foldbatch as fb

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
CLASSES = 5
OPTIMIZERS = {"adagrad": (fb.train.AdaGrad, 0.05), "adam": (fb.train.LazyAdam, 0.001), "sgd": (fb.SGD, 0.1)}


def model(words: fb.trees.Vocabulary, table: np.ndarray | None, hidden: int) -> fb.Block:
    """Return the model of one tree: its result is the root's logits, its loss counts every node."""
    size = hidden if table is None else table.shape[1]
    embedding = fb.Embedding(len(words), size, init="uniform" if table is None else table, name="words")
    cell, classify = fb.TreeLSTM(hidden), fb.Dropout(0.2) >> fb.Linear(CLASSES, name="classify")

    # A tree's block refers to itself, so it is declared first; it yields a state (h, c).
    tree = fb.ForwardDeclaration(output_type=(hidden, hidden), name="tree")
    # The cell takes (x, children): a leaf has a word but no children, a node the reverse.
    word = fb.GetItem("token") >> fb.InputTransform(words) >> fb.Scalar("int32") >> embedding
    leaf = fb.AllOf(word >> fb.Dropout(0.4), fb.Record(())) >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    state = fb.OneOf(lambda t: t.is_leaf, {True: leaf, False: node})

    # Every node is classified by its h; the loss leaves the model here, the state goes on.
    logits = fb.GetItem(0) >> fb.GetItem(0) >> classify
    loss = fb.AllOf(logits, fb.GetItem(1)) >> fb.Function(fb.ops.cross_entropy) >> fb.Loss()
    labelled = fb.AllOf(state, fb.GetItem("label") >> fb.Scalar("int32"))
    tree.resolve_to(labelled >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0))
    return tree() >> fb.GetItem(0) >> classify


def accuracy(program: fb.Program, trees: Sequence[fb.trees.Tree], batch: int) -> tuple[float, float]:
    """Return fine-grained and binary accuracy at the roots; binary leaves out neutral sentences."""
    parts = [program.run(trees[i : i + batch]) for i in range(0, len(trees), batch)]
    logits = np.array([row for part in parts for row in part])
    labels = np.array([tree.label for tree in trees])
    fine = logits.argmax(axis=1) == labels
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    positive = odds[:, 3:].sum(axis=1) > odds[:, :2].sum(axis=1)
    binary = (positive == (labels > 2))[labels != 2]
    return float(fine.mean()), float(binary.mean()) if len(binary) else float("nan")


def most_frequent(trees: Sequence[fb.trees.Tree]) -> tuple[float, float]:
    """Return what `accuracy` returns where the answer is always the most frequent class."""
    labels = [tree.label for tree in trees]
    return fb.train.majority_share(labels), fb.train.majority_share(x > 2 for x in labels if x != 2)


def train(options: argparse.Namespace) -> dict[str, object]:
    """Train and test; return all figures."""
    rng = np.random.default_rng(options.seed)
    parts = ("train", "dev", "test")
    train_set, dev, test = (list(fb.trees.read_sst(options.data / f"{part}.txt")) for part in parts)
    if options.limit is not None:  # drawn, because the file is sorted: its first trees are mostly positive
        drawn = np.random.default_rng(options.seed).permutation(len(train_set))[: options.limit]
        train_set = [train_set[i] for i in drawn]
    words = fb.trees.Vocabulary.count(word for tree in train_set for word in tree.words())
    table = None
    if options.vectors:
        # with vectors at hand, words that only dev and test have are worth a row too
        words = fb.trees.Vocabulary.count(word for tree in [*train_set, *dev, *test] for word in tree.words())
        vectors = fb.trees.read_vectors(options.vectors)
        table, coverage = fb.trees.embedding_matrix(words, vectors, options.seed)
        print(coverage)
    nodes = sum(tree.size for tree in train_set)
    print(f"{len(train_set)} training trees, {nodes} nodes; {len(dev)} dev, {len(test)} test")
    program = fb.compile(model(words, table, options.hidden), options.backend, seed=options.seed)
    make, default_lr = OPTIMIZERS[options.optimizer]
    optimizer = make(options.lr or default_lr)
    epochs: list[dict[str, float]] = []
    best = dict(program.params)
    print("epoch  loss per tree  dev fine  dev binary  seconds")
    fine, binary = most_frequent(dev)
    print(f"{'':20} {fine:9.1%} {binary:11.1%}  always the most frequent class")
    for epoch in range(1, options.epochs + 1):
        start, total = time.perf_counter(), 0.0
        order = rng.permutation(len(train_set))
        batches = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
        for chosen in batches:
            loss, gradients = program.value_and_grad([train_set[i] for i in chosen])
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
        mean_loss = float(total) / len(train_set)  # a GPU is waited for here
        seconds = time.perf_counter() - start
        fine, binary = accuracy(program, dev, 256)
        if all(fine > before["dev_fine"] for before in epochs):
            best = {name: value.copy() for name, value in program.params.items()}
        epochs.append({"loss": mean_loss, "dev_fine": fine, "dev_binary": binary, "seconds": seconds})
        print(f"{epoch:5} {mean_loss:14.3f} {fine:9.1%} {binary:11.1%} {seconds:8.1f}", flush=True)
    program.params.update(best)
    fine, binary = accuracy(program, test, 256)
    majority, majority_binary = most_frequent(test)
    print(f"test accuracy at the root: fine-grained {fine:.1%}, binary {binary:.1%}")
    print(f"always the most frequent class: {majority:.1%}, binary {majority_binary:.1%}")
    print("expected of all trees with GloVe 100d: about 50%, binary 87%")
    return {"epochs": epochs, "test_fine": fine, "test_binary": binary, "test_majority": majority}


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, train, write the figures; return the exit status."""
    parser = argparse.ArgumentParser(description="Train a Tree-LSTM on the Stanford Sentiment Treebank.")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="DIR", help="holds train.txt, dev.txt, test.txt"
    )
    parser.add_argument("--vectors", type=Path, metavar="FILE", help="GloVe text, plain or gzipped")
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adagrad")
    parser.add_argument("--lr", type=float, help="learning rate; the default suits the optimizer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    parser.add_argument("--limit", type=positive, metavar="N", help="train on N trees, drawn by the seed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write losses, accuracies and seconds")
    for name, default in (("hidden", 150), ("batch", 25), ("epochs", 12)):
        parser.add_argument(f"--{name}", type=positive, default=default, help=f"default {default}")
    options = parser.parse_args(arguments)
    try:
        figures = train(options)
        if options.json:
            figures["options"] = vars(options)
            options.json.write_text(json.dumps(figures, indent=1, default=str), encoding="utf-8")
    except (fb.errors.FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, found {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
