"""Translation: from the texts of loops to LLVM's instructions.

A text is one function in a small part of Python: numbers and pointers of fixed *kinds*, ``if``, ``while``,
``for`` over a range, ``break``, assignments, and calls. Each variable keeps the kind that it is first given.
There are no implicit conversions: ``f8(x)`` converts, and operands of one operation are of one kind, but for
plain Python numbers, which take the kind of the other operand. Whole numbers wrap around; ``u8`` and ``u1``
are unsigned, and so are truths.

A *scope* has the functions that a text may call: `Instruction`s, which write instructions themselves, and
Python functions of this language, or one for each kind of the first operand. A function that has no loops and
returns at its end is written in place; any other function is called, and its annotation has the type of its
result: ``int``, ``bool`` or ``None``. Sums and products of floats may be contracted to one instruction; else
each operation rounds.

A variable may be a record (`foldbatch.loops.records`): ``cell = Cell(memory, offset)`` keeps the offset, and
``cell.rows`` is an element of ``memory``, which is not assigned afterwards. An argument whose annotation is a
class of records takes one.

A text is called in one of two ways: with pointers to numbers (`translate`), or with NumPy's arrays, whose
type and layout are checked first (`translate_function`). Importing this needs llvmlite.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from itertools import islice
from types import FunctionType
from typing import Any, TypeAlias

from llvmlite import ir

from foldbatch.loops import cpython
from foldbatch.loops.cpython import WORD_BYTES
from foldbatch.loops.numbers import (
    I32,
    I64,
    NUMBERS,
    SYMBOLS,
    TYPES,
    Builder,
    Emitted,
    Instruction,
    LoopModule,
    Operand,
    Typed,
    absolute,
    alike,
    arithmetic,
    compare,
    convert,
    extreme,
    further,
    negative,
)
from foldbatch.loops.records import Header, Record

Scope: TypeAlias = Mapping[str, Any]  # the functions, constants and records that a text names


def translate(name: str, text: str, scope: Scope, *, rounded: bool = False) -> str:
    """Return LLVM's text of a module with one function, `name`, of two pointers to integers.

    Args:
        name: of the function.
        text: of ``loop(n, x0, x1, ..., s)``, whose first line has the kinds of the numbers that x0, x1 and so
            on point to: ``# f4 i8``. None of this memory overlaps.
        scope: the functions that the text may call, by name.
        rounded: whether every product is rounded before a sum adds it.

    The first pointer is to `n` and the addresses of x0, x1 and so on; the second one is `s`.

    Raises:
        TypeError: when the text converts numbers without saying so, or is not of the language.
    """
    kinds = text.split("\n", 1)[0].removeprefix("#").split()
    definition = definition_in(text)
    module = LoopModule(name, rounded=rounded)
    inner = _function(module, "loop", definition, scope, ["u8", *(f"*{k}" for k in kinds), "*i8"], "")
    inner.attributes.add("alwaysinline")
    for argument in inner.args[1:]:
        argument.add_attribute("noalias")
    outer = ir.Function(module, ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS]), name)
    builder = ir.IRBuilder(outer.append_basic_block())
    (numbers, statics) = outer.args
    rows, *words = (builder.load(builder.gep(numbers, [I64(i)])) for i in range(len(inner.args) - 1))
    types = [argument.type for argument in inner.args[1:-1]]
    builder.call(inner, [rows, *map(builder.inttoptr, words, types), statics])
    builder.ret_void()
    return str(module)


MISFIT = -(2**63)  # the result of a function that got an array of another type or layout
RETURNED = {"int": "i8", "bool": "b1", "None": ""}  # kinds, by annotation


def translate_function(name: str, definition: ast.FunctionDef, scope: Scope, signature: str) -> str:
    """Return LLVM's text of a module with one function, `name`, that Python calls with arrays and numbers.

    Args:
        name: of the function.
        definition: of a function whose result has an annotation.
        scope: the functions that it may call, by name.
        signature: the kinds of its arguments: ``i4[] f8[,] i8``, where an array has one or two axes. None of
            their memory overlaps.

    The function takes the address of `numpy.ndarray`, and then its arguments; an array is the address of its
    object. It returns an integer; it does nothing and returns `MISFIT` if an argument that should be an array
    is another object, or an array of another dtype, of other axes, or with gaps.
    """
    module = LoopModule(name)
    kinds = signature.split()
    inner = _function(module, "function", definition, scope, kinds, returned := _returned(definition))
    inner.attributes.add("alwaysinline")
    outer = ir.Function(module, ir.FunctionType(I64, [I64] * (1 + len(kinds))), name)
    builder = ir.IRBuilder(outer.append_basic_block())
    misfit = outer.append_basic_block()
    array_type, *arguments = outer.args
    operands: list[Emitted] = []
    for kind, at in zip(kinds, arguments, strict=True):
        if kind.endswith("]"):
            operands += _array(builder, kind, at, array_type, misfit)
        else:
            operands.append(convert(builder, Typed("i8", at), kind).at)
    for argument in inner.args:
        if argument.type.is_pointer:
            argument.add_attribute("noalias")
    result = builder.call(inner, operands)
    builder.ret(convert(builder, Typed(returned, result), "i8").at if returned else I64(0))
    ir.IRBuilder(misfit).ret(I64(MISFIT))
    return str(module)


def translate_words(name: str, definition: ast.FunctionDef, scope: Scope) -> str:
    """Return LLVM's text of a module with one function, `name`, from words to a word, which C calls."""
    module = LoopModule(name)
    kinds = ["i8"] * len(definition.args.args)
    _function(module, name, definition, scope, kinds, _returned(definition)).linkage = ""
    return str(module)


def _words_of(kind: str) -> list[str]:
    """Return the kinds of LLVM's arguments for an argument; an array becomes a pointer and extents."""
    if not kind.endswith("]"):
        return [kind]
    element, _, axes = kind.partition("[")
    return [f"*{element}", *["i8"] * (1 + axes.count(","))]


def _array(builder: Builder, kind: str, at: Emitted, array_type: Emitted, misfit: Emitted) -> list[Emitted]:
    """Return the pointer and the extents of an array, given its object's address, or go to `misfit`."""
    pointer, *extents = _words_of(kind)
    element = pointer.removeprefix("*")

    def word(base: Emitted, offset: int, width: int = 64) -> Emitted:
        type_ = ir.IntType(width)
        return builder.load(builder.inttoptr(builder.add(base, I64(offset)), type_.as_pointer()))

    def look(holds: Emitted) -> None:
        after = builder.append_basic_block()
        builder.cbranch(holds, after, misfit)
        builder.position_at_end(after)

    # the type comes first: other objects have another layout
    look(builder.icmp_signed("==", word(at, WORD_BYTES * cpython.TYPE), array_type))
    look(builder.icmp_signed("==", word(at, WORD_BYTES * cpython.AXES, 32), I32(len(extents))))
    plain = I32(cpython.PLAIN)
    look(builder.icmp_signed("==", builder.and_(word(at, WORD_BYTES * cpython.FLAGS, 32), plain), plain))
    dtype = word(at, WORD_BYTES * cpython.DTYPE)
    byte = ir.IntType(8)
    letter = word(dtype, cpython.LETTER, 8)
    letters = [ir.Constant(byte, ord(code)) for code in cpython.letters(element)]
    look(reduce(builder.or_, [builder.icmp_signed("==", letter, code) for code in letters]))
    look(builder.icmp_signed("==", word(dtype, cpython.ORDER, 8), byte(ord("="))))
    sizes, data = word(at, WORD_BYTES * cpython.EXTENTS), word(at, WORD_BYTES * cpython.NUMBERS)
    begin = builder.inttoptr(data, TYPES[element].as_pointer())
    return [begin, *(word(sizes, WORD_BYTES * axis) for axis in range(len(extents)))]


def _returned(definition: ast.FunctionDef) -> str:
    """Return the kind of a function's result; empty if it returns None."""
    annotation = "" if definition.returns is None else ast.unparse(definition.returns)
    if annotation not in RETURNED:
        raise TypeError(f"expected {definition.name} to return int, bool or None, found {annotation!r}")
    return RETURNED[annotation]


def _function(
    module: ir.Module,
    name: str,
    definition: ast.FunctionDef,
    scope: Scope,
    kinds: Sequence[str],
    returned: str,
) -> Emitted:
    """Add a function of arguments of some kinds to a module, and return it; an array is several arguments."""
    words = [word for kind in kinds for word in _words_of(kind)]
    types = [TYPES[kind[1:]].as_pointer() if kind[0] == "*" else TYPES[kind] for kind in words]
    result = TYPES[returned] if returned else ir.VoidType()
    function = ir.Function(module, ir.FunctionType(result, types), name)
    function.linkage = "internal"
    body = _FunctionBody(ir.IRBuilder(function.append_basic_block()), scope, returned)
    operands: list[Operand | Array] = []
    places = map(Typed, words, function.args)
    for kind in kinds:
        first, *extents = islice(places, len(_words_of(kind)))
        operands.append(Array(first, tuple(extents)) if kind.endswith("]") else first)
    body.begin(definition, operands)
    body.statements(definition.body)
    if not body.builder.block.is_terminated:
        body.builder.unreachable() if returned else body.builder.ret_void()
    return function


@dataclass(frozen=True, slots=True)
class View:
    """A record that is a variable: its class, the name of its array, and that of its offset."""

    record: type[Record]
    memory: str
    offset: str  # empty for a header, which begins at 0


@dataclass(frozen=True, slots=True)
class Array:
    """An array without gaps: the pointer to its first number, and its extents."""

    pointer: Typed
    extents: tuple[Typed, ...]


BUILT_IN: dict[str, Instruction] = {
    "abs": Instruction(absolute),
    "min": extreme("<"),
    "max": extreme(">"),
    "moved": Instruction(further),
    **{kind: Instruction(lambda builder, x, kind=kind: convert(builder, x, kind)) for kind in TYPES},
}


@cache
def definition_of(function: Callable[..., object]) -> ast.FunctionDef:
    """Return the syntax tree of a function."""
    return definition_in(textwrap.dedent(inspect.getsource(function)))


def definition_in(text: str) -> ast.FunctionDef:
    """Return the syntax tree of a text with one function."""
    (definition,) = ast.parse(text).body
    if not isinstance(definition, ast.FunctionDef):
        raise TypeError(f"expected a function, found {ast.unparse(definition)}")
    return definition


class _FunctionBody:
    """Writes the body of a function; `returned` is the kind of its result, None if it is written in place."""

    def __init__(self, builder: Builder, scope: Scope, returned: str | None = None) -> None:
        self.builder = builder
        self.scope = scope
        self.returned = returned
        self.variables: dict[str, Typed] = {}  # by name: pointers to the stack
        self.arrays: dict[str, Array] = {}
        self.views: dict[str, View] = {}
        self.ends: list[Emitted] = []  # of the loops around: the blocks behind them

    def begin(self, definition: ast.FunctionDef, operands: Sequence[Operand | Array]) -> None:
        """Bind the names of arguments; a record takes two operands, and a header one."""
        remaining = iter(operands)
        for argument in definition.args.args:
            record = self.record_class(argument.annotation)
            name = argument.arg if record is None else f"{argument.arg}.memory"
            value = next(remaining)
            if isinstance(value, Array):
                self.arrays[name] = value
            else:
                self.set(name, value)
            if record is not None:
                is_header = issubclass(record, Header)
                self.views[argument.arg] = View(record, name, "" if is_header else argument.arg)
                if not is_header:
                    offset = next(remaining)
                    assert not isinstance(offset, Array), name
                    self.set(argument.arg, offset)
        if next(remaining, None) is not None:
            raise TypeError(f"expected fewer arguments for {definition.name}")

    def record_class(self, node: ast.expr | None) -> type[Record] | None:
        """Return the class of records that an expression names; None if it names none."""
        match node:
            case ast.Name(id=name) if name not in self.variables and name not in self.arrays:
                value = self.scope.get(name)
                return value if isinstance(value, type) and issubclass(value, Record) else None
        return None

    # -- statements

    def statements(self, body: Sequence[ast.stmt]) -> Operand | None:
        """Append the LLVM code of statements; return the value of a ``return`` in a function that is inlined.

        Args:
            body: the statements, as Python's syntax trees.
        """
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
                case ast.Return(value=ast.expr() as value) if self.returned:
                    self.builder.ret(convert(self.builder, self.value(value), self.returned).at)
                case ast.Return(value=ast.expr() as value):
                    return self.value(value)
                case ast.Break():
                    self.builder.branch(self.ends[-1])
                case _:
                    raise TypeError(f"expected a statement of loops, found {ast.unparse(statement)}")
        return None

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Write an assignment; all values of a tuple are computed before the first one is stored."""
        match target, value:
            case ast.Name(id=name), ast.Call(func=function, args=[memory, *offsets]) if (
                record := self.record_class(function)
            ):
                self.view(name, record, self.array_name(memory), offsets)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                for part, operand in zip(targets, [self.value(part) for part in values], strict=True):
                    self.put(part, operand)
            case _:
                self.put(target, self.value(value))

    def view(self, name: str, record: type[Record], memory: str, offsets: Sequence[ast.expr]) -> None:
        """Bind a name to a record: its offset becomes a variable of that name, unless it is a header."""
        is_header = issubclass(record, Header)
        view = View(record, memory, "" if is_header else name)
        if self.views.get(name, view) != view or (name in self.variables and name not in self.views):
            raise TypeError(f"expected one class and one array for {name}")
        if not is_header:
            (offset,) = offsets
            self.set(name, self.value(offset))
        self.views[name] = view

    def add_to(self, target: ast.expr, sign: ast.operator, value: ast.expr) -> None:
        """Append the LLVM code of an assignment such as ``target += value``."""
        match target:
            case ast.Subscript() | ast.Attribute():
                place = self.place(target)
                self.store(place, arithmetic(self.builder, sign, self.load(place), self.value(value)))
            case ast.Name(id=name):
                self.check_free(name)
                self.set(name, arithmetic(self.builder, sign, self.get(name), self.value(value)))

    def put(self, target: ast.expr, value: Operand) -> None:
        """Append the LLVM code that stores a value in a variable or an element."""
        match target:
            case ast.Name(id=name):
                self.check_free(name)
                self.set(name, value)
            case ast.Subscript() | ast.Attribute():
                self.store(self.place(target), value)
            case _:
                raise TypeError(f"expected a variable or an element, found {ast.unparse(target)}")

    def array_name(self, node: ast.expr) -> str:
        """Return the name of the variable of an array: the name itself, or that of a record's array."""
        match node:
            case ast.Name(id=name) if name in self.variables or name in self.arrays:
                return name
            case ast.Attribute(value=ast.Name(id=name), attr="memory") if name in self.views:
                return self.views[name].memory
        raise TypeError(f"expected the name of an array, found {ast.unparse(node)}")

    def check_free(self, name: str) -> None:
        """Refuse to assign a number or an array to a variable that is a record, or the array of one."""
        if any(name in (variable, view.memory) for variable, view in self.views.items()):
            raise TypeError(f"expected {name} to stay the record, or the array of records, that it is")

    def repeat(self, name: str, bounds: Sequence[Operand], inside: Sequence[ast.stmt]) -> None:
        """Append the LLVM code of a ``for`` loop over a range, given its variable, bounds and body."""
        self.check_free(name)
        build = self.builder
        *bounds, step = bounds if len(bounds) == 3 else (*bounds, 1)
        if step not in (1, -1):
            raise TypeError(f"expected steps of 1 or -1, found {step}")
        bounds = bounds if len(bounds) > 1 else [0, *bounds]
        if not any(isinstance(bound, Typed) for bound in bounds):
            bounds = [convert(build, bound, "i8") for bound in bounds]
        first, last = alike(build, *bounds)
        before = build.block
        head, body, after = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        turn = build.phi(last.at.type)
        turn.add_incoming(first.at, before)
        goes_on = compare(build, "<" if step == 1 else ">", Typed(last.kind, turn), last)
        build.cbranch(goes_on.at, body, after)
        build.position_at_end(body)
        self.set(name, Typed(last.kind, turn))
        self.ends.append(after)
        self.statements(inside)
        self.ends.pop()
        flag = "nsw" if last.kind[0] == "i" else "nuw"
        write = build.add if step == 1 else build.sub
        turn.add_incoming(write(turn, turn.type(1), flags=(flag,)), build.block)
        build.branch(head)
        build.position_at_end(after)

    def repeat_while(self, test: ast.expr, inside: Sequence[ast.stmt]) -> None:
        """Append the LLVM code of a ``while`` loop, given its test and body as Python's syntax trees."""
        build = self.builder
        head, body, after = (build.append_basic_block() for _ in range(3))
        build.branch(head)
        build.position_at_end(head)
        build.cbranch(self.truth(test), body, after)
        build.position_at_end(body)
        self.ends.append(after)
        self.statements(inside)
        self.ends.pop()
        build.branch(head)
        build.position_at_end(after)

    def choose(self, test: ast.expr, inside: Sequence[ast.stmt], otherwise: Sequence[ast.stmt]) -> None:
        """Append the LLVM code of an ``if`` statement, given its test, body and ``else`` part."""
        build = self.builder
        body, alternative, after = (build.append_basic_block() for _ in range(3))
        build.cbranch(self.truth(test), body, alternative)
        for block, lines in ((body, inside), (alternative, otherwise)):
            build.position_at_end(block)
            self.statements(lines)
            if not build.block.is_terminated:
                build.branch(after)
        build.position_at_end(after)

    # -- variables and memory

    def set(self, name: str, value: Operand) -> None:
        """Store a value in a variable, which has the kind of its first value."""
        variable = self.variables.get(name)
        if variable is None:
            if not isinstance(value, Typed):
                value = convert(self.builder, value, _kind_of(value))
            with self.builder.goto_entry_block():
                variable = Typed(value.kind, self.builder.alloca(value.at.type))
            self.variables[name] = variable
        elif not isinstance(value, Typed):
            value = convert(self.builder, value, variable.kind)
        if value.kind != variable.kind:
            raise TypeError(f"expected {variable.kind} for {name}, found {value.kind}")
        self.builder.store(value.at, variable.at)

    def get(self, name: str) -> Operand:
        """Return the value of a variable, the pointer of an array, or a constant of the scope."""
        variable = self.variables.get(name)
        if variable is not None:
            return Typed(variable.kind, self.builder.load(variable.at))
        if name in self.arrays:
            return self.arrays[name].pointer
        number: Operand = self.scope[name]
        return number

    def place(self, target: ast.Subscript | ast.Attribute) -> Typed:
        """Return the pointer to an element, or to a field of a record."""
        base, number = self.element(target)
        if not isinstance(base, Typed) or not base.kind.startswith("*"):
            raise TypeError(f"expected a pointer, found {ast.unparse(target.value)}")
        if not isinstance(number, Typed):
            number = convert(self.builder, number, "u8")
        if number.kind not in ("u8", "i8", "i4"):
            raise TypeError(f"expected the number of an element, found {number.kind}")
        return Typed(base.kind, self.builder.gep(base.at, [number.at]))

    def element(self, target: ast.Subscript | ast.Attribute) -> tuple[Operand, Operand]:
        """Return the pointer to an array, and the number of the element or field in it."""
        match target:
            case ast.Subscript():
                return self.value(target.value), self.index(target)
            case ast.Attribute(value=ast.Name(id=name), attr=field) if name in self.views:
                view = self.views[name]
                if field not in view.record.fields:
                    raise TypeError(f"expected a field of {view.record.__name__}, found {field}")
                memory = self.get(view.memory)
                number = getattr(view.record, field)
                if not view.offset:
                    return memory, number
                return memory, arithmetic(self.builder, ast.Add(), self.get(view.offset), number)
        raise TypeError(f"expected an element or a field, found {ast.unparse(target)}")

    def index(self, target: ast.Subscript) -> Operand:
        """Return the number of an element; of an array of two axes, in the order of memory."""
        match target:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=[row, column])):
                length = self.arrays[name].extents[1]
                of_row, of_column = (convert(self.builder, self.value(part), "i8") for part in (row, column))
                inside = arithmetic(self.builder, ast.Mult(), of_row, length)
                return arithmetic(self.builder, ast.Add(), inside, of_column)
        return self.value(target.slice)

    def load(self, place: Typed) -> Typed:
        return Typed(place.kind.removeprefix("*"), self.builder.load(place.at))

    def store(self, place: Typed, value: Operand) -> None:
        """Store a value at a pointer to numbers of its kind."""
        kind = place.kind.removeprefix("*")
        if not isinstance(value, Typed):
            value = convert(self.builder, value, kind)
        if value.kind != kind:
            raise TypeError(f"expected {kind} to store, found {value.kind}")
        self.builder.store(value.at, place.at)

    # -- expressions

    def value(self, node: ast.expr) -> Operand:
        """Return the value of an expression; a constant is a plain number."""
        build = self.builder
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name(id=name):
                return self.get(name)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"),
                slice=ast.Constant(value=int() as axis),
            ):
                return self.arrays[name].extents[axis]
            case ast.Attribute(value=ast.Name(id=name) as owner, attr=part):
                record = self.record_class(owner)
                if record is not None and (part == "size" or part in record.fields):
                    place: int = getattr(record, part)
                    return place
                if name in self.views and part == "memory":
                    return self.get(self.views[name].memory)
                if name in self.views and part == "offset":
                    return self.get(name) if self.views[name].offset else 0
                return self.load(self.place(node))
            case ast.Subscript() as element:
                return self.load(self.place(element))
            case ast.Call(func=ast.Name(id="len"), args=[ast.Name(id=name)]):
                return self.arrays[name].extents[0]
            case ast.BinOp(left=lhs, op=sign, right=rhs):
                return arithmetic(build, sign, self.value(lhs), self.value(rhs))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return negative(build, self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Typed("b1", build.not_(self.truth(operand)))
            case ast.Compare(left=lhs, ops=[sign], comparators=[rhs]):
                return compare(build, SYMBOLS[type(sign)], self.value(lhs), self.value(rhs))
            case ast.BoolOp(op=ast.And(), values=[first, *following]):
                remainder = following[0] if len(following) == 1 else ast.BoolOp(ast.And(), following)
                return self.select(first, remainder, ast.Constant(value=False))
            case ast.BoolOp(op=ast.Or(), values=[first, *following]):
                remainder = following[0] if len(following) == 1 else ast.BoolOp(ast.Or(), following)
                return self.select(first, ast.Constant(value=True), remainder)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.select(test, body, otherwise)
            case ast.Call():
                result = self.call(node)
                if result is None:
                    raise TypeError(f"expected a value, found {ast.unparse(node)}")
                return result
        raise TypeError(f"expected an expression of loops, found {ast.unparse(node)}")

    def truth(self, node: ast.expr) -> Emitted:
        value = self.value(node)
        return convert(self.builder, value, "b1").at

    def select(self, test: ast.expr, body: ast.expr, otherwise: ast.expr) -> Typed:
        """Append the LLVM code of ``body if test else otherwise``, and return its value.

        If they read memory or call functions, the code computes only the one that is chosen.
        """
        build = self.builder
        condition = self.truth(test)
        if not any(map(self.reads_memory, _parts(body, otherwise))):
            a, b = _of_one_kind(build, self.value(body), self.value(otherwise))
            return Typed(a.kind, build.select(condition, a.at, b.at))
        yes, no, after = (build.append_basic_block() for _ in range(3))
        build.cbranch(condition, yes, no)
        results: list[tuple[Operand, Emitted]] = []
        for block, node in ((yes, body), (no, otherwise)):
            build.position_at_end(block)
            results.append((self.value(node), build.block))
            build.branch(after)
        build.position_at_end(after)
        a, b = _of_one_kind(build, results[0][0], results[1][0])
        phi = build.phi(a.at.type)
        for value, (_, block) in zip((a, b), results, strict=True):
            phi.add_incoming(value.at, block)
        return Typed(a.kind, phi)

    def reads_memory(self, node: ast.AST) -> bool:
        """Return whether a node reads memory or calls a function: an element, a field of a record, a call."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=part):
                return name in self.views and part in self.views[name].record.fields
        return isinstance(node, ast.Subscript | ast.Call)

    def arguments(self, node: ast.Call) -> list[Operand]:
        """Return a call's arguments as LLVM values; a record is passed as two, its array and its offset.

        A header is passed as its array alone.
        """
        operands = list[Operand]()
        for argument in node.args:
            match argument:
                case ast.Name(id=name) if name in self.views:
                    operands.append(self.get(self.views[name].memory))
                    if self.views[name].offset:
                        operands.append(self.get(name))
                case ast.Call(func=function, args=parts) if self.record_class(function) is not None:
                    operands += map(self.value, parts)
                case _:
                    operands.append(self.value(argument))
        return operands

    def call(self, node: ast.Call) -> Typed | None:
        """Return the result of a call: of an instruction, or of a function, written in place or called."""
        if not isinstance(node.func, ast.Name):
            raise TypeError(f"expected the name of a function, found {ast.unparse(node.func)}")
        name = node.func.id
        arguments = self.arguments(node)
        function = BUILT_IN.get(name) or self.scope[name]
        if isinstance(function, Mapping):  # by the kind of what it takes
            function = function[_kind(arguments[0])]
        if isinstance(function, Instruction):
            return function.write(self.builder, *arguments)
        assert isinstance(function, FunctionType), name
        definition = definition_of(function)
        if not _is_straight(definition):
            return self.called(function, definition, arguments)
        inner = _FunctionBody(self.builder, function.__globals__)
        inner.begin(definition, arguments)
        result = inner.statements(definition.body)
        return (
            result
            if isinstance(result, Typed) or result is None
            else convert(self.builder, result, _kind_of(result))
        )

    def called(
        self, function: FunctionType, definition: ast.FunctionDef, arguments: Sequence[Operand]
    ) -> Typed | None:
        """Call a function, written once a module for arguments of some kinds; plain numbers are ``i8``."""
        operands = [
            operand if isinstance(operand, Typed) else convert(self.builder, operand, "i8")
            for operand in arguments
        ]
        kinds = [operand.kind for operand in operands]
        returned = _returned(definition)
        name = " ".join([definition.name, *kinds])
        module = self.builder.module
        callee = module.globals.get(name)
        if callee is None:
            callee = _function(module, name, definition, function.__globals__, kinds, returned)
        result = self.builder.call(callee, [operand.at for operand in operands])
        return Typed(returned, result) if returned else None


def _is_straight(definition: ast.FunctionDef) -> bool:
    """Return whether a function has no loop and no return before its end, so that it can be inlined."""
    parts = [part for statement in definition.body for part in ast.walk(statement)]
    returns = [part for part in parts if isinstance(part, ast.Return)]
    return not any(isinstance(part, ast.For | ast.While) for part in parts) and all(
        part is definition.body[-1] for part in returns
    )


def _kind(operand: Operand) -> str:
    return operand.kind if isinstance(operand, Typed) else _kind_of(operand)


def _kind_of(number: float) -> str:
    """Return the kind of a plain number without another operand to take the kind from."""
    return "b1" if isinstance(number, bool) else "i8" if isinstance(number, int) else "f8"


def _parts(*nodes: ast.expr) -> list[ast.AST]:
    """Return the nodes of expressions without conversions of plain numbers."""
    parts: list[ast.AST] = []
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[argument]) if name in TYPES:
                parts += _parts(argument)
            case _:
                parts.append(node)
                parts += _parts(*(part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)))
    return parts


def _of_one_kind(builder: Builder, lhs: Operand, rhs: Operand) -> list[Typed]:
    """Return two operands converted to one kind; they may be pointers, or plain truths."""
    if isinstance(lhs, bool) and isinstance(rhs, bool):
        return [convert(builder, lhs, "b1"), convert(builder, rhs, "b1")]
    if isinstance(lhs, Typed) and isinstance(rhs, Typed) and lhs.kind == rhs.kind:
        return [lhs, rhs]  # pointers, too
    return alike(builder, lhs, rhs)
