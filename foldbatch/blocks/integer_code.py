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

VALUE, NODE, CHILDREN, LIST, ITEM, DATA, LENGTH = range(7)  # kinds of contents
FIELDS = {"label": "labels", "token": "tokens"}  # of nodes, with the lists of a tree that have them
GETTERS = {name: attrgetter(name) for name in purity.FIELDS if name not in FIELDS}
NODE_ITSELF = "node"  # the beginning of a making that reads no field

# How data are made of a node: the field that is read, or `NODE_ITSELF`, and then functions.
Making: TypeAlias = "tuple[Any, ...]"


class Refused(Exception):  # noqa: N818 - is caught, and the tracing program itself runs
    """Raised for a tracing program that cannot be code of integers; `where` is the path of the block."""

    where = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.args[0]}" if self.where else str(self.args[0])


class Label:
    """A place in the code; `WrittenCode.linked` fills it in."""

    place = -1


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a variable: its kind, and the first of its slots."""

    kind: int
    slot: int = 0
    addend: int = 0  # added to the number of a value
    making: Making = ()  # of data: how they are made of the node in the slot
    width: int = 0  # how many values an item has; 0 of a list that nothing has been put into

    @property
    def slots(self) -> range:
        count = 2 if self.kind == LIST else self.width if self.kind == ITEM else 1
        return range(self.slot, self.slot + count)

    def at(self, slot: int) -> Content:
        """Return the same content in other slots, which hold it with the addend added."""
        return Content(self.kind, slot, 0, self.making, self.width)


def name_of(function: Any) -> str:
    """Return the name of a function in a refusal."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__qualname__", type(inner).__name__)).replace("<locals>.", "")


class Writer:
    """Writes the code of a function for arguments of some kinds."""

    def __init__(
        self, program: WrittenCode, function: Procedure, arguments: Sequence[Content | None]
    ) -> None:
        self.program = program
        self.function = function
        self.start = Label()
        self.lines: list[Any] = []  # words of the code; a label in a tuple marks its place
        self.size = 0  # how many slots its frame has
        self.results: list[Content] | None = None  # once they are known
        statements = tracing.statements_of(function.body)
        assigned = Counter(chain(function.names, *(statement.targets for statement in statements)))
        # variables that are assigned several times have slots of their own; others may share them
        self.reassigned = {name: (-1, Content(VALUE)) for name, times in assigned.items() if times > 1}
        self.changing: set[int] = set()  # these slots
        self.filled: dict[str, tracing.Loop] = {}  # the lists made here, with the loops that fill them
        self.loops: list[tracing.Loop] = []  # around the present statement
        self.env: dict[str, Content] = {}  # the contents of variables
        self.ends = False  # whether the statements after the present one are out of reach
        for name, content in zip(function.names, arguments, strict=True):
            if content is not None:
                self.env[name] = content.at(self.new(len(content.slots)))
        if function.memo and any(
            content is not None and content.kind not in (NODE, VALUE) for content in arguments
        ):
            raise Refused("an object that may stand in several places is visited once for all of them")

    def new(self, count: int = 1) -> int:
        """Reserve slots of the frame; return the first."""
        self.size += count
        return self.size - count

    def emit(self, *words: Any) -> None:
        self.lines += words

    def mark(self, label: Label) -> None:
        self.lines.append((label,))

    # -- variables

    def content_of(self, expression: Expression) -> Content:
        """Return the content of an expression: a variable's, an output's of a call, or a count."""
        match expression:
            case str(name):
                if name not in self.env:
                    raise Refused(f"a variable is not known everywhere: {name}")
                return self.env[name]
            case tracing.CallOutput(call, _, number):
                content = self.content_of(call)
                return Content(VALUE, content.slot, content.addend + number)
            case tracing.Count(of):
                return self.length(self.content_of(of))
        raise Refused(f"no number stands for this kind of value: {type(expression).__name__}")

    def length(self, content: Content) -> Content:
        """Return the number of items: of a list, from its slot; of a node, as data that are read later."""
        if content.kind == LIST:
            return Content(LENGTH, content.slot + 1)
        if content.kind not in (NODE, CHILDREN):
            raise Refused("it counts the items of what is no list")
        return Content(DATA, content.slot, making=(NODE_ITSELF, len))

    def number(self, expression: Expression) -> Content:
        """Return the content of an expression that must be a tensor's value number."""
        content = self.content_of(expression)
        if content.kind != VALUE:
            raise Refused("it passes an object to a cell")
        return content

    def copied(self, content: Content, slot: int) -> Content:
        """Return content in the slots from `slot` on; emit the moves unless it stands there already."""
        if slot != content.slot or content.addend:
            for i, source in enumerate(content.slots):
                self.emit(code.MOVE, slot + i, source, content.addend)
        return content.at(slot)

    def put(self, name: str, content: Content) -> None:
        """Assign content to a variable; one that is assigned several times keeps its slots."""
        if content.kind == LIST and not content.width:
            raise Refused("it gives a list another name before it is filled")
        if name in self.reassigned:
            slot, sort = self.reassigned[name]
            if slot < 0:
                slot, sort = self.new(len(content.slots)), content.at(0)
                self.reassigned[name] = slot, sort
                self.changing.update(range(slot, self.size))
            if sort != content.at(0):
                raise Refused("a variable holds objects of several kinds")
            content = self.copied(content, slot)
        elif content.slot in self.changing:
            content = self.copied(content, self.new(len(content.slots)))
        self.env[name] = content

    # -- statements

    def body(self, body: tracing.Body) -> None:
        """Write statements up to a return or a failing check; a refusal names the block."""
        for statement in body:
            if self.ends:
                break
            try:
                self.statement(statement)
            except Refused as refused:
                refused.where = refused.where or statement.blame.where
                raise

    def statement(self, statement: tracing.Statement) -> None:
        """Write one statement; refuse it if no code exists for it."""
        match statement:
            case tracing.Assign(_, (name,), tracing.Listed(())) if name not in self.reassigned:
                self.env[name] = Content(LIST, self.new(2))
                self.emit(code.ZERO, self.env[name].slot + 1)
            case tracing.Assign() if statement.pairs:
                self.assign(statement.pairs)
            case tracing.Assign(_, into, value):
                content = self.content_of(value)
                if content.kind != ITEM or content.width != len(into):
                    raise Refused("it unpacks an object")
                for name, slot in zip(into, content.slots, strict=True):
                    self.put(name, Content(VALUE, slot))
            case tracing.Read(_, target, source, key, None):
                self.put(target, self.read(self.content_of(source), key.value))
            case tracing.Apply(_, None):  # a check, which fails
                self.emit(code.FAIL)
                self.ends = True
            case tracing.Apply(_, str() as target, function, (argument,), None):
                self.put(target, self.applied(function.value, self.content_of(argument)))
            case tracing.Limit(_, source, count):
                content = self.content_of(source)
                if content.kind not in (NODE, CHILDREN):
                    raise Refused("it counts the items of what is no node")
                self.emit(code.LIMIT, content.slot, count)
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
        """Assign variables at once: contents in slots that may change are copied first."""
        contents = [self.content_of(value) for _, value in pairs]
        if len(pairs) > 1:  # all at once
            contents = [
                self.copied(x, self.new(len(x.slots))) if x.slot in self.changing else x for x in contents
            ]
        for (name, _), x in zip(pairs, contents, strict=True):
            self.put(name, x)

    def read(self, source: Content, key: Any) -> Content:
        """Return the content of an item: a child, the children, or data of a field."""
        if source.kind in (NODE, CHILDREN) and type(key) is int:
            slot = self.new()
            self.emit(code.CHILD, slot, source.slot, key)
            return Content(NODE, slot)
        if source.kind == NODE and key == "children":
            return Content(CHILDREN, source.slot)
        if source.kind == NODE and type(key) is str and key in FIELDS:
            return Content(DATA, source.slot, making=(key,))
        if source.kind == NODE and type(key) is str and key in GETTERS:
            return Content(DATA, source.slot, making=(NODE_ITSELF, GETTERS[key]))
        raise Refused(f"it reads the item {key!r}")

    def applied(self, function: Any, source: Content) -> Content:
        """Return the content of a pure function's result: children, a count, or data that are made later."""
        if function is len and source.kind != DATA:
            return self.length(source)
        if source.kind not in (NODE, DATA):
            raise Refused(f"{name_of(function)} is given no node, and nothing of one")
        if source.kind == NODE and reads_children(function):
            if isinstance(function, FunctionType):
                self.program.used[id(function)] = function
            return Content(CHILDREN, source.slot)
        reads = reads_of(function)
        if isinstance(reads, str):
            raise Refused(f"{name_of(function)} is called at every visit, for it {reads}")
        self.program.used[id(function)] = function
        before = source.making if source.kind == DATA else (NODE_ITSELF,)
        return Content(DATA, source.slot, making=(*before, function))

    def append(self, to: str, value: Expression) -> None:
        """Append values to the list that the innermost loop fills."""
        items = [*map(self.number, _items(value))]
        if not self.loops or self.filled.get(to) is not self.loops[-1] or self.env[to].width != len(items):
            raise Refused("it appends to a list of another loop")
        self.emit(code.APPEND, self.env[to].slot, len(items), *_slots_and_addends(items))

    def call(self, call: tracing.Call) -> None:
        """Write a call of a cell: operands, lists, and the slots of its feeds and labels."""
        draft, slot = call.draft, self.new()
        self.program.calls[-1 if draft is None else draft.number] += 1
        if call.target in self.reassigned:
            raise Refused("a call's number is assigned several times")
        self.env[call.target] = Content(VALUE, slot)
        if draft is None:
            self.emit(code.NUMBER, slot)
            return
        arguments = [self.number(x) for x in call.arguments]
        lists = [self.content_of(datum.value) for datum in call.lists]
        widths = self.program.model.signatures[draft.number].sequences
        if any(x.kind != LIST or x.width not in (0, n) for x, n in zip(lists, widths, strict=True)):
            raise Refused("it passes a list of objects to a cell")
        noted = []
        for place, datum in enumerate((*call.feeds, *call.labels)):
            content = self.content_of(datum.value)
            label = place >= len(call.feeds)
            if (
                content.kind not in (VALUE, LENGTH, DATA)
                or content.addend
                or (label and content.kind != DATA)
            ):
                raise Refused("it reads a node of a tree, or a list, as a whole")
            making = content.making if content.kind == DATA else None
            if self.program.data.setdefault((draft.number, place), making) != making:
                raise Refused("a cell reads data of several kinds")
            noted += [content.slot, int(content.kind == VALUE)]
        self.emit(code.CALL, draft.number, slot, len(arguments), *_slots_and_addends(arguments))
        self.emit(len(lists), *(x.slot for x in lists), len(noted) // 2, *noted)

    def invoke(self, results: Sequence[str], name: str, arguments: Sequence[Expression]) -> None:
        """Write a call of a function of the tracing program; assign its results."""
        operands = [None if x is None else self.content_of(x) for x in arguments]
        if any(x is not None and x.kind == LENGTH for x in operands):
            raise Refused("it passes a length on")
        passed = [x and (self.copied(x, self.new(len(x.slots))) if x.addend else x) for x in operands]
        callee = self.program.writer(name, passed)
        returned = callee.results or [_expected(result.type) for result in callee.function.results]
        targets = [x.at(self.new(len(x.slots))) for x in returned]
        from_, to = ([slot for x in contents if x for slot in x.slots] for contents in (passed, targets))
        self.emit(code.INVOKE, callee.start, self, len(from_), *from_, len(to), *to)
        for target, x in zip(results, targets, strict=True):
            if x.kind != LIST or x.width:
                self.put(target, x)

    def returned(self, values: Sequence[Expression]) -> None:
        """Write a return; keep the contents of the results for callers."""
        kinds = {TensorType: VALUE, SequenceType: LIST}
        self.results = []
        for value, result in zip(values, self.function.results, strict=True):
            kind = kinds.get(type(result.type))
            self.results.append(Content(kind or VALUE) if value is None else self.content_of(value))
            if kind not in (None, self.results[-1].kind):
                raise Refused("it returns an object for a tensor or a list of tensors")
        slots = [(slot, x.addend) for x in self.results for slot in x.slots]
        self.emit(code.RETURN, len(slots), *chain.from_iterable(slots))

    def branch(self, test: Any, bodies: Sequence[tracing.Body]) -> None:
        """Write a choice: a test of a node's data, or whether a list has items, and a body for each case."""
        places, end, last = [Label() for _ in bodies], Label(), len(bodies) - 1
        match test:
            case tracing.Case(_, table, key):
                content = self.content_of(key)
                if content.kind != DATA or not all(map(is_constant, table.value)):
                    raise Refused("it chooses by a node as a whole, or by objects that may change")
                by_function = content.making[0] == NODE_ITSELF and len(content.making) == 2
                kind, tests = code.OF_NODE, self.program.by_node
                if by_function and reads_arity(content.making[1]):
                    kind, tests = code.OF_ARITY, self.program.by_arity
                self.emit(kind, content.slot, len(tests), len(bodies), *places)
                tests.append((content.making, table.value, last))
            case tracing.Present(objects):
                for content in map(self.content_of, objects):
                    if content.kind == DATA:
                        present, tests = Label(), self.program.by_node
                        self.emit(code.OF_NODE, content.slot, len(tests), 2, present, places[1])
                        self.mark(present)
                        tests.append((content.making, None, 1))
                    elif content.kind not in (NODE, CHILDREN, LIST):
                        raise Refused("it asks whether a tensor is None")
            case tracing.Filled(of):
                content = self.content_of(of)
                if content.kind == NODE:
                    raise Refused("it asks whether a node is there")
                self.items(content, places[1])
        before, after = self.env, list[dict[str, Content]]()
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

    def items(self, source: Content, end: Label) -> tuple[Content, list[Any]]:
        """Begin a loop over a list, which ends at `end`; return an item, and the words for the next turn."""
        if source.kind in (NODE, CHILDREN):
            item, begin = Content(NODE, self.new()), Label()
            self.emit(code.FIRST_CHILD, item.slot, source.slot, end)
            self.mark(begin)
            return item, [code.NEXT_CHILD, item.slot, begin]
        if source.kind != LIST:
            raise Refused("it goes through what is no list of nodes or of values")
        counter, begin, width = self.new(), Label(), source.width
        item = Content(VALUE, self.new()) if width < 2 else Content(ITEM, self.new(width), width=width)
        self.emit(code.ZERO, counter)
        self.mark(begin)
        self.emit(code.ITEM, counter, source.slot, item.slot, width, end)
        return item, [code.GOTO, begin]

    def loop(self, loop: tracing.Loop) -> None:
        """Write a loop; reserve room for the lists that its body fills."""
        source, end = self.content_of(loop.source), Label()
        if source.slot in self.changing:  # a list is gone through as it was at the beginning
            source = self.copied(source, self.new(len(source.slots)))
        for to, width in _appended(loop.body).items():
            list_content = self.content_of(to)
            if (
                list_content.kind != LIST
                or list_content.width
                or to in self.function.names
                or source.kind == DATA
            ):
                raise Refused("it appends to a list of another loop")
            room = code.ROOMS if source.kind == LIST else code.ROOM
            self.emit(room, list_content.slot, source.slot, width)
            self.program.room += width
            self.env[to], self.filled[to] = Content(LIST, list_content.slot, width=width), loop
        for name in {name for statement in tracing.statements_of(loop.body) for name in statement.targets}:
            if name in self.env:
                self.put(name, self.env[name])
        before = {**self.env}
        item, again = self.items(source, end)
        self.put(loop.item, item)
        self.loops.append(loop)
        self.body(loop.body)
        self.loops.pop()
        if self.ends or any(self.env.get(name) != content for name, content in before.items()):
            raise Refused("a variable holds objects of several kinds")
        self.emit(*again)
        self.mark(end)
        self.env = before


def _slots_and_addends(contents: Sequence[Content]) -> Iterator[int]:
    """Yield the slot and the addend of each content."""
    return chain.from_iterable((x.slot, x.addend) for x in contents)


def _expected(type_: Type) -> Content:
    """Return the content of a result from its type, before the function that yields it is written."""
    match type_:
        case TensorType():
            return Content(VALUE)
        case SequenceType(element) if all(isinstance(x, TensorType) for x in run_time_terminals(element)):
            return Content(LIST, width=len(run_time_terminals(element)))
    raise Refused("a recursion returns an object")


def _appended(body: tracing.Body) -> dict[str, int]:
    """Return the lists that a loop's body appends to, each with the integers of an item.

    Lists of inner loops do not count.

    Raises:
        Refused: when a turn of the loop appends several items to a list.
    """
    widths: dict[str, int] = {}
    for statement in body:
        parts = (
            [_appended(case) for case in statement.bodies] if isinstance(statement, tracing.Branch) else []
        )
        if isinstance(statement, tracing.Append):
            parts = [{statement.to: len(_items(statement.value))}]
        lists = dict(chain.from_iterable(part.items() for part in parts))
        if not widths.keys().isdisjoint(lists):
            raise Refused("it appends several items to a list at a time")
        widths |= lists
    return widths


def _items(value: Expression) -> Sequence[Expression]:
    return value.items if isinstance(value, tracing.Tuple) else (value,)


class WrittenCode:
    """The code of a tracing program's functions, and the tables that a run of it needs."""

    def __init__(self, functions: Sequence[Procedure], model: Model) -> None:
        self.functions, self.model = {function.name: function for function in functions}, model
        self.writers: dict[Any, Writer] = {}  # by the name of a function, and the contents of its arguments
        self.used: dict[int, Any] = {}  # functions of the user, by identity
        # tests that choose cases, by the number of children and by the node: a making, the table from its
        # data to cases (None tests whether they are None), and the case of all other data
        self.by_arity: list[tuple[Making, Any, int]] = []
        self.by_node: list[tuple[Making, Any, int]] = []
        # by cell and place, the makings of feeds, and then of labels; None for numbers
        self.data: dict[tuple[int, int], Making | None] = {}
        self.calls: Counter[int] = Counter()  # how many statements call each cell; -1: draw a number only
        self.room = 0  # how many numbers all lists may have, for each node
        self.results = self.writer(functions[0].name, [Content(NODE)]).results or ()
        if any(x.kind not in (VALUE, DATA) for x in self.results):
            raise Refused("it returns a list, or a node")

    def writer(self, name: str, arguments: Sequence[Content | None]) -> Writer:
        """Return the writer of a function for arguments of some kinds; the first time it writes the code."""
        key = name, tuple([None if x is None else x.at(0) for x in arguments])
        if key not in self.writers:
            self.writers[key] = writer = Writer(self, self.functions[name], arguments)
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
        words = [x.place if isinstance(x, Label) else x.size if isinstance(x, Writer) else x for x in flat]
        return np.array([*words, *[0] * code.READ_WORDS], np.int64)
