"""Statements of the tracing program, applied to columns: their variables, what they leave behind, its order.

Numbers of values are not known while statements are applied, for they depend on the order of all calls. So
columns hold *references*: that to output j of call i is ``i * width + j``; one below 0, ``~s``, stands for
whatever the link s refers to. The result of a function at a node is a link, and so is the state that a turn
of a loop finds. Links may refer to links; all are followed in the end.

A *frame* is what runs once in each of its lanes: a function, or the body of a loop. While its statements
are applied to columns it notes *events* in order: calls of cells, loops, and visits of a recursive function.
When all calls are counted, the events are gone through once more, now with a clock in each lane.

A lane of a recursive function stands for a visit of a node. The visits below it are those of its subtree: a
range of lanes. So the calls below a visit are a difference of two prefix sums. The time when a visit starts
is the sum of the delays of all visits around it. That is such a difference as well.

A function that does not recur is applied to the lanes that call it. One that does is applied once to all
nodes of the trees that it is entered with: every node is a lane. What a visit gets from those below it are
links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foldbatch.blocks import tracing
from foldbatch.blocks.columnar import kinds
from foldbatch.blocks.columnar.kinds import Array, Column, ListColumn, NodeColumn, ObjectColumn, Refused
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.purity import ATOMS

MOST = 2**31 - 1
Lanes: TypeAlias = "Array | None"  # different ones; None: all of them, in order


class Calls(NamedTuple):
    """Calls of a cell, one a lane; they are numbered from `first` on."""

    lanes: Lanes
    first: int


class Turns(NamedTuple):
    """A loop, with the number of turns in each lane; the lanes of its body are the turns."""

    lanes: Lanes
    body: Frame
    turns: Array


class Visits(NamedTuple):
    """Visits of a recursive function, one a lane, by their lanes there."""

    lanes: Lanes
    recursion: Recursion
    visits: Array


@dataclass(slots=True, eq=False)
class Frame:
    """What runs once in each lane."""

    size: int  # the number of lanes
    events: list[Calls | Turns | Visits] = field(default_factory=list)  # in order; each in some lanes

    def count(self, *, visits: bool = True) -> Array:
        """Return how many calls each lane makes; those of visits are counted or not."""
        total = np.zeros(self.size, np.int32)
        for event in self.events:
            match event:
                case Calls():
                    made: Array | int = 1
                case Turns(_, body, turns):
                    made = _sums(body.count(visits=visits), turns)
                case Visits(_, recursion, visited):
                    made = recursion.calls.take(visited) if visits else 0
            _add(total, event.lanes, made)
        return total

    def run(self, clock: Array, times: Array | None) -> None:
        """Run the events, each lane from its time in `clock` on; visits get delays, calls their `times`."""
        for event in self.events:
            now = clock
            if event.lanes is not None and (times is not None or not isinstance(event, Calls)):
                now = clock.take(event.lanes)
            match event:
                case Calls(_, first):
                    spent: Array | int = 1
                    if times is not None:
                        times[first : first + len(now)] = now
                case Turns(_, body, turns):
                    each = body.count()
                    before, ends, some = np.cumsum(each, dtype=np.int32) - each, np.cumsum(turns), turns > 0
                    start = now[some] - before[(ends - turns)[some]]
                    body.run(before + np.repeat(start, turns[some]), times)
                    spent = _sums(each, turns)
                case Visits(_, recursion, visits):
                    recursion.delays[visits] = now
                    spent = recursion.calls.take(visits)
            _add(clock, event.lanes, spent)


class Recursion:
    """The visits of a recursive function: what each does, and ``low: [visits]``, the first in its subtree."""

    def __init__(self, frame: Frame, low: Array) -> None:
        self.frame, self.low = frame, low
        self.calls = np.zeros(frame.size, np.int32)  # of each visit and those below it
        # the time from the start of the visit around each, or if there is none, of the example, to its own
        self.delays = np.zeros(frame.size, np.int32)

    def count(self) -> None:
        """Count the calls, and find the delays of all visits within others; all events are noted."""
        sums = np.zeros(self.frame.size + 1, np.int32)
        np.cumsum(self.frame.count(visits=False), out=sums[1:])
        self.calls = sums[1:] - sums.take(self.low)
        self.frame.run(np.zeros(self.frame.size, np.int32), None)

    def end(self, times: Array) -> None:
        """Find the times of all calls; the delays of all visits are known."""
        # the visits around v are those from v on whose subtrees begin at v or before
        late = np.flatnonzero(self.delays)
        weights = self.delays.take(late)
        begun = np.bincount(self.low.take(late), weights, self.frame.size).cumsum()  # as floats
        begun -= np.cumsum(self.delays, dtype=np.int64)
        self.frame.run(begun.astype(np.int32) + self.delays, times)


def _add(total: Array, lanes: Lanes, amount: Array | int) -> None:
    if lanes is None:
        total += amount
    else:
        total[lanes] += amount


def _sums(values: Array, lengths: Array) -> Array:
    """Return the sums of neighbouring values, as many as each length says."""
    sums = np.zeros(len(values) + 1, np.int32)
    np.cumsum(values, out=sums[1:])
    ends = np.cumsum(lengths)
    result: Array = sums[ends] - sums[ends - lengths]
    return result


@dataclass(slots=True)
class CallColumns:
    """Calls of a cell, by one statement, and what each is given."""

    first: int  # the number of the first call
    size: int  # how many calls there are
    arguments: list[Array]  # per argument the references, per sequence the lists' lengths
    elements: list[ListColumn]
    feeds: list[Column]
    labels: list[ObjectColumn]


class CallLog:
    """What statements leave behind: per cell its calls, each of which reserves `width` references; links."""

    def __init__(self, cells: int, width: int) -> None:
        self.width = width
        self.calls = 0
        self.parts: list[list[CallColumns]] = [[] for _ in range(cells)]
        self.links: dict[int, Array] = {}  # what they refer to, by the first of those that were made together
        self.linked = 0
        self.recursions: list[Recursion] = []

    def new_links(self, size: int) -> Array:
        """Return references to new links."""
        first, self.linked = self.linked, self.linked + size
        self.links[first] = np.zeros(size, np.int32)
        return ~np.arange(first, self.linked, dtype=np.int32)

    def link(self, references: Array, targets: Array) -> None:
        """Say what links refer to; the references are those of one `new_links`."""
        if len(references):
            self.links[int(~references[0])][:] = targets

    def follow(self) -> Array:
        """Return the references that links stand for: of calls alone."""
        links = np.concatenate([np.zeros(0, np.int32), *self.links.values()])
        while len(open_ := np.flatnonzero(links < 0)):
            links[open_] = links[~links[open_]]  # half as far each time
        return links


@dataclass(slots=True, eq=False)
class Scope:
    """The variables that some lanes of a frame see."""

    run: CallLog
    frame: Frame
    lanes: Lanes  # of the frame
    size: int  # how many these are
    outer: Scope | None = None  # around this one, within the same function
    chosen: Lanes = None  # where its lanes stand in the outer scope
    function: Any = None  # the recursion that is under way
    names: dict[str, Column] = field(default_factory=dict)
    seen: dict[str, Column] = field(default_factory=dict)
    appended: dict[str, tuple[Column, ...]] = field(default_factory=dict)
    result: list[Column] | None = None
    refuses: bool = False  # whether the program raises an error here

    def has(self, name: str) -> bool:
        """Return whether a variable is known."""
        return name in self.names or (self.outer is not None and self.outer.has(name))

    def read(self, name: str) -> Column:
        """Return a variable's column."""
        if name in self.names:
            return self.names[name]
        if name not in self.seen:
            if self.outer is None:
                raise Refused(f"a variable of the tracing program has no column: {name}")
            self.seen[name] = kinds.take(self.outer.read(name), self.chosen)
        return self.seen[name]

    def values(self, name: str) -> Array:
        """Return a variable's references."""
        column = self.read(name)
        if not isinstance(column, np.ndarray):
            raise Refused("it passes an object on where columns hold tensors only")
        return column

    def make_calls(self) -> Array:
        """Make a call in each lane; return references to their first values."""
        run, first = self.run, self.run.calls
        run.calls += self.size
        if run.calls * run.width > MOST:
            raise Refused("there are too many calls for one batch")
        self.frame.events.append(Calls(self.lanes, first))
        return np.arange(first * run.width, run.calls * run.width, run.width, dtype=np.int32)

    def among(self, chosen: Array) -> Scope:
        """Return a scope of some of the lanes."""
        if len(chosen) == self.size:
            return Scope(self.run, self.frame, self.lanes, self.size, self, None, self.function)
        lanes = chosen if self.lanes is None else self.lanes[chosen]
        return Scope(self.run, self.frame, lanes, len(chosen), self, chosen, self.function)

    def gather(self, branches: list[Scope]) -> None:
        """Take over what branches have assigned, each in its lanes."""
        ending = [branch for branch in branches if not branch.refuses]
        self.refuses = not ending
        if any(self.has(name) for branch in branches for name in branch.names):
            raise Refused("a variable changes in some cases only")
        filled = [branch for branch in ending if branch.size] or ending[:1]
        for name in filled[0].names if filled else ():
            if len(filled) == 1:
                self.names[name] = filled[0].names[name]
            elif all(name in branch.names for branch in filled):
                parts = [(b.chosen, b.names[name]) for b in filled if b.chosen is not None]
                self.names[name] = kinds.merge(parts, self.size)

    @contextmanager
    def loop(self, turns: Array, assigned: set[str]) -> Iterator[Scope]:
        """Enter a loop, whose lanes are all turns; what its body assigns, if known, goes on to the next."""
        total = int(turns.sum())
        frame = Frame(total)
        self.frame.events.append(Turns(self.lanes, frame, turns))
        origin = np.repeat(np.arange(self.size), turns)
        inside = Scope(self.run, frame, None, total, self, origin, self.function)
        ends, some = np.cumsum(turns), turns > 0
        carried = {name: self.run.new_links(total) for name in sorted(assigned) if self.has(name)}
        for name, links in carried.items():
            inside.names[name] = before = np.concatenate([links[:1], links[:-1]])
            before[(ends - turns)[some]] = self.values(name)[some]
        yield inside
        for name, links in carried.items():
            self.run.link(links, inside.values(name))
            self.names[name] = last = self.values(name).copy()
            last[some] = links[ends[some] - 1]
        for name, items in inside.appended.items():
            self.names[name] = ListColumn(turns, items)


REFUSED = "there is an example that the program refuses"
MOST_NODES = 2_000_000  # of a tree; the program refuses what is deeper


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The functions of the program by name, and the names of those that call themselves."""

    procedures: Mapping[str, Procedure]
    recursive: frozenset[str]

    def run(self, body: tracing.Body, scope: Scope) -> None:
        """Apply statements to the lanes of a scope."""
        for statement in body:
            try:
                self._apply(statement, scope)
            except Refused as refused:
                refused.where = refused.where or statement.blame.where
                raise

    def _apply(self, statement: tracing.Statement, scope: Scope) -> None:
        names = scope.names
        match statement:
            case tracing.Assign(_, into, value):
                column = _value(value, scope)
                if len(into) > 1 and not isinstance(column, tuple):
                    raise Refused("it unpacks an object")
                columns = column if len(into) > 1 and isinstance(column, tuple) else (column,)
                names.update(zip(into, columns, strict=True))
            case tracing.Read(_, target, source, key, default):
                otherwise = () if default is None else (default.value,)
                names[target] = kinds.take_item(_value(source, scope), key.value, otherwise)
            case tracing.Apply(_, str() as target, function, (argument,), None):
                names[target] = kinds.apply(function.value, _value(argument, scope))
            case tracing.Apply(_, None):  # a check, which fails
                scope.refuses = True
                if scope.size:
                    raise Refused(REFUSED)
            case tracing.Limit(_, source, count):
                column = _value(source, scope)
                data = column.compact().objects if isinstance(column, ObjectColumn) else ()
                if not {*map(type, data)} <= {list, tuple} or (kinds.lengths_of(column) > count).any():
                    raise Refused(REFUSED)
            case tracing.Append(_, to, value):
                _append(scope, to, value)
            case tracing.Call():
                _call(statement, scope)
            case tracing.Invoke(_, results, name, arguments):
                found = self.visit(scope, name, [_value(argument, scope) for argument in arguments])
                names.update(zip(results, found, strict=True))
            case tracing.Return(_, values):
                scope.result = [_value(value, scope) for value in values]
            case tracing.Branch(_, test, bodies):
                self._branch(test, bodies, scope)
            case tracing.Loop(_, _, item, source, body):
                turns, items = kinds.items_of(_value(source, scope))
                assigned = {name for each in tracing.statements_of(body) for name in each.targets}
                with scope.loop(turns, assigned) as inside:
                    inside.names[item] = items
                    self.run(body, inside)
            case _:
                kind = type(statement).__name__
                told = (
                    f"{kind} of {statement.function.name}" if isinstance(statement, tracing.Apply) else kind
                )
                raise Refused(f"columns do not know this kind of statement: {told}")

    def _branch(self, test: Any, bodies: tuple[tracing.Body, ...], scope: Scope) -> None:
        match test:
            case tracing.Case(target, table, key):
                chosen = scope.names[target] = _cases(table, _value(key, scope), len(bodies) - 1)
            case tracing.Present(objects):
                present = [_present(_value(x, scope)) for x in objects]
                chosen = np.where(np.logical_and.reduce(present), 0, 1)
            case _:
                raise Refused("it chooses by what columns cannot tell")
        branches = [scope.among(np.flatnonzero(chosen == number)) for number in range(len(bodies))]
        for branch, body in zip(branches, bodies, strict=True):
            self.run(body, branch)
        scope.gather(branches)

    def visit(self, scope: Scope, name: str, arguments: list[Column]) -> list[Column]:
        """Return the results of a function, called in each lane of a scope."""
        function, around = self.procedures[name], scope.function
        if function.memo:
            arguments = [*map(kinds.unstored, arguments)]
            if any(
                isinstance(x, ObjectColumn) and not set(map(type, x.objects)) <= {*ATOMS} for x in arguments
            ):
                raise Refused("an object that may stand in several places is visited once for all of them")
        if name not in self.recursive:
            inner = Scope(scope.run, scope.frame, scope.lanes, scope.size, function=around)
            return self._results(function, inner, arguments)
        tree = arguments[0] if len(arguments) == 1 else None
        if isinstance(tree, ObjectColumn) and not scope.size:  # nothing is visited
            tree = NodeColumn(around.forest if around else kinds.Forest([]), np.zeros(0, np.int64), 1)
        if not isinstance(tree, NodeColumn):
            raise Refused("a recursion reads something else than one tree")
        if around is None:
            return self._enter(function, scope, tree)
        if around.name != name or around.forest is not tree.forest or tree.depth != 1:
            raise Refused("a recursion calls another one, or goes on to a node that is no child")
        scope.frame.events.append(Visits(scope.lanes, around.recursion, tree.index))
        around.visited.append(tree.index)
        return [links[tree.index] for links in around.links]

    def _results(self, function: Procedure, scope: Scope, arguments: list[Column]) -> list[Column]:
        scope.names.update(zip(function.names, arguments, strict=True))
        self.run(function.body, scope)
        assert scope.result is not None, "every function returns"
        return scope.result

    def _enter(self, function: Procedure, scope: Scope, tops: NodeColumn) -> list[Column]:
        """Apply a function that recurs to all nodes of some trees."""
        run, forest = scope.run, tops.forest
        if forest.most > MOST_NODES:
            raise Refused("a tree is so large that it may be deeper than the program allows")
        recursion = Recursion(Frame(forest.size), forest.first)
        run.recursions.append(recursion)
        links = [run.new_links(forest.size) for _ in function.results]
        visiting = Visiting(function.name, forest, links, recursion)
        inner = Scope(run, recursion.frame, None, forest.size, function=visiting)
        results = self._results(function, inner, [NodeColumn(forest, forest.nodes)])
        for references, column in zip(links, results, strict=True):
            if not isinstance(column, np.ndarray):
                raise Refused("a recursion returns an object", function.path)
            run.link(references, column)
        visited = np.concatenate([tops.index, *visiting.visited])
        reached = np.zeros(forest.size, bool)
        reached[visited] = True
        if len(visited) != forest.size or not reached.all():
            raise Refused("a recursion does not visit each node once")
        recursion.count()
        scope.frame.events.append(Visits(scope.lanes, recursion, tops.index))
        return [references[tops.index] for references in links]


@dataclass(slots=True, eq=False)
class Visiting:
    """A recursion while its function is applied."""

    name: str  # of the function
    forest: kinds.Forest  # the trees; each node is a lane
    links: list[Array]  # per result, references to the links of all lanes
    recursion: Recursion
    visited: list[Array] = field(default_factory=list)  # the lanes that are visited from others


def _value(expression: tracing.Expression, scope: Scope) -> Column:
    match expression:
        case str(name):
            return scope.read(name)
        case tracing.CallOutput(call, _, number):
            return scope.values(call) + np.int32(number)
        case None:  # what nobody reads
            return np.zeros(scope.size, np.int32)
        case tracing.Count(of):
            return kinds.of_numbers(kinds.lengths_of(_value(of, scope)))
        case tracing.Listed(()):
            return ListColumn(np.zeros(scope.size, np.int64), ())
        case tracing.Tuple(items):
            return tuple(_value(item, scope) for item in items)
    raise Refused(f"columns do not know this kind of value: {type(expression).__name__}")


def _append(scope: Scope, to: str, value: tracing.Expression) -> None:
    outer = scope.outer
    if outer is None or scope.frame is outer.frame or not isinstance(outer.names.get(to), ListColumn):
        raise Refused("it appends to a list in another loop")
    found = _value(value, scope)
    columns = found if isinstance(value, tracing.Tuple) and isinstance(found, tuple) else (found,)
    if len(columns) > 1 and not all(isinstance(column, np.ndarray) for column in columns):
        raise Refused("it makes a list of tuples of objects")
    scope.appended[to] = columns


def _call(call: tracing.Call, scope: Scope) -> None:
    first = scope.run.calls
    scope.names[call.target] = scope.make_calls()
    if call.draft is None:
        return
    counts = [tracing.Count(datum.value) for datum in call.lists]
    arguments = [_numbers(_value(x, scope)) for x in (*call.arguments, *counts)]
    elements = [_checked(_value(x.value, scope), ListColumn) for x in call.lists]
    of_data = np.ndarray, ObjectColumn, kinds.StoredColumn
    feeds = [_checked(_value(x.value, scope), *of_data) for x in call.feeds]
    labels = [_checked(kinds.unstored(_value(x.value, scope)), ObjectColumn) for x in call.labels]
    scope.run.parts[call.draft.number].append(
        CallColumns(first, scope.size, arguments, elements, feeds, labels)
    )


def _checked(column: Column, *allowed: type) -> Any:
    if not isinstance(column, allowed):
        raise Refused("it reads a node of a tree, or a list, as a whole")
    return column


def _numbers(column: Column) -> Array:
    """Return references, or the lengths of lists."""
    found = column.codes if isinstance(column, ObjectColumn) and type(column.objects) is range else column
    if not isinstance(found, np.ndarray):
        raise Refused("it passes an object to a cell")
    return found


def _cases(table: tracing.Constant, keys: Column, miss: int) -> Array:
    """Return the numbers of the cases for keys."""
    keys = kinds.unstored(keys)
    if not isinstance(keys, ObjectColumn):
        raise Refused("it chooses by a node as a whole")
    if not kinds.are_immutable([*keys.objects, *table.value]):  # others may note who compares
        raise Refused("it chooses by an object that may change")
    return np.array([table.value.get(key, miss) for key in keys.objects], np.int32)[keys.codes]


def _present(column: Column) -> Array:
    match column:
        case ObjectColumn(codes, objects):
            return np.array([x is not None for x in objects], bool)[codes]
        case kinds.StoredColumn(store, rows):
            return np.ones(len(rows), bool) if store.absent is None else ~store.absent[rows]
        case NodeColumn() | ListColumn():
            return np.ones(len(kinds.lengths_of(column)), bool)
    raise Refused("it asks whether a tensor is None")
