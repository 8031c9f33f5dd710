"""Printing: the tracing program as the text of Python functions that call each other.

A function has one argument more: how many calls within calls there may be. Where there may be none, `deeper`
goes on. There are two spellings: that which users see, whose lines tell errors; and *by number*, on trees: a
variable holds the number of a node in the place of the node, and items are read from lists of the tree's
fields.

====================================  =========================================================
on nodes                              by number
====================================  =========================================================
``t = x['token']``                    ``t = tokens[x]``
``t = x['is_leaf']``                  ``t = (not kids[x])``
``t = x[1]``                          ``t = kids[x][1]``
``t, = run_tree(x, left - 1)``        ``t, = run_tree_by_0(x, left - 1)``
``t = is_leaf(x)``                    ``t = by_arity_is_leaf[len(kids[x])]``, while its code is the same
``t = fn(x)``                         ``t = fn(node(x))``
====================================  =========================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from types import FunctionType
from typing import Any

from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.purity import reads_arity, reads_of
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

CHAIN = 4  # bodies that are tried one after the other
MANY_VARIABLES = 100  # of a function: Python makes room for all at each call, 8 us for 1,200
DEEPER, REMAINING = "deeper", "left"  # names in functions
KINDS = "has_identity"  # the table of kinds, see `memo`
ITEM_OR, TABLE, CODE, NOW, ITEMS = "item_or", "by_arity_", "code_of_", "as_now", "items_of"
LISTS = {"label": "labels", "token": "tokens"}  # of a tree
FIELDS = ("kids", "node", *LISTS.values())  # globals that belong to the tree being read


def item_or(data: Any, key: Any, default: Any) -> Any:
    """Return an item, or the default where there is none."""
    try:
        return data[key]
    except ExampleKeyError:  # a field that no tree has
        raise
    except (KeyError, IndexError):
        return default


# globals that functions need
TOOLS: dict[str, Any] = {ITEM_OR: item_or, NOW: as_now, ITEMS: items_once}


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


def program_text(functions: Sequence[Procedure], *, shared: bool = False) -> ProgramText:
    """Return a tracing program as the text of Python functions, with the parts of errors for each line.

    With `shared`, a function that has many variables uses names again, see `shared_names`.
    """
    by_name = {function.name: function for function in functions}
    lines: list[tuple[str, Blame | None]] = []
    changing = changes(functions)
    for function in functions:
        printer = _Printer(by_name, changing, other_names=shared_names(function) if shared else {})
        lines += [*printer.function(function, function.name), ("", None)]
    return _text(lines)


def by_number(functions: Sequence[Procedure]) -> tuple[str, str, list[Constant]]:
    """Return a tracing program on trees as text, the name of its first function, and its tabled functions.

    The first function is given the number of a node. The text is empty where it gains nothing. Tabled are the
    functions of the user that are looked up by the number of children, as long as their code does not change.
    """
    by_name = {function.name: function for function in functions}
    first: tuple[str, tuple[bool, ...]] = (functions[0].name, (True,))
    texts: dict[tuple[str, tuple[bool, ...]], list[tuple[str, Blame | None]]] = {}
    wanted, gains, tabled, changing = [first], False, list[Constant](), changes(functions)
    while wanted:
        name, is_number = wanted.pop()
        if (name, is_number) not in texts:
            function = by_name[name]
            printer = _Printer(by_name, changing, tabled, shared_names(function))
            printer.find_numbers(function, is_number)
            texts[name, is_number] = [*printer.function(function, _named(name, is_number)), ("", None)]
            wanted += printer.invoked
            gains |= printer.gains
    text = _text([*chain.from_iterable(texts.values())]).source if gains else ""
    return text, _named(*first), tabled


def changes(functions: Sequence[Procedure]) -> bool:
    """Return whether functions of the user make data: they may write to an array returned before."""
    statements = [s for function in functions for s in statements_of(function.body)]
    reads = chain.from_iterable(s.reads for s in statements if not isinstance(s, Branch))
    read = {name for expression in reads for name in names_of(expression)}
    makers = [s.function.value for s in statements if isinstance(s, Apply) and s.target in read]
    return any(isinstance(reads_of(function), str) for function in makers)


def levels_of(count: int) -> list[int]:
    """Return how far each of some bodies is indented beside the first choice, in order."""
    return [levels for levels, _, number in _choice("", 0, count) if number is not None]


def _text(lines: Sequence[tuple[str, Blame | None]]) -> ProgramText:
    blames = {number: blame for number, (_, blame) in enumerate(lines, 1) if blame is not None}
    return ProgramText("\n".join(line for line, _ in lines), blames)


def _named(name: str, is_number: Sequence[bool]) -> str:
    """Return the name of a function for calls in which some arguments are numbers of nodes."""
    return "_".join([name, "by", *(str(place) for place, number in enumerate(is_number) if number)])


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
    # gets the functions of the user that are looked up by the number of children
    tabled: list[Constant] = field(default_factory=list)
    other_names: Mapping[str, str] = field(default_factory=dict)  # other names of variables
    numbers: set[str] = field(default_factory=set)  # the variables that hold numbers of nodes
    lists: set[str] = field(default_factory=set)  # those that hold lists of numbers, the children of a node
    # gets the functions that are called with numbers, and which of their arguments these are
    invoked: list[tuple[str, tuple[bool, ...]]] = field(default_factory=list)
    gains: bool = False  # whether it reads lists of a tree's fields
    # the variables of arrays that functions of the user make for a call, and how many axes it reads of them
    array_axes: dict[str, int] = field(default_factory=dict)

    # -- functions

    def function(self, function: Procedure, name: str) -> Iterator[tuple[str, Blame | None]]:
        """Yield the lines of a function of the tracing program, each with the parts of its errors.

        A function with a memo looks its objects up first, and returns the result of an earlier call.
        """
        self.array_axes = self._made_arrays(function) if self.changing else {}
        names, objects = function.names, function.objects
        yield f"def {name}({', '.join([*names, REMAINING])}):", None
        yield f"    if not {REMAINING}: return {DEEPER}({', '.join([name, *names])})", None
        memo = f"memo_{function.name}" if function.memo else ""
        if memo and not self.numbers.issuperset(objects):  # nodes are not looked up
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
                at_once = source in self.numbers
                yield (f"if {self.text(Count(source))} > {count}: {check}" if at_once else check), blame
            case ZipLists(_, target, names, sources, element):
                lists = ", ".join(map(self.text, sources))
                items = f"{self.text(element)} for {self.names(*names)}, in zip({lists})"
                yield f"{self.names(target)} = [{items}]", blame
            case Append(_, to, value):
                yield f"{self.names(to)}.append({self.text(value)})", blame
            case Call():
                yield from self.call(statement)
            case Invoke(_, results, name, arguments):
                call = f"{self.invoke(name, arguments)}{REMAINING} - 1)"
                yield (f"{self.names(*results)}, = {call}" if results else call), blame
            case InvokeWalk(_, results, function, arguments):
                call = f"{function.name}({', '.join(map(self.text, arguments))})"
                yield (f"{self.names(*results)}, = {call}" if results else call), blame
            case Return(_, values):
                yield f"return {self.text(Tuple(values))}", blame
            case _:
                raise AssertionError(statement)

    def call(self, call: Call) -> Iterator[tuple[str, Blame]]:
        """Yield the lines that draw a call's number and append its row, elements, feeds and labels."""
        target = self.names(call.target)
        if call.draft is None:
            yield f"{target} = call()", call.blame
            return
        k, counts = call.draft.number, tuple(Count(datum.value) for datum in call.lists)
        row = self.text(Tuple((call.target, *call.arguments, *counts)))
        yield f"{target} = call(); row{k}({row})", call.blame
        for kind, data in (("elements", call.lists), ("feed", call.feeds), ("label", call.labels)):
            for i, datum in enumerate(data):
                yield f"{kind}{k}_{i}({self.noted(datum.value, call.draft, kind, i)})", datum.blame

    def invoke(self, name: str, arguments: Sequence[Expression]) -> str:
        """Return the call of a function, up to its last argument, with the comma before it."""
        is_number = tuple(x in self.numbers for x in arguments)
        function = self.functions[name]
        if function.memo:  # its objects are looked up all or none
            pairs = zip(is_number, function.names, strict=True)
            is_number = is_number if all(number for number, name in pairs if name in function.objects) else ()
        if not any(is_number):
            return f"{name}({''.join(f'{self.text(x)}, ' for x in arguments)}"
        self.invoked.append((name, is_number))
        numbered = zip(arguments, is_number, strict=True)
        texts = [self.names(str(x)) if number else self.text(x) for x, number in numbered]
        return f"{_named(name, is_number)}({', '.join(texts)}, "

    # -- expressions

    def text(self, expression: Expression) -> str:
        """Return an expression as text; numbers of nodes become nodes."""
        match expression:
            case str(name) if name in self.numbers:
                return f"node({self.names(name)})"
            case str(name) if name in self.lists:
                return f"[*map(node, {self.names(name)})]"
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
                return f"len({self.sequence(of)})"
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

    def sequence(self, expression: Expression) -> str:
        """Return the list that an expression holds; of a node, the numbers of its children."""
        if isinstance(expression, str) and expression in self.numbers:
            self.gains = True
            return f"kids[{self.names(expression)}]"
        if isinstance(expression, str) and expression in self.lists:
            return self.names(expression)
        return self.text(expression)

    def items(self, expression: Expression) -> str:
        """Return the sequence of a loop; a list keeps the items that an iterator has yielded."""
        is_variable = isinstance(expression, str) and expression not in self.numbers | self.lists
        return f"{ITEMS}({self.sequence(expression)})" if is_variable else self.sequence(expression)

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
        """Return the right side of a read or of a function's call; fields of trees come from lists."""
        if isinstance(statement, Read):
            source, key = statement.source, statement.key
            if statement.target in self.lists:
                return self.sequence(source)
            if statement.target in self.numbers:
                return f"{self.sequence(source)}[{self.text(key)}]"
            field = type(key.value) is str and key.value in LISTS
            if source in self.numbers and field and statement.default is None:
                self.gains = True
                return f"{LISTS[key.value]}[{self.names(str(source))}]"
            if source in self.numbers and key.value == "is_leaf" and statement.default is None:
                return f"(not {self.sequence(source)})"
            if statement.default is not None:
                return f"{ITEM_OR}({self.text(source)}, {self.text(key)}, {self.text(statement.default)})"
            return f"{self.text(source)}[{self.text(key)}]"
        function, arguments = statement.function, statement.arguments
        call = f"{self.text(function)}({', '.join(map(self.text, arguments))})"
        if len(arguments) != 1 or arguments[0] not in self.numbers or not reads_arity(function.value):
            return call
        arity = self.text(Count(arguments[0]))
        if function.value is len:
            return arity
        self.tabled.append(function)
        looked_up = f"{TABLE}{function.name}[{arity}]"
        if type(function.value) is not FunctionType:  # its code cannot change
            return looked_up
        return f"({looked_up} if {function.name}.__code__ is {CODE}{function.name} else {call})"

    # -- trees

    def find_numbers(self, function: Procedure, is_number: Sequence[bool]) -> None:
        """Find which variables hold numbers, and lists of numbers: those that are assigned once."""
        names = function.names
        statements = [*statements_of(function.body)]
        assigned = Counter(chain(names, *(statement.targets for statement in statements)))
        self.numbers = {x for x, number in zip(names, is_number, strict=True) if number and assigned[x] == 1}
        size = -1
        while size < (size := len(self.numbers) + len(self.lists)):
            for statement in statements:
                match statement:
                    case Read(_, target, source, Constant(_, "children"), None) if source in self.numbers:
                        kind = self.lists
                    case Read(_, target, source, Constant(_, int() as key), None) if type(key) is int:
                        kind = self.numbers
                    case Loop(_, _, target, source):
                        kind = self.numbers
                    case _:
                        continue
                if source in self.numbers | self.lists and assigned[target] == 1:
                    kind.add(target)


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
