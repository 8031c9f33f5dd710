"""The text of one kernel: what it is told of a launch, and how it names rows and elements of slots.

Every kernel of a routine has the parameters ``table, launch, level``: the address of a batch's packed table
(see `steps`), where its launch's row lies in that table, and where the level's bounds. Names in the text:

==============  =====================================================================================
``t``, ``o``    the table, and the launch's row in it; ``ints`` its numbers of 32 bits
``start``       the first call of the level, by rank; ``calls`` how many calls there are
``live``        the numbers of the level's rows that are calls, and then of the others; 0 where calls come
                first. Only a level of several, between which there is room, has such; ``live2`` of elements
``g2``          of segments slot 2: where each call's elements begin; ``first2`` the level's first element,
                ``rows2`` how many there are
``s3``          slot 3: its row 0 of the level, or where ``at3`` is not 0, row 0 of the arena
``at3``         the arena's row of each row of slot 3, as an index array; 0 where rows follow each other
``p3``          the row of slot 3 that is being computed
``r``           the number of that row in the level
``lane``        the first element that a thread computes of a row; the next ones are ``lanes`` apart
==============  =====================================================================================

Bodies of ops are written in the language of ``device.h``; `foldbatch.static.bodies` says what they mean.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import numpy as np

from foldbatch.engines.launch import HEAD, Fields
from foldbatch.static.bodies import applied
from foldbatch.static.graph import Node
from foldbatch.static.op import CALL, Axis, Op
from foldbatch.static.places import Place
from foldbatch.static.routines import Target
from foldbatch.static.statements import Routine

KINDS = {"float32": "f4", "float64": "f8", "int32": "i4", "int64": "i8", "bool": "b1"}  # by dtype
SUFFIX = {"f4": "f", "f8": ""}  # of the functions of math.h
UNSIGNED = {"i4": "u4", "i8": "u8"}  # whole numbers wrap around, which C says of unsigned ones alone
POWERS = {0.5: "sqrt{f}({x})", 1.0: "{x}", 2.0: "{x} * {x}", -1.0: "({k})1 / {x}"}  # as NumPy spells them
_NAMES = "abs copysign cos exp floor fmod log log1p pow rint sigmoid sin sqrt tanh"
FUNCTIONS = frozenset(_NAMES.split(" "))  # of floats of one kind; abs also of whole numbers
SYMBOLS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitOr: "|",
    ast.BitAnd: "&",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

TARGET = Target(FUNCTIONS, dtypes=frozenset(KINDS), rows_apart=True)


class Term(NamedTuple):
    """An expression of C and the kind of its value; of a plain number the kind is empty."""

    text: str
    kind: str
    number: float = 0


def term(node: ast.expr, names: Mapping[str, Term]) -> Term:
    """Return an expression of a body.

    Args:
        node: the expression.
        names: what its names and elements are. A conversion to the kind of a name is a call of that name.

    >>> x = Term("x", "i4")
    >>> term(ast.parse("a if a < 0 else a + 1", mode="eval").body, {"a": x}).text
    '((x < (0)) ? x : ((i4)((u4)x + (u4)(1))))'
    """
    match node:
        case ast.Constant(value=int() | float() as value):
            return Term("", "", value)
        case ast.Name() | ast.Subscript():
            return names[ast.unparse(node)]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            x = term(inner, names)
            if not x.kind:
                return x._replace(number=-x.number)
            unsigned = UNSIGNED.get(x.kind)
            return Term(f"(({x.kind})-({unsigned}){x.text})" if unsigned else f"(-{x.text})", x.kind)
        case ast.BinOp(left=lhs, op=sign, right=rhs):
            x, y = _alike(term(lhs, names), term(rhs, names))
            symbol, unsigned = SYMBOLS[type(sign)], UNSIGNED.get(x.kind)
            if unsigned:
                return Term(f"(({x.kind})(({unsigned}){x.text} {symbol} ({unsigned}){y.text}))", x.kind)
            return Term(f"({x.text} {symbol} {y.text})", x.kind)
        case ast.Compare(left=lhs, ops=[sign], comparators=[rhs]):
            x, y = _alike(term(lhs, names), term(rhs, names))
            return Term(f"({x.text} {SYMBOLS[type(sign)]} {y.text})", "b1")
        case ast.IfExp(test=test, body=body, orelse=otherwise):
            x, y = _alike(term(body, names), term(otherwise, names))
            return Term(f"({term(test, names).text} ? {x.text} : {y.text})", x.kind)
        case ast.Call(func=ast.Name(id=name), args=[inner]) if name not in FUNCTIONS:
            return converted(term(inner, names), names[name].kind if name in names else name)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _function(name, _alike(*(term(argument, names) for argument in arguments)))
    raise TypeError(f"expected an expression of a body, found {ast.unparse(node)}")


def _alike(*terms: Term) -> list[Term]:
    kind = next((x.kind for x in terms if x.kind), "")
    return [x if x.kind or not kind else Term(number(x.number, kind), kind) for x in terms]


def _function(name: str, terms: Sequence[Term]) -> Term:
    """Return a call of a function of the body language."""
    x, kind = terms[0], terms[0].kind
    texts = ", ".join(operand.text for operand in terms)
    match name:
        case "sigmoid":
            return Term(f"sigmoid_{kind}({texts})", kind)
        case "abs" if kind in UNSIGNED:
            return Term(f"({x.text} < 0 ? ({kind})-({UNSIGNED[kind]}){x.text} : {x.text})", kind)
        case "abs":
            return Term(f"fabs{SUFFIX[kind]}({texts})", kind)
        case "pow" if terms[1].number in POWERS:
            return Term(f"({POWERS[terms[1].number].format(x=x.text, k=kind, f=SUFFIX[kind])})", kind)
    return Term(f"{name}{SUFFIX[kind]}({texts})", kind)


def converted(x: Term, kind: str) -> Term:
    """Return a term converted to a kind of number."""
    if kind == x.kind:
        return x
    if not x.kind:
        return Term(number(x.number, kind), kind)
    if kind == "b1":
        return Term(f"({x.text} != 0)", kind)
    if kind in UNSIGNED and x.kind in SUFFIX:
        return Term(f"{kind}_of_{x.kind}({x.text})", kind)
    return Term(f"(({kind}){x.text})", kind)


@cache
def _computed(
    body: str, kinds: tuple[str, ...], kind: str, attrs: tuple[tuple[str, float], ...]
) -> list[str]:
    """Return the lines of an elementwise body, with operands and a mark to be filled in, the value last."""
    names = {f"x{i}": Term(f"{{x{i}}}", k) for i, k in enumerate(kinds)} | {"t": Term("", kind)}
    names |= {name: Term(number(value, kind), kind, value) for name, value in attrs}
    *before, last = applied(body, len(kinds))
    lines = []
    for line in before:
        assert isinstance(line, ast.Assign), f"{body} has a line that names nothing"
        name, value = ast.unparse(line.targets[0]), term(line.value, names)
        lines.append(f"{'' if name in names else f'{value.kind} '}{name}{{mark}} = {value.text};")
        names[name] = Term(f"{name}{{mark}}", value.kind)
    assert isinstance(last, ast.Expr), f"{body} has no result"
    return [*lines, converted(term(last.value, names), kind).text]


def computed(
    op: Op, dtype: str, operands: Sequence[str], dtypes: Sequence[str], attrs: Mapping[str, object], mark: str
) -> tuple[list[str], str]:
    """Return the lines before, and the expression of, what an elementwise op makes of elements.

    Args:
        op: the op.
        dtype: of its result.
        operands: expressions of the elements; those of bools are 0 or 1.
        dtypes: of the operands.
        attrs: of the op.
        mark: an end of names that nobody else uses.
    """
    numbers = tuple((name, value) for name, value in attrs.items() if isinstance(value, float))
    *lines, value = _computed(op.body, tuple(KINDS[x] for x in dtypes), KINDS[dtype], numbers)
    words = {"mark": mark} | {f"x{i}": operand for i, operand in enumerate(operands)}
    return [line.format(**words) for line in lines], value.format(**words)


def literal(constant: Node) -> str:
    return number(constant.attrs["value"].item(), KINDS[constant.dtype])


def number(value: float, kind: str) -> str:
    """Return a number as text, of a kind of `KINDS`.

    >>> number(0.1, "f4"), number(-np.inf, "f8"), number(-(2**63), "i8"), number(True, "b1")
    ('0.1f', '(-F8_INF)', '(-9223372036854775807ll - 1)', '1')
    """
    if kind in SUFFIX:
        if math.isnan(value):
            return f"({kind.upper()}_INF - {kind.upper()}_INF)"
        if math.isinf(value):
            return f"{kind.upper()}_INF" if value > 0 else f"(-{kind.upper()}_INF)"
        text = f"{float(value)!r}{SUFFIX[kind]}"
        return f"({text})" if text.startswith("-") else text  # -0.0 is one that is not less than 0
    if kind == "b1":
        return str(int(value))
    if value == np.iinfo(np.int64).min:
        return "(-9223372036854775807ll - 1)"
    return f"({int(value)}ll)" if kind == "i8" else f"({int(value)})"


INDEX_AT, ADDRESSES_AT, STATUS_AT, HEADER = 0, 1, 2, 3  # places in the head of a packed table
START, CALLS, LIVE, CAPACITY, LEVEL = 0, 1, 2, 3, 4  # places in the record of a level
ELEMENTS = (
    3  # numbers of each sequence that follow there: how many elements, and `LIVE` and `CAPACITY` of these
)


@dataclass(frozen=True, slots=True)
class Setting:
    """The facts about a routine's cell that the texts of its kernels need."""

    routine: Routine  # the routine
    cell: int  # the number of its cell, which a check of ids tells
    # by slot, how many rows of an arena are one row of the slot; 1 where there is no arena
    widths: Mapping[int, int]
    copied: frozenset[int]  # the slots whose rows are copied together where they do not follow each other
    all_calls: bool = False  # whether its level is all calls of a cell, between which there may be room
    added: Mapping[int, int] = field(default_factory=dict)  # see `parts.Cut`


@dataclass(slots=True)
class KernelText:
    """A kernel's text under way."""

    setting: Setting  # see there
    head: list[str] = field(default_factory=list)  # the lines that hold for the whole launch
    # the slots whose row the statement that is being written reads or writes
    used: dict[int, None] = field(default_factory=dict)
    # by a negative number, rows that are no slot: their name, type, and elements
    virtual: dict[int, tuple[str, str, int]] = field(default_factory=dict)
    _slots: set[int] = field(default_factory=set)
    _axes: set[int] = field(default_factory=set)

    @property
    def routine(self) -> Routine:
        return self.setting.routine

    def kind(self, slot: int) -> str:
        if slot < 0:
            return self.virtual[slot][1]
        stored = self.routine.slots[slot]
        kind = KINDS[stored.type.dtype]
        return stored_kind(kind, self.routine) if stored.binding.kind == "operand" else kind

    def size(self, slot: int) -> int:
        if slot < 0:
            return self.virtual[slot][2]
        return self.routine.slots[slot].type.size

    def grain(self, slot: int) -> int:
        """Return a number of elements that divides what lies before any row of a slot."""
        return self.size(slot) // self.setting.widths.get(slot, 1)

    def item(self, slot: int) -> int:
        return {"f4": 4, "f8": 8, "i4": 4, "i8": 8, "b1": 1, "b2": 2}[self.kind(slot)]

    def rows_at(self, name: str, kind: str, size: int) -> int:
        """Return a number that stands for rows that are no slot: a pointer's name, its type, its elements."""
        number = -1 - len(self.virtual)
        self.virtual[number] = (name, kind, size)
        return number

    # -- rows

    def once(self, line: str) -> None:
        """Compute something before all rows: what it reads of the table is not read again for each row."""
        if line not in self.head:
            self.head.append(line)

    def lower(self, axis: Axis) -> str:
        """Return the first row of the level along an axis."""
        if axis.rank == 0:
            return "0"
        return "start" if axis is CALL else f"first{self.ragged(axis)}"

    def rows(self, axis: Axis) -> str:
        if axis.rank == 0:
            return "1"
        return "calls" if axis is CALL else f"rows{self.ragged(axis)}"

    def ragged(self, axis: Axis) -> int:
        """Declare where the elements of each call's sequence begin; return the number of that slot."""
        number = self.routine.segments[axis]
        if number not in self._axes:
            self._axes.add(number)
            at = LEVEL + ELEMENTS * int(self.routine.slots[number].binding.key)
            self.head += [
                f"const i4* g{number} = ints + {field_of(number, Fields.index)} + start;",
                f"const i8 first{number} = g{number}[0], rows{number} = t[level + {at}];",
            ]
        return number

    def numbered(self, axis: Axis, number: str) -> str:
        """Return the row of the level that comes so many rows after the first, along an axis.

        Beyond those that there are, it returns the ones that there is room for.
        """
        if axis.rank == 0 or not self.setting.all_calls:
            return number
        name, at = "live", LIVE
        if axis is not CALL:
            ragged = self.ragged(axis)
            name, at = f"live{ragged}", LEVEL + ELEMENTS * int(self.routine.slots[ragged].binding.key) + 1
        self.once(f"const i4* {name} = t[level + {at}] ? ints + t[level + {at}] : 0;")
        return f"({name} ? {name}[{number}] : {number})"

    def room(self, axis: Axis) -> str:
        if axis is CALL:
            return f"t[level + {CAPACITY}]"
        return f"t[level + {LEVEL + ELEMENTS * int(self.routine.slots[self.ragged(axis)].binding.key) + 2}]"

    # -- slots

    def slot(self, number: int) -> str:
        """Return the name of a slot's first row of the level."""
        if number not in self._slots:
            self._slots.add(number)
            self.head += self._located(number)
        return f"s{number}"

    def row(self, number: int, row: str) -> str:
        """Return where a row of a slot is."""
        name = self.slot(number)
        slot = self.routine.slots[number]
        if slot.axis.rank == 0:
            return name
        row = f"(at{number} ? at{number}[{row}] : {row})" if self.may_be_apart(number) else f"({row})"
        return f"({name} + {row} * {self.size(number)})"

    def here(self, number: int) -> str:
        """Return where row ``r`` of a slot is."""
        if number < 0:
            return self.virtual[number][0]
        self.slot(number)
        self.used[number] = None
        return f"p{number}"

    def element(self, place: Place, at: Sequence[str], row: str = "") -> str:
        """Return an element of a place, of row ``r`` or another, given its indices."""
        pointer = self.row(place.slot, row) if row else self.here(place.slot)
        return f"{pointer}[{offset_of(place.offset, list(zip(at, place.strides, strict=True)))}]"

    def declared(self, lines: Sequence[str]) -> list[str]:
        """Return a statement's lines with those before them that say where its rows are."""
        pointers = [f"{self.kind(n)}* p{n} = {self.row(n, 'r')};" for n in self.used]
        self.used.clear()
        return [*pointers, *lines]

    def may_be_apart(self, number: int) -> bool:
        """Whether rows of a slot may be read where they lie in an arena, one here and one there."""
        kind = self.routine.slots[number].binding.kind
        return kind in ("operand", "cotangent") and number not in self.setting.copied

    def _located(self, number: int) -> list[str]:
        """Return the lines that declare the rows of a slot."""
        slot = self.routine.slots[number]
        kind, name, size = self.kind(number), f"s{number}", self.size(number)
        base, first = field_of(number, Fields.base), field_of(number, Fields.first)
        match slot.binding.kind:
            case "operand" | "cotangent":
                lower, at = self.lower(slot.axis), f"at{number}"
                copied = f"{first} < 0"
                if slot.binding.kind == "cotangent" and number not in self.setting.copied:
                    copied += f" && {field_of(number, Fields.copies)} >= 0"
                elif number not in self.setting.copied:
                    copied = "0"
                buffer = f"(apart{number} ? {field_of(number, Fields.spare)} : {base})"
                begin = f"({first} < 0 ? 0 : {first} * {self.grain(number)} + {lower} * {size})"
                lines = [
                    f"const int apart{number} = {copied};",
                    f"{kind}* {name} = {buffer_of(kind, buffer)} + {begin};",
                ]
                if self.may_be_apart(number):
                    index = f"ints + {field_of(number, Fields.index)} + {lower}"
                    lines.append(f"const i4* {at} = {first} < 0 && !apart{number} ? {index} : 0;")
                return lines
            case "store":
                stores, lower = field_of(number, Fields.stores), self.lower(slot.axis)
                buffer = f"({stores} ? {base} : {field_of(number, Fields.spare)})"
                begin = f"({stores} ? {first} * {self.grain(number)} + {lower} * {size} : 0)"
                return [f"{kind}* {name} = {buffer_of(kind, buffer)} + {begin};"]
            case "feed" | "kept" if slot.axis.rank:
                begin = f" + {self.lower(slot.axis)} * {size}"
            case _:
                begin = ""
        return [f"{kind}* {name} = {buffer_of(kind, base)}{begin};"]


def stored_kind(kind: str, routine: Routine) -> str:
    """Return the kind as which an arena holds values of a kind: see `foldbatch.engines.cuda.mixed`."""
    return "b2" if kind == "f4" and routine.precision == "mixed" else kind


def field_of(binding: int, number: int) -> str:
    """Return the expression of a field of a binding, in the launch's row."""
    return f"o[{HEAD + Fields.size * binding + number}]"


def buffer_of(kind: str, number: str) -> str:
    """Return the expression of where a buffer begins, as a pointer to numbers of a kind."""
    return f"({kind}*)t[t[{ADDRESSES_AT}] + {number}]"


def offset_of(offset: int, terms: Sequence[tuple[str, int]]) -> str:
    """Return the expression of an element's number: an offset, and indices with their strides.

    >>> offset_of(2, [("i", 1), ("j", 0), ("k", 5)])
    'i + k * 5 + 2'
    """
    parts = [name if stride == 1 else f"{name} * {stride}" for name, stride in terms if stride]
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts)


def indented(lines: Sequence[str], by: int = 1) -> list[str]:
    return [f"{'  ' * by}{line}" for line in lines]
