"""Words of memory that threads share, in compiled code: read, written and counted so that all see one order.

Importing this needs Numba.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

i8 = types.int64
WORD = 8  # bytes
PAUSES = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}  # by machine


def _place(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(64).as_pointer())


def _load(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_place(builder, arguments[0]), "acquire", WORD)

    return i8(i8), generate


def _store(context: Any, address: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _place(builder, arguments[0]), "release", WORD)
        return context.get_dummy_value()

    return types.void(i8, i8), generate


def _swap(context: Any, address: Any, old: Any, new: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, old, new = arguments
        answer = builder.cmpxchg(_place(builder, address), old, new, "acq_rel", "acquire")
        return builder.extract_value(answer, 1)

    return types.boolean(i8, i8, i8), generate


def _count(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _place(builder, arguments[0]), ir.IntType(64)(1), "acq_rel")

    return i8(i8), generate


def _pause(context: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = PAUSES.get(platform.machine())
        if name is not None:
            type_ = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, type_, name), [])
        return context.get_dummy_value()

    return types.void(), generate


def _give_way(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        type_ = ir.FunctionType(ir.IntType(32), [])
        return builder.sext(
            builder.call(builder.inttoptr(arguments[0], type_.as_pointer()), []), ir.IntType(64)
        )

    return i8(i8), generate


load = intrinsic(_load)  # ``load(address)``: what was stored there, and all that was written before
store = intrinsic(_store)  # ``store(address, number)``, after all that was written before
swap = intrinsic(_swap)  # ``swap(address, old, new)``: whether the old number was there; then the new one is
count = intrinsic(_count)  # ``count(address)``: one more; what was there
pause = intrinsic(_pause)  # a moment in a loop that waits
give_way = intrinsic(_give_way)  # ``give_way(address)`` of a function that lets other threads run
