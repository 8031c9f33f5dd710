"""Products as kernels of our own, which find rows in the table: for graphs and the persistent kernel.

Each has the name `Task.tile` and the parameters of all kernels of a routine. It takes large tiles where these
keep all blocks busy, and small ones elsewhere: of a level of few rows, or of a sum over rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.engines.cuda.kernels import Kernel, Task
from foldbatch.engines.cuda.matrices import Matrix, Multiplied
from foldbatch.engines.cuda.texts.expressions import KINDS
from foldbatch.engines.cuda.texts.kernel_text import KernelText, indented
from foldbatch.engines.cuda.texts.tile_bodies import SHARED, SIDE, SIZES, WIDTHS, bodies


def tile_kernels(kernels: Sequence[Kernel], precision: str = "fp32") -> str:
    """Return the text of the products of a phase.

    Args:
        kernels: of the phase.
        precision: how operands of float32 are multiplied: ``fp32``, as they are; ``tf32`` or ``bf16``,
            rounded, by matrix units. Sums are of float32 in all three. Products of float64 stay so.
    """
    products = [
        (kernel, task, task.multiplied)
        for kernel in kernels
        for task in kernel.tasks
        if task.multiplied is not None
    ]
    called = bodies({_body(p, precision) for _, _, p in products})
    return "\n".join([*filter(None, [called]), *(_product(*each, precision) for each in products)])


def _body(p: Multiplied, precision: str) -> str:
    """Return which of `tile_bodies.TYPES` a product calls."""
    return precision if p.dtype == "float32" and precision != "fp32" else KINDS[p.dtype]


def _product(kernel: Kernel, task: Task, p: Multiplied, precision: str) -> str:
    text, kind, (small, large) = KernelText(kernel.setting), KINDS[p.dtype], SIZES
    a, b, c = (
        f"{_pointer(text, matrix)} + one * {step}"
        for matrix, step in zip((p.a, p.b, p.c), p.steps, strict=True)
    )
    rows = text.rows(task.axis)
    extents = {"m": p.m, "k": p.k, "count": p.count}
    m, length, count = (f"{rows} * {n}" if p.by == by else str(n) for by, n in extents.items())
    lines = [
        "const i8 *t = (const i8*)table, *o = t + launch;",
        "const i8 start = t[level], calls = t[level + 1] - start;",
        *text.head,
        f"SHARED {kind} shared[{SHARED}];",
        f"const i8 m = {m}, length = {length}, count = {count};",
        f"const i8 large = {_tiles(p, large)}, small = {_tiles(p, small)};",
        "const b1 wide = count * large >= BLOCKS;",
        "const i8 each = wide ? large : small;",
        "for (i8 tile = BLOCK; tile < count * each; tile += BLOCKS) {",
        "  const i8 one = tile / each;",
        "  (void)calls, (void)one;",
        "  if (wide)",
        f"    {_call(p, _body(p, precision), large, a, b, c)}",
        "  else",
        f"    {_call(p, _body(p, precision), small, a, b, c)}",
        "}",
    ]
    head = f"KERNEL {task.tile}(i8 table, i8 launch, i8 level) {{"
    return "\n".join([head, *indented(lines), "}"])


def _tiles(p: Multiplied, size: int) -> str:
    """Return how many tiles a product has."""
    side = SIDE * size
    return f"(m + {side - 1}) / {side} * {-(-p.n // side)}"


def _pointer(text: KernelText, matrix: Matrix) -> str:
    return text.slot(matrix.slot) + (f" + {matrix.offset}" if matrix.offset else "")


def _wide(matrix: Matrix, step: int, kind: str) -> int:
    """Return how many numbers of a matrix can be copied at once, if its slot begins at a good address."""
    return max(
        width for width in WIDTHS[kind] if not any(n % width for n in (matrix.lead, matrix.offset, step))
    )


def _call(p: Multiplied, body: str, size: int, a: str, b: str, c: str) -> str:
    strides = [(1, matrix.lead) if matrix.across else (matrix.lead, 1) for matrix in (p.a, p.b)]
    (a_row, a_column), (b_row, b_column) = strides
    operands = f"{a}, {a_row}, {a_column}, {b}, {b_row}, {b_column}, {c}, {p.c.lead}, {int(p.adds)}"
    kind = KINDS[p.dtype]
    widths = f"{_wide(p.a, p.steps[0], kind)}, {_wide(p.b, p.steps[1], kind)}"
    return f"tile_{body}_{size}(shared, {operands}, m, {p.n}, length, tile % each, {widths});"
