"""Kernels as functions, for kernels that find their arguments in the control table and call others.

A text of kernels stays as it is; here it becomes one of functions. Such a function has two parameters more:
``x_``, how many threads run along the elements of a row at most (the others run along rows); and ``shared_``,
the memory that the threads of a block share, which all functions use in turns.
"""

from __future__ import annotations

import re
from itertools import pairwise

_KERNEL = re.compile(r"\bKERNEL(?:_WIDE)?\s+(\w+)\s*\(([^)]*)\)")
_SHARED = re.compile(r"\bSHARED\s+(\w+)\s+([^;]+);")
_BYTES = {"f4": 4, "f8": 8, "i4": 4, "i8": 8, "u4": 4, "b1": 1}

# Put before functions, and after what else uses these names.
LANES = """\
#undef LANE_X
#undef LANE_Y
#undef LANES_X
#undef LANES_Y
#define LANES_X min_i8(x_, THREADS)
#define LANES_Y (THREADS / LANES_X)
#define LANE_X (THREAD % LANES_X)
#define LANE_Y (THREAD / LANES_X)
"""
# Put before `LANES`.
THREAD = """\
DEVICE i8 thread_of_block(void) { return LANE_Y * LANES_X + LANE_X; }
#define THREAD thread_of_block()
"""


def as_functions(source: str) -> str:
    """Return kernels as functions.

    >>> print(as_functions("KERNEL k(i8 table) { SHARED f8 part[4]; part[LANE_X] = 0; }"))
    DEVICE void k(const i8 x_, f8* shared_, i8 table) { f8* part = (f8*)(shared_ + 0); part[LANE_X] = 0; }
    """
    return _each_function(_KERNEL.sub(r"DEVICE void \1(const i8 x_, f8* shared_, \2)", source))


def shared_sizes(source: str) -> dict[str, int]:
    """Return how many doubles the threads of a block share in each kernel of a text.

    >>> shared_sizes("KERNEL k() { SHARED f8 a[4], b[2]; SHARED i4 c[3]; } KERNEL none() { }")
    {'k': 8, 'none': 0}
    """
    found = ((_KERNEL.match(part), part) for part in _functions(source))
    return {kernel.group(1): _laid(part)[1] for kernel, part in found if kernel is not None}


def _functions(source: str) -> list[str]:
    """Return a text cut before each function."""
    starts = [0, *(found.start() for found in re.finditer(r"\b(KERNEL|DEVICE void)", source)), len(source)]
    return [source[start:stop] for start, stop in pairwise(starts)]


def _each_function(source: str) -> str:
    return "".join(_laid(part)[0] for part in _functions(source))


def _laid(function: str) -> tuple[str, int]:
    """Return a function whose shared arrays lie in ``shared_``, and how many doubles they take."""
    taken = 0

    def placed(found: re.Match[str]) -> str:
        nonlocal taken
        kind, lines = found.group(1), []
        for array in found.group(2).split(","):
            name, size = re.fullmatch(r"\s*(\w+)\[(\d+)\]\s*", array).groups()  # type: ignore[union-attr]
            lines.append(f"{kind}* {name} = ({kind}*)(shared_ + {taken});")
            taken += (
                -(-int(size) * _BYTES[kind] // 16) * 2
            )  # what loads four numbers at once finds them aligned
        return " ".join(lines)

    return _SHARED.sub(placed, function), taken
