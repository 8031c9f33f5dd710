"""The text of kernels that read records: all functions of a phase, and what calls them."""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.engines.cuda.common import PRELUDE
from foldbatch.engines.cuda.control import Ops
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.row_kernels import MOVES
from foldbatch.engines.cuda.texts import records
from foldbatch.engines.cuda.texts.functions import LANES, THREAD, as_functions, shared_sizes
from foldbatch.engines.cuda.texts.walking import Called, at_text


def source(kernels: Sequence[Kernel], ops: Ops, tiles: str) -> str:
    """Return the text of a kernel for each op.

    Args:
        kernels: of the phase.
        ops: of these kernels.
        tiles: kernels of products, see `tiles`.
    """
    own = "\n".join([*(kernel.text for kernel in kernels), tiles])
    moves = "\n".join(MOVES.values())
    sizes = shared_sizes(f"{moves}\n{own}")
    called = [
        Called(number, op.name, op.x, op.arguments, sizes.get(op.name.replace("_at_", "_"), 0))
        for number, op in enumerate(ops.ops)
    ]
    calls = at_text(called)
    functions = as_functions(moves), records.TEXT, as_functions(own)
    return "\n".join((PRELUDE, THREAD, LANES, *functions, calls))
