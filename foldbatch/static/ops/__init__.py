"""The ops: one paragraph each (type rule, reference evaluation, derivatives, samples).

Importing this package fills `foldbatch.static.graph.OPS`; its names are what users call as
``fb.ops``.
"""

from typing import NoReturn

from foldbatch.operators import FUNCTIONS, nearest, numpys, plain_operands
from foldbatch.static import graph
from foldbatch.static.ops import elementwise, linalg, lists, reduce, rows, shape  # noqa: F401 - they fill the table
from foldbatch.static.ops.functions import *  # noqa: F403
from foldbatch.static.ops.linalg import *  # noqa: F403
from foldbatch.static.ops.rows import *  # noqa: F403
from foldbatch.static.ops.shape import *  # noqa: F403

matmul = numpys(plain_operands("arrays")(graph.matmul))

__all__ = sorted(FUNCTIONS.keys() - {"getitem"})  # noqa: PLE0605 - each is marked where it stands


def __getattr__(name: str) -> NoReturn:
    """Name the nearest op."""
    raise AttributeError(f"foldbatch.ops has no {name!r}; {nearest(name)}")


def __dir__() -> list[str]:
    return list(__all__)
