"""What it costs to trace examples seen for the first time: ``python -m benchmarks.tracing``.

Microseconds a node, or a word, from Python objects to the traces of a batch, joined. The same model reads
sentences in several forms. Beside it stands what the functions of the user cost alone: a recursion that calls
them and notes nothing.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

import foldbatch as fb
from benchmarks.options import add_backend, add_data, add_repeats, positive, trees_of
from benchmarks.workload import unseen
from foldbatch.errors import FoldbatchError
from foldbatch.scheduler.merge import merge
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import BackendName

SIZE = 4  # of vectors: nothing is computed


@dataclass(frozen=True, slots=True)
class Form:
    """A form of sentences, a model that reads it, and the functions of the model in a bare recursion."""

    name: str
    block: fb.Block
    examples: Callable[[], Sequence[Any]]
    alone: Callable[[Any], object]
    unit: str = "node"


def nested(tree: Tree) -> Any:
    """Return a tree as tuples: (label, token) of a leaf, (label, left, right) of an inner node."""
    stack: list[Any] = []
    for node in tree.nodes():
        below = len(node)
        inner = stack[len(stack) - below :]
        del stack[len(stack) - below :]
        stack.append((node.label, *inner) if inner else (node.label, node.token))
    return stack[0]


def model(
    vocabulary: Vocabulary, is_leaf: Callable[[Any], bool], token: Any, label: Any, first: int
) -> fb.Block:
    """Return a sum over a binary tree, with a loss at each node."""
    tree = fb.ForwardDeclaration(output_type=SIZE, name="tree")
    word = fb.InputTransform(vocabulary.__getitem__) >> fb.Scalar("int32")
    leaf = fb.GetItem(token) >> word >> fb.Embedding(len(vocabulary), SIZE, name="words")
    children = [fb.GetItem(first + side) >> tree() for side in (0, 1)]
    node = fb.AllOf(*children) >> fb.Function(lambda a, b: a + b)
    loss = fb.Linear(5, name="out") >> fb.Function(fb.ops.sum) >> fb.Loss()
    state = fb.OneOf(is_leaf, {True: leaf, False: node}) >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)
    seen = fb.GetItem(label) >> fb.Scalar("int32") >> fb.Metric("label")
    tree.resolve_to(fb.AllOf(state, seen) >> fb.GetItem(0))
    return tree()


def record_model(vocabulary: Vocabulary) -> fb.Block:
    """Return a sum over the items of records, see `records`."""
    word = fb.InputTransform(vocabulary.__getitem__) >> fb.Scalar("int32")
    item = fb.AllOf(
        fb.GetItem("word") >> word >> fb.Embedding(len(vocabulary), SIZE, name="words"),
        fb.GetItem("price") >> fb.Scalar(),
    ) >> fb.Function(lambda state, price: state * price)
    user = fb.GetItem("user") >> word >> fb.Embedding(len(vocabulary), SIZE, name="users")
    return fb.AllOf(user, fb.GetItem("items") >> fb.Map(item) >> fb.Sum()) >> fb.Function(lambda a, b: a + b)


def records(trees: Sequence[Tree]) -> list[dict[str, Any]]:
    """Return a record of each tree, with an item of each word."""
    return [
        {"user": words[0], "items": [{"word": word, "price": 0.5 * len(word)} for word in words]}
        for words in (tree.words() for tree in trees)
    ]


def arrow_forms(trees: Sequence[Tree], vocabulary: Vocabulary) -> list[Form]:
    """Return records in an Arrow array as a form; none without pyarrow."""
    if not find_spec("pyarrow"):
        return []
    array = import_module("pyarrow").array(records(trees))
    return [Form("records in Arrow", record_model(vocabulary), lambda: array.slice(0), lambda x: x, "word")]


def forms(trees: Sequence[Tree], vocabulary: Vocabulary) -> list[Form]:
    """Return the forms, of these trees."""
    number = vocabulary.__getitem__

    def of_tree(t: Any) -> None:
        if t.is_leaf:
            number(t["token"])
        else:
            of_tree(t[0])
            of_tree(t[1])
        t["label"]

    def of_tuple(t: Any) -> None:
        if len(t) == 2:
            number(t[1])
        else:
            of_tuple(t[1])
            of_tuple(t[2])
        t[0]

    def of_record(record: Any) -> None:
        number(record["user"])
        for item in record["items"]:
            number(item["word"])
            item["price"]

    def anew() -> list[Any]:
        return [*unseen(trees)]

    words = (
        fb.InputTransform(number) >> fb.Scalar("int32") >> fb.Embedding(len(vocabulary), SIZE, name="words")
    )
    chain = fb.Map(words) >> fb.RNN(fb.LSTMCell(SIZE)) >> fb.GetItem(1)
    seen, opaque = (lambda t: t.is_leaf), (lambda t: getattr(t, "is_leaf"))  # noqa: B009 - not known to be pure
    return [
        Form("trees, at once", model(vocabulary, seen, "token", "label", 0), anew, of_tree),
        Form("trees, by the program", model(vocabulary, opaque, "token", "label", 0), anew, of_tree),
        Form(
            "tuples",
            model(vocabulary, lambda t: len(t) == 2, 1, 0, 1),
            lambda: [*map(nested, trees)],
            of_tuple,
        ),
        Form(
            "words, an LSTM",
            chain,
            lambda: [list(t.words()) for t in trees],
            lambda s: [*map(number, s)],
            "word",
        ),
        Form("records, dicts", record_model(vocabulary), lambda: records(trees), of_record, "word"),
        *arrow_forms(trees, vocabulary),
    ]


def measured(form: Form, batch: int, units: int, repeats: int, backend: BackendName) -> tuple[float, float]:
    """Return the microseconds a unit that tracing batches takes, and that the user's functions take alone."""
    program = fb.compile(form.block, backend)
    tracing, alone = [], []
    for _ in range(repeats):
        examples = form.examples()
        gc.collect()
        start = time.perf_counter()
        for first in range(0, len(examples), batch):
            merge(
                program._trace_all(examples[first : first + batch]),
                program.model.signatures,
                program.engine.arithmetic,
            )
        tracing.append(time.perf_counter() - start)
        examples = form.examples()
        start = time.perf_counter()
        for example in examples:
            form.alone(example)
        alone.append(time.perf_counter() - start)
    return median(tracing) / units * 1e6, median(alone) / units * 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracing", description=__doc__)
    add_data(parser)
    parser.add_argument("--trees", type=positive, default=256)
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 16, 256])
    add_repeats(parser, 9)
    add_backend(parser)
    options = parser.parse_args(arguments)
    try:
        trees, _ = trees_of(options, options.trees)
        report(trees, options)
    except FoldbatchError as error:
        parser.exit(1, f"error: {error}\n")


def report(trees: Sequence[Tree], options: argparse.Namespace) -> None:
    """Measure every form of some trees, and print a line for each."""
    vocabulary = Vocabulary.count(word for tree in trees for word in tree.words())
    counts = {"node": sum(t.size for t in trees), "word": sum(len(t.words()) for t in trees)}
    print(
        f"{'microseconds a node or word':<28}"
        + "".join(f"{f'batch {b}':>11}" for b in options.batch)
        + f"{'alone':>9}"
    )
    for form in forms(trees, vocabulary):
        found = [
            measured(form, b, counts[form.unit], options.repeats, options.backend) for b in options.batch
        ]
        alone = min(alone for _, alone in found)
        print(f"{form.name:<28}" + "".join(f"{tracing:>11.2f}" for tracing, _ in found) + f"{alone:>9.2f}")


if __name__ == "__main__":
    main()
