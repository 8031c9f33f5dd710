"""Printing: the tracing program as the text of Python functions that call each other.

A function has one argument more: how many calls within calls there may be. Where there may be none, `deeper`
goes on. There are two spellings: that which users see, whose lines tell errors, and the *fast* one, in which
nodes of trees are asked for their attributes and for the list of their children. To ask a node for an item
takes a call, which costs as much as all else that is done at a visit.

==================  ===========================================================
as users see it     fast
==================  ===========================================================
``t = x['token']``  ``t = x.token if type(x) is Node else x['token']``
``t = x[1]``        ``t = below_x[1]``, the list of a node's children, or ``x``
``v = draw(); ..``  ``v = call1(t1, t2, data)``, one call that notes all
==================  ===========================================================
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from typing import Any

from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.purity import is_pure
from foldbatch.blocks.tracing import (
    Append,
    Apply,
    Assign,
    Blame,
    Body,
    Branch,
    Call,
    CallOutput,
    Case,
    Constant,
    Count,
    Cut,
    Datum,
    Expression,
    Filled,
    Invoke,
    InvokeWalk,
    Limit,
    Listed,
    Loop,
    Present,
    Read,
    Return,
    Spread,
    Statement,
    Tuple,
    ZipLists,
    names_of,
    statements_of,
)
from foldbatch.errors import ExampleKeyError
from foldbatch.model.columns import as_now, items_once
from foldbatch.model.drafts import Draft
from foldbatch.trees.tree import BELOW, Node

CHAIN = 4  # bodies that are tried one after the other
MANY_VARIABLES = 100  # of a function: Python makes room for all at each call, 8 us for 1,200
DEEPER, REMAINING = "deeper", "left"  # names in functions
KINDS = "has_identity"  # the table of kinds, see `memo`
ITEM_OR, NOW, ITEMS = "item_or", "as_now", "items_of"
DRAW, CALL = "draw", "call"  # the function that takes a number; those that note calls, with their numbers
NODE = "Node"  # the class of nodes
# variables: whether an argument is a node, and the list of its children
IS_NODE, BELOW_NODE = "node_", "below_"
FIELDS = ("label", "token", "is_leaf")  # items that nodes have as attributes
NODE_KEYS = (*FIELDS, "children")
TREE, KIDS = "tree", "kids"  # globals of an example that is a tree: itself, and the children of its root


def item_or(data: Any, key: Any, default: object) -> Any:
    """Return an item, or the default where there is none."""
    try:
        return data[key]
    except ExampleKeyError:  # a field that no tree has
        raise
    except (KeyError, IndexError):
        return default


def items(data: object) -> Any:
    """Return the items of a part of an example: of a node the list of its children, which no user may see."""
    return (type(data) is Node and getattr(data, BELOW)) or items_once(data)


# globals that functions need
TOOLS: dict[str, object] = {ITEM_OR: item_or, NOW: as_now, ITEMS: items, NODE: Node}


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A tracing program as text."""

    source: str  # the text
    blames: Mapping[int, Blame]  # by the number of a line, the parts of an error there


def text(expression: Expression) -> str:
    """Return an expression of a tracing program as Python's text for it.

    >>> text(Tuple(("t1", CallOutput("v2", 0, 1), Count("list3"))))
    '(t1, v2 + 1, len(list3))'
    """
    return _Printer({}).text(expression)


def program_text(functions: Sequence[Procedure], *, fast: bool = False) -> ProgramText:
    """Return a tracing program as the text of Python functions, with the parts of errors for each line.

    With `fast`, it is the fast spelling: nodes are asked for attributes, a function that has many variables
    uses names again (`shared_names`), and a function for each cell notes calls; compiled functions may take
    the places of these.
    """
    by_name = {function.name: function for function in functions}
    lines: list[tuple[str, Blame | None]] = []
    changing = changes(functions)
    for function in functions:
        names = shared_names(function) if fast else {}
        children = lists_of_children(function) if fast else frozenset()
        printer = _Printer(by_name, changing, names, fast, children)
        lines += [*printer.function(function), ("", None)]
    if fast:
        for call in calls_of(functions):
            lines += [*_Printer({}).noter(call), ("", None)]
    blames = {number: blame for number, (_, blame) in enumerate(lines, 1) if blame is not None}
    return ProgramText("\n".join(line for line, _ in lines), blames)


def calls_of(functions: Sequence[Procedure]) -> list[Call]:
    """Return a statement that calls each cell."""
    statements = (s for function in functions for s in statements_of(function.body))
    calls = {s.draft.number: s for s in statements if isinstance(s, Call) and s.draft is not None}
    return [*calls.values()]


def lists_of_children(function: Procedure) -> frozenset[str]:
    """Return the variables that hold the children of a node, or what stands there, and that no user is given.

    They may hold the list that the node itself has.
    """
    statements = [*statements_of(function.body)]
    read = {s.target for s in statements if isinstance(s, Read) and s.key.value == "children"}
    reads = [s.reads for s in statements if not isinstance(s, Read | Loop | Limit | Branch)]
    return frozenset(read.difference(*map(names_of, chain.from_iterable(reads))))


def nodes_among(function: Procedure) -> dict[str, bool]:
    """Return the parameters of which items are read that nodes have, and whether any is read by number."""
    named, numbered = set[Expression](), set[Expression]()
    for statement in statements_of(function.body):
        match statement:
            case Read(_, _, source, Constant(_, int()), None) | Limit(_, source):
                numbered.add(source)
            case Read(_, _, source, Constant(_, str() as key), None) if key in NODE_KEYS:
                named.add(source)
    return {name: name in numbered for name in function.objects if name in named | numbered}


def changes(functions: Sequence[Procedure]) -> bool:
    """Return whether functions of the user make data: they may write to an array returned before."""
    statements = [s for function in functions for s in statements_of(function.body)]
    reads = chain.from_iterable(s.reads for s in statements if not isinstance(s, Branch))
    read = {name for expression in reads for name in names_of(expression)}
    makers = [s.function.value for s in statements if isinstance(s, Apply) and s.target in read]
    return not all(map(is_pure, makers))


def levels_of(count: int) -> list[int]:
    """Return how far each of some bodies is indented beside the first choice, in order."""
    return [levels for levels, _, number in _choice("", 0, count) if number is not None]


def shared_names(function: Procedure) -> dict[str, str]:
    """Return other names for a function's variables, if there are many, so that cases share them.

    A variable belongs to the innermost case that has all of it.
    """
    # by variable, that case behind those around it
    places: dict[str, tuple[Body, ...]] = dict.fromkeys(function.names, ())
    assigned, taken, names = set[str](), Counter[tuple[int, ...]](), dict[str, str]()

    def visit(body: Body, around: tuple[Body, ...]) -> None:
        """Note for each variable the innermost case that has all its uses."""
        for statement in body:
            assigned.update(statement.targets)
            for name in chain(statement.targets, *map(names_of, statement.reads)):
                pairs = zip(places.get(name, around), around, strict=False)
                places[name] = tuple([case for case, _ in takewhile(lambda pair: pair[0] is pair[1], pairs)])
            for inner in statement.bodies:
                visit(inner, (*around, inner) if isinstance(statement, Branch) else around)

    visit(function.body, ())
    for name in sorted(places, key=lambda name: len(places[name])) if len(assigned) > MANY_VARIABLES else ():
        cases = tuple(map(id, places[name]))
        if cases and name in assigned:
            names[name] = f"own{sum(taken[cases[:depth]] for depth in range(1, len(cases) + 1))}"
            taken[cases] += 1
    return names


@dataclass(slots=True)
class _Printer:
    """Prints the functions of a tracing program."""

    functions: Mapping[str, Procedure]  # those of the tracing program, by name
    changing: bool = False  # whether functions of the user make data
    other_names: Mapping[str, str] = field(default_factory=dict)  # other names of variables
    fast: bool = False  # whether nodes are asked for attributes
    children: frozenset[str] = frozenset()  # the variables of `lists_of_children`
    # arguments of the present function that may be nodes, and whether items of them are read by number
    arguments: dict[str, bool] = field(default_factory=dict)
    # the variables of arrays that functions of the user make for a call, and how many axes it reads of them
    array_axes: dict[str, int] = field(default_factory=dict)

    # -- functions

    def function(self, function: Procedure) -> Iterator[tuple[str, Blame | None]]:
        """Yield the lines of a function of the tracing program, each with the parts of its errors.

        A function with a memo looks its objects up first, and returns the result of an earlier call.
        """
        self.array_axes = self._made_arrays(function) if self.changing else {}
        name, names, objects = function.name, function.names, function.objects
        yield f"def {name}({', '.join([*names, REMAINING])}):", None
        yield f"    if not {REMAINING}: return {DEEPER}({', '.join([name, *names])})", None
        self.arguments = nodes_among(function) if self.fast else {}
        for argument, by_number in self.arguments.items():
            yield f"    {IS_NODE}{argument} = type({argument}) is {NODE} or {argument} is {TREE}", None
            if by_number:
                yield f"    {BELOW_NODE}{argument} = {self.below(argument)}", None
        if function.memo and objects:
            memo = f"memo_{function.name}"
            ids = [f"id({x})" if x in objects else x for x in names]
            have_identity = " or ".join(f"{KINDS}[type({x})]" for x in objects)
            *statements, last = function.body
            assert isinstance(last, Return), "a function returns at its end"
            key = (
                f"({have_identity}) and ({', '.join(ids)})"
                if len(ids) > 1
                else f"{have_identity} and {ids[0]}"
            )
            yield f"    key = {key}", None
            yield f"    if key and key in {memo}: return {memo}[key][0]", None
            yield from self.body(tuple(statements), 1)
            # the objects too are kept: the id of one that is freed may become that of another
            yield f"    result = {self.text(Tuple(last.values))}", last.blame
            yield f"    if key: {memo}[key] = result, {', '.join(objects)}", None
            yield "    return result", None
        else:
            yield from self.body(function.body, 1)

    def body(self, body: Body, depth: int) -> Iterator[tuple[str, Blame | None]]:
        """Yield the lines of statements, indented."""
        indent = "    " * depth
        if not body:
            yield f"{indent}pass", None
        for statement in body:
            match statement:
                case Branch(blame, test, cases):
                    yield from self.branch(blame, test, cases, depth)
                case Loop(blame, index, item, source, inner):
                    yield f"{indent}for {self.names(index, item)} in enumerate({self.items(source)}):", blame
                    yield from self.body(inner, depth + 1)
                case _:
                    yield from ((indent + line, blame) for line, blame in self.lines(statement))

    def branch(
        self, blame: Blame, test: Case | Present | Filled, cases: Sequence[Body], depth: int
    ) -> Iterator[tuple[str, Blame | None]]:
        """Yield the lines of a choice and of its bodies, indented."""
        indent = "    " * depth
        match test:
            case Case(target, table, key):
                chosen = self.names(target)
                choice = f"{chosen} = {self.text(table)}.get({self.text(key)}, {len(cases) - 1})"
                yield indent + choice, blame
                for levels, header, number in _choice(chosen, 0, len(cases)):
                    yield "    " * (depth + levels) + header, None
                    if number is not None:
                        yield from self.body(cases[number], depth + levels + 1)
                return
            case Present(objects):
                header = " and ".join(f"{self.text(x)} is not None" for x in objects)
            case Filled(of):
                header = self.text(of)
        yield f"{indent}if {header}:", blame
        yield from self.body(cases[0], depth + 1)
        yield f"{indent}else:", None
        yield from self.body(cases[1], depth + 1)

    def lines(self, statement: Statement) -> Iterator[tuple[str, Blame]]:
        """Yield the lines of a statement without bodies."""
        blame = statement.blame
        match statement:
            case Assign(_, into, value):
                yield f"{self.names(*into)} = {self.text(value)}", blame
            case Read() | Apply():
                target = f"{self.names(statement.target)} = " if statement.target else ""
                yield (
                    target + _now(self.value(statement), self.array_axes.get(statement.target or "", 0)),
                    blame,
                )
            case Limit(_, source, count, function):
                check = f"{function.name}({self.text(source)}, {count})"
                if self.fast and isinstance(source, str):
                    quick_check = f"{self.is_node(source)} and len({self.items_of(source)}) <= {count}"
                    check = f"if not ({quick_check}): {check}"
                yield check, blame
            case ZipLists(_, target, names, sources, element):
                lists = ", ".join(map(self.text, sources))
                items = f"{self.text(element)} for {self.names(*names)}, in zip({lists})"
                yield f"{self.names(target)} = [{items}]", blame
            case Append(_, to, value):
                yield f"{self.names(to)}.append({self.text(value)})", blame
            case Call():
                yield from self.call(statement)
            case Invoke(_, results, name, arguments):
                call = f"{name}({''.join(f'{self.text(x)}, ' for x in arguments)}{REMAINING} - 1)"
                yield (f"{self.names(*results)}, = {call}" if results else call), blame
            case InvokeWalk(_, results, function, arguments):
                call = f"{function.name}({', '.join(map(self.text, arguments))})"
                yield (f"{self.names(*results)}, = {call}" if results else call), blame
            case Return(_, values):
                yield f"return {self.text(Tuple(values))}", blame
            case _:
                raise AssertionError(statement)

    def call(self, call: Call) -> Iterator[tuple[str, Blame]]:
        """Yield the lines that draw a call's number and append its row, elements, feeds and labels.

        In the fast text, they call the function of `noter`.
        """
        target = self.names(call.target)
        if call.draft is None:
            yield f"{target} = {DRAW}()", call.blame
            return
        k, counts = call.draft.number, tuple(Count(datum.value) for datum in call.lists)
        if self.fast:
            texts = [self.text(x) for x in (*call.arguments, *(datum.value for datum in call.lists))]
            texts += [self.noted(d.value, call.draft, "feed", i) for i, d in enumerate(call.feeds)]
            texts += [self.text(datum.value) for datum in call.labels]
            arguments = ", ".join(text for text in texts if text != target)  # it knows the call's own number
            yield f"{target} = {CALL}{k}({arguments})", call.blame
            return
        row = self.text(Tuple((call.target, *call.arguments, *counts)))
        yield f"{target} = {DRAW}(); row{k}({row})", call.blame
        for kind, data in (("elements", call.lists), ("feed", call.feeds), ("label", call.labels)):
            for i, datum in enumerate(data):
                yield f"{kind}{k}_{i}({self.noted(datum.value, call.draft, kind, i)})", datum.blame

    def noter(self, call: Call) -> Iterator[tuple[str, None]]:
        """Yield the lines of a function that notes calls of a cell, given one; it returns their numbers."""
        assert call.draft is not None, "it calls a cell"
        places = itertools.count()

        def renamed(data: tuple[Datum, ...]) -> tuple[Datum, ...]:
            """Return data whose variables have the names of parameters, but for the number of the call."""
            names = [datum.value if datum.value == call.target else f"x{next(places)}" for datum in data]
            return tuple([replace(datum, value=name) for datum, name in zip(data, names, strict=True)])

        arguments = tuple([f"x{next(places)}" for _ in call.arguments])
        lists, feeds, labels = renamed(call.lists), renamed(call.feeds), renamed(call.labels)
        names = ", ".join(f"x{place}" for place in range(next(places)))
        yield f"def {CALL}{call.draft.number}({names}):", None
        renamed_call = replace(call, arguments=arguments, lists=lists, feeds=feeds, labels=labels)
        for line, _ in self.call(renamed_call):
            yield f"    {line}", None
        yield f"    return {call.target}", None

    # -- expressions

    def text(self, expression: Expression) -> str:
        """Return an expression as text."""
        match expression:
            case str(name):
                return self.names(name)
            case CallOutput(call, _, number):
                return f"{self.names(call)} + {number}" if number else self.names(call)
            case Tuple(items):
                inner = ", ".join(map(self.text, items))
                return f"({inner},)" if len(items) == 1 else f"({inner})"
            case Listed(items):
                return f"[{', '.join(map(self.text, items))}]"
            case Count(of):
                return f"len({self.text(of)})"
            case Cut(of, key):
                return f"{self.text(of)}[{self.text(key)}]"
            case Spread(name):
                return f"*{self.names(name)}"
            case Constant(name, value):
                return name or repr(value)
        return "None"

    def names(self, *variables: str) -> str:
        """Return the names of variables in the text, separated by commas."""
        return ", ".join([self.other_names.get(name, name) for name in variables])

    def is_node(self, expression: Expression) -> str:
        """Return the test whether a variable holds a node; that of an argument is made once in a function."""
        name = self.text(expression)
        if expression in self.arguments:
            return f"{IS_NODE}{name}"
        return f"(type({name}) is {NODE} or {name} is {TREE})"

    def below(self, name: str, otherwise: str = "") -> str:
        """Return the children of the node or tree that a variable holds; of another object what is read."""
        object_ = self.text(name)
        item = otherwise or object_
        of_node = f"{KIDS} if {object_} is {TREE} else {object_}.{BELOW} or {item}"
        return f"({of_node}) if {self.is_node(name)} else {item}"

    def items_of(self, name: str) -> str:
        """Return the object whose items are those of a variable's object, but are read faster."""
        return f"{BELOW_NODE}{self.text(name)}" if self.arguments.get(name) else f"({self.below(name)})"

    def items(self, expression: Expression) -> str:
        """Return the sequence of a loop; a list keeps the items that an iterator has yielded."""
        text = self.text(expression)
        return f"{ITEMS}({text})" if isinstance(expression, str) else text

    def noted(self, value: Expression, draft: Draft, kind: str, i: int) -> str:
        """Return a datum as calls note it; a copy if a function of the user may write to it later."""
        now = self.changing and kind == "feed" and value not in self.array_axes
        return _now(self.text(value), len(draft.feeds[i][1].type.shape) if now else 0)

    def _made_arrays(self, function: Procedure) -> dict[str, int]:
        """Return the variables of data that functions of the user make for cells, with their axes."""
        statements = [*statements_of(function.body)]
        applied = {s.target for s in statements if isinstance(s, Apply) and s.target}
        return {
            datum.value: len(feed.type.shape)
            for s in statements
            if isinstance(s, Call) and s.draft is not None
            for datum, (_, feed) in zip(s.feeds, s.draft.feeds, strict=True)
            if isinstance(datum.value, str) and datum.value in applied
        }

    def value(self, statement: Read | Apply) -> str:
        """Return the right side of a read or of a function's call."""
        if isinstance(statement, Apply):
            return f"{self.text(statement.function)}({', '.join(map(self.text, statement.arguments))})"
        source, key = self.text(statement.source), self.text(statement.key)
        if statement.default is not None:
            return f"{ITEM_OR}({source}, {key}, {self.text(statement.default)})"
        item, name = f"{source}[{key}]", statement.key.value
        if not self.fast or not isinstance(statement.source, str):
            return item
        if type(name) is str and name in FIELDS:
            return f"{source}.{name} if {self.is_node(statement.source)} else {item}"
        if statement.target in self.children:
            return self.below(statement.source, item)
        if type(name) is int and statement.source not in self.children:
            return f"{self.items_of(statement.source)}[{key}]"
        return item


def _now(text: str, axes: int) -> str:
    return f"{NOW}({text}, {axes})" if axes else text


def _choice(chosen: str, start: int, stop: int, levels: int = 0) -> Iterator[tuple[int, str, int | None]]:
    """Yield the headers that lead to bodies by their numbers, `start` or more and below `stop`.

    Each comes with its indentation and, if the body follows it, the body's number. The numbers are cut in
    halves, so it takes the logarithm of their count to choose one.
    """
    if stop - start > CHAIN:
        middle = (start + stop) // 2
        yield levels, f"if {chosen} < {middle}:", None
        yield from _choice(chosen, start, middle, levels + 1)
        yield levels, "else:", None
        yield from _choice(chosen, middle, stop, levels + 1)
        return
    for number in range(start, stop - 1):
        yield levels, f"{'elif' if number > start else 'if'} {chosen} == {number}:", number
    yield levels, "else:", stop - 1
