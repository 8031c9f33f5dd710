"""Integers: the statements of a tracing program on trees as code of numbers, written function by function.

Variables hold numbers of nodes and of values, and lists of values. A case is chosen by a table: of how many
children a node has, or of all nodes. `foldbatch.scheduler.tree_code` says what the code is; what is not known
here is `Refused`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from types import FunctionType
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks import purity, tracing
from foldbatch.blocks.drafts import Procedure, run_time_terminals
from foldbatch.blocks.purity import is_constant, reads_arity, reads_children, reads_of
from foldbatch.blocks.tracing import Expression
from foldbatch.model.model import Model
from foldbatch.scheduler import tree_code as code
from foldbatch.scheduler.trace import Index
from foldbatch.types import SequenceType, TensorType, Type

VALUE, NODE, CHILDREN, LIST, ITEM, DATA, LENGTH = range(7)  # what a variable holds
FIELDS = {"label": "labels", "token": "tokens"}  # of nodes, with the lists of a tree that have them
GETTERS = {name: attrgetter(name) for name in purity.FIELDS if name not in FIELDS}
WHOLE = "node"

# What data are made of a node: the field that is read, or all of it, and then functions.
Making: TypeAlias = "tuple[Any, ...]"


class Refused(Exception):  # noqa: N818 - is caught, and the program itself runs
    """Something that is no matter of integers; `where` is the path of the block."""

    where = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.args[0]}" if self.where else str(self.args[0])


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


def name_of(function: Any) -> str:
    """Return what a refusal calls a function."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).replace("<locals>.", "")


class Writer:
    """Writes the code of a function, given what its arguments hold."""

    def __init__(self, program: WrittenCode, function: Procedure, given: Sequence[Held | None]) -> None:
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
        if source.kind == NODE and type(key) is str and key in GETTERS:
            return Held(DATA, source.slot, making=(WHOLE, GETTERS[key]))
        raise Refused(f"it reads the item {key!r}")

    def applied(self, function: Any, source: Held) -> Held:
        if function is len and source.kind != DATA:
            return self.length(source)
        if source.kind not in (NODE, DATA):
            raise Refused(f"{name_of(function)} is given no node, and nothing of one")
        if source.kind == NODE and reads_children(function):
            if isinstance(function, FunctionType):
                self.program.used[id(function)] = function
            return Held(CHILDREN, source.slot)
        known = reads_of(function)
        if isinstance(known, str):
            raise Refused(f"{name_of(function)} is called at every visit, for it {known}")
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


class WrittenCode:
    """The code of a program's functions, and what its run must know of it."""

    def __init__(self, functions: Sequence[Procedure], model: Model) -> None:
        self.functions, self.model = {function.name: function for function in functions}, model
        self.writers: dict[Any, Writer] = {}  # by the name of a function, and what it is given
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

    def writer(self, name: str, given: Sequence[Held | None]) -> Writer:
        """Return what has written a function, or is about to, for arguments of some sorts."""
        key = name, tuple([None if x is None else x.at(0) for x in given])
        if key not in self.writers:
            self.writers[key] = writer = Writer(self, self.functions[name], given)
            writer.mark(writer.start)
            writer.body(writer.function.body)
        return self.writers[key]

    def linked(self) -> Index:
        """Return the code of all functions, one after the other, with the places of labels in it."""
        flat: list[Any] = []
        for line in chain.from_iterable(writer.lines for writer in self.writers.values()):
            if isinstance(line, tuple):
                line[0].place = len(flat)
            else:
                flat.append(line)
        whole = [x.place if isinstance(x, Label) else x.size if isinstance(x, Writer) else x for x in flat]
        return np.array([*whole, *[0] * code.LONGEST], np.int64)
