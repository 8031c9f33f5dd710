"""Calling what is compiled already: by its address, where Numba would compile a copy into each caller.

A loop over levels calls products, which are large; with a copy in each, compiling a model takes twice as
long. Importing this needs Numba.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def linked(function: Any, symbol: str) -> Any:
    """Return what calls a compiled function of one signature, which returns nothing, from compiled code.

    The symbol must tell the function's code: compiled callers that are read from disk look for it.
    """
    (overload,) = function.overloads.values()
    signature = types.void(*overload.signature.args)
    code, description = attrgetter("library", "fndesc")(overload)
    binding.add_symbol(symbol, code.get_pointer_to_function(description.llvm_func_name))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        convention, taken = context.call_conv, signature.args
        type_ = convention.get_function_type(types.none, taken)
        callee = cgutils.get_or_insert_function(builder.module, type_, symbol)
        convention.call_function(builder, callee, types.none, taken, arguments)
        return context.get_dummy_value()

    # an intrinsic is asked for its arguments by number
    names = ", ".join(f"a{i}" for i in range(len(signature.args)))
    scope: dict[str, Any] = {"signature": signature, "generate": generate}
    exec(f"def typed(context, {names}):\n    return signature, generate\n", scope)  # noqa: S102 - our own text
    return intrinsic(scope["typed"])
