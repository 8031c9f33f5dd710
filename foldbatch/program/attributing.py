"""Explaining one prediction: which parts of an example decided a number that a model computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.blocks.drafts import is_int
from foldbatch.engines.cotangents import numbered
from foldbatch.errors import BlockValueError, UnknownNameError
from foldbatch.model.attribution import InputAttribution, Seeds, attributed
from foldbatch.model.decoding import map_tensors
from foldbatch.model.evaluation import CallError, Evaluation
from foldbatch.model.keys import keyed
from foldbatch.model.model import Model
from foldbatch.model.reading_paths import ReadingPath, ReadingPaths
from foldbatch.params.parameters import Array, Parameter
from foldbatch.scheduler.trace import Trace
from foldbatch.system.showing import Printed, table
from foldbatch.trees.tree import Tree, TreeNode
from foldbatch.types import TensorType, describe_value

SHOWN_NODES = 40  # of an attribution that is printed


@dataclass(frozen=True, slots=True, eq=False)
class NodeAttribution:
    """One datum of an example, and its part of a number that the model computes.

    Attributes:
        path: where the datum lies, as Python would index the example, ``[0]['token']``; of a plain function,
            where the innermost part of the example lies that the function was at. Empty is the whole example.
        datum: what lies there, a word or a number, or what the model read.
        block: the place in the model of the block, or the cell, that reads it.
        table: the name of the table whose row it chooses; empty without one.
        value: the floats that the model computes with: those of the datum, or the row, ``float64``.
        gradient: how the number changes with each of them.
        integrated: the integrated gradient of each.
        node: the node of a tree that `path` leads to, or leads through last.
    """

    path: str
    datum: object
    block: str
    table: str
    value: Array
    gradient: Array
    integrated: Array
    node: TreeNode | None = None

    @property
    def amount(self) -> float:
        """The part of the number that is due to the datum: the sum of its integrated gradients."""
        return float(self.integrated.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Attribution(Printed):
    """The parts of an example that decided a number: made by `Program.attribute`; prints itself.

    Attributes:
        example: the example.
        target: the number's place in the result, or the name of its class; empty where cotangents chose it.
        number: the number that the model computes of the example.
        baseline: that number where every input is 0.
        nodes: each datum with its part, in the order in which the model reads them.
    """

    example: object
    target: str
    number: float
    baseline: float
    nodes: tuple[NodeAttribution, ...]

    @property
    def error(self) -> float:
        """The amounts' sum less what they add up to, ``number - baseline``: more steps make it smaller."""
        return sum(node.amount for node in self.nodes) - (self.number - self.baseline)

    def amounts(self, tree: Tree) -> list[float]:
        """Return the amount of each node of a tree, ``[nodes]``, in the tree's order: children first."""
        sums = [0.0] * tree.size
        for entry in self.nodes:
            if entry.node is not None and entry.node.tree is tree:
                sums[entry.node.index] += entry.amount
        return sums

    def plain(self) -> dict[str, object]:
        """Return it as data of JSON: the number, that of zeros, and each node's path, datum and amount."""
        nodes = [
            {"path": node.path, "datum": _plain(node.datum), "amount": round(node.amount, 6)}
            for node in self.nodes
        ]
        numbers = {"number": round(self.number, 6), "baseline": round(self.baseline, 6)}
        return {"target": self.target} | numbers | {"nodes": nodes}

    def __str__(self) -> str:
        largest = max((abs(node.amount) for node in self.nodes), default=0.0) or 1.0
        shown = sorted(self.nodes, key=lambda node: -abs(node.amount))[:SHOWN_NODES]
        rows = [
            (
                node.path or "(all)",
                _words(node),
                ("+" if node.amount > 0 else "-") * round(10 * abs(node.amount) / largest),
                f"{node.amount:+.4g}",
            )
            for node in shown
        ]
        title = f"{self.target or 'number'} = {self.number:.4g}, of zeros {self.baseline:.4g}"
        text = table(("path", "datum", "", "amount"), rows, title=title, left_columns=3)
        remaining = len(self.nodes) - len(shown)
        return text + (f"\nand {remaining} with smaller amounts" if remaining else "")


def _words(node: NodeAttribution) -> str:
    """Return a datum as text, with the word of the leaf at which a function read it."""
    if isinstance(node.datum, str):
        return node.datum
    word = node.node.token if node.node is not None and node.node.is_leaf else None
    return describe_value(node.datum) + (f" at {word}" if word else "")


def _plain(datum: object) -> object:
    if isinstance(datum, np.ndarray | np.generic):
        return datum.tolist()
    return datum if datum is None or isinstance(datum, str | int | float | bool) else describe_value(datum)


def explained(
    model: Model,
    trace: Trace,
    paths: ReadingPaths,
    names: Mapping[Parameter, str],
    example: object,
    *,
    target: object,
    cotangent: object,
    classes: Sequence[object],
    steps: int,
    seed: int,
) -> Attribution:
    """Return the attribution of one example; see `Program.attribute`.

    Args:
        model: the model of the trace.
        trace: the example's.
        paths: where its data lie.
        names: those of parameters.
        example: the example.
        target: the place of a number in the result, or the name of a class, or None.
        cotangent: weights of the numbers of the result, in its form, or None.
        classes: the names of classes.
        steps: how many points of the line from zeros to the example are computed.
        seed: that of the program.
    """
    feeds = keyed(trace.feeds, model.keys, seed, 0, [np.zeros(len(rows)) for rows in trace.calls])
    run = Trace(trace.calls, trace.elements, trace.levels, feeds, trace.labels, trace.values, trace.result)
    try:
        if cotangent is None:
            shown, seeds = _target(model, run, target, classes)
        elif target is None:
            shown, seeds = "", [*numbered(model.result, iter(run.result), cotangent, "cotangent")]
        else:
            raise BlockValueError("attribute", "a target or a cotangent", "both", "leave one out")
        number, baseline, entries = attributed(model, run, seeds, steps)
    except CallError as error:
        raise Evaluation(model, run).error_of(error, 0) from None
    nodes = _nodes(model, run, entries, paths, names)
    return Attribution(example, shown, number, baseline, tuple(nodes))


def _target(model: Model, trace: Trace, target: Any, classes: Sequence[object]) -> tuple[str, Seeds]:
    """Return the place of the number that is explained, as text, and the cotangent that chooses it."""
    type_ = model.result
    if not isinstance(type_, TensorType) or not type_.is_float:
        fix = "give a cotangent: weights of its numbers, in the form of the result"
        raise BlockValueError("attribute", "a model whose result is one tensor of floats", str(type_), fix)
    numbers: list[int] = []
    map_tensors(type_, iter(trace.result), numbers.append)
    if target is None:
        evaluation = Evaluation(model, trace, training=False)
        evaluation.forward()
        scores = evaluation.values[numbers[0]]
        place = tuple(map(int, np.unravel_index(scores.argmax(), scores.shape)))
    elif isinstance(target, str):
        if target not in classes:
            expected = f"a class of {', '.join(map(str, classes)) or 'none'}"
            raise UnknownNameError("attribute target", expected, repr(target), "give the number's place")
        place = (list(classes).index(target),)
    else:
        place = tuple(target) if isinstance(target, tuple | list) else (target,)
    fits = len(place) == len(type_.shape) and all(
        is_int(i) and 0 <= i < extent for i, extent in zip(place, type_.shape, strict=True)
    )
    if not fits:
        fix = "give the index of one number, None for the greatest"
        actual = describe_value(target)
        raise BlockValueError("attribute target", f"a place in a result of {type_}", actual, fix)
    cotangent = np.zeros(type_.shape)
    cotangent[place] = 1.0
    shown = "".join(f"[{i}]" for i in place)
    if len(place) == 1 and len(classes) == type_.shape[0]:
        shown = str(classes[place[0]])
    return shown, [(numbers[0], cotangent)]


def _nodes(
    model: Model,
    trace: Trace,
    entries: Sequence[InputAttribution],
    paths: ReadingPaths,
    names: Mapping[Parameter, str],
) -> list[NodeAttribution]:
    """Return the parts of data in the order of calls; reads of one datum by one block are added up."""
    order = sorted(entries, key=lambda entry: (int(trace.calls[entry.cell][entry.call, 0]), entry.feed))
    by_datum: dict[object, NodeAttribution] = {}
    for entry in order:
        k, i, j = entry.cell, entry.call, entry.feed
        of_feed = paths.get((k, j), ())
        path = of_feed[i] if i < len(of_feed) else ReadingPath("")
        block = model.cells[k].name if j < 0 else model.feeds[k][j].where
        read = None if j < 0 else trace.feeds[k][j][i]
        datum = path.source if path.exact else read.item() if read is not None and read.ndim == 0 else read
        table_name = "" if entry.table is None else names.get(entry.table, "")
        node = NodeAttribution(
            path.text, datum, block, table_name, entry.value, entry.gradient, entry.integrated, path.node
        )
        key: object = (path.text, block, table_name, entry.value.shape) if path.exact else object()
        former = by_datum.get(key)
        if former is not None:
            node = NodeAttribution(
                *(former.path, former.datum, former.block, former.table, former.value),
                former.gradient + node.gradient,
                former.integrated + node.integrated,
                former.node,
            )
        by_datum[key] = node
    return [*by_datum.values()]
