"""What does this function do? A Tree-LSTM guesses the verb of a function's name from its syntax tree.

    python examples/trees/function_names.py

The data are the functions of the standard library that runs this program: each one's syntax tree,
its name and docstring hidden, labelled with the leading verb of that name. Modules are split into train,
dev and test, so that near copies do not cross. Training uses the 64 most common verbs, because more
functions teach the model more; dev and test ask for the 16 most common ones. What is tested is a running
mean of the parameters over the last steps: on so few examples steadier than any single step's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import foldbatch as fb
from foldbatch import ops
from foldbatch.zoo.votes import features_of  # what occurs in a tree, each once: kinds, words, an outline
from foldbatch.zoo.words import subwords  # of identifiers: readLine and read_line are both read, line

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "llvm", "numpy", "reference")
TRAINING_VERBS = 64
PENALTIES = (0.001, 0.003, 0.01, 0.03, 0.1)  # that the bag of node types chooses from
ITERATIONS = 300


def model(
    kinds: fb.trees.Vocabulary, words: fb.trees.Vocabulary, seen: fb.trees.Vocabulary, verbs: int, size: int
) -> fb.Block:
    """Return the model of one example, a tuple (tree, verb); its result is the verbs' scores."""

    def wide(rng, shape):
        return rng.normal(0.0, 0.3, shape)

    kind = fb.Embedding(len(kinds), size, wide, name="kinds")
    word = fb.Embedding(len(words), size, wide, name="words")
    cell, see = fb.ChildSumTreeLSTM(size), fb.Linear(size, "relu", name="see")

    # What stands in a node: its kind, and the words of its token, of which there may be any number.
    kind_of = fb.GetItem("label") >> fb.InputTransform(kinds.__getitem__) >> fb.Scalar("int32") >> kind
    parts = fb.GetItem("token") >> fb.InputTransform(subwords)
    words_of = parts >> fb.Map(fb.InputTransform(words) >> fb.Scalar("int32") >> word) >> fb.Sum()
    content = fb.AllOf(kind_of, words_of) >> fb.Function(ops.add) >> fb.Dropout(0.3)

    # A tree yields (h, c) for its parent, and how often each of `size` features is seen in it.
    tree = fb.ForwardDeclaration(output_type=(size, size, size), name="tree")

    def leaf(x):
        h, c = cell(x, ())
        return h, c, see(ops.concat([x, h]))

    def node(x, children):
        child_h, child_c, child_seen = children  # of all children, along a ragged axis
        h, c = cell(x, (child_h, child_c))
        return h, c, see(ops.concat([x, h])) + ops.segment_sum(child_seen)

    inner = fb.AllOf(content, fb.GetItem("children") >> fb.Map(tree())) >> fb.Function(node)
    tree.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: content >> fb.Function(leaf), False: inner}))

    # A tree is the logarithm of what was seen in it, and its root's state; half of it dropped in training.
    summary = fb.Function(lambda h, c, seen: ops.concat([ops.log(1 + seen), h])) >> fb.Dropout(0.5)
    deep = tree() >> summary >> fb.Linear(verbs)

    # Beside the tree each of its features votes for verbs by itself; none has a say before training.
    vote = fb.Embedding(len(seen), verbs, lambda _, shape: np.zeros(shape), name="votes")
    features = fb.InputTransform(features_of) >> fb.Map(fb.InputTransform(seen) >> fb.Scalar("int32") >> vote)
    wide_part = features >> fb.Sum()
    scores = fb.GetItem(0) >> fb.AllOf(deep, wide_part) >> fb.Function(ops.add)
    both = fb.AllOf(scores, fb.GetItem(1) >> fb.Scalar("int32"))
    loss = fb.Function(ops.cross_entropy) >> fb.Loss()
    return both >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def accuracy(program: fb.Program, examples: Sequence[fb.trees.Example], verbs: int) -> float:
    """Return the share of examples whose verb has the highest score among the first `verbs`."""
    scores = np.array(list(program.run([(e.tree, e.verb) for e in examples])))[:, :verbs]
    return float(np.mean(scores.argmax(axis=1) == [e.verb for e in examples]))


def train(options: argparse.Namespace) -> dict[str, object]:
    """Train and test; return all figures."""
    start = time.perf_counter()
    corpus = fb.trees.standard_library_functions()
    majority, bag = majority_baseline(corpus), bag_baseline(corpus)
    more = fb.trees.standard_library_functions(training_verbs=TRAINING_VERBS)
    asked = len(corpus.verbs)
    sizes = f"{len(more.train)} functions to train on, {len(corpus.dev)} dev, {len(corpus.test)} test"
    print(f"{sizes}; verbs: {', '.join(corpus.verbs)} ({time.perf_counter() - start:.0f} s)")
    kinds = fb.trees.Vocabulary.count(label for e in more.train for label in e.tree.labels)
    used = [word for e in more.train for word in {w for token in e.tree.tokens for w in subwords(token)}]
    words = fb.trees.Vocabulary.count(used, minimum=2)
    seen = fb.trees.Vocabulary.count(
        (feature for e in more.train for feature in features_of(e.tree)), minimum=2
    )
    size, rng = options.hidden, np.random.default_rng(options.seed)
    block = model(kinds, words, seen, len(more.verbs), size)
    program = fb.compile(block, options.backend, seed=options.seed)
    examples = program.prepare([(e.tree, e.verb) for e in more.train])
    optimizer = fb.train.AdaGrad(lr=0.03, weight_decay=5e-4, lr_factors={"votes": 2.0})
    mean, steps, epochs = {name: value.copy() for name, value in program.params.items()}, 0, []
    print("epoch   loss     dev  dev, averaged  seconds")
    for epoch in range(1, options.epochs + 1):
        start, total = time.perf_counter(), 0.0
        order = rng.permutation(len(examples))
        batches = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
        for chosen in batches:
            loss, gradients = program.value_and_grad([examples[i] for i in chosen])
            optimizer.update(program.params, gradients, scale=1 / len(chosen))
            total += loss
            steps += 1
            share = max(0.005, 9 / (10 + steps))  # the mean forgets its first steps sooner
            for name, value in program.params.items():
                mean[name] += share * (value - mean[name])
        mean_loss = float(total) / len(examples)  # a GPU is waited for here
        seconds, dev = time.perf_counter() - start, accuracy(program, corpus.dev, asked)
        now = {name: value.copy() for name, value in program.params.items()}
        program.params.update(mean)
        averaged = accuracy(program, corpus.dev, asked)
        program.params.update(now)
        epochs.append({"loss": mean_loss, "dev": dev, "validation_averaged": averaged, "seconds": seconds})
        print(f"{epoch:5} {mean_loss:6.3f} {dev:7.1%} {averaged:>14.1%} {seconds:8.1f}", flush=True)
    program.params.update(mean)
    test = accuracy(program, corpus.test, asked)
    print(f"test accuracy {test:.1%} (expected: 51% to 54%; bag {bag:.1%}, majority {majority:.1%})")
    return {"epochs": epochs, "test": test, "bag_of_node_types": bag, "majority": majority}


def majority_baseline(corpus: fb.trees.Corpus) -> float:
    """Return the share of test functions that have the verb most common in training."""
    commonest, _ = Counter(example.verb for example in corpus.train).most_common(1)[0]
    return sum(example.verb == commonest for example in corpus.test) / len(corpus.test)


def bag_baseline(corpus: fb.trees.Corpus, seed: int = 0) -> float:
    """Return the test accuracy of a classifier that sees how often each node type occurs, not where.

    It is multinomial logistic regression on log(1 + count), centred and scaled; the weight of
    its L2 penalty is the one that does best on dev.

    Args:
        corpus: the functions.
        seed: draws the first weights, from which a convex loss leads to one solution.
    """
    types = sorted({label for example in corpus.train for label in example.tree.labels}, key=str)
    column_of = {label: column for column, label in enumerate(types)}
    x, y = bags(corpus.train, column_of)
    mean, scale = x.mean(axis=0), x.std(axis=0) + 1e-6
    dev_x, dev_y = bags(corpus.dev, column_of)
    test_x, test_y = bags(corpus.test, column_of)
    start = np.random.default_rng(seed).normal(0.0, 0.01, (len(types) + 1, len(corpus.verbs)))
    best, accuracy = -1.0, 0.0
    for penalty in PENALTIES:
        weights = fit(with_ones((x - mean) / scale), y, start, penalty)
        on_dev, on_test = (
            float(np.mean((with_ones((bags - mean) / scale) @ weights).argmax(axis=1) == verbs))
            for bags, verbs in ((dev_x, dev_y), (test_x, test_y))
        )
        if on_dev > best:
            best, accuracy = on_dev, on_test
    return accuracy


def bags(
    examples: Sequence[fb.trees.Example], column_of: dict[str | int | None, int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return log(1 + count) of each node type in each tree, and the verbs."""
    bags = np.zeros((len(examples), len(column_of)))
    for row, example in enumerate(examples):
        for label, count in Counter(example.tree.labels).items():
            if label in column_of:
                bags[row, column_of[label]] = count
    return np.log1p(bags), np.array([example.verb for example in examples], np.int64)


def with_ones(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add a column of ones, for the bias."""
    return np.hstack([x, np.ones((len(x), 1))])


def fit(
    x: NDArray[np.float64], y: NDArray[np.int64], weights: NDArray[np.float64], penalty: float
) -> NDArray[np.float64]:
    """Minimise mean cross-entropy + penalty / 2 |weights|^2 by Nesterov's accelerated gradient."""
    truth = np.eye(weights.shape[1])[y]
    # The Hessian of softmax cross-entropy is at most half of x'x, so this step is always safe.
    step = 1.0 / (0.5 * np.linalg.norm(x, 2) ** 2 / len(x) + penalty)
    ahead = weights
    for iteration in range(ITERATIONS):
        scores = x @ ahead
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        stepped = ahead - step * (x.T @ (shares - truth) / len(x) + penalty * ahead)
        ahead = stepped + iteration / (iteration + 3) * (stepped - weights)
        weights = stepped
    return weights


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, found {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, train, write the figures; return the exit status."""
    parser = argparse.ArgumentParser(description="Guess the verbs of function names from syntax trees.")
    for name, default in (("hidden", 64), ("batch", 32), ("epochs", 12)):
        parser.add_argument(f"--{name}", type=positive, default=default, help=f"default {default}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", choices=BACKENDS, default="auto", help="as of foldbatch.compile")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write losses, accuracies and seconds")
    options = parser.parse_args(arguments)
    try:
        figures = train(options)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    except (fb.errors.FoldbatchError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
