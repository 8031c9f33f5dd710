"""Numbers of loops while these are translated: LLVM's values with their kind, and operations on them.

There are no implicit conversions: operands of one operation are of one kind, but for plain Python numbers,
which take the kind of the other operand. Whole numbers wrap around; ``u8`` and ``u1`` are unsigned, and so
are truths. Sums and products of floats may be contracted to one instruction; else each rounds as it is
written.

Importing this needs llvmlite.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from llvmlite import ir

# llvmlite has no types
Emitted: TypeAlias = Any  # a value, a type, a block or a function of LLVM
Builder: TypeAlias = Any  # what writes LLVM's instructions into a block
LoopFunction: TypeAlias = Any  # an `Instruction` as loops see it: a function of numbers and pointers
Number: TypeAlias = Any  # the result of one; in plain Python, a number of NumPy

I32, I64 = ir.IntType(32), ir.IntType(64)
TYPES: dict[str, Emitted] = {
    "f4": ir.FloatType(),
    "f8": ir.DoubleType(),
    "i4": I32,
    "i8": I64,
    "u1": ir.IntType(8),
    "u8": I64,
    "b1": ir.IntType(1),
}
NUMBERS = I64.as_pointer()
CONTRACTED = ("contract",)  # the only freedom for floats: a product and a sum may be rounded once, together


@dataclass(frozen=True, slots=True)
class Typed:
    """The value of an expression."""

    kind: str  # one of `TYPES`; of a pointer, ``*`` and the kind of its numbers
    at: Emitted  # the value in LLVM


class LoopModule(ir.Module):  # type: ignore[misc]  # llvmlite has no types
    """A module of LLVM whose functions are of the loop language.

    `flags` are those of its sums and products of floats: `CONTRACTED`, or none where each rounds as written.
    """

    def __init__(self, name: str, *, rounded: bool = False) -> None:
        super().__init__(name)
        self.flags = () if rounded else CONTRACTED


Operand = Typed | bool | int | float  # a plain number has no kind yet


@dataclass(frozen=True, slots=True)
class Instruction:
    """A function that a text may call, and that writes instructions in place of a call."""

    # it takes LLVM's builder and the arguments, and returns the result, if there is one
    write: Callable[..., Typed | None]


def convert(builder: Builder, operand: Operand, kind: str) -> Typed:
    """Return an operand, converted to a kind; a plain number becomes a constant of it."""
    if not isinstance(operand, Typed):
        return Typed(kind, _constant(operand, kind))
    source = operand.kind
    at = operand.at
    type_ = TYPES[kind]
    if source.startswith("*"):
        raise TypeError(f"expected a number, found a pointer to convert to {kind}")
    if source == kind:
        return operand
    if kind == "b1":
        return compare(builder, "!=", operand, 0)
    match is_float(source), is_float(kind):
        case True, True:
            at = builder.fpext(at, type_) if kind == "f8" else builder.fptrunc(at, type_)
        case True, False:
            at = _to_integer(builder, at, type_) if kind[0] == "i" else builder.fptoui(at, type_)
        case False, True:
            at = builder.sitofp(at, type_) if source[0] == "i" else builder.uitofp(at, type_)
        case _ if type_.width < at.type.width:
            at = builder.trunc(at, type_)
        case _ if type_.width > at.type.width:
            at = builder.sext(at, type_) if source[0] == "i" else builder.zext(at, type_)
    return Typed(kind, at)


def _to_integer(builder: Builder, at: Emitted, type_: Emitted) -> Emitted:
    """Return a float as a signed integer, as `ops.elementwise.cast_into` does."""
    signature = ir.FunctionType(type_, [at.type])
    function = builder.module.declare_intrinsic("llvm.fptosi.sat", [type_, at.type], signature)
    return builder.call(function, [at])


def _constant(number: float, kind: str) -> Emitted:
    """Return LLVM's constant of a plain number; an integer wraps around."""
    if is_float(kind):
        return ir.Constant(TYPES[kind], float(number))
    if kind == "b1":
        return ir.Constant(TYPES[kind], int(bool(number)))
    if isinstance(number, float):
        raise TypeError(f"expected a whole number for {kind}, found {number}")
    width = TYPES[kind].width
    integer = int(number) % 2**width  # LLVM reads the upper half as negative
    return ir.Constant(TYPES[kind], integer - 2**width * (integer >= 2 ** (width - 1)))


def is_float(kind: str) -> bool:
    """Whether numbers of a kind are floats."""
    return kind[0] == "f"


def alike(builder: Builder, *operands: Operand) -> list[Typed]:
    """Return operands converted to their common kind; only plain numbers are converted.

    Raises:
        TypeError: when their kinds differ, or all of them are plain numbers.
    """
    kinds = {operand.kind for operand in operands if isinstance(operand, Typed)}
    if len(kinds) != 1:
        raise TypeError(f"expected operands of one kind, found {sorted(kinds) or operands}")
    (kind,) = kinds
    return [convert(builder, operand, kind) for operand in operands]


def compare(builder: Builder, symbol: str, lhs: Operand, rhs: Operand) -> Typed:
    """Return whether a comparison holds; with NaN none but ``!=`` does."""
    if (isinstance(lhs, Typed) and lhs.kind == "b1") or (isinstance(rhs, Typed) and rhs.kind == "b1"):
        lhs, rhs = (convert(builder, x, "u1") for x in (lhs, rhs))
    a, b = alike(builder, lhs, rhs)
    if is_float(a.kind):
        write = builder.fcmp_unordered if symbol == "!=" else builder.fcmp_ordered
    else:
        write = builder.icmp_signed if a.kind[0] == "i" else builder.icmp_unsigned
    return Typed("b1", write(symbol, a.at, b.at))


SYMBOLS: dict[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
FLOAT_WRITERS: dict[type, str] = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
WHOLE_WRITERS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.LShift: "shl",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
}
UNSIGNED_WRITERS = WHOLE_WRITERS | {ast.FloorDiv: "udiv", ast.Mod: "urem", ast.RShift: "lshr"}
TRUTH_WRITERS: dict[type, str] = {ast.BitAnd: "and_", ast.BitOr: "or_"}
PLAIN: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def arithmetic(builder: Builder, sign: ast.operator, lhs: Operand, rhs: Operand) -> Operand:
    """Return the result of a binary operator; of two plain numbers it is a plain number.

    Raises:
        TypeError: when the kinds of the operands differ, or have no such operator.
    """
    if not isinstance(lhs, Typed) and not isinstance(rhs, Typed):
        result: Operand = PLAIN[type(sign)](lhs, rhs)
        return result
    a, b = alike(builder, lhs, rhs)
    if is_float(a.kind):
        return Typed(
            a.kind, getattr(builder, FLOAT_WRITERS[type(sign)])(a.at, b.at, flags=builder.module.flags)
        )
    writers = {"b": TRUTH_WRITERS, "u": UNSIGNED_WRITERS, "i": WHOLE_WRITERS}[a.kind[0]]
    if type(sign) not in writers:
        raise TypeError(f"expected an operator for {a.kind}, found {type(sign).__name__}")
    if isinstance(sign, ast.FloorDiv | ast.Mod):
        return _divided(builder, writers[type(sign)], a, b)
    return Typed(a.kind, getattr(builder, writers[type(sign)])(a.at, b.at))


def _divided(builder: Builder, writer: str, a: Typed, b: Typed) -> Typed:
    """Return a quotient or a remainder; both are 0 if the divisor is 0, where processors would trap."""
    by_zero = compare(builder, "==", b, 0).at
    divisor = builder.select(by_zero, b.at.type(1), b.at)
    return Typed(a.kind, builder.select(by_zero, a.at.type(0), getattr(builder, writer)(a.at, divisor)))


def negative(builder: Builder, operand: Operand) -> Operand:
    """Write the negation of a number."""
    if not isinstance(operand, Typed):
        return -operand
    if is_float(operand.kind):
        return Typed(operand.kind, builder.fneg(operand.at, flags=builder.module.flags))
    return Typed(operand.kind, builder.neg(operand.at))


def absolute(builder: Builder, operand: Typed) -> Typed:
    """Return the absolute value of a number."""
    if is_float(operand.kind):
        return intrinsic(builder, "llvm.fabs", operand)
    if operand.kind[0] != "i":
        return operand
    below = compare(builder, "<", operand, 0)
    return Typed(operand.kind, builder.select(below.at, builder.neg(operand.at), operand.at))


def intrinsic(builder: Builder, name: str, *operands: Typed) -> Typed:
    """Return the result of one of LLVM's intrinsic functions, whose operands and result are of one kind."""
    type_ = operands[0].at.type
    signature = ir.FunctionType(type_, [type_] * len(operands))
    function = builder.module.declare_intrinsic(name, [type_], signature)
    return Typed(operands[0].kind, builder.call(function, [operand.at for operand in operands]))


def further(builder: Builder, pointer: Typed, elements: Typed | int) -> Typed:
    """Return the pointer to an element that comes so many elements later."""
    at = elements.at if isinstance(elements, Typed) else I64(elements)
    return Typed(pointer.kind, builder.gep(pointer.at, [at]))


def extreme(symbol: str) -> Instruction:
    """Return the function that chooses the lesser (``<``) or greater (``>``) of two integers."""

    def write(builder: Builder, lhs: Operand, rhs: Operand) -> Typed:
        a, b = alike(builder, lhs, rhs)
        if is_float(a.kind):
            raise TypeError("expected whole numbers for min and max, found floats: say what to do with NaN")
        return Typed(a.kind, builder.select(compare(builder, symbol, a, b).at, a.at, b.at))

    return Instruction(write)


def _fetch(builder: Builder, pointer: Typed) -> None:
    place = builder.bitcast(pointer.at, ir.IntType(8).as_pointer())
    name = "llvm.prefetch.p0"
    wanted = ir.FunctionType(ir.VoidType(), [place.type, I32, I32, I32])
    function = builder.module.globals.get(name) or ir.Function(builder.module, wanted, name=name)
    builder.call(function, [place, I32(0), I32(3), I32(1)])  # to read, to keep, data


# ask for the memory at a pointer, which will be read or written soon
fetch: LoopFunction = Instruction(_fetch)
