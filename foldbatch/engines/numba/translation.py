"""Translation: from the texts of loops to LLVM's instructions.

A text is one function in a small part of Python: numbers and pointers of fixed *kinds*, ``if``, ``while``,
``for`` over a range, assignments, and calls. Each variable keeps the kind that it is first given. Nothing is
converted unasked: ``f8(x)`` converts, and operands of one operation are of one kind, but for plain Python
numbers, which take the kind of the other operand. Whole numbers wrap around; ``u8`` and ``u1`` are unsigned,
and so are truths.

What a text may call is told by a *scope*: `Instruction`s, which write instructions themselves, and Python
functions of this language, which are written in place, or one for each kind of the first operand. These have
no loops, and return at their end. Sums and products of floats may be contracted to one instruction; else each
rounds as it is written.

Importing this needs Numba, which brings llvmlite.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import Any

from llvmlite import ir

from foldbatch.engines.numba.numbers import (
    I64,
    NUMBERS,
    SYMBOLS,
    TYPES,
    Instruction,
    Operand,
    Value,
    absolute,
    alike,
    arithmetic,
    compare,
    convert,
    extreme,
    negative,
)


def translate(name: str, text: str, scope: Mapping[str, Any]) -> str:
    """Return LLVM's text of a module with one function, `name`, of two pointers to whole numbers.

    Args:
        name: of the function.
        text: of ``loop(n, x0, x1, ..., s)``, whose first line tells the kinds of what x0, x1 and so on point
            to: ``# f4 i8``. None of this memory overlaps.
        scope: what the text may call, by name.

    The first pointer is to `n` and to the addresses of x0, x1 and so on; the second one is `s`.

    Raises:
        TypeError: when the text converts numbers without saying so, or is not of the language.
    """
    kinds = text.split("\n", 1)[0].removeprefix("#").split()
    (definition,) = ast.parse(text).body
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError(f"expected a function, found {ast.unparse(definition)}")
    module = ir.Module(name)
    pointers = [TYPES[kind].as_pointer() for kind in kinds]
    inner = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64, *pointers, NUMBERS]), "loop")
    inner.linkage = "internal"
    inner.attributes.add("alwaysinline")
    for argument in inner.args[1:]:
        argument.add_attribute("noalias")
    builder = ir.IRBuilder(inner.append_basic_block())
    body = _Body(builder, scope)
    given = [
        Value(kind, at) for kind, at in zip(["u8", *(f"*{k}" for k in kinds), "*i8"], inner.args, strict=True)
    ]
    body.begin(definition, given)
    body.statements(definition.body)
    if not builder.block.is_terminated:
        builder.ret_void()
    outer = ir.Function(module, ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS]), name)
    _call(ir.IRBuilder(outer.append_basic_block()), inner, *outer.args)
    return str(module)


def _call(builder: Any, inner: Any, numbers: Any, statics: Any) -> None:
    """Call a function with what it finds in memory."""
    words = [builder.load(builder.gep(numbers, [I64(i)])) for i in range(len(inner.args) - 1)]
    pointers = [
        builder.inttoptr(word, argument.type)
        for word, argument in zip(words[1:], inner.args[1:-1], strict=True)
    ]
    builder.call(inner, [words[0], *pointers, statics])
    builder.ret_void()


BUILT_IN: dict[str, Any] = {
    "abs": Instruction(absolute),
    "min": extreme("<"),
    "max": extreme(">"),
    **{kind: Instruction(lambda builder, x, kind=kind: convert(builder, x, kind)) for kind in TYPES},
}


@cache
def _definition(function: Callable[..., Any]) -> ast.FunctionDef:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(definition, ast.FunctionDef)
    return definition


class _Body:
    """A function under way."""

    def __init__(self, builder: Any, scope: Mapping[str, Any]) -> None:
        self.builder = builder
        self.scope = scope
        self.variables: dict[str, Value] = {}  # by name: pointers to where they are, with their kind

    def begin(self, definition: ast.FunctionDef, given: Sequence[Operand]) -> None:
        for argument, value in zip(definition.args.args, given, strict=True):
            self.set(argument.arg, value)

    # -- statements

    def statements(self, body: Sequence[ast.stmt]) -> Operand | None:
        """Write statements; return what they return."""
        for statement in body:
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self.assign(target, value)
                case ast.AugAssign(target=target, op=sign, value=value):
                    self.add_to(target, sign, value)
                case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=inside, orelse=[]):
                    self.repeat(name, [self.value(bound) for bound in bounds], inside)
                case ast.While(test=test, body=inside, orelse=[]):
                    self.repeat_while(test, inside)
                case ast.If(test=test, body=inside, orelse=otherwise):
                    self.choose(test, inside, otherwise)
                case ast.Expr(value=ast.Call() as call):
                    self.call(call)
                case ast.Expr(value=ast.Constant()):
                    pass  # a docstring
                case ast.Return(value=None):
                    self.builder.ret_void()
                case ast.Return(value=ast.expr() as value):
                    return self.value(value)
                case _:
                    raise TypeError(f"expected a statement of loops, found {ast.unparse(statement)}")
        return None

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                for one, it in zip(targets, [self.value(one) for one in values], strict=True):
                    self.put(one, it)
            case _:
                self.put(target, self.value(value))

    def add_to(self, target: ast.expr, sign: ast.operator, value: ast.expr) -> None:
        match target:
            case ast.Subscript():
                place = self.place(target)
                self.store(place, arithmetic(self.builder, sign, self.load(place), self.value(value)))
            case ast.Name(id=name):
                self.set(name, arithmetic(self.builder, sign, self.get(name), self.value(value)))

    def put(self, target: ast.expr, value: Operand) -> None:
        match target:
            case ast.Name(id=name):
                self.set(name, value)
            case ast.Subscript():
                self.store(self.place(target), value)
            case _:
                raise TypeError(f"expected a variable or an element, found {ast.unparse(target)}")

    def repeat(self, name: str, bounds: Sequence[Operand], inside: Sequence[ast.stmt]) -> None:
        build = self.builder
        first, last = alike(build, *(bounds if len(bounds) > 1 else (0, *bounds)))
        before = build.block
        head, body, done = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        turn = build.phi(last.at.type)
        turn.add_incoming(first.at, before)
        more = compare(build, "<", Value(last.kind, turn), last)
        build.cbranch(more.at, body, done)
        build.position_at_end(body)
        self.set(name, Value(last.kind, turn))
        self.statements(inside)
        flag = "nsw" if last.kind[0] == "i" else "nuw"
        turn.add_incoming(build.add(turn, turn.type(1), flags=(flag,)), build.block)
        build.branch(head)
        build.position_at_end(done)

    def repeat_while(self, test: ast.expr, inside: Sequence[ast.stmt]) -> None:
        build = self.builder
        head, body, done = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        build.cbranch(self.truth(test), body, done)
        build.position_at_end(body)
        self.statements(inside)
        build.branch(head)
        build.position_at_end(done)

    def choose(self, test: ast.expr, inside: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]) -> None:
        build = self.builder
        body, other, done = (build.append_basic_block() for _ in range(3))
        build.cbranch(self.truth(test), body, other)
        for block, lines in ((body, inside), (other, otherwise)):
            build.position_at_end(block)
            self.statements(lines)
            if not build.block.is_terminated:
                build.branch(done)
        build.position_at_end(done)

    # -- variables and memory

    def set(self, name: str, value: Operand) -> None:
        variable = self.variables.get(name)
        if variable is None:
            if not isinstance(value, Value):
                value = convert(self.builder, value, _kind_of(value))
            with self.builder.goto_entry_block():
                variable = Value(value.kind, self.builder.alloca(value.at.type))
            self.variables[name] = variable
        elif not isinstance(value, Value):
            value = convert(self.builder, value, variable.kind)
        if value.kind != variable.kind:
            raise TypeError(f"expected {variable.kind} for {name}, found {value.kind}")
        self.builder.store(value.at, variable.at)

    def get(self, name: str) -> Operand:
        variable = self.variables.get(name)
        if variable is not None:
            return Value(variable.kind, self.builder.load(variable.at))
        number: Operand = self.scope[name]
        return number

    def place(self, target: ast.Subscript) -> Value:
        """Return the pointer to an element."""
        base, number = self.value(target.value), self.value(target.slice)
        if not isinstance(base, Value) or not base.kind.startswith("*"):
            raise TypeError(f"expected a pointer, found {ast.unparse(target.value)}")
        if not isinstance(number, Value):
            number = convert(self.builder, number, "u8")
        if number.kind not in ("u8", "i8"):
            raise TypeError(f"expected the number of an element, found {number.kind}")
        return Value(base.kind, self.builder.gep(base.at, [number.at]))

    def load(self, place: Value) -> Value:
        return Value(place.kind.removeprefix("*"), self.builder.load(place.at))

    def store(self, place: Value, value: Operand) -> None:
        kind = place.kind.removeprefix("*")
        if not isinstance(value, Value):
            value = convert(self.builder, value, kind)
        if value.kind != kind:
            raise TypeError(f"expected {kind} to store, found {value.kind}")
        self.builder.store(value.at, place.at)

    # -- expressions

    def value(self, node: ast.expr) -> Operand:
        build = self.builder
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name(id=name):
                return self.get(name)
            case ast.Subscript():
                return self.load(self.place(node))
            case ast.BinOp(left=left, op=sign, right=right):
                return arithmetic(build, sign, self.value(left), self.value(right))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return negative(build, self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Value("b1", build.not_(self.truth(operand)))
            case ast.Compare(left=left, ops=[sign], comparators=[right]):
                return compare(build, SYMBOLS[type(sign)], self.value(left), self.value(right))
            case ast.BoolOp(op=ast.And(), values=[first, *others]):
                rest = others[0] if len(others) == 1 else ast.BoolOp(ast.And(), others)
                return self.either(first, rest, ast.Constant(value=False))
            case ast.BoolOp(op=ast.Or(), values=[first, *others]):
                rest = others[0] if len(others) == 1 else ast.BoolOp(ast.Or(), others)
                return self.either(first, ast.Constant(value=True), rest)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.either(test, body, otherwise)
            case ast.Call():
                result = self.call(node)
                if result is None:
                    raise TypeError(f"expected a value, found {ast.unparse(node)}")
                return result
        raise TypeError(f"expected an expression of loops, found {ast.unparse(node)}")

    def truth(self, node: ast.expr) -> Any:
        """Return LLVM's value of a condition."""
        value = self.value(node)
        return convert(self.builder, value, "b1").at

    def either(self, test: ast.expr, body: ast.expr, otherwise: ast.expr) -> Value:
        """Return one of two values; the other is not computed if it reads memory, or may take long."""
        build, condition = self.builder, self.truth(test)
        if not any(isinstance(part, ast.Subscript | ast.Call) for part in _parts(body, otherwise)):
            a, b = _both(build, self.value(body), self.value(otherwise))
            return Value(a.kind, build.select(condition, a.at, b.at))
        yes, no, done = (build.append_basic_block() for _ in range(3))
        build.cbranch(condition, yes, no)
        found: list[tuple[Operand, Any]] = []
        for block, node in ((yes, body), (no, otherwise)):
            build.position_at_end(block)
            found.append((self.value(node), build.block))
            build.branch(done)
        build.position_at_end(done)
        a, b = _both(build, found[0][0], found[1][0])
        phi = build.phi(a.at.type)
        for value, (_, block) in zip((a, b), found, strict=True):
            phi.add_incoming(value.at, block)
        return Value(a.kind, phi)

    def call(self, node: ast.Call) -> Value | None:
        if not isinstance(node.func, ast.Name):
            raise TypeError(f"expected the name of a function, found {ast.unparse(node.func)}")
        name, arguments = node.func.id, [self.value(argument) for argument in node.args]
        function = BUILT_IN.get(name) or self.scope[name]
        if isinstance(function, Mapping):  # by the kind of what it takes
            function = function[_kind(arguments[0])]
        if isinstance(function, Instruction):
            return function.write(self.builder, *arguments)
        assert isinstance(function, FunctionType), name
        inner = _Body(self.builder, function.__globals__)
        inner.begin(_definition(function), arguments)
        result = inner.statements(_definition(function).body)
        return (
            result
            if isinstance(result, Value) or result is None
            else convert(self.builder, result, _kind_of(result))
        )


def _kind(operand: Operand) -> str:
    return operand.kind if isinstance(operand, Value) else _kind_of(operand)


def _kind_of(number: float) -> str:
    """Return the kind of a plain number that nothing else tells."""
    return "b1" if isinstance(number, bool) else "i8" if isinstance(number, int) else "f8"


def _parts(*nodes: ast.expr) -> list[ast.AST]:
    """Return what expressions are made of, but for conversions of plain numbers."""
    parts: list[ast.AST] = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[argument]) if name in TYPES:
                parts += _parts(argument)
            case _:
                parts.append(node)
                parts += _parts(*(part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)))
    return parts


def _both(builder: Any, left: Operand, right: Operand) -> list[Value]:
    """Return two values of one kind."""
    if isinstance(left, bool) and isinstance(right, bool):
        return [convert(builder, left, "b1"), convert(builder, right, "b1")]
    if isinstance(left, Value) and isinstance(right, Value) and left.kind == right.kind:
        return [left, right]  # pointers, too
    return alike(builder, left, right)
