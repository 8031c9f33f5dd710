"""Words of memory in loops: pointers from addresses, calls of functions by address, and atomics.

Atomics read, write and count words that threads share so that all of them see one order. Importing this needs
llvmlite.
"""

from __future__ import annotations

import platform
from functools import partial

from llvmlite import ir

from foldbatch.loops.cpython import WORD_BYTES
from foldbatch.loops.numbers import I64, NUMBERS, TYPES, Builder, Instruction, LoopFunction, Typed

PAUSES = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}  # by machine

i8 = u8 = int  # compiled: conversions


def _at(builder: Builder, address: Typed, kind: str = "i8") -> Typed:
    return Typed(f"*{kind}", builder.inttoptr(address.at, TYPES[kind].as_pointer()))


def _copy(builder: Builder, to: Typed, source: Typed, size: Typed) -> None:
    pointer = TYPES["u1"].as_pointer()
    places = [builder.inttoptr(place.at, pointer) for place in (to, source)]
    function = builder.module.declare_intrinsic("llvm.memcpy", [pointer, pointer, I64])
    builder.call(function, [*places, size.at, ir.Constant(TYPES["b1"], 0)])


def _address(builder: Builder, pointer: Typed) -> Typed:
    return Typed("i8", builder.ptrtoint(pointer.at, I64))


def _call(builder: Builder, address: Typed, numbers: Typed, statics: Typed) -> None:
    type_ = ir.FunctionType(ir.VoidType(), [NUMBERS, NUMBERS])
    builder.call(builder.inttoptr(address.at, type_.as_pointer()), [numbers.at, statics.at])


def _ask(builder: Builder, address: Typed, *arguments: Typed, kind: str = "i8") -> Typed:
    """Return the result of a function of C at an address, which takes words."""
    type_ = ir.FunctionType(TYPES[kind], [I64] * len(arguments))
    return Typed(
        kind,
        builder.call(
            builder.inttoptr(address.at, type_.as_pointer()), [argument.at for argument in arguments]
        ),
    )


def _load(builder: Builder, address: Typed) -> Typed:
    return Typed("i8", builder.load_atomic(_at(builder, address).at, "acquire", WORD_BYTES))


def _store(builder: Builder, address: Typed, number: Typed | int) -> None:
    at = number.at if isinstance(number, Typed) else I64(number)
    builder.store_atomic(at, _at(builder, address).at, "release", WORD_BYTES)


def _swap(builder: Builder, address: Typed, old: Typed, new: Typed) -> Typed:
    answer = builder.cmpxchg(_at(builder, address).at, old.at, new.at, "acq_rel", "acquire")
    return Typed("b1", builder.extract_value(answer, 1))


def _count(builder: Builder, address: Typed) -> Typed:
    return Typed("i8", builder.atomic_rmw("add", _at(builder, address).at, I64(1), "acq_rel"))


def _pause(builder: Builder) -> None:
    name = PAUSES.get(platform.machine())
    if name is not None:
        declared = builder.module.globals.get(name)
        type_ = ir.FunctionType(ir.VoidType(), [])
        builder.call(declared or ir.Function(builder.module, type_, name), [])


def _give_way(builder: Builder, address: Typed) -> None:
    type_ = ir.FunctionType(ir.IntType(32), [])
    builder.call(builder.inttoptr(address.at, type_.as_pointer()), [])


at: LoopFunction = Instruction(_at)  # the pointer to whole numbers at an address
at_i4: LoopFunction = Instruction(partial(_at, kind="i4"))  # and to others
at_f4: LoopFunction = Instruction(partial(_at, kind="f4"))
at_f8: LoopFunction = Instruction(partial(_at, kind="f8"))
copy: LoopFunction = Instruction(_copy)  # ``copy(to, given, size)``: bytes, from one address to another
address: LoopFunction = Instruction(_address)  # and the address of a pointer
call: LoopFunction = Instruction(_call)  # ``call(address, numbers, s)``: a function of `compiling.native`
ask: LoopFunction = Instruction(_ask)  # ``ask(address, ...)``: the result of a function of C, given words
ask_i4: LoopFunction = Instruction(partial(_ask, kind="i4"))  # and the result of one that returns half a word
load: LoopFunction = Instruction(
    _load
)  # ``load(address)``: the word there; writes before its `store` are visible, too
store: LoopFunction = Instruction(_store)  # ``store(address, number)``, after all writes so far
# ``swap(address, old, new)``: whether the old number was there; then the new one is
swap: LoopFunction = Instruction(_swap)
count: LoopFunction = Instruction(_count)  # ``count(address)``: add 1; the number before
pause: LoopFunction = Instruction(_pause)  # a moment in a loop that waits
# ``give_way(address)`` of a function that lets other threads run
give_way: LoopFunction = Instruction(_give_way)
