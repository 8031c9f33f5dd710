"""Matrix products as tiles of registers, compiled with Numba: fast for few rows, as levels of trees have.

A BLAS copies both factors into a layout of its own at each call, which pays for large squares; a level
of a batch has a few dozen rows, and the weights it multiplies lie in the cache from the level before. So
the factors are read where they lie. A *tile* is a block of the result that is kept in registers while
the inner dimension runs: some rows by some vectors of columns. Where the second factor is a transposed
matrix, vectors run along the inner dimension instead (*dots*), or, if that is short, the factor's panel
of columns is copied to the stack first.

Importing this needs Numba. Sums are added in an order that depends on shapes alone.

Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4, for
blocks by level of cache; Van Zee and van de Geijn 2015 (BLIS), section 5.1, for edges and registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

u8 = types.uint64
I32, I64 = ir.IntType(32), ir.IntType(64)
BITS = {"f4": 32, "f8": 64}


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a product is cut for a processor.

    Attributes:
        bits: of a vector register.
        rows, vectors: of a tile; with what they are made of, they fill the registers.
        dot_rows, dot_columns: of a tile of dots.
    """

    bits: int
    rows: int
    vectors: int
    dot_rows: int
    dot_columns: int


WIDE = Blocks(512, 8, 3, 4, 6)  # 32 registers
NARROW = Blocks(256, 4, 3, 3, 3)  # 16 registers

# Rows of the first factor, and steps of the inner dimension, that stay in cache while columns pass by.
ROW_BLOCK, INNER_BLOCK = 320, 512
DOT_ROW_BLOCK, DOT_INNER_BLOCK = 32, 1024
PANEL_BLOCK = 128
MANY = 96  # rows from which a panel is worth copying, though dots would do


@cache
def blocks() -> Blocks | None:
    """Return how to cut products for this processor; None where that has not been tried."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl"):
        return WIDE
    return NARROW if features.get("avx2") and features.get("fma") else None


class _Vectors:
    """Writes vector instructions of one element type."""

    def __init__(self, builder: Any, kind: str, bits: int) -> None:
        self.builder = builder
        self.element = {"f4": ir.FloatType(), "f8": ir.DoubleType()}[kind]
        self.lanes = bits // BITS[kind]
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, [0.0] * self.lanes)
        self.suffix = f"v{self.lanes}f{BITS[kind]}"

    def _declare(self, name: str, result: Any, arguments: list[Any]) -> Any:
        known = self.builder.module.globals.get(name)
        return known or ir.Function(self.builder.module, ir.FunctionType(result, arguments), name=name)

    def pointer(self, base: Any, element: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [element]), self.type.as_pointer())

    def load(self, pointer: Any, mask: Any = None) -> Any:
        if mask is None:
            value = self.builder.load(pointer)
            value.align = BITS["f4"] // 8
            return value
        arguments = [pointer.type, I32, mask.type, self.type]
        function = self._declare(f"llvm.masked.load.{self.suffix}.p0", self.type, arguments)
        return self.builder.call(function, [pointer, I32(4), mask, self.zero])

    def store(self, value: Any, pointer: Any, mask: Any = None) -> None:
        if mask is None:
            self.builder.store(value, pointer).align = BITS["f4"] // 8
            return
        arguments = [self.type, pointer.type, I32, mask.type]
        function = self._declare(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), arguments)
        self.builder.call(function, [value, pointer, I32(4), mask])

    def first(self, count: Any) -> Any:
        """Return the mask of the first `count` lanes."""
        lanes = ir.VectorType(I64, self.lanes)
        numbers = ir.Constant(lanes, [I64(i) for i in range(self.lanes)])
        return self.builder.icmp_unsigned("<", numbers, self._splat(count, lanes))

    def splat(self, scalar: Any) -> Any:
        return self._splat(scalar, self.type)

    def _splat(self, scalar: Any, type_: Any) -> Any:
        undefined = ir.Constant(type_, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [I32(0)] * self.lanes)
        return self.builder.shuffle_vector(one, undefined, zeros)

    def add_product(self, x: Any, y: Any, z: Any) -> Any:
        """Return x * y + z, as one instruction where there is one."""
        product = self.builder.fmul(x, y, flags=("contract",))
        return self.builder.fadd(product, z, flags=("contract",))

    def sum(self, vector: Any) -> Any:
        function = self._declare(
            f"llvm.vector.reduce.fadd.{self.suffix}", self.element, [self.element, self.type]
        )
        return self.builder.call(function, [self.element(0.0), vector], fastmath=("reassoc",))


@contextmanager
def _loop(builder: Any, steps: Any, values: list[Any]) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Repeat what is written inside: gives the turn's number, values at its start, and a list for its end.

    Afterwards the list holds the values after the last turn.
    """
    before = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    turn = builder.phi(I64)
    turn.add_incoming(I64(0), before)
    current = [builder.phi(value.type) for value in values]
    for phi, value in zip(current, values, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_unsigned("<", turn, steps), body, done)
    builder.position_at_end(body)
    end: list[Any] = []
    yield turn, current, end
    turn.add_incoming(builder.add(turn, I64(1)), builder.block)
    for phi, value in zip(current, end, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    end[:] = current


def _tile(kind: str, bits: int, rows: int, vectors: int) -> Any:
    """Return ``tile(a, row, inner, b, b_row, c, c_row, k, tail, adds)``: a block of c (+)= a @ b.

    ``a[i, j]`` is element ``i * row + j * inner``; of the last vector `tail` columns count.
    """
    pointer = types.CPointer({"f4": types.float32, "f8": types.float64}[kind])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, row, inner, b, b_row, c, c_row, k, tail, adds = arguments
        write = _Vectors(builder, kind, bits)
        masks = [None] * (vectors - 1) + [write.first(tail)]
        places = [
            write.pointer(c, builder.add(builder.mul(I64(i), c_row), I64(v * write.lanes)))
            for i in range(rows)
            for v in range(vectors)
        ]
        zeros = [write.zero] * len(places)
        with builder.if_else(builder.icmp_unsigned("!=", adds, I64(0))) as (then, otherwise):
            with then:
                old = [write.load(place, masks[i % vectors]) for i, place in enumerate(places)]
                loaded = builder.block
            with otherwise:
                blank = builder.block
        start = [builder.phi(write.type) for _ in places]
        for phi, one, other in zip(start, old, zeros, strict=True):
            phi.add_incoming(one, loaded)
            phi.add_incoming(other, blank)
        starts = [builder.mul(I64(i), row) for i in range(rows)]
        with _loop(builder, k, [*start, I64(0), I64(0)]) as (_, (*sums, at, b_at), end):
            columns = [
                write.load(write.pointer(b, builder.add(b_at, I64(v * write.lanes))), mask)
                for v, mask in enumerate(masks)
            ]
            for i in range(rows):
                x = write.splat(builder.load(builder.gep(a, [builder.add(at, starts[i])])))
                end += [write.add_product(x, y, sums[i * vectors + v]) for v, y in enumerate(columns)]
            end += [builder.add(at, inner), builder.add(b_at, b_row)]
        for i, place in enumerate(places):
            write.store(end[i], place, masks[i % vectors])
        return context.get_dummy_value()

    def typed(
        context: Any, a: Any, row: Any, inner: Any, b: Any, b_row: Any, c: Any, c_row: Any, k: Any,
        tail: Any, adds: Any,
    ) -> Any:  # fmt: skip
        return types.void(pointer, u8, u8, pointer, u8, pointer, u8, u8, u8, u8), generate

    return intrinsic(typed)


def _dots(kind: str, bits: int, rows: int, columns: int) -> Any:
    """Return ``dots(a, a_row, b, b_row, c, c_row, k, adds)``: a block of c (+)= a @ b.T."""
    pointer = types.CPointer({"f4": types.float32, "f8": types.float64}[kind])

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, a_row, b, b_row, c, c_row, k, adds = arguments
        write = _Vectors(builder, kind, bits)
        turns = builder.udiv(k, I64(write.lanes))
        done = builder.mul(turns, I64(write.lanes))
        mask = write.first(builder.sub(k, done))
        a_rows = [builder.mul(I64(i), a_row) for i in range(rows)]
        b_rows = [builder.mul(I64(j), b_row) for j in range(columns)]

        def step(at: Any, sums: list[Any], mask: Any) -> list[Any]:
            ys = [write.load(write.pointer(b, builder.add(start, at)), mask) for start in b_rows]
            found = []
            for i, start in enumerate(a_rows):
                x = write.load(write.pointer(a, builder.add(start, at)), mask)
                found += [write.add_product(x, y, sums[i * columns + j]) for j, y in enumerate(ys)]
            return found

        with _loop(builder, turns, [write.zero] * (rows * columns)) as (turn, sums, end):
            end.extend(step(builder.mul(turn, I64(write.lanes)), sums, None))
        for i, vector in enumerate(step(done, end, mask)):
            place = builder.gep(c, [builder.add(builder.mul(I64(i // columns), c_row), I64(i % columns))])
            total = write.sum(vector)
            old = builder.load(place)
            keeps = builder.icmp_unsigned("!=", adds, I64(0))
            # not a product of 0 and what was there, which may be NaN
            builder.store(builder.fadd(total, builder.select(keeps, old, write.element(0.0))), place)
        return context.get_dummy_value()

    def typed(
        context: Any, a: Any, a_row: Any, b: Any, b_row: Any, c: Any, c_row: Any, k: Any, adds: Any
    ) -> Any:
        return types.void(pointer, u8, pointer, u8, pointer, u8, u8, u8), generate

    return intrinsic(typed)


def _stack(kind: str, size: int) -> Any:
    """Return ``stack()``: memory for `size` elements, until the function returns."""
    element = {"f4": types.float32, "f8": types.float64}[kind]

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        space = cgutils.alloca_once(builder, context.get_value_type(element), size=I64(size))
        return builder.bitcast(space, context.get_value_type(types.CPointer(element)))

    return intrinsic(lambda context: (types.CPointer(element)(), generate))


def _moved(context: Any, pointer: Any, elements: Any) -> Any:
    return pointer(pointer, u8), lambda context, builder, signature, arguments: builder.gep(
        arguments[0], [arguments[1]]
    )


def functions(kind: str, cut: Blocks) -> dict[str, Any]:
    """Return what the text of a product calls, by name."""
    lanes = cut.bits // BITS[kind]
    tiles = {
        f"tile_{i}_{v}": _tile(kind, cut.bits, i, v)
        for i in range(1, cut.rows + 1)
        for v in range(1, cut.vectors + 1)
    }
    dots = {
        f"dots_{i}_{j}": _dots(kind, cut.bits, i, j)
        for i in range(1, cut.dot_rows + 1)
        for j in (1, cut.dot_columns)
    }
    panel = {"stack": _stack(kind, PANEL_BLOCK * cut.vectors * lanes), "moved": intrinsic(_moved)}
    return tiles | dots | panel


def spell(kind: str, cut: Blocks) -> str:
    """Return the text of ``product(a, b, c)``: c = a @ b, for arrays of two axes and element type `kind`.

    The columns of ``c`` are neighbours in memory. Shapes: ``a: [m, k]``, ``b: [k, n]``, ``c: [m, n]``.
    """
    size, lanes = BITS[kind] // 8, cut.bits // BITS[kind]
    width = lanes * cut.vectors
    return f"""\
# {kind}[2]a, {kind}[2]a, {kind}[2]aw
def loop(a, b, c):
    m, n, k = u8(c.shape[0]), u8(c.shape[1]), u8(a.shape[1])
    row, inner, c_row = u8(a.strides[0] // {size}), u8(a.strides[1] // {size}), u8(c.strides[0] // {size})
    b_row, b_column = u8(b.strides[0] // {size}), u8(b.strides[1] // {size})
    a0, b0, c0 = flat(a), flat(b), flat(c)
    if k == u8(0):
        for i in range(m):
            for j in range(n):
                c0[i * c_row + j] = {kind}(0)
    elif inner == u8(1) and b_row == u8(1) and n > u8(1) and k >= u8({4 * lanes}) and m < u8({MANY}):
        start = u8(0)
        step = k // (k // u8({DOT_INNER_BLOCK}) + u8(1)) + u8(1)
        while start < k:
            depth = min(step, k - start)
            first = u8(0)
            while first < m:
                last = min(first + u8({DOT_ROW_BLOCK}), m)
                j = u8(0)
                while j + u8({cut.dot_columns}) <= n:
{_rows_of_dots(cut, cut.dot_columns)}
                    j += u8({cut.dot_columns})
                while j < n:
{_rows_of_dots(cut, 1)}
                    j += u8(1)
                first = last
            start += depth
    else:
        packs = b_column != u8(1) and n > u8(1)
        panel = stack()
        limit = u8({PANEL_BLOCK}) if packs else u8({INNER_BLOCK})
        step = k // (k // limit + u8(1)) + u8(1)
        height = m if packs else u8({ROW_BLOCK})
        start = u8(0)
        while start < k:
            depth = min(step, k - start)
            first = u8(0)
            while first < m:
                last = min(first + height, m)
                j = u8(0)
                while j < n:
                    columns = min(u8({width}), n - j)
                    right, right_row = moved(b0, start * b_row + j), b_row
                    if packs:
                        for s in range(depth):
                            for i in range(columns):
                                panel[s * u8({width}) + i] = b0[(start + s) * b_row + (j + i) * b_column]
                        right, right_row = panel, u8({width})
{_vectors_of_columns(cut, lanes)}
                    j += u8({width})
                first = last
            start += depth
"""


def _rows_of_dots(cut: Blocks, columns: int) -> str:
    """Return the lines that compute some columns of all rows of a block."""
    left, right = "moved(a0, i * row + start), row", "moved(b0, j * b_column + start), b_column"
    call = f"dots_{{}}_{columns}({left}, {right}, moved(c0, i * c_row + j), c_row, depth, start)"
    return _rows(cut.dot_rows, call, 20)


def _vectors_of_columns(cut: Blocks, lanes: int) -> str:
    """Return the lines that compute a tile's width of all rows of a block."""
    lines = []
    for vectors in range(cut.vectors, 0, -1):
        test = f"columns > u8({(vectors - 1) * lanes})"
        lines.append(f"{' ' * 20}{'if' if vectors == cut.vectors else 'elif'} {test}:")
        call = (
            f"tile_{{}}_{vectors}(moved(a0, i * row + start * inner), row, inner, right, right_row, "
            f"moved(c0, i * c_row + j), c_row, depth, columns - u8({(vectors - 1) * lanes}), start)"
        )
        lines.append(_rows(cut.rows, call, 24))
    return "\n".join(lines)


def _rows(rows: int, call: str, indent: int) -> str:
    """Return the lines that make `call` for as many rows at once as there are, up to `rows`."""
    lines = [
        "i = first",
        f"while i + u8({rows}) <= last:",
        f"    {call.format(rows)}",
        f"    i += u8({rows})",
    ]
    for count in range(1, rows):
        lines += [f"{'if' if count == 1 else 'elif'} last - i == u8({count}):", f"    {call.format(count)}"]
    return "\n".join(" " * indent + line for line in lines)
