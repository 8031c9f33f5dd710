"""Integers: the tracing program on trees as code that one compiled call runs on all trees of a batch.

Where the user's functions are on a short list of what is pure, the program is one of integers. Variables hold
numbers of nodes and of values, and lists of values. Nothing is read of a node while the code runs: it notes
the nodes' numbers, and data are made of them afterwards, one list for each feed. A case is chosen by a table:
of how many children a node has, or of all nodes. `foldbatch.scheduler.tree_code` says what the code is.

Whatever is not known here is `Refused`, and so is what fails: then the program itself runs, and finds errors.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.blocks import tracing
from foldbatch.blocks.drafts import Procedure, run_time_terminals
from foldbatch.blocks.interrupts import interrupted
from foldbatch.blocks.purity import ATOMS, direct, is_constant, is_fixed, of_arity, reads_arity, reads_of
from foldbatch.blocks.recorder import MANY
from foldbatch.blocks.tracing import Expression
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.scheduler import tree_code as code
from foldbatch.scheduler.record import TraceColumns, columns_of
from foldbatch.scheduler.trace import Index, Ints, unpack
from foldbatch.trees import TreeNode
from foldbatch.trees.tree import node_of
from foldbatch.types import SequenceType, TensorType, Type

VALUE, NODE, CHILDREN, LIST, ITEM, DATA, LENGTH = range(7)  # what a variable holds
FIELDS = {"label": "labels", "token": "tokens"}  # of nodes, with the lists of a tree that have them
WHOLE = "node"
DEEP, LARGEST = 2**24, 2**27  # slots of a stack, and numbers of what several trees note
LEAST, WIDEST = 8, 256  # children that tables know at first, and at most
NO_TABLES: tuple[int, Ints] = 0, np.zeros(0, np.int32)
MOST_SKIPPED = 64  # batches, after many have been refused in turn

# What data are made of a node: the field that is read, or all of it, and then functions.
Making: TypeAlias = "tuple[Any, ...]"


class Refused(Exception):  # noqa: N818 - is caught, and the program itself runs
    """Something that is no matter of integers; `where` is the path of the block."""

    where = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.args[0]}" if self.where else str(self.args[0])


# -- writing: from the statements of functions to code


class Label:
    """A place in the code, known once all of it is written."""

    place = -1


@dataclass(frozen=True, slots=True)
class Held:
    """What a variable holds, and the first of its slots."""

    kind: int
    slot: int = 0
    more: int = 0  # what is added to the number of a value
    making: Making = ()  # what data are made of the node in the slot
    width: int = 0  # how many values an item has; 0 of a list that nothing has been put into

    @property
    def slots(self) -> range:
        count = 2 if self.kind == LIST else self.width if self.kind == ITEM else 1
        return range(self.slot, self.slot + count)

    def at(self, slot: int) -> Held:
        """Return the same, in other slots, to which `more` has been added."""
        return Held(self.kind, slot, 0, self.making, self.width)


def _name(function: Any) -> str:
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).replace("<locals>.", "")


class _Writer:
    def __init__(self, program: TreeProgram, function: Procedure, given: Sequence[Held | None]) -> None:
        self.program, self.function, self.start = program, function, Label()
        self.lines: list[Any] = []  # words of the code; a label in a tuple is where it stands
        self.size = 0  # how many slots its frame has
        self.results: list[Held] | None = None  # once they are known
        statements = tracing.statements_of(function.body)
        assigned = Counter(chain(function.names, *(statement.targets for statement in statements)))
        # variables that are assigned several times have slots of their own; others may share them
        self.several = {name: (-1, Held(VALUE)) for name, times in assigned.items() if times > 1}
        self.changing: set[int] = set()  # these slots
        self.filled: dict[str, tracing.Loop] = {}  # the lists made here, with the loops that fill them
        self.loops: list[tracing.Loop] = []  # around the present statement
        self.env: dict[str, Held] = {}  # what variables hold
        self.ends = False  # whether nothing goes on from here
        for name, held in zip(function.names, given, strict=True):
            if held is not None:
                self.env[name] = held.at(self.new(len(held.slots)))
        if function.memo and any(held is not None and held.kind not in (NODE, VALUE) for held in given):
            raise Refused("an object that may stand in several places is visited once for all of them")

    def new(self, count: int = 1) -> int:
        self.size += count
        return self.size - count

    def emit(self, *words: Any) -> None:
        self.lines += words

    def mark(self, label: Label) -> None:
        self.lines.append((label,))

    # -- variables

    def held(self, expression: Expression) -> Held:
        match expression:
            case str(name):
                if name not in self.env:
                    raise Refused(f"a variable is not known everywhere: {name}")
                return self.env[name]
            case tracing.CallOutput(call, _, number):
                held = self.held(call)
                return Held(VALUE, held.slot, held.more + number)
            case tracing.Count(of):
                return self.length(self.held(of))
        raise Refused(f"no number stands for this kind of value: {type(expression).__name__}")

    def length(self, held: Held) -> Held:
        if held.kind == LIST:
            return Held(LENGTH, held.slot + 1)
        if held.kind not in (NODE, CHILDREN):
            raise Refused("it counts the items of what is no list")
        return Held(DATA, held.slot, making=(WHOLE, len))

    def number(self, expression: Expression) -> Held:
        held = self.held(expression)
        if held.kind != VALUE:
            raise Refused("it passes an object to a cell")
        return held

    def copied(self, held: Held, slot: int) -> Held:
        if slot != held.slot or held.more:
            for i, source in enumerate(held.slots):
                self.emit(code.MOVE, slot + i, source, held.more)
        return held.at(slot)

    def put(self, name: str, held: Held) -> None:
        if held.kind == LIST and not held.width:
            raise Refused("it gives a list another name before it is filled")
        if name in self.several:
            slot, sort = self.several[name]
            if slot < 0:
                slot, sort = self.new(len(held.slots)), held.at(0)
                self.several[name] = slot, sort
                self.changing.update(range(slot, self.size))
            if sort != held.at(0):
                raise Refused("a variable holds objects of several kinds")
            held = self.copied(held, slot)
        elif held.slot in self.changing:
            held = self.copied(held, self.new(len(held.slots)))
        self.env[name] = held

    # -- statements

    def body(self, body: tracing.Body) -> None:
        for statement in body:
            if self.ends:
                break
            try:
                self.statement(statement)
            except Refused as refused:
                refused.where = refused.where or statement.blame.where
                raise

    def statement(self, statement: tracing.Statement) -> None:
        match statement:
            case tracing.Assign(_, (name,), tracing.Listed(())) if name not in self.several:
                self.env[name] = Held(LIST, self.new(2))
                self.emit(code.ZERO, self.env[name].slot + 1)
            case tracing.Assign() if statement.pairs:
                self.assign(statement.pairs)
            case tracing.Assign(_, into, value):
                held = self.held(value)
                if held.kind != ITEM or held.width != len(into):
                    raise Refused("it unpacks an object")
                for name, slot in zip(into, held.slots, strict=True):
                    self.put(name, Held(VALUE, slot))
            case tracing.Read(_, target, source, key, None):
                self.put(target, self.read(self.held(source), key.value))
            case tracing.Apply(_, None):  # a check, which fails
                self.emit(code.FAIL)
                self.ends = True
            case tracing.Apply(_, str() as target, function, (argument,), None):
                self.put(target, self.applied(function.value, self.held(argument)))
            case tracing.Limit(_, source, count):
                held = self.held(source)
                if held.kind not in (NODE, CHILDREN):
                    raise Refused("it counts the items of what is no node")
                self.emit(code.LIMIT, held.slot, count)
            case tracing.Append(_, to, value):
                self.append(to, value)
            case tracing.Call():
                self.call(statement)
            case tracing.Invoke(_, results, name, arguments):
                self.invoke(results, name, arguments)
            case tracing.Branch(_, test, bodies):
                self.branch(test, bodies)
            case tracing.Loop():
                self.loop(statement)
            case tracing.Return(_, values):
                self.returned(values)
            case _:
                raise Refused(f"no code for this kind of statement: {type(statement).__name__}")

    def assign(self, pairs: Sequence[tuple[str, Expression]]) -> None:
        held = [self.held(value) for _, value in pairs]
        if len(pairs) > 1:  # all at once
            held = [self.copied(x, self.new(len(x.slots))) if x.slot in self.changing else x for x in held]
        for (name, _), x in zip(pairs, held, strict=True):
            self.put(name, x)

    def read(self, source: Held, key: Any) -> Held:
        if source.kind in (NODE, CHILDREN) and type(key) is int:
            slot = self.new()
            self.emit(code.CHILD, slot, source.slot, key)
            return Held(NODE, slot)
        if source.kind == NODE and key == "children":
            return Held(CHILDREN, source.slot)
        if source.kind == NODE and type(key) is str and key in FIELDS:
            return Held(DATA, source.slot, making=(key,))
        raise Refused(f"it reads the item {key!r}")

    def applied(self, function: Any, source: Held) -> Held:
        if function is len and source.kind != DATA:
            return self.length(source)
        if source.kind not in (NODE, DATA):
            raise Refused(f"{_name(function)} is given no node, and nothing of one")
        known = reads_of(function)
        if isinstance(known, str):
            raise Refused(f"{_name(function)} is called at every visit, for it {known}")
        self.program.used[id(function)] = function
        before = source.making if source.kind == DATA else (WHOLE,)
        return Held(DATA, source.slot, making=(*before, function))

    def append(self, to: str, value: Expression) -> None:
        items = [*map(self.number, _items(value))]
        if not self.loops or self.filled.get(to) is not self.loops[-1] or self.env[to].width != len(items):
            raise Refused("it appends to a list of another loop")
        self.emit(code.APPEND, self.env[to].slot, len(items), *_pairs(items))

    def call(self, call: tracing.Call) -> None:
        draft, slot = call.draft, self.new()
        self.program.calls[-1 if draft is None else draft.number] += 1
        if call.target in self.several:
            raise Refused("a call's number is assigned several times")
        self.env[call.target] = Held(VALUE, slot)
        if draft is None:
            self.emit(code.NUMBER, slot)
            return
        arguments = [self.number(x) for x in call.arguments]
        lists = [self.held(datum.value) for datum in call.lists]
        widths = self.program.model.signatures[draft.number].sequences
        if any(x.kind != LIST or x.width not in (0, n) for x, n in zip(lists, widths, strict=True)):
            raise Refused("it passes a list of objects to a cell")
        noted = []
        for place, datum in enumerate((*call.feeds, *call.labels)):
            held = self.held(datum.value)
            label = place >= len(call.feeds)
            if held.kind not in (VALUE, LENGTH, DATA) or held.more or (label and held.kind != DATA):
                raise Refused("it reads a node of a tree, or a list, as a whole")
            making = held.making if held.kind == DATA else None
            if self.program.data.setdefault((draft.number, place), making) != making:
                raise Refused("a cell reads data of several kinds")
            noted += [held.slot, int(held.kind == VALUE)]
        self.emit(code.CALL, draft.number, slot, len(arguments), *_pairs(arguments))
        self.emit(len(lists), *(x.slot for x in lists), len(noted) // 2, *noted)

    def invoke(self, results: Sequence[str], name: str, arguments: Sequence[Expression]) -> None:
        given = [None if x is None else self.held(x) for x in arguments]
        if any(x is not None and x.kind == LENGTH for x in given):
            raise Refused("it passes a length on")
        held = [x and (self.copied(x, self.new(len(x.slots))) if x.more else x) for x in given]
        callee = self.program.writer(name, held)
        found = callee.results or [_expected(each.type) for each in callee.function.results]
        targets = [x.at(self.new(len(x.slots))) for x in found]
        from_, to = ([slot for x in some if x for slot in x.slots] for some in (held, targets))
        self.emit(code.INVOKE, callee.start, self, len(from_), *from_, len(to), *to)
        for target, x in zip(results, targets, strict=True):
            if x.kind != LIST or x.width:
                self.put(target, x)

    def returned(self, values: Sequence[Expression]) -> None:
        kinds = {TensorType: VALUE, SequenceType: LIST}
        self.results = []
        for value, each in zip(values, self.function.results, strict=True):
            kind = kinds.get(type(each.type))
            self.results.append(Held(kind or VALUE) if value is None else self.held(value))
            if kind not in (None, self.results[-1].kind):
                raise Refused("it returns an object for a tensor or a list of tensors")
        slots = [(slot, x.more) for x in self.results for slot in x.slots]
        self.emit(code.RETURN, len(slots), *chain.from_iterable(slots))

    def branch(self, test: Any, bodies: Sequence[tracing.Body]) -> None:
        places, end, last = [Label() for _ in bodies], Label(), len(bodies) - 1
        match test:
            case tracing.Case(_, table, key):
                held = self.held(key)
                if held.kind != DATA or not all(map(is_constant, table.value)):
                    raise Refused("it chooses by a node as a whole, or by objects that may change")
                whole = held.making[0] == WHOLE and len(held.making) == 2
                kind, tests = code.OF_NODE, self.program.by_node
                if whole and reads_arity(held.making[1]):
                    kind, tests = code.OF_ARITY, self.program.by_arity
                self.emit(kind, held.slot, len(tests), len(bodies), *places)
                tests.append((held.making, table.value, last))
            case tracing.Present(objects):
                for held in map(self.held, objects):
                    if held.kind == DATA:
                        present, tests = Label(), self.program.by_node
                        self.emit(code.OF_NODE, held.slot, len(tests), 2, present, places[1])
                        self.mark(present)
                        tests.append((held.making, None, 1))
                    elif held.kind not in (NODE, CHILDREN, LIST):
                        raise Refused("it asks whether a tensor is None")
            case tracing.Filled(of):
                held = self.held(of)
                if held.kind == NODE:
                    raise Refused("it asks whether a node is there")
                self.items(held, places[1])
        before, after = self.env, list[dict[str, Held]]()
        for place, body in zip(places, bodies, strict=True):
            self.env = {**before}
            self.mark(place)
            self.body(body)
            if not self.ends:
                self.emit(code.GOTO, end)
                after.append(self.env)
            self.ends = False
        self.mark(end)
        self.ends = not after
        if after:
            self.env = {name: x for name, x in after[0].items() if all(env.get(name) == x for env in after)}

    def items(self, source: Held, end: Label) -> tuple[Held, list[Any]]:
        """Go through a list, and then to `end`: return an item, and how to go on with the next one."""
        if source.kind in (NODE, CHILDREN):
            item, begin = Held(NODE, self.new()), Label()
            self.emit(code.FIRST, item.slot, source.slot, end)
            self.mark(begin)
            return item, [code.NEXT, item.slot, begin]
        if source.kind != LIST:
            raise Refused("it goes through what is no list of nodes or of values")
        counter, begin, width = self.new(), Label(), source.width
        item = Held(VALUE, self.new()) if width < 2 else Held(ITEM, self.new(width), width=width)
        self.emit(code.ZERO, counter)
        self.mark(begin)
        self.emit(code.ITEM, counter, source.slot, item.slot, width, end)
        return item, [code.GOTO, begin]

    def loop(self, loop: tracing.Loop) -> None:
        source, end = self.held(loop.source), Label()
        if source.slot in self.changing:  # a list is gone through as it was at the beginning
            source = self.copied(source, self.new(len(source.slots)))
        for to, width in _appended(loop.body).items():
            held = self.held(to)
            if held.kind != LIST or held.width or to in self.function.names or source.kind == DATA:
                raise Refused("it appends to a list of another loop")
            room = code.ROOMS if source.kind == LIST else code.ROOM
            self.emit(room, held.slot, source.slot, width)
            self.program.room += width
            self.env[to], self.filled[to] = Held(LIST, held.slot, width=width), loop
        for name in {name for each in tracing.statements_of(loop.body) for name in each.targets}:
            if name in self.env:
                self.put(name, self.env[name])
        before = {**self.env}
        item, again = self.items(source, end)
        self.put(loop.item, item)
        self.loops.append(loop)
        self.body(loop.body)
        self.loops.pop()
        if self.ends or any(self.env.get(name) != held for name, held in before.items()):
            raise Refused("a variable holds objects of several kinds")
        self.emit(*again)
        self.mark(end)
        self.env = before


def _pairs(held: Sequence[Held]) -> Iterator[int]:
    return chain.from_iterable((x.slot, x.more) for x in held)


def _expected(type_: Type) -> Held:
    """Return what a function yields, before that is written."""
    match type_:
        case TensorType():
            return Held(VALUE)
        case SequenceType(element) if all(isinstance(x, TensorType) for x in run_time_terminals(element)):
            return Held(LIST, width=len(run_time_terminals(element)))
    raise Refused("a recursion returns an object")


def _appended(body: tracing.Body) -> dict[str, int]:
    """Return the lists that a loop's body appends to, but for loops in it, and how wide their items are."""
    found: dict[str, int] = {}
    for statement in body:
        parts = (
            [_appended(case) for case in statement.bodies] if isinstance(statement, tracing.Branch) else []
        )
        if isinstance(statement, tracing.Append):
            parts = [{statement.to: len(_items(statement.value))}]
        lists = dict(chain.from_iterable(part.items() for part in parts))
        if not found.keys().isdisjoint(lists):
            raise Refused("it appends several items to a list at a time")
        found |= lists
    return found


def _items(value: Expression) -> Sequence[Expression]:
    return value.items if isinstance(value, tracing.Tuple) else (value,)


# -- running


class TreeProgram:
    """A tracing program that runs as code, given the cells of each scope of the policy."""

    def __init__(self, functions: Sequence[Procedure], model: Model, scopes: Sequence[Sequence[int]]) -> None:
        self.functions, self.model = {function.name: function for function in functions}, model
        self.form = model.form
        self.writers: dict[Any, _Writer] = {}  # by the name of a function, and what it is given
        self.used: dict[int, Any] = {}  # functions of the user, by identity
        # what chooses cases, by the number of children and by the node: data, and the case of each, or None
        # where it matters whether they are None; and the case of others
        self.by_arity: list[tuple[Making, Any, int]] = []
        self.by_node: list[tuple[Making, Any, int]] = []
        # by cell and place what is made for feeds, and then for labels; None of numbers
        self.data: dict[tuple[int, int], Making | None] = {}
        self.calls: Counter[int] = Counter()  # how many statements call each cell; -1: draw a number only
        self.room = 0  # how many numbers all lists may have, for each node
        self.results = self.writer(functions[0].name, [Held(NODE)]).results or ()
        if any(x.kind not in (VALUE, DATA) for x in self.results):
            raise Refused("it returns a list, or a node")
        self.code, sizes = self.linked(), [writer.size + 2 for writer in self.writers.values()]
        self.frame, self.frames = max(sizes), sum(sizes)
        self.width = max([1, *(len(cell.outputs) for cell in model.signatures)])
        self.most = self.calls.total() * self.width  # values of each node
        self.codes = [(f, f.__code__) for f in self.used.values() if type(f) is FunctionType]
        self.partials = [f for f in self.used.values() if type(f) is not FunctionType and not is_fixed(f)]
        self.tables = NO_TABLES  # how many children are known; the cases, by test and number of children
        self.skip, self.skipped, self.last = 0, 0, ""
        # of each cell what is made for feeds and labels, feeds with bounds, and which of these are single
        # integers; cells and lists take so much room for each node, `each`, and so much anyway, `fixed`
        self.cells: list[tuple[list[Making | None], list[tuple[Feed, int | None]], Sequence[bool]]] = []
        each, fixed, lists, self.end, feeds = list[int](), list[int](), list[tuple[int, int]](), 0, 0
        scope_of, bounds = {k: scope for scope, own in enumerate(scopes) for k in own}, model.bounds
        for k, cell in enumerate(model.signatures):
            row, calls = 1 + cell.arguments + len(cell.sequences), self.calls[k]
            places = range(len(model.feeds[k]) + len(model.labels[k]))
            makings = [m and (m[0], *map(direct, m[1:])) for m in (self.data.get((k, i)) for i in places)]
            flags = self.form.integers[k]
            self.cells.append((makings, [*zip(model.feeds[k], bounds[k], strict=True)], flags))
            levels = self.end + calls * row
            each += [0, calls, self.end, 0, levels, levels + calls, 0, 0, 0, 0]
            fixed += [0, 0, 0, row, 0, 0, scope_of.get(k, -1), len(lists), sum(flags), len(makings)]
            feeds += calls * sum(flags)
            lists += [(calls, width) for width in cell.sequences]
            self.end = levels + calls * (1 + len(makings))
        for calls, width in lists:
            each += [0, calls, self.end, 0]
            fixed += [0, 0, 0, width]
            self.end += calls * width
        self.each, self.fixed, self.lists = np.array(each, np.int64), np.array(fixed, np.int64), len(lists)
        self.packed = self.end + feeds  # numbers of a packed trace, and of what its data are made of

    def writer(self, name: str, given: Sequence[Held | None]) -> _Writer:
        """Return what has written a function, or is about to, for arguments of some sorts."""
        key = name, tuple([None if x is None else x.at(0) for x in given])
        if key not in self.writers:
            self.writers[key] = writer = _Writer(self, self.functions[name], given)
            writer.mark(writer.start)
            writer.body(writer.function.body)
        return self.writers[key]

    def linked(self) -> Index:
        flat: list[Any] = []
        for line in chain.from_iterable(writer.lines for writer in self.writers.values()):
            if isinstance(line, tuple):
                line[0].place = len(flat)
            else:
                flat.append(line)
        whole = [x.place if isinstance(x, Label) else x.size if isinstance(x, _Writer) else x for x in flat]
        return np.array([*whole, *[0] * code.LONGEST], np.int64)

    def records(
        self, traced: Callable[..., int], examples: Sequence[Any], most: int, *, atoms: bool = False
    ) -> list[TraceColumns] | None:
        """Return the calls that trees make, in a few records; None where the program itself must run.

        `traced` does what `tree_code.traced` does; `most` is how many calls each may make; `atoms` tells
        whether all data must be of `ATOMS`.
        """
        if self.skipped:  # the more batches in turn are refused, the less often they are tried
            self.skipped -= 1
            return None
        found, done = list[TraceColumns](), 0
        try:
            while done < len(examples):
                found.append(self.record(traced, examples[done:], most, atoms=atoms))
                done += len(found[-1].results)
        except Exception as error:
            if interrupted(error):
                raise
            self.skip = min(2 * self.skip + 1, MOST_SKIPPED)
            self.skipped, self.last = self.skip - 1, str(error) or type(error).__name__
            return None
        self.skip = 0
        return found

    def record(
        self, traced: Callable[..., int], examples: Sequence[Any], most: int, *, atoms: bool = False
    ) -> TraceColumns:
        """Return the calls that trees make, or the first of them where there are very many.

        Raises:
            Refused: when the program itself must run, as where anything else is raised.
        """
        self._watch()
        most_nodes = min(MANY, LARGEST // (self.end + 1))
        (arities, tables), source = self.tables, _Source(examples, most_nodes)
        count, nodes = len(source.roots), source.starts[-1]
        room, stack = nodes + count, min((source.largest + 2) * self.frames, DEEP)
        values, pool = self.most * room, self.room * room
        if max(values, self.packed * room, pool) >= 2**31:
            raise Refused("there are too many nodes")
        tests = [_cases(source.made(making, range(nodes)), *cases) for making, *cases in self.by_node]
        joined = np.array([*chain.from_iterable(tests)], np.int32) if tests else NO_TABLES[1]
        told = np.empty(1 + count * (1 + len(self.cells) + self.lists + len(self.results)), np.int64)
        memory = np.empty(3 * nodes + 2 * values + pool + self.end * room, np.int32)
        out = np.empty(self.form.head + self.packed * room, np.int32)
        frames = np.empty(stack + self.frame, np.int64)
        counts = count, self.width, most, MANY, self.frame, len(self.cells), self.lists, len(self.results)
        while True:
            sizes = *counts, arities, nodes, len(self.writers) * room, values, pool, stack
            given = np.array([*sizes, *source.starts, *source.roots], np.int64)
            known = self.each * room + self.fixed
            done = traced(self.code, given, source.parents, tables, joined, known, memory, frames, out, told)
            if done > code.REFUSED:
                return self._joined(source, done, known.tolist(), out, told, atoms=atoms)
            if done == code.REFUSED:
                raise Refused("there is an example that the program refuses")
            arities, tables = self.tables = self._learnt(code.REFUSED - done)  # more children than ever

    def _watch(self) -> None:
        """Refuse functions of the user that mean something else by now; no table is of `partials`."""
        for function, known in self.codes:
            if function.__code__ is not known:
                raise Refused(f"{_name(function)} has another code by now")
        if any(isinstance(reads_of(function), str) for function in self.partials):
            raise Refused("a function of the user may do something else by now")

    def _learnt(self, size: int) -> tuple[int, Ints]:
        """Return tables for nodes with fewer children than some number, or more."""
        if size > WIDEST:
            raise Refused(f"a node has more than {WIDEST - 1} children")
        arities = max(LEAST, 1 << (size - 1).bit_length())
        nodes = [*map(of_arity, range(arities))]
        rows = [_cases(_called(making[1:], nodes), table, last) for making, table, last in self.by_arity]
        return arities, np.array(rows, np.int32).ravel()

    def _joined(
        self, source: _Source, done: int, known: list[int], out: Ints, told: Index, *, atoms: bool
    ) -> TraceColumns:
        form = self.form
        loose: list[list[NDArray[Any]]] = []  # annotated, as to call a type of arrays takes 6 us
        labels: list[tuple[list[Any], ...]] = []
        counts = known[code.COUNT : len(self.cells) * code.CELL : code.CELL]
        end = known[code.DATA] if self.cells else form.head
        for k, (makings, feeds, flags) in enumerate(self.cells):
            size, to, at = counts[k], known[k * code.CELL + code.ROWS], known[k * code.CELL + code.DATA]
            data: list[Any] = []
            for making in makings:
                noted = out[at : at + size].tolist()
                data.append(source.made(making, noted) if making else noted)
                at += size
            if atoms and not {*map(type, chain.from_iterable(data))} <= {*ATOMS}:
                raise Refused("somebody looks at objects that it reads")
            labels.append(tuple(data[len(feeds) :]))
            loose.append([])
            for x, each, flag in zip(data, feeds, flags, strict=False):
                if flag:
                    out[to : to + size] = _column(x, *each)
                    to += size
                else:
                    loose[-1].append(_column(x, *each))
        whole = unpack(form, out[:end], loose, tuple(labels), counts=counts, values=int(out[0]))
        count, cells, lists, results = len(source.roots), len(self.cells), self.lists, len(self.results)
        first, second = 1 + count * (1 + cells), 1 + count * (1 + cells + lists)
        columns: list[Sequence[Any]] = []
        for i, held in enumerate(self.results):
            numbers = told[second + i : second + done * results : results]
            is_value, own = held.kind == VALUE, numbers - told[:done]
            columns.append(own.tolist() if is_value else source.made(held.making, numbers.tolist()))
        sizes = (
            _apart(told[1 + count : 1 + count + done * cells].reshape(done, cells)),
            _apart(told[first : first + done * lists].reshape(done, lists)),
            told[: done + 1],
        )
        found = [*zip(*columns, strict=True)] if columns else [()] * done
        return columns_of(whole, *sizes, found)


def _apart(sums: Index) -> Index:
    """Return what each row adds to the one before."""
    if len(sums) > 1:
        sums[1:] -= sums[:-1].copy()
    return sums


def _column(items: list[Any], feed: Feed, bound: int | None) -> NDArray[Any]:
    try:
        return column(items, feed.type, bound, feed.declared)
    except BadDataError:
        refused = Refused("there is a datum that the block does not read")
        refused.where = feed.where
        raise refused from None


def _cases(keys: Sequence[Any], table: Any, last: int) -> list[int]:
    if table is None:
        return [int(key is None) for key in keys]
    if not {*map(type, keys)} <= {*ATOMS} and not all(map(is_constant, keys)):
        raise Refused("it chooses by an object that may change")
    return [table.get(key, last) for key in keys]


def _called(functions: Sequence[Any], items: Sequence[Any]) -> Sequence[Any]:
    """Return what functions make of some objects, each given what the one before returns."""
    for place, function in enumerate(functions):
        if place and not {*map(type, items)} <= {*ATOMS}:
            raise Refused("a function of the user is given an object that may change")
        items = [*map(function, items)]
    return items


class _Source:
    """The trees of examples, or of the first ones, of at most so many nodes."""

    def __init__(self, examples: Sequence[Any], most: int) -> None:
        trees = [example.tree for example in examples]
        sizes = [len(tree.labels) for tree in trees]
        if sum(sizes) > most:
            count = max(1, bisect_right([*accumulate(sizes)], most))
            examples, trees, sizes = examples[:count], trees[:count], sizes[:count]
        self.parents: Ints = (
            np.concatenate([x.parents for x in trees]) if len(trees) > 1 else trees[0].parents
        )
        self.examples, self.trees, self.largest = examples, trees, max(sizes)
        self.starts = [0, *accumulate(sizes)]
        self.roots = [start + x.index for start, x in zip(self.starts, examples, strict=False)]
        self._entries: dict[str, Sequence[Any]] = {}

    def made(self, making: Making, nodes: Sequence[int]) -> Sequence[Any]:
        first, *functions = making
        read = self._node if first == WHOLE else self._entries_of(first).__getitem__
        return _called(functions, [*map(read, nodes)])

    def _entries_of(self, field: str) -> Sequence[Any]:
        if field not in self._entries:
            lists = [getattr(tree, FIELDS[field]) for tree in self.trees]
            self._entries[field] = [*chain.from_iterable(lists)] if len(lists) > 1 else lists[0]
        return self._entries[field]

    def _node(self, number: int) -> TreeNode:
        """Return a node by its number; the one that an example is, is that itself."""
        place = bisect_right(self.starts, number) - 1
        index, example = number - self.starts[place], self.examples[place]
        return example if index == example.index else node_of(self.trees[place], index)
