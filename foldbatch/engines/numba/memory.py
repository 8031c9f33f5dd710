"""Raw memory in compiled code: arrays and addresses as pointers, calls of what lies at an address.

Importing this needs Numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

i8 = types.int64
NUMBERS = types.CPointer(i8)
ENTRY = types.void(NUMBERS, NUMBERS)  # the signature of what takes many pointers, in memory
FEW = (
    32  # pointers that are passed as they are; it is compiled twice as fast than what reads them from memory
)
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


def _as_f8(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(i8), generate


def _call(context: Any, address: Any, count: Any, arguments: Any, statics: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, count, given, statics = values
        convention = context.call_conv
        answer = cgutils.alloca_once(builder, convention.get_return_type(types.none).pointee)
        shape = convention.get_function_type(types.none, ENTRY.args)
        error = cgutils.alloca_once(builder, shape.args[1].pointee)
        done = builder.append_basic_block("called")
        many = builder.append_basic_block("many")
        switch = builder.switch(count, many)
        for pointers in range(FEW + 1):
            block = builder.append_basic_block(f"of_{pointers}")
            switch.add_case(ir.IntType(64)(pointers), block)
            builder.position_at_end(block)
            numbers = [builder.load(builder.gep(given, [ir.IntType(64)(i)])) for i in range(pointers + 1)]
            places = [builder.inttoptr(number, statics.type) for number in numbers[1:]]
            _call_at(builder, address, [answer, error, numbers[0], *places, statics])
            builder.branch(done)
        builder.position_at_end(many)
        _call_at(builder, address, [answer, error, given, statics])
        builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(i8, i8, NUMBERS, NUMBERS), generate


def _call_at(builder: Any, address: Any, arguments: list[Any]) -> None:
    """Call what takes these arguments; its answer is not looked at, as errors are impossible."""
    type_ = ir.FunctionType(ir.IntType(32), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(address, type_.as_pointer()), arguments)


flat = intrinsic(_flat)  # an array's elements as raw memory
moved = intrinsic(_moved)  # a pointer, some elements further
as_f8 = intrinsic(_as_f8)  # the float64 of these bits
call = intrinsic(
    _call
)  # ``call(address, count, a, s)``: what `compiling.native` compiled, of so many pointers


def signature(kinds: list[str]) -> Any:
    """Return the signature of ``loop(n, x0, x1, ..., s)`` for pointers to numbers of these kinds."""
    return types.void(types.uint64, *(types.CPointer(ELEMENTS[kind]) for kind in kinds), NUMBERS)


POINTERS: dict[str, Any] = {f"pointer_{kind}": _pointer(kind) for kind in ELEMENTS}
