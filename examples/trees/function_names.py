"""What does this function do? A Tree-LSTM guesses the verb of a function's name from its syntax tree.

    python examples/trees/function_names.py

The data are the functions of the standard library that runs this program: each one's syntax tree,
its name and docstring hidden, labelled with the leading verb of that name (the 16 most common). Modules
are split into train, dev and test, so that near copies do not cross. What is tested is the mean of
the parameters after each epoch of the second half: on so few examples steadier than any of them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import foldbatch as fb
from foldbatch import ops

BACKENDS = ("auto", "cuda", "cuda-on-cpu", "numba", "numpy", "reference")
WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def subwords(token: str | None) -> list[str]:
    """Split an identifier into its words: readLine and read_line are both read, line."""
    return [] if token is None else [word.lower() for word in WORDS.findall(token)]


def model(kinds: fb.trees.Vocabulary, words: fb.trees.Vocabulary, verbs: int, size: int) -> fb.Block:
    """Return the model of one example, a tuple (tree, verb); its result is the verbs' scores."""

    def wide(rng, shape):
        return rng.normal(0.0, 0.3, shape)

    kind = fb.Embedding(len(kinds), size, wide, name="kinds")
    word = fb.Embedding(len(words), size, wide, name="words")
    cell, see = fb.ChildSumTreeLSTM(size), fb.Linear(size, "relu", name="see")

    # What stands in a node: its kind, and the words of its token, of which there may be any number.
    kind_of = fb.GetItem("label") >> fb.InputTransform(kinds.__getitem__) >> fb.Scalar("int32") >> kind
    ids = fb.GetItem("token") >> fb.InputTransform(lambda token: [words[word] for word in subwords(token)])
    words_of = ids >> fb.Map(fb.Scalar("int32") >> word) >> fb.Sum()
    content = fb.AllOf(kind_of, words_of) >> fb.Function(ops.add)

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
    scores = fb.GetItem(0) >> tree() >> summary >> fb.Linear(verbs)
    both = fb.AllOf(scores, fb.GetItem(1) >> fb.Scalar("int32"))
    loss = fb.Function(ops.cross_entropy) >> fb.Loss()
    return both >> fb.AllOf(fb.GetItem(0), loss) >> fb.GetItem(0)


def accuracy(program: fb.Program, examples: Sequence[fb.trees.Example]) -> float:
    """Return the share of examples whose verb has the highest score."""
    scores = np.array(list(program.run([(e.tree, e.verb) for e in examples])))
    return float(np.mean(scores.argmax(axis=1) == [e.verb for e in examples]))


def train(options: argparse.Namespace) -> dict[str, object]:
    """Train and test; return all figures."""
    start = time.perf_counter()
    corpus = fb.trees.standard_library_functions()
    majority, bag = fb.trees.majority_baseline(corpus), fb.trees.bag_baseline(corpus)
    sizes = f"{len(corpus.train)} functions to train on, {len(corpus.dev)} dev, {len(corpus.test)} test"
    print(f"{sizes}; verbs: {', '.join(corpus.verbs)} ({time.perf_counter() - start:.0f} s)")
    kinds = fb.trees.Vocabulary.count(label for e in corpus.train for label in e.tree.labels)
    used = [word for e in corpus.train for word in {w for token in e.tree.tokens for w in subwords(token)}]
    words = fb.trees.Vocabulary.count(used, minimum=3)
    size, rng = options.hidden, np.random.default_rng(options.seed)
    program = fb.compile(model(kinds, words, len(corpus.verbs), size), options.backend, seed=options.seed)
    optimizer = fb.AdaGrad(lr=0.03, weight_decay=3e-4)
    mean, late, epochs = {name: np.zeros_like(value) for name, value in program.params.items()}, 0, []
    print("epoch   loss     dev  dev, averaged  seconds")
    for epoch in range(1, options.epochs + 1):
        start, total = time.perf_counter(), 0.0
        order = rng.permutation(len(corpus.train))
        batches = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]
        for chosen in batches:
            batch = [(corpus.train[i].tree, corpus.train[i].verb) for i in chosen]
            loss, gradients = program.value_and_grad(batch)
            optimizer.update(program.params, gradients, scale=1 / len(batch))
            total += loss
        mean_loss = float(total) / len(corpus.train)  # a GPU is waited for here
        seconds, dev, averaged = time.perf_counter() - start, accuracy(program, corpus.dev), float("nan")
        if epoch > options.epochs // 2:
            late += 1
            now = {name: value.copy() for name, value in program.params.items()}
            mean = {name: mean[name] + (now[name] - mean[name]) / late for name in now}
            program.params.update(mean)
            averaged = accuracy(program, corpus.dev)
            program.params.update(now)
        shown = f"{averaged:.1%}" if late else ""
        epochs.append({"loss": mean_loss, "dev": dev, "dev_averaged": averaged, "seconds": seconds})
        print(f"{epoch:5} {mean_loss:6.3f} {dev:7.1%} {shown:>14} {seconds:8.1f}", flush=True)
    program.params.update(mean)
    test = accuracy(program, corpus.test)
    print(f"test accuracy {test:.1%} (expected: 45% to 49%; bag {bag:.1%}, majority {majority:.1%})")
    return {"epochs": epochs, "test": test, "bag_of_node_types": bag, "majority": majority}


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, found {text!r}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options, train, write the figures; return the exit status."""
    parser = argparse.ArgumentParser(description="Guess the verbs of function names from syntax trees.")
    for name, default in (("hidden", 128), ("batch", 32), ("epochs", 8)):
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
