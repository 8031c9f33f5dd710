"""Memory in code that Numba compiles: arrays and addresses as pointers, calls of what lies at an address.

Importing this needs Numba.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.compiler import Compiler
from numba.extending import intrinsic

i8, u8 = types.int64, types.uint64
NUMBERS = types.CPointer(i8)
ELEMENTS = {
    "f4": types.float32,
    "f8": types.float64,
    "i4": types.int32,
    "i8": types.int64,
    "u1": types.uint8,
    "u8": types.uint64,
}


def _flat(context: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    element = types.uint8 if array.dtype == types.boolean else array.dtype
    return types.CPointer(element)(array), generate


def _pointer(kind: str) -> Any:
    """Return a function that takes an address and returns a pointer to numbers of a kind."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return intrinsic(lambda context, address: (types.CPointer(ELEMENTS[kind])(i8), generate))


def stack(kind: str, size: int) -> Any:
    """Return ``stack()``: memory for `size` numbers, until the function returns."""
    element = ELEMENTS[kind]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        space = cgutils.alloca_once(builder, context.get_value_type(element), size=ir.IntType(64)(size))
        return builder.bitcast(space, context.get_value_type(types.CPointer(element)))

    return intrinsic(lambda context: (types.CPointer(element)(), generate))


def _moved(context: Any, pointer: Any, elements: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.uint64), generate


def _call(context: Any, address: Any, numbers: Any, statics: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address, numbers, statics = arguments
        type_ = ir.FunctionType(ir.VoidType(), [numbers.type, statics.type])
        builder.call(builder.inttoptr(address, type_.as_pointer()), [numbers, statics])
        return context.get_dummy_value()

    return types.void(i8, NUMBERS, NUMBERS), generate


flat = intrinsic(_flat)  # an array's elements as raw memory
moved = intrinsic(_moved)  # a pointer, some elements further
call = intrinsic(_call)  # ``call(address, numbers, s)``: what `compiling.native` compiled
POINTERS: dict[str, Any] = {f"pointer_{kind}": _pointer(kind) for kind in ELEMENTS}


class _Distinct(Compiler):  # type: ignore[misc]
    """Numba's compiler, told that the arguments' memory does not overlap, so that loops need no checks."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.state.flags.noalias = True


OPTIONS: dict[str, Any] = {
    "fastmath": {"contract"},
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,
    "_nrt": False,
    "pipeline_class": _Distinct,
}
ACCUMULATORS = 1024  # sums of columns that are under way at once

# What loops that Python calls with arrays may call.
GLOBALS: dict[str, Any] = ELEMENTS | {
    "sqrt": math.sqrt,
    "flat": flat,
    "moved": moved,
    "accumulators": stack("f8", ACCUMULATORS),
    "few": stack("i8", 4),
    "more": stack("i8", 14),
    "call": call,
}

_DTYPES = ELEMENTS | {"b1": types.boolean}


def signature(text: str) -> Any:
    """Return Numba's signature for the types of a loop's arguments: ``i8, f4[2], f4[2]w``.

    An array has a dtype, a number of axes, an ``a`` if it may have gaps, and a ``w`` if it is written.
    """
    arguments = []
    for word in text.split(", "):
        dtype, _, rest = word.partition("[")
        if rest:
            ndim, _, marks = rest.partition("]")
            layout = "A" if "a" in marks else "C"
            arguments.append(types.Array(_DTYPES[dtype], int(ndim), layout, readonly="w" not in marks))
        else:
            arguments.append(_DTYPES[dtype])
    return types.void(*arguments)
