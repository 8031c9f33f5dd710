"""Blocks of matrix products in registers, as LLVM instructions, for `products`.

A *tile* is a block of the result that is kept in registers while the inner dimension runs: some rows by some
vectors of columns. *Dots* are a block of inner products, whose vectors run along the inner dimension. The
offset of each row of a block is an argument, so rows need not be neighbours. Tiles and dots are functions of
one module, compiled once for an element type; texts call them by name.

In bfloat16 a *word* of 32 bits is a pair of numbers that are neighbours along the inner dimension, each a
float32 rounded to the nearest number of 8 digits; a processor adds two products to a sum of float32 in the
time of one. Then the first factor is given as words, and the second one as words or as numbers, which are
rounded in registers. Numbers below the least normal one, 1.2e-38, count as 0.

Importing this needs llvmlite. Sums are added in an order that depends on shapes alone.

Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4, for
blocks by level of cache; Van Zee and van de Geijn 2015 (BLIS), section 5.1, for edges and registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

from llvmlite import binding, ir

from foldbatch.loops.numbers import I32, I64, TYPES, Builder, Emitted, Instruction, Typed, fetch

BITS = {"f4": 32, "f8": 64}
LINE = 64  # bytes that come to a cache together
AHEAD = 4  # rows of the second factor by which tiles ask for memory: no processor foresees rows far apart


@dataclass(frozen=True, slots=True)
class Blocks:
    """The sizes of blocks for a processor."""

    bits: int  # of a vector register
    rows: int  # `rows`, `vectors`: of a tile; its sums and their operands fill the registers
    vectors: int
    # vectors of a tile of 1, 2, ... rows: in a wider tile longer stretches of the second factor are read, and
    # reading decides the speed of so few rows
    wide_vectors: tuple[int, ...]
    dot_rows: int  # `dot_rows`, `dot_columns`: of a tile of dots
    dot_columns: int
    per_word: int = 1  # numbers of a factor in a word: 2 in bfloat16, else 1


WIDE = Blocks(512, 8, 3, (12, 8, 6, 5), 4, 6)  # 32 registers
NARROW = Blocks(256, 4, 3, (6, 4), 3, 3)  # 16 registers
PAIRS = replace(WIDE, per_word=2)


@cache
def blocks() -> Blocks | None:
    """Return the blocks for this processor; None for a processor on which none have been tried."""
    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl"):
        return WIDE
    return NARROW if features.get("avx2") and features.get("fma") else None


def functions(kind: str, cut: Blocks) -> dict[str, Instruction]:
    """Return the functions by which texts call tiles and dots of an element type, by name; see `library`."""
    return {name: _called(_named(kind, cut, name)) for name in _written(kind, cut)}


def _named(kind: str, cut: Blocks, name: str) -> str:
    """Return the name of a tile in the library."""
    return f"{kind}_{cut.per_word}_{cut.bits}_{name}"


def library(name: str, kind: str, cut: Blocks) -> str:
    """Return LLVM's text of a module of all tiles and dots; its function `name` does nothing."""
    module = ir.Module(name)
    void = ir.VoidType()
    ir.IRBuilder(ir.Function(module, ir.FunctionType(void, []), name).append_basic_block()).ret_void()
    words = {"*": TYPES[kind].as_pointer(), "^": I64.as_pointer(), "i": I64}
    for function_name, (arguments, write) in _written(kind, cut).items():
        types = [words[letter] for letter in arguments]
        function = ir.Function(module, ir.FunctionType(void, types), _named(kind, cut, function_name))
        for argument in function.args:
            if argument.type.is_pointer:
                argument.add_attribute("noalias")
        builder = ir.IRBuilder(function.append_basic_block())
        write.write(builder, *(Typed("", argument) for argument in function.args))
        builder.ret_void()
    return str(module)


def _written(kind: str, cut: Blocks) -> dict[str, tuple[str, Instruction]]:
    """Return the tiles and dots by name: the kinds of their arguments, and the writer.

    A kind is ``*`` for a pointer to elements, ``^`` for a pointer to integers, ``i`` for an integer.
    """
    sizes = [(i, v) for i in range(1, cut.rows + 1) for v in range(1, cut.vectors + 1)]
    sizes += [(i, v) for i, v in enumerate(cut.wide_vectors, 1) if v > cut.vectors]
    squares = [(i, j) for i in range(1, cut.dot_rows + 1) for j in (1, cut.dot_columns)]
    written = {f"tile_{i}_{v}": ("*^i*i*^iii", tile(kind, cut, i, v)) for i, v in sizes}
    written |= {f"dots_{i}_{j}": ("*^*i*^ii", dots(kind, cut, i, j)) for i, j in squares}
    if cut.per_word == 1:
        return written | {"turned": ("*i*ii", turned(kind, cut))}
    written |= {f"rounding_{i}_{v}": ("*^i*i*^iii", tile(kind, cut, i, v, rounds=True)) for i, v in sizes}
    return written | {"pair_rows": ("***ii", pair_rows(kind, cut)), "pair_row": ("**i", pair_row(kind, cut))}


def _called(name: str) -> Instruction:
    """Return the writer of a call of another module's function, which must be loaded before."""

    def write(builder: Builder, *arguments: Typed) -> None:
        types = [argument.at.type for argument in arguments]
        declared = builder.module.globals.get(name)
        function = declared or ir.Function(builder.module, ir.FunctionType(ir.VoidType(), types), name)
        builder.call(function, [argument.at for argument in arguments])

    return Instruction(write)


class _BFloat(ir.Type):  # type: ignore[misc]  # of a library without types
    """bfloat16, which llvmlite has no name for."""

    def _to_string(self) -> str:
        return "bfloat"


BFLOAT = _BFloat()


class _VectorWriter:
    """Writes vector instructions of one element type."""

    def __init__(self, builder: Builder, kind: str, cut: Blocks) -> None:
        self.builder = builder
        self.cut = cut
        self.element = TYPES[kind]
        self.lanes = cut.bits // BITS[kind]
        self.type = ir.VectorType(self.element, self.lanes)
        self.zero = ir.Constant(self.type, [0.0] * self.lanes)
        self.suffix = f"v{self.lanes}f{BITS[kind]}"

    def _declare(self, name: str, result: Emitted, arguments: list[Emitted]) -> Emitted:
        declared = self.builder.module.globals.get(name)
        return declared or ir.Function(self.builder.module, ir.FunctionType(result, arguments), name=name)

    def pointer(self, base: Emitted, element: Emitted) -> Emitted:
        return self.builder.bitcast(self.builder.gep(base, [element]), self.type.as_pointer())

    def load(self, pointer: Emitted, mask: Emitted = None) -> Emitted:
        """Return the vector at a pointer; lanes without mask are zero, and their memory is not read."""
        if mask is None:
            value = self.builder.load(pointer)
            value.align = BITS["f4"] // 8
            return value
        arguments = [pointer.type, I32, mask.type, self.type]
        function = self._declare(f"llvm.masked.load.{self.suffix}.p0", self.type, arguments)
        return self.builder.call(function, [pointer, I32(4), mask, self.zero])

    def store(self, value: Emitted, pointer: Emitted, mask: Emitted = None) -> None:
        """Store a vector at a pointer; lanes without mask are left as they are."""
        if mask is None:
            self.builder.store(value, pointer).align = BITS["f4"] // 8
            return
        arguments = [self.type, pointer.type, I32, mask.type]
        function = self._declare(f"llvm.masked.store.{self.suffix}.p0", ir.VoidType(), arguments)
        self.builder.call(function, [value, pointer, I32(4), mask])

    def first(self, count: Emitted) -> Emitted:
        """Return the mask of the first `count` lanes."""
        lanes = ir.VectorType(I64, self.lanes)
        numbers = ir.Constant(lanes, [I64(i) for i in range(self.lanes)])
        return self.builder.icmp_unsigned("<", numbers, self._splat(count, lanes))

    def splat(self, scalar: Emitted) -> Emitted:
        return self._splat(scalar, self.type)

    def _splat(self, scalar: Emitted, type_: Emitted) -> Emitted:
        undefined = ir.Constant(type_, ir.Undefined)
        first_lane = self.builder.insert_element(undefined, scalar, I32(0))
        zeros = ir.Constant(ir.VectorType(I32, self.lanes), [I32(0)] * self.lanes)
        return self.builder.shuffle_vector(first_lane, undefined, zeros)

    def add_product(self, x: Emitted, y: Emitted, z: Emitted) -> Emitted:
        """Return x * y + z, as one instruction if the processor has one."""
        if self.cut.per_word > 1:
            return self._of_pairs("dpbf16ps", self.type, z, *(self._halves(word) for word in (x, y)))
        product = self.builder.fmul(x, y, flags=("contract",))
        return self.builder.fadd(product, z, flags=("contract",))

    def numbers(self, base: Emitted, at: Emitted, count: Emitted = None) -> Emitted:
        """Return a vector of words of the numbers from element `at` on, zeros after the first `count`."""
        parts = []
        for part in range(self.cut.per_word):
            offset = I64(part * self.lanes)
            mask = None if count is None else self.first(self._beyond(count, offset))
            parts.append(self.load(self.pointer(base, self.builder.add(at, offset)), mask))
        return parts[0] if len(parts) == 1 else self.builder.bitcast(self._rounded(*parts), self.type)

    def words(self, count: Emitted) -> Emitted:
        group = self.cut.per_word
        return self.builder.udiv(self.builder.add(count, I64(group - 1)), I64(group))

    def paired(self, low: Emitted, high: Emitted) -> Emitted:
        """Return words of the numbers of two vectors."""
        words = self._rounded(low, high)
        order = ir.VectorType(I32, 2 * self.lanes)
        places = [I32(i + half * self.lanes) for i in range(self.lanes) for half in range(2)]
        mixed = self.builder.shuffle_vector(words, words, ir.Constant(order, places))
        return self.builder.bitcast(mixed, self.type)

    def _rounded(self, low: Emitted, high: Emitted) -> Emitted:
        return self._of_pairs("cvtne2ps2bf16", ir.VectorType(BFLOAT, 2 * self.lanes), high, low)

    def _halves(self, words: Emitted) -> Emitted:
        return self.builder.bitcast(words, ir.VectorType(BFLOAT, 2 * self.lanes))

    def _of_pairs(self, name: str, result: Emitted, *operands: Emitted) -> Emitted:
        types = [operand.type for operand in operands]
        function = self._declare(f"llvm.x86.avx512bf16.{name}.{self.cut.bits}", result, types)
        return self.builder.call(function, operands)

    def _beyond(self, count: Emitted, offset: Emitted) -> Emitted:
        """Return count - done, or 0."""
        remaining = self.builder.sub(count, offset)
        return self.builder.select(self.builder.icmp_unsigned("<", offset, count), remaining, I64(0))

    def sums(self, vectors: Sequence[Emitted], columns: int) -> list[Emitted]:
        """Return the sums of vectors; each result has the sums of `columns` vectors in its first lanes.

        Half of each vector is added to the other half, two vectors at a time; then quarters, and so on.
        """
        room = 1 << (columns - 1).bit_length()
        width = self.lanes
        parts = list[Emitted]()
        for first in range(0, len(vectors), columns):
            parts += [*vectors[first : first + columns], *[self.zero] * (room - columns)]
        places = range(0, len(parts), room)
        parts += [self.zero] * (-len(parts) % self.lanes)
        while width > 1:
            width //= 2
            low, high = ([i for i in range(2 * self.lanes) if i // width % 2 == half] for half in (0, 1))
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.builder.fadd(self.lanes_of(x, y, low), self.lanes_of(x, y, high)) for x, y in pairs]
        parts = [self.builder.fadd(part, self.zero) for part in parts]  # a sum is never -0
        totals = []
        for place in places:
            part, turned = parts[place // self.lanes], [(place + i) % self.lanes for i in range(self.lanes)]
            totals.append(self.lanes_of(part, part, turned))
        return totals

    def lanes_of(self, x: Emitted, y: Emitted, lanes: Sequence[int]) -> Emitted:
        """Return some lanes of two vectors; the numbers of y's lanes follow those of x."""
        places = ir.Constant(ir.VectorType(I32, len(lanes)), [I32(i) for i in lanes])
        return self.builder.shuffle_vector(x, y, places)


@contextmanager
def _loop(
    builder: Builder, steps: Emitted, values: list[Emitted]
) -> Iterator[tuple[Emitted, list[Emitted], list[Emitted]]]:
    """Write a loop around the instructions of a ``with`` block.

    Yields the number of the turn, the values at its start, and a list to which the block appends the values
    at its end; after the block the list has the values after the last turn.
    """
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    turn = builder.phi(I64)
    turn.add_incoming(I64(0), before)
    current = [builder.phi(value.type) for value in values]
    for phi, value in zip(current, values, strict=True):
        phi.add_incoming(value, before)
    builder.cbranch(builder.icmp_unsigned("<", turn, steps), body, after)
    builder.position_at_end(body)
    end: list[Emitted] = []
    yield turn, current, end
    turn.add_incoming(builder.add(turn, I64(1)), builder.block)
    for phi, value in zip(current, end, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    end[:] = current


def tile(kind: str, cut: Blocks, rows: int, vectors: int, *, rounds: bool = False) -> Instruction:
    """Return the writer of a block of c (+)= a @ b, which texts call by its name and size.

    Its arguments are ``a, a_at, a_step, b, b_step, c, c_at, k, tail, adds``.
    ``a[i, j]`` is element ``a_at[i] + j * a_step``, ``b[j, 0]`` is ``j * b_step``, and ``c[i, 0]`` is
    ``c_at[i]``; the last vector has `tail` columns. If it `rounds`, ``b`` has two rows of numbers for each
    row of words.
    """

    def generate(builder: Builder, *arguments: Typed) -> None:
        """Write the tile: sums over the inner dimension in registers, which are stored or added last."""
        a, a_at, a_step, b, b_step, c, c_at, k, tail, adds = (argument.at for argument in arguments)
        write = _VectorWriter(builder, kind, cut)
        masks = [None] * (vectors - 1) + [write.first(tail)]
        a_rows, c_rows = _read(builder, a_at, rows), _read(builder, c_at, rows)
        zeros = [write.zero] * (rows * vectors)
        for start in c_rows:  # which are far apart, too, and are read or written at the end
            _fetch_row(write, c, start, vectors)
        with _loop(builder, k, [*zeros, I64(0), I64(0)]) as (_, (*sums, at, b_at), end):
            _fetch_row(write, b, builder.add(b_at, builder.mul(b_step, I64(AHEAD))), vectors)
            columns = []
            for v, mask in enumerate(masks):
                here = builder.add(b_at, I64(v * write.lanes))
                row = write.load(write.pointer(b, here), mask)
                if rounds:
                    row = write.paired(row, write.load(write.pointer(b, builder.add(here, b_step)), mask))
                columns.append(row)
            for i, start in enumerate(a_rows):
                x = write.splat(builder.load(builder.gep(a, [builder.add(at, start)])))
                end += [write.add_product(x, y, sums[i * vectors + v]) for v, y in enumerate(columns)]
            end += [builder.add(at, a_step), builder.add(b_at, builder.mul(b_step, I64(1 + rounds)))]
        places = [
            (write.pointer(c, builder.add(start, I64(v * write.lanes))), mask)
            for start in c_rows
            for v, mask in enumerate(masks)
        ]
        with builder.if_else(builder.icmp_unsigned("!=", adds, I64(0))) as (then, otherwise):
            with then:
                for total, (place, mask) in zip(end, places, strict=False):
                    write.store(builder.fadd(write.load(place, mask), total), place, mask)
            with otherwise:
                for total, (place, mask) in zip(end, places, strict=False):
                    write.store(total, place, mask)

    return Instruction(generate)


def dots(kind: str, cut: Blocks, rows: int, columns: int) -> Instruction:
    """Return the writer of ``dots(a, a_at, b, b_step, c, c_at, k, adds)``: a block of c (+)= a @ b.T.

    ``a[i, 0]`` is element ``a_at[i]``, ``b[j, 0]`` is ``j * b_step``, ``c[i, 0]`` is ``c_at[i]``; `k` is the
    count of numbers of a row.
    """

    def generate(builder: Builder, *arguments: Typed) -> None:
        """Write the dots: full vectors first, then the numbers that remain, then the sums across lanes."""
        a, a_at, b, b_step, c, c_at, k, adds = (argument.at for argument in arguments)
        write = _VectorWriter(builder, kind, cut)
        width = I64(write.lanes * cut.per_word)
        turns = builder.udiv(k, width)
        covered = builder.mul(turns, width)
        remaining = builder.sub(k, covered)
        a_rows, c_rows = _read(builder, a_at, rows), _read(builder, c_at, rows)
        b_rows = [builder.mul(I64(j), b_step) for j in range(columns)]

        def step(turn: Emitted, sums: list[Emitted], remaining: Emitted = None) -> list[Emitted]:
            """Return the sums with a vector of products added, of the `remaining` numbers if given."""
            at = builder.mul(turn, width)
            word = builder.mul(turn, I64(write.lanes))
            ys = [write.numbers(b, builder.add(start, at), remaining) for start in b_rows]
            mask = None if remaining is None else write.first(write.words(remaining))
            totals = []
            for i, start in enumerate(a_rows):
                x = write.load(write.pointer(a, builder.add(start, word)), mask)
                totals += [write.add_product(x, y, sums[i * columns + j]) for j, y in enumerate(ys)]
            return totals

        with _loop(builder, turns, [write.zero] * (rows * columns)) as (turn, sums, end):
            end.extend(step(turn, sums))
        keeps = builder.icmp_unsigned("!=", adds, I64(0))
        totals = write.sums(step(turns, end, remaining), columns)
        mask = write.first(I64(columns))
        for start, total in zip(c_rows, totals, strict=True):
            place = write.pointer(c, start)
            # not a product of 0 and what was there, which may be NaN
            old = builder.select(keeps, write.load(place, mask), write.zero)
            write.store(builder.fadd(total, old), place, mask)

    return Instruction(generate)


def turned(kind: str, cut: Blocks) -> Instruction:
    """Return the writer of ``turned(b, b_step, out, k, columns)``: `out` is b.T, of a tile's width.

    Column j is row j of `b`, at ``j * b_step``, of k numbers. Numbers in a row of `out` behind `columns` have
    no meaning, and up to a vector of such rows is written behind the last row.
    """

    def generate(builder: Builder, *arguments: Typed) -> None:
        """Write the transposition, a square of a vector's lanes at a time."""
        b, b_step, out, k, columns = (argument.at for argument in arguments)
        write = _VectorWriter(builder, kind, cut)
        lanes = write.lanes
        last = builder.sub(columns, I64(1))
        low = [i // 2 + i % 2 * lanes for i in range(lanes)]  # of two vectors, in turn
        halves = low, [i + lanes // 2 for i in low]
        with _loop(builder, builder.udiv(builder.add(last, I64(lanes)), I64(lanes)), []) as (block, _, _):
            first = builder.mul(block, I64(lanes))
            rows = [builder.add(first, I64(i)) for i in range(lanes)]
            rows = [builder.select(builder.icmp_unsigned("<", row, last), row, last) for row in rows]
            starts = [builder.mul(row, b_step) for row in rows]

            def step(turn: Emitted, remaining: Emitted = None) -> None:
                """Transpose a square in registers, in log2(lanes) shuffles."""
                at = builder.mul(turn, I64(lanes))
                mask = remaining and write.first(remaining)
                lines = [write.load(write.pointer(b, builder.add(start, at)), mask) for start in starts]
                for _ in range(lanes.bit_length() - 1):  # each moves the bits of (line, lane) round by one
                    pairs = list(zip(lines[: lanes // 2], lines[lanes // 2 :], strict=True))
                    lines = [write.lanes_of(x, y, half) for x, y in pairs for half in halves]
                for i, line in enumerate(lines):
                    to = builder.mul(builder.add(at, I64(i)), I64(lanes * cut.vectors))
                    write.store(line, write.pointer(out, builder.add(to, first)))

            _turns(builder, k, lanes, step)

    return Instruction(generate)


def pair_rows(kind: str, cut: Blocks) -> Instruction:
    """Return the writer of ``pair_rows(x, y, out, n, paired)``: n words of the numbers of x and y.

    If `paired` is 0, there are zeros in place of y. Up to a vector is written behind the words.
    """

    def generate(builder: Builder, *arguments: Typed) -> None:
        """Write the loop over vectors of both rows."""
        x, y, out, n, paired = (argument.at for argument in arguments)
        write = _VectorWriter(builder, kind, cut)
        reads = builder.icmp_unsigned("!=", paired, I64(0))
        y = builder.select(reads, y, x)

        def step(turn: Emitted, remaining: Emitted = None) -> None:
            at = builder.mul(turn, I64(write.lanes))
            mask = remaining and write.first(remaining)
            low, high = (write.load(write.pointer(row, at), mask) for row in (x, y))
            high = builder.select(reads, high, write.zero)
            write.store(write.paired(low, high), write.pointer(out, at))

        _turns(builder, n, write.lanes, step)

    return Instruction(generate)


def pair_row(kind: str, cut: Blocks) -> Instruction:
    """Return the writer of ``pair_row(x, out, n)``: words of n contiguous numbers.

    An odd last number is paired with 0. Up to a vector is written behind the words.
    """

    def generate(builder: Builder, *arguments: Typed) -> None:
        """Write the loop over vectors of the row."""
        x, out, n = (argument.at for argument in arguments)
        write = _VectorWriter(builder, kind, cut)
        width = cut.per_word * write.lanes

        def step(turn: Emitted, remaining: Emitted = None) -> None:
            words = write.numbers(x, builder.mul(turn, I64(width)), remaining)
            write.store(words, write.pointer(out, builder.mul(turn, I64(write.lanes))))

        _turns(builder, n, width, step)

    return Instruction(generate)


def _turns(builder: Builder, n: Emitted, width: int, step: Callable[..., None]) -> None:
    """Write a loop of a step for each `width` numbers, and a last step for the numbers that remain."""
    full = builder.udiv(n, I64(width))
    with _loop(builder, full, []) as (turn, _, _):
        step(turn)
    remaining = builder.urem(n, I64(width))
    with builder.if_then(builder.icmp_unsigned("!=", remaining, I64(0))):
        step(full, remaining)


def _read(builder: Builder, numbers: Emitted, count: int) -> list[Emitted]:
    return [builder.load(builder.gep(numbers, [I64(i)])) for i in range(count)]


def _fetch_row(write: _VectorWriter, base: Emitted, at: Emitted, vectors: int) -> None:
    """Prefetch the memory of some vectors from element `at` on."""
    for v in range(0, vectors, max(1, LINE * 8 // write.cut.bits)):
        here = write.pointer(base, write.builder.add(at, I64(v * write.lanes)))
        fetch.write(write.builder, Typed("", here))
