"""Integers: the tracing program on trees as code that one compiled call runs on all trees of a batch.

Where the user's functions are on a short list of pure ones, the tracing program is one of integers. Variables
hold numbers of nodes and of values, and lists of values. Nothing is read of a node while the code runs: it
notes the nodes' numbers, and data are made of them afterwards, one list for each feed. `integer_code` writes
the code.

Where a statement is not known here, or fails, `Refused` is raised: then the tracing program itself runs, and
finds errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.integer_code import FIELDS, NODE_ITSELF, VALUE, Making, Refused, WrittenCode, name_of
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, direct, is_constant, is_fixed, of_arity, reads_of
from foldbatch.blocks.recorder import FULL_RECORD
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.scheduler import tree_code as code
from foldbatch.scheduler.record import BatchRecord
from foldbatch.scheduler.trace import Index, Ints, unpack
from foldbatch.trees import TreeNode
from foldbatch.trees.tree import node_of

STACK_SLOTS = 2**24  # at most, of the stack that the code runs on
MAX_NOTED = 2**27  # numbers that the trees of a record note
FIRST_ARITIES = 8  # numbers of children that tables know at first
MAX_ARITIES = 256
NO_TABLES: tuple[int, Ints] = 0, np.zeros(0, np.int32)
MOST_SKIPPED = 64  # batches in a row, after many refusals


class TreeProgram:
    """A tracing program that runs as code, given the cells of each scope of the policy."""

    def __init__(self, functions: Sequence[Procedure], model: Model, scopes: Sequence[Sequence[int]]) -> None:
        self.form = model.form
        self.written = written = WrittenCode(functions, model)
        self.results = written.results
        self.code = written.linked()
        sizes = [writer.size + 2 for writer in written.writers.values()]
        self.frame, self.frames = max(sizes), sum(sizes)
        self.width = max([1, *(len(cell.outputs) for cell in model.signatures)])
        self.node_values = written.calls.total() * self.width  # values of each node
        self.codes = [(f, f.__code__) for f in written.used.values() if type(f) is FunctionType]
        self.partials = [f for f in written.used.values() if type(f) is not FunctionType and not is_fixed(f)]
        self.tables = NO_TABLES  # how many children are known; the cases, by test and number of children
        self.skip = 0  # batches to skip after the next refusal
        self.skipped = 0  # batches that are still to be skipped
        self.last = ""  # the reason of the last refusal
        # per cell: the makings of its feeds and labels, its feeds with bounds, and which feeds are integers
        self.cells: list[tuple[list[Making | None], list[tuple[Feed, int | None]], Sequence[bool]]] = []
        # the records of cells, then those of lists: a field is `per_node` times the nodes plus `fixed`
        per_node: list[int] = []
        fixed: list[int] = []
        lists: list[tuple[int, int]] = []  # per list of a cell: its calls a node, and the width of an item
        self.end = 0  # numbers a node in the memory of notes
        feeds = 0  # integers of feeds a node
        scope_of = {k: scope for scope, members in enumerate(scopes) for k in members}
        bounds = model.bounds
        for k, cell in enumerate(model.signatures):
            row = 1 + cell.arguments + len(cell.sequences)
            calls = written.calls[k]
            places = range(len(model.feeds[k]) + len(model.labels[k]))
            makings = [m and (m[0], *map(direct, m[1:])) for m in (written.data.get((k, i)) for i in places)]
            flags = self.form.integers[k]
            self.cells.append((makings, [*zip(model.feeds[k], bounds[k], strict=True)], flags))
            levels = self.end + calls * row
            per_node += [0, calls, self.end, 0, levels, levels + calls, 0, 0, 0, 0]
            fixed += [0, 0, 0, row, 0, 0, scope_of.get(k, -1), len(lists), sum(flags), len(makings)]
            feeds += calls * sum(flags)
            lists += [(calls, width) for width in cell.sequences]
            self.end = levels + calls * (1 + len(makings))
        for calls, width in lists:
            per_node += [0, calls, self.end, 0]
            fixed += [0, 0, 0, width]
            self.end += calls * width
        self.per_node = np.array(per_node, np.int64)
        self.fixed = np.array(fixed, np.int64)
        self.lists = len(lists)
        self.packed = self.end + feeds  # numbers a node of a packed trace, and of its data

    def records(
        self, traced: Callable[..., int], examples: Sequence[Any], max_calls: int, *, atoms: bool = False
    ) -> list[BatchRecord] | None:
        """Return the records of trees, in their order; None where the tracing program itself must run.

        After many refusals in a row, some batches return None untried. The arguments are those of `record`.
        """
        if self.skipped:  # the more batches in turn are refused, the less often they are tried
            self.skipped -= 1
            return None
        records, traced_count = list[BatchRecord](), 0
        try:
            while traced_count < len(examples):
                records.append(self.record(traced, examples[traced_count:], max_calls, atoms=atoms))
                traced_count += len(records[-1].results)
        except Exception as error:
            if interrupted(error):
                raise
            self.skip = min(2 * self.skip + 1, MOST_SKIPPED)
            self.skipped, self.last = self.skip - 1, str(error) or type(error).__name__
            return None
        self.skip = 0
        return records

    def record(
        self, traced: Callable[..., int], examples: Sequence[Any], max_calls: int, *, atoms: bool = False
    ) -> BatchRecord:
        """Return the record of trees; of the first ones only, if a record would get too large.

        `results` of the record has an item for each tree that was read.

        Args:
            traced: `tree_code.traced`, compiled or as Python.
            examples: the trees, or nodes of them.
            max_calls: how many calls a tree may make.
            atoms: whether all data must be of the types in `ATOMS`.

        Raises:
            Refused: when a tree or a function is none that the code can read. After this and after any other
                exception, the caller runs the tracing program itself.
        """
        self._watch()
        max_nodes = min(FULL_RECORD, MAX_NOTED // (self.end + 1))
        arities, tables = self.tables
        source = _Source(examples, max_nodes)
        count, nodes = len(source.roots), source.starts[-1]
        room = nodes + count
        stack = min((source.largest + 2) * self.frames, STACK_SLOTS)
        values = self.node_values * room
        pool = self.written.room * room
        if max(values, self.packed * room, pool) >= 2**31:
            raise Refused("there are too many nodes")
        tests = [
            _cases(source.data_of(making, range(nodes)), *cases) for making, *cases in self.written.by_node
        ]
        joined = np.array([*chain.from_iterable(tests)], np.int32) if tests else NO_TABLES[1]
        offsets = np.empty(1 + count * (1 + len(self.cells) + self.lists + len(self.results)), np.int64)
        memory = np.empty(3 * nodes + 2 * values + pool + self.end * room, np.int32)
        out = np.empty(self.form.head + self.packed * room, np.int32)
        frames = np.empty(stack + self.frame, np.int64)
        counts = (
            count,
            self.width,
            max_calls,
            FULL_RECORD,
            self.frame,
            len(self.cells),
            self.lists,
            len(self.results),
        )
        while True:
            sizes = *counts, arities, nodes, len(self.written.writers) * room, values, pool, stack
            header = np.array([*sizes, *source.starts, *source.roots], np.int64)
            cell_records = self.per_node * room + self.fixed
            traced_count = traced(
                self.code, header, source.parents, tables, joined, cell_records, memory, frames, out, offsets
            )
            if traced_count > code.REFUSED:
                return self._joined(source, traced_count, cell_records.tolist(), out, offsets, atoms=atoms)
            if traced_count == code.REFUSED:
                raise Refused("there is an example that the program refuses")
            arities, tables = self.tables = self._learnt(
                code.REFUSED - traced_count
            )  # more children than ever

    def _watch(self) -> None:
        """Refuse functions of the user that mean something else by now; no table is of `partials`."""
        for function, code_object in self.codes:
            if function.__code__ is not code_object:
                raise Refused(f"{name_of(function)} has another code by now")
        if any(isinstance(reads_of(function), str) for function in self.partials):
            raise Refused("a function of the user may do something else by now")

    def _learnt(self, size: int) -> tuple[int, Ints]:
        """Return tables for nodes with fewer children than some number, or more."""
        if size > MAX_ARITIES:
            raise Refused(f"a node has more than {MAX_ARITIES - 1} children")
        arities = max(FIRST_ARITIES, 1 << (size - 1).bit_length())
        nodes = [*map(of_arity, range(arities))]
        rows = [
            _cases(_applied(making[1:], nodes), table, last) for making, table, last in self.written.by_arity
        ]
        return arities, np.array(rows, np.int32).ravel()

    def _joined(
        self,
        source: _Source,
        traced_count: int,
        cell_records: list[int],
        out: Ints,
        offsets: Index,
        *,
        atoms: bool,
    ) -> BatchRecord:
        """Return the arrays that the code has filled as one record, with the data that nodes stand for."""
        form = self.form
        loose: list[list[NDArray[Any]]] = []  # annotated, as to call a type of arrays takes 6 us
        labels: list[tuple[list[Any], ...]] = []
        counts = cell_records[code.COUNT : len(self.cells) * code.CELL : code.CELL]
        end = cell_records[code.DATA] if self.cells else form.head
        for k, (makings, feeds, flags) in enumerate(self.cells):
            size = counts[k]
            to = cell_records[k * code.CELL + code.ROWS]
            at = cell_records[k * code.CELL + code.DATA]
            data: list[Any] = []
            for making in makings:
                noted = out[at : at + size].tolist()
                data.append(source.data_of(making, noted) if making else noted)
                at += size
            if atoms and not {*map(type, chain.from_iterable(data))} <= {*ATOMS}:
                raise Refused("somebody looks at objects that it reads")
            labels.append(tuple(data[len(feeds) :]))
            loose.append([])
            for x, feed_and_bound, flag in zip(data, feeds, flags, strict=False):
                if flag:
                    out[to : to + size] = _column(x, *feed_and_bound)
                    to += size
                else:
                    loose[-1].append(_column(x, *feed_and_bound))
        trace = unpack(form, out[:end], loose, tuple(labels), counts=counts, values=int(out[0]))
        count, cells, lists, results = len(source.roots), len(self.cells), self.lists, len(self.results)
        first, second = 1 + count * (1 + cells), 1 + count * (1 + cells + lists)
        columns: list[Sequence[Any]] = []
        for i, content in enumerate(self.results):
            numbers = offsets[second + i : second + traced_count * results : results]
            is_value, value_numbers = content.kind == VALUE, numbers - offsets[:traced_count]
            columns.append(
                value_numbers.tolist() if is_value else source.data_of(content.making, numbers.tolist())
            )
        sizes = (
            _differences(offsets[1 + count : 1 + count + traced_count * cells].reshape(traced_count, cells)),
            _differences(offsets[first : first + traced_count * lists].reshape(traced_count, lists)),
            offsets[: traced_count + 1],
        )
        example_results = [*zip(*columns, strict=True)] if columns else [()] * traced_count
        return BatchRecord(trace, *sizes, example_results)


def _differences(sums: Index) -> Index:
    """Turn running sums of rows into the rows themselves, in place."""
    if len(sums) > 1:
        sums[1:] -= sums[:-1].copy()
    return sums


def _column(items: list[Any], feed: Feed, bound: int | None) -> NDArray[Any]:
    """Return data as the array of a feed; raise `Refused` where a datum does not fit."""
    try:
        return column(items, feed.type, bound, feed.declared)
    except BadDataError:
        refused = Refused("there is a datum that the block does not read")
        refused.where = feed.where
        raise refused from None


def _cases(keys: Sequence[Any], table: Any, last: int) -> list[int]:
    """Return the number of the case for each key; without a table, whether the key is None."""
    if table is None:
        return [int(key is None) for key in keys]
    if not {*map(type, keys)} <= {*ATOMS} and not all(map(is_constant, keys)):
        raise Refused("it chooses by an object that may change")
    return [table.get(key, last) for key in keys]


def _applied(functions: Sequence[Any], items: Sequence[Any]) -> Sequence[Any]:
    """Apply functions to all items, one function after the other; return the last results."""
    for place, function in enumerate(functions):
        if place and not {*map(type, items)} <= {*ATOMS}:
            raise Refused("a function of the user is given an object that may change")
        items = [*map(function, items)]
    return items


class _Source:
    """The trees of the first examples, up to a number of nodes, with continuous node numbers."""

    def __init__(self, examples: Sequence[Any], max_nodes: int) -> None:
        trees = [example.tree for example in examples]
        sizes = [len(tree.labels) for tree in trees]
        if sum(sizes) > max_nodes:
            count = max(1, bisect_right([*accumulate(sizes)], max_nodes))
            examples, trees, sizes = examples[:count], trees[:count], sizes[:count]
        self.parents: Ints = (
            np.concatenate([x.parents for x in trees]) if len(trees) > 1 else trees[0].parents
        )
        self.examples, self.trees, self.largest = examples, trees, max(sizes)
        self.starts = [0, *accumulate(sizes)]
        self.roots = [start + x.index for start, x in zip(self.starts, examples, strict=False)]
        self._entries: dict[str, Sequence[Any]] = {}

    def data_of(self, making: Making, nodes: Sequence[int]) -> Sequence[Any]:
        """Return the data that a making yields for nodes: a field or the node, then functions of it."""
        first, *functions = making
        read = self._node if first == NODE_ITSELF else self._entries_of(first).__getitem__
        return _applied(functions, [*map(read, nodes)])

    def _entries_of(self, field: str) -> Sequence[Any]:
        """Return a field of all nodes, over all trees."""
        if field not in self._entries:
            lists = [getattr(tree, FIELDS[field]) for tree in self.trees]
            self._entries[field] = [*chain.from_iterable(lists)] if len(lists) > 1 else lists[0]
        return self._entries[field]

    def _node(self, number: int) -> TreeNode:
        """Return the node of a number; if it is an example, the example object itself."""
        place = bisect_right(self.starts, number) - 1
        index, example = number - self.starts[place], self.examples[place]
        return example if index == example.index else node_of(self.trees[place], index)
