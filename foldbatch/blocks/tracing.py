"""The tracing program as data: functions of a few kinds of statements that walk one example.

Blocks make statements through the builder. Readers see their fields: `pruned` leaves out statements without
a reader, and `printing` spells them as Python functions. A new kind of statement names the fields that it
reads, assigns and changes. Pruning needs nothing more of it.

A variable is a name. At run time it holds an object of the example, the number of a value, or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias

from foldbatch.model.drafts import Draft

Place: TypeAlias = "tuple[str, ...]"  # how to find an object from the function's argument, to be formatted
Body: TypeAlias = "tuple[Statement, ...]"


class Part:
    """A statement, or a part of one: a frozen record of parts, tuples of parts, and plain data."""

    __slots__ = ()


# -- expressions


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Part):
    """An object that is known when the tracing program is made."""

    name: str  # the name that it has in the tracing program; empty if its literal stands there
    value: Any  # the object


@dataclass(frozen=True, slots=True)
class CallOutput(Part):
    """The number of an output of a cell's call; `call` is the variable of the call's own number."""

    call: str
    cell: int
    number: int


@dataclass(frozen=True, slots=True)
class Tuple(Part):
    """A tuple."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Listed(Part):
    """A new list."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Count(Part):
    """The length of a list or an object."""

    of: Expression


@dataclass(frozen=True, slots=True)
class Cut(Part):
    """A slice of a list."""

    of: Expression
    key: Constant


@dataclass(frozen=True, slots=True)
class Spread(Part):
    """The items of a tuple, put into another one."""

    of: str


# A variable, an expression of variables, or None for a value without a reader.
Expression: TypeAlias = "str | Constant | CallOutput | Tuple | Listed | Count | Cut | Spread | None"


def names_of(expression: Expression) -> Iterator[str]:
    """Yield the variables in an expression, as often as they stand there.

    >>> [*names_of(Tuple(("a", CallOutput("v1", 0, 1), Count("a"), None)))]
    ['a', 'v1', 'a']
    """
    match expression:
        case str():
            yield expression
        case CallOutput(call):
            yield call
        case Tuple(items) | Listed(items):
            for item in items:
                yield from names_of(item)
        case Count(of) | Cut(of) | Spread(of):
            yield from names_of(of)


# -- statements


@dataclass(frozen=True, slots=True)
class Blame:
    """The parts of an error that a statement may cause: block, object and expectation."""

    where: str  # the block that the statement is for
    subject: Expression = None  # the object that it looks at
    place: Place = ()  # where that is found
    expected: str = ""  # the property that it must have for the statement to succeed
    calls: str = ""  # the function of the user that is called
    item: str = ""  # the name of the item of the object that is read, if its key is a text


@dataclass(frozen=True, slots=True, eq=False)
class Statement(Part):
    """A statement of the tracing program; `ASSIGNS`, `READS` and `CHANGES` name fields of variables."""

    blame: Blame  # the parts of its errors

    ASSIGNS: ClassVar[tuple[str, ...]] = ()
    READS: ClassVar[tuple[str, ...]] = ()
    CHANGES: ClassVar[tuple[str, ...]] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """The variables that it assigns."""
        return self._values_of(self.ASSIGNS)

    @property
    def reads(self) -> tuple[Expression, ...]:
        """The expressions that it reads."""
        return self._values_of(self.READS)

    @property
    def changes(self) -> tuple[str, ...]:
        """The variables whose lists it changes."""
        return self._values_of(self.CHANGES)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The statements under it."""
        return ()

    def _values_of(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the values of fields as one tuple; those that are tuples item by item, without None."""
        contents = [getattr(self, name) for name in names]
        return tuple(
            [x for part in contents for x in (part if isinstance(part, tuple) else (part,)) if x is not None]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Statement):
    """Gives variables values, all at once; several variables and no `Tuple`: the items of the value."""

    ASSIGNS, READS = ("into",), ("value",)
    into: tuple[str, ...]
    value: Expression

    @property
    def pairs(self) -> list[tuple[str, Expression]]:
        """The variables with their values, where each has its own expression."""
        if isinstance(self.value, Tuple) and len(self.value.items) == len(self.into) > 1:
            return list(zip(self.into, self.value.items, strict=True))
        return [(self.into[0], self.value)] if len(self.into) == 1 else []


@dataclass(frozen=True, slots=True, eq=False)
class Read(Statement):
    """Reads an item of an object or a list; `default`, if any, stands for one that an object lacks."""

    ASSIGNS, READS = ("target",), ("source",)
    target: str
    source: Expression
    key: Constant
    default: Constant | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Apply(Statement):
    """Calls a Python function. Without a target it is a check, which raises an error or does nothing."""

    ASSIGNS, READS, CHANGES = ("target",), ("arguments",), ("changed",)
    target: str | None
    function: Constant
    arguments: tuple[Expression, ...]
    changed: str | None = None  # the variable whose list it changes


@dataclass(frozen=True, slots=True, eq=False)
class Limit(Statement):
    """Checks that an object has at most `count` items, by a function of the object and the count."""

    READS = ("source",)
    source: Expression
    count: int
    function: Constant


@dataclass(frozen=True, slots=True, eq=False)
class ZipLists(Statement):
    """Makes a list of `element` for the items of several lists, side by side, cut to the shortest."""

    ASSIGNS, READS = ("target", "names"), ("sources", "element")
    target: str
    names: tuple[str, ...]
    sources: tuple[Expression, ...]
    element: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Append(Statement):
    """Puts a value at the end of a list."""

    READS, CHANGES = ("to", "value"), ("to",)
    to: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Datum(Part):
    """A part of the example that a call reads."""

    value: Expression
    blame: Blame


@dataclass(frozen=True, slots=True, eq=False)
class Call(Statement):
    """Calls a cell; without a draft it only draws a number from the counter of calls."""

    ASSIGNS = ("target",)
    target: str  # the variable of the call's number
    draft: Draft | None = None  # the cell
    arguments: tuple[Expression, ...] = ()  # the numbers of its operands
    lists: tuple[Datum, ...] = ()  # the sequences that it reads, with the parts of errors about them
    feeds: tuple[Datum, ...] = ()  # `feeds`, `labels`: the data that it reads, and the labels of its metrics
    labels: tuple[Datum, ...] = ()

    @property
    def reads(self) -> tuple[Expression, ...]:
        data = [*self.lists, *self.feeds, *self.labels]
        return (*self.arguments, *(datum.value for datum in data if datum.value != self.target))


@dataclass(frozen=True, slots=True, eq=False)
class _Invocation(Statement):
    """Calls a function, which yields several results."""

    ASSIGNS, READS = ("results",), ("arguments",)
    results: tuple[str, ...]
    function: Any
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Invoke(_Invocation):
    """Calls a function of the tracing program."""

    function: str


@dataclass(frozen=True, slots=True, eq=False)
class InvokeWalk(_Invocation):
    """Calls a Python function that may note calls of cells; `foldbatch.functions` makes and runs it."""

    function: Constant


@dataclass(frozen=True, slots=True)
class Case(Part):
    """Chooses a body by a key: its number in a table, or else the last body. `target` holds the number."""

    target: str
    table: Constant
    key: Expression


@dataclass(frozen=True, slots=True)
class Present(Part):
    """Chooses the first body where no object is None, else the second."""

    objects: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Filled(Part):
    """Chooses the first body where a list has items, else the second."""

    of: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Branch(Statement):
    """Runs one of several bodies."""

    test: Case | Present | Filled
    cases: tuple[Body, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.test.target,) if isinstance(self.test, Case) else ()

    @property
    def reads(self) -> tuple[Expression, ...]:
        match self.test:
            case Case(key=read) | Filled(read):
                return (read,)
            case Present(objects):
                return objects

    @property
    def bodies(self) -> tuple[Body, ...]:
        return self.cases


@dataclass(frozen=True, slots=True, eq=False)
class Loop(Statement):
    """Runs its body for each item of a sequence; `index` holds the item's place."""

    ASSIGNS, READS = ("index", "item"), ("source",)
    index: str
    item: str
    source: Expression
    body: Body

    @property
    def bodies(self) -> tuple[Body, ...]:
        return (self.body,)


@dataclass(frozen=True, slots=True, eq=False)
class Return(Statement):
    """Ends a function with its results."""

    READS = ("values",)
    values: tuple[Expression, ...]


# -- all of it


def statements_of(body: Body) -> Iterator[Statement]:
    """Yield statements and all that stand under them, in order."""
    for statement in body:
        yield statement
        for inner in statement.bodies:
            yield from statements_of(inner)


def constants_of(part: object) -> Iterator[Constant]:
    """Yield the constants that have names in a part, or a tuple of parts."""
    match part:
        case Constant(name):
            if name:
                yield part
        case tuple():
            for item in part:
                yield from constants_of(item)
        case Part():
            for field in fields(part):  # type: ignore[arg-type]  # parts are dataclasses
                yield from constants_of(getattr(part, field.name))


GONE: object = object()  # returned by a change for a statement that is left out


def changed(part: object, change: Callable[[Part], object]) -> Any:
    """Return a part changed by a function, as all parts in it, innermost first."""
    if isinstance(part, tuple):
        return tuple([new for item in part if (new := changed(item, change)) is not GONE])
    if not isinstance(part, Part):
        return part
    before = {field.name: getattr(part, field.name) for field in fields(part)}  # type: ignore[arg-type]
    after = {name: changed(value, change) for name, value in before.items()}
    new = {name: value for name, value in after.items() if value is not before[name]}
    return change(replace(part, **new) if new else part)  # type: ignore[type-var]
