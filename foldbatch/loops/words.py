"""Words of memory in loops: pointers from addresses, calls of functions by address, and atomics.

Atomics read, write and count words that threads share so that all of them see one order. Importing this needs
llvmlite.
"""

from __future__ import annotations

import platform
from functools import partial
from typing import Any

from llvmlite import ir

from foldbatch.loops.cpython import WORD_BYTES
from foldbatch.loops.numbers import I64, NUMBERS, TYPES, Instruction, Typed

PAUSES = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}  # by machine

i8 = u8 = int  # compiled: conversions


def _at(builder: Any, address: Typed, kind: str = "i8") -> Typed:
    return Typed(f"*{kind}", builder.inttoptr(address.at, TYPES[kind].as_pointer()))


def _copy(builder: Any, to: Typed, source: Typed, size: Typed) -> None:
    pointer = TYPES["u1"].as_pointer()
    places = [builder.inttoptr(place.at, pointer) for place in (to, source)]
    function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])
    builder.call(function, [*places, size.at, ir.Constant(TYPES["b1"], 0)])


def _address(builder: Any, pointer: Typed) -> Typed:
    return Typed("i8", builder.ptrtoint(pointer.at, I64))


def _call(builder: Any, address: Typed, numbers: Typed, statics: Typed) -> None:
    type_ = ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS])
    builder.call(builder.inttoptr(address.at, type_.as_pointer()), [numbers.at, statics.at])


def _ask(builder: Any, address: Typed, *arguments: Typed, kind: str = "i8") -> Typed:
    """Return the result of a function of C at an address, which takes words."""
    type_ = ir.FunctionType(TYPES[kind], [I64] * len(arguments))
    return Typed(
        kind,
        builder.call(
            builder.inttoptr(address.at, type_.as_pointer()), [argument.at for argument in arguments]
        ),
    )


def _load(builder: Any, address: Typed) -> Typed:
    return Typed("i8", builder.load_atomic(_at(builder, address).at, "acquire", WORD_BYTES))


def _store(builder: Any, address: Typed, number: Typed | int) -> None:
    at = number.at if isinstance(number, Typed) else I64(number)
    builder.store_atomic(at, _at(builder, address).at, "release", WORD_BYTES)


def _swap(builder: Any, address: Typed, old: Typed, new: Typed) -> Typed:
    answer = builder.cmpxchg(_at(builder, address).at, old.at, new.at, "acq_rel", "acquire")
    return Typed("b1", builder.extract_value(answer, 1))


def _count(builder: Any, address: Typed) -> Typed:
    return Typed("i8", builder.atomic_rmw("add", _at(builder, address).at, I64(1), "acq_rel"))


def _pause(builder: Any) -> None:
    name = PAUSES.get(platform.machine())
    if name is not None:
        declared = builder.module.globals.get(name)
        type_ = ir.FunctionType(ir.VoidType(), [])
        builder.call(declared or ir.Function(builder.module, type_, name), [])


def _give_way(builder: Any, address: Typed) -> None:
    type_ = ir.FunctionType(ir.IntType(32), [])
    builder.call(builder.inttoptr(address.at, type_.as_pointer()), [])


at: Any = Instruction(_at)  # the pointer to whole numbers at an address
at_i4: Any = Instruction(partial(_at, kind="i4"))  # and to others
at_f4: Any = Instruction(partial(_at, kind="f4"))
at_f8: Any = Instruction(partial(_at, kind="f8"))
copy: Any = Instruction(_copy)  # ``copy(to, given, size)``: bytes, from one address to another
address: Any = Instruction(_address)  # and the address of a pointer
call: Any = Instruction(_call)  # ``call(address, numbers, s)``: a function of `compiling.native`
ask: Any = Instruction(_ask)  # ``ask(address, ...)``: the result of a function of C, given words
ask_i4: Any = Instruction(partial(_ask, kind="i4"))  # and the result of one that returns half a word
load: Any = Instruction(
    _load
)  # ``load(address)``: the word there; writes before its `store` are visible, too
store: Any = Instruction(_store)  # ``store(address, number)``, after all writes so far
# ``swap(address, old, new)``: whether the old number was there; then the new one is
swap: Any = Instruction(_swap)
count: Any = Instruction(_count)  # ``count(address)``: add 1; the number before
pause: Any = Instruction(_pause)  # a moment in a loop that waits
give_way: Any = Instruction(_give_way)  # ``give_way(address)`` of a function that lets other threads run
