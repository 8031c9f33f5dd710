"""Matrix products as tiles of registers: fast for few rows, as levels of trees have.

A BLAS copies both factors into its own layout at each call, which pays for large squares; a level of a batch
has a few dozen rows, and its weights are in the cache since the level before. So the factors are read in
place, row by row if they are not neighbours, and cut into the blocks of `tiles`. If the second factor is a
transposed matrix, its columns are read as dots. For many rows, a panel of its columns, transposed or not, is
copied to the stack first.

================  ===============================================
`native_text`     c (+)= a @ b, one after the other
`rows_text`       c[c_rows] (+)= a[a_rows] @ b
`outer_text`      c (+)= a[a_rows].T @ b[b_rows]
`sum_outer_text`  c (+)= a.T @ b, one after the other
================  ===============================================

All have two axes; columns of ``c`` are neighbours in memory. In bfloat16, too, the factors are float32 in
memory: the first one becomes words block by block, the second one for each tile's width, or in registers
if few rows read it. So a weight may change at any time. Importing this needs llvmlite.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import cache, partial
from textwrap import indent
from typing import Any

from foldbatch.engines.launch import Fields
from foldbatch.engines.llvm import tiles
from foldbatch.engines.llvm.tiles import AHEAD, BITS, NARROW, PAIRS, WIDE, Blocks
from foldbatch.loops.compiling import Native, link, native
from foldbatch.loops.numbers import Instruction
from foldbatch.loops.vector_functions import stack

Text = Callable[[str, Any], str]  # of a product, for element types and `Blocks`, or None
Stacks = tuple[tuple[str, int], ...]  # names and sizes

# Rows of the first factor, and steps of the inner dimension, that stay in cache while columns pass by.
ROW_BLOCK, INNER_BLOCK = 320, 512
DOT_ROW_BLOCK, DOT_INNER_BLOCK = 32, 1024
PACKED = 98_304  # numbers of a row block if panels are copied, which is done again for each row block
# numbers of a second factor that stays in cache: up to that size, sums of outer products go row by row
CACHED_FACTOR = 65_536
SWAPPED = 8192  # numbers of a product that is computed transposed first
STARTS = 4096  # rows whose offsets are computed at a time; for more rows a panel is copied again
DEPTH, COLUMN_BLOCK = 128, 16  # of the copies of outer products: steps of the inner dimension, tiles' widths
BEHIND = 16  # words that may be written behind others
PANEL_ROWS = 32  # rows from which a panel is worth copying, though its numbers could be read in place
WORD_BLOCK = 160  # of bfloat16: words of the inner dimension in place of INNER_BLOCK and DEPTH
# of bfloat16: rows up to which words are computed in registers, and rows as PANEL_ROWS
REGISTER_ROWS, PANEL_ROWS_OF_WORDS = 16, 48


def functions(kind: str, cut: Blocks, stacks: Stacks) -> dict[str, Instruction]:
    """Return the functions that the texts of products call, by name."""
    width = cut.vectors * cut.bits // BITS[kind]
    depth, panel = (DEPTH, INNER_BLOCK) if cut.per_word == 1 else (WORD_BLOCK, WORD_BLOCK)
    return tiles.functions(kind, cut) | {
        "panel": stack(kind, (panel + cut.bits // BITS[kind]) * width),
        "aside": stack(kind, 2 * ROW_BLOCK + BEHIND),
        "starts": stack("u8", STARTS),
        "swapped": stack(kind, SWAPPED),
        "lefts": stack(kind, depth * ROW_BLOCK + BEHIND),
        "rights": stack(kind, depth * COLUMN_BLOCK * width),
        **{name: stack("u8", size) for name, size in stacks},
    }


def cut_of(kind: str, precision: str) -> Blocks | None:
    """Return the tiles of products of an element type in a precision; None if the processor has none."""
    return PAIRS if precision == "bf16" and kind == "f4" else tiles.blocks()


def compiled(text: Text, kind: str, cut: Blocks | None, stacks: Stacks = ()) -> Native:
    """Return the compiled function of a product's text, and load its tiles; without a cut it is plain loops.

    `stacks` are names and sizes of memory for integers that the text uses, see `vector_functions.stack`.
    """
    if cut is None:
        return native(text(kind, None))
    return native(text(kind, cut), *_link_tiles(kind, cut, stacks))


@cache
def _link_tiles(kind: str, cut: Blocks, stacks: Stacks) -> tuple[Callable[[], dict[str, Instruction]], str]:
    """Load tiles; return a function that returns `functions`, and the text that keys it in the cache."""
    library_cut = next(
        candidate
        for candidate in (PAIRS, WIDE, NARROW)
        if (candidate.per_word, candidate.bits) == (cut.per_word, cut.bits)
    )
    texts = inspect.getsource(tiles)
    link(f"{kind} {library_cut}\n{texts}", partial(tiles.library, kind=kind, cut=library_cut))
    return partial(functions, kind, cut, stacks), texts + inspect.getsource(sys.modules[__name__])


def rows_text(kind: str, cut: Blocks) -> str:
    """Return the text of ``c[c_rows] (+)= a[a_rows] @ b``, as `compiling.native` takes it.

    Elements of a row of `a`, and of `c`, are contiguous. Its statics are k and n; strides of rows of `a`, of
    `b` (both), and of rows of `c`; whether it adds in any case, to rows that are distinct. Else it adds
    unless the result's `fields` of the launch say that it stores; and if their `first` is -1, rows of `c` may
    repeat, and are computed one after the other.
    """
    at = "u8(a_rows[first + r]) * a_row", "u8(c_rows[first + r]) * c_row"
    stores = Fields.stores
    body = indent(product_lines(cut, cut.bits // BITS[kind], at), "    ")
    return f"""\
# {kind} i8 {kind} {kind} i8 i8
def loop(n_rows, a0, all_a_rows, b0, c0, all_c_rows, fields, statics):
    k, n, a_row, b_row, b_column = (
        u8(statics[0]), u8(statics[1]), u8(statics[2]), u8(statics[3]), u8(statics[4])
    )
    a_column, c_row, accumulates = u8(1), u8(statics[5]), u8((statics[6] != 0) | (fields[{stores}] == 0))
    a_at, c_at, o = starts(), starts(), u8(0)
    while o < n_rows:
        m = n_rows if (fields[{Fields.first}] >= 0) | (statics[6] != 0) else u8(1)
        a_rows, c_rows = moved(all_a_rows, o), moved(all_c_rows, o)
        start = u8(0)
{empty_product_lines(kind, "m", "u8(c_rows[i]) * c_row", 8)}
{body}
        o += m
"""


def outer_text(kind: str, cut: Blocks) -> str:
    """Return the text of ``c (+)= a[a_rows].T @ b[b_rows]``, as `compiling.native` takes it.

    Elements of a row are contiguous. Its statics are the columns of `a` and of `b`, and strides of rows of
    `a`, `b` and `c`. It adds unless the result's `fields` of the launch say that it stores.
    """
    return f"""\
# {kind} i8 {kind} i8 {kind} i8
def loop(n_rows, a0, a_rows, b0, b_rows, c0, fields, statics):
    m, k, n, a_row, b_row, c_row = (
        u8(statics[0]), n_rows, u8(statics[1]), u8(statics[2]), u8(statics[3]), u8(statics[4])
    )
    a_at, c_at, accumulates = starts(), starts(), u8(fields[{Fields.stores}] == 0)
    start = u8(0)
{empty_product_lines(kind, "m", "i * c_row", 4)}
{outer_lines(cut, cut.bits // BITS[kind], "(first + r) * c_row")}"""


def empty_product_lines(kind: str, rows: str, at: str, spaces: int) -> str:
    """Return the lines for a product without terms, which is zero, or adds nothing."""
    lines = f"""\
if k == u8(0):
    for i in range({rows} if accumulates == u8(0) else u8(0)):
        for j in range(n):
            c0[{at} + j] = {kind}(0)"""
    return indent(lines, " " * spaces)


@cache
def native_text(kind: str, cut: Blocks | None) -> str:
    """Return the text of products c = a @ b one after the other, as `compiling.native` takes it.

    Without a cut they are plain loops. Its statics are the extents of the outer loop, m, k and n; which of
    the first three (1, 2 or 3) is multiplied by the number of rows; strides of a, of b, and of c's rows; of
    a, b and c along the outer loop; and which products are added to c: 0 none, 1 those of all turns of the
    outer loop but the first, 2 all.
    """
    outer = """\
def loop(n_rows, a_all, b_all, c_all, statics):
    outer, m, k, n = u8(statics[0]), u8(statics[1]), u8(statics[2]), u8(statics[3])
    if statics[4] == 1:
        outer *= n_rows
    elif statics[4] == 2:
        m *= n_rows
    elif statics[4] == 3:
        k *= n_rows
    a_row, a_column, b_row, b_column, c_row = (
        u8(statics[5]), u8(statics[6]), u8(statics[7]), u8(statics[8]), u8(statics[9])
    )
"""
    turn = ", ".join(f"moved({x}_all, o * u8(statics[{at}]))" for x, at in (("a", 10), ("b", 11), ("c", 12)))
    turn = f"a0, b0, c0 = {turn}"
    if cut is None:
        return f"""\
# {kind} {kind} {kind}
{outer}    for o in range(outer):
        {turn}
        for i in range(m):
            if (statics[13] == 0) | ((statics[13] == 1) & (o == u8(0))):
                for j in range(n):
                    c0[i * c_row + j] = {kind}(0)
            for p in range(k):
                t = a0[i * a_row + p * a_column]
                for j in range(n):
                    c0[i * c_row + j] += t * b0[p * b_row + j * b_column]
"""
    at = "(first + r) * a_row", "(first + r) * c_row"
    body = indent(product_lines(cut, cut.bits // BITS[kind], at), "    ")
    return f"""\
# {kind} {kind} {kind}
{outer}    a_at, c_at = starts(), starts()
    for o in range(outer):
        {turn}
        accumulates = u8(0) if (statics[13] == 0) | ((statics[13] == 1) & (o == u8(0))) else u8(1)
        start = u8(0)
{empty_product_lines(kind, "m", "i * c_row", 8)}
{body}
"""


def sum_outer_text(kind: str, cut: Blocks) -> str:
    """Return the text of products c (+)= a.T @ b one after the other, of consecutive rows.

    Elements of a row are contiguous, too. Its statics are those of `native_text`, for a product a.T @ b. If b
    has few columns, a and b are swapped, and the result is computed transposed.
    """
    swap = "a0, b0, m, n, a_row, b_row = b0, a0, n, m, b_row, a_row"
    lines = outer_lines(cut, cut.bits // BITS[kind], "(first + r) * c_row", "({})")
    return f"""\
# {kind} {kind} {kind}
def loop(n_rows, a_all, b_all, c_all, statics):
    k, m, n, a_row, b_row = (
        u8(statics[2]) * n_rows, u8(statics[1]), u8(statics[3]), u8(statics[6]), u8(statics[7])
    )
    a_at, c_at = starts(), starts()
    few = (n <= u8({cut.rows})) & (m > n) & (m * n <= u8({SWAPPED}))
    for o in range(u8(statics[0])):
        a0, b0 = moved(a_all, o * u8(statics[10])), moved(b_all, o * u8(statics[11]))
        out, adds, start = moved(c_all, o * u8(statics[12])), u8((statics[13] == 2) | (o > u8(0))), u8(0)
        c0, c_row, accumulates = out, u8(statics[9]), adds
        if few:
            {swap}
            c0, c_row, accumulates = swapped(), n, u8(0)
{empty_product_lines(kind, "m", "i * c_row", 8)}
{indent(lines, "    ")}
        if few:
            {swap}
            for i in range(m):
                for j in range(n):
                    place = moved(out, i * u8(statics[9]) + j)
                    place[0] = c0[j * m + i] if adds == u8(0) else place[0] + c0[j * m + i]
"""


def product_lines(cut: Blocks, lanes: int, at: tuple[str, str]) -> str:
    """Return the lines of c (+)= a @ b, behind `empty_product_lines`.

    `at` has the expressions of the offsets of row first + r in a and c.
    """
    if cut.per_word > 1:
        return _word_lines(cut, lanes, at)
    width = lanes * cut.vectors
    b = "moved(b0, start * b_row + j), b_row"
    return f"""\
{_dot_lines(cut, lanes, at)}
    else:
        packs = (b_column != u8(1) and n > u8(1)) or m >= u8({PANEL_ROWS})
        copied = panel()
        step = k // (k // u8({INNER_BLOCK}) + u8(1)) + u8(1)
        most = min(u8({STARTS}), u8({PACKED}) // step)
        height = m // (m // most + u8(1)) + u8(1) if packs and a_column == u8(1) else u8({ROW_BLOCK})
        while start < k:
            depth = min(step, k - start)
            first = u8(0)
            while first < m:
                last = min(first + height, m)
{_begins(at, 16)}
                j = u8(0)
{_few_rows(cut, lanes, f"moved(a0, start * a_column), starts_a, a_column, {b}")}
                while j < n:
                    columns = min(u8({width}), n - j)
                    left, right, right_row = moved(a0, start * a_column), moved(b0, start * b_row + j), b_row
                    if packs:
                        if b_column == u8(1):
                            for s in range(depth):
                                source, target = moved(right, s * b_row), moved(copied, s * u8({width}))
                                for i in range(columns):
                                    target[i] = source[i]
                        elif b_row == u8(1):
                            turned(moved(b0, start + j * b_column), b_column, copied, depth, columns)
                        else:
                            for i in range(columns):
                                for s in range(depth):
                                    copied[s * u8({width}) + i] = b0[(start + s) * b_row + (j + i) * b_column]
                        right, right_row = copied, u8({width})
{_tiles(cut, lanes, "left, starts_a, a_column, right, right_row", 20)}
                    j += u8({width})
                first = last
            start += depth
"""


def _dot_lines(cut: Blocks, lanes: int, at: tuple[str, str]) -> str:
    """Return the lines of c (+)= a @ b where columns of b are rows in memory, as those of `product_lines`."""
    words = """\
                left, words = lefts(), (depth + u8(1)) // u8(2)
                for r in range(last - first):
                    pair_row(moved(a0, a_at[r] + start), moved(left, r * words), depth)
                    a_at[r] = r * words
"""
    panel_rows = PANEL_ROWS if cut.per_word == 1 else PANEL_ROWS_OF_WORDS
    return f"""\
    elif a_column == u8(1) and b_row == u8(1) and n > u8(1) and k >= u8({4 * lanes}) and m < u8({panel_rows}):
        step = k // (k // u8({DOT_INNER_BLOCK}) + u8(1)) + u8(1)
        while start < k:
            depth = min(step, k - start)
            first = u8(0)
            while first < m:
                last = min(first + u8({DOT_ROW_BLOCK}), m)
{_begins(at, 16)}
{words if cut.per_word > 1 else ""}\
                j = u8(0)
                while j + u8({cut.dot_columns}) <= n:
{_rows_of_dots(cut, cut.dot_columns)}
                    j += u8({cut.dot_columns})
                while j < n:
{_rows_of_dots(cut, 1)}
                    j += u8(1)
                first = last
            start += depth"""


def outer_lines(cut: Blocks, lanes: int, at: str, row_of: str = "u8({factor}_rows[{}])") -> str:
    """Return the lines of c (+)= a[a_rows].T @ b[b_rows], behind `empty_product_lines`.

    Row first + r of c begins at `at`, and `row_of` is the expression of a factor's row. Columns of a are
    copied so that those of a tile are contiguous.
    """
    width = lanes * cut.vectors
    group = cut.per_word
    tile = f"u8({cut.rows})"
    begins = (f"r // {tile} * {tile} * depth + r % {tile}", tile) if group == 1 else ("r", "rows")
    max_step = DEPTH if group == 1 else group * WORD_BLOCK
    ahead = row_of.format(f"min(start + s * u8({group}) + u8({AHEAD}), k - u8(1))", factor="b")
    return f"""\
    else:
        left, right, height = lefts(), rights(), u8({ROW_BLOCK}) if k * n > u8({CACHED_FACTOR}) else {tile}
        step = (k // (k // u8({max_step}) + u8(1)) + u8({group})) // u8({group}) * u8({group})
        while start < k:
            numbers = min(step, k - start)
            depth = (numbers + u8({group - 1})) // u8({group})
            start_column = u8(0)
            while start_column < n:
                stop_column = min(n, start_column + u8({COLUMN_BLOCK * width}))
                for s in range(depth):
{_row_of("b", cut, row_of, 20)}
                    ahead = {ahead} * b_row
                    column, to = start_column, s * u8({width})
                    while column < stop_column:
                        columns = min(u8({width}), stop_column - column)
                        for v in range(u8({cut.vectors})):
                            fetch(moved(b0, ahead + column + v * u8({lanes})))
{_copy("b", cut, "column", "moved(right, to)", "columns", 24)}
                        column += u8({width})
                        to += depth * u8({width})
                first = u8(0)
                while first < m:
                    last = min(first + height, m)
                    rows = last - first
{_begins((begins[0], at), 20)}
                    for s in range(depth):
{_row_of("a", cut, row_of, 24)}
{_columns_of_tiles(cut, 24)}
                    j, panel = start_column, right
                    while j < stop_column:
                        columns = min(u8({width}), stop_column - j)
{_tiles(cut, lanes, f"left, starts_a, {begins[1]}, panel, u8({width})", 24)}
                        j += u8({width})
                        panel = moved(panel, depth * u8({width}))
                    first = last
                start_column = stop_column
            start += numbers
"""


def _row_of(factor: str, cut: Blocks, row_of: str, spaces: int) -> str:
    """Return the lines that compute the offset of row s of a factor, or of rows 2s and 2s + 1."""
    if cut.per_word == 1:
        return " " * spaces + f"row = {row_of.format('start + s', factor=factor)} * {factor}_row"
    places = "start + u8(2) * s", "min(start + u8(2) * s + u8(1), k - u8(1))"
    row, second = (row_of.format(place, factor=factor) for place in places)
    lines = f"""\
has_second = numbers - u8(2) * s - u8(1)
row = {row} * {factor}_row
second_row = {second} * {factor}_row"""
    return indent(lines, " " * spaces)


def _copy(factor: str, cut: Blocks, first: str, to: str, count: str, spaces: int) -> str:
    """Return the lines that copy `count` numbers of a row, or words of two rows, from number `first` on."""
    row, second = (f"moved({factor}0, {begin} + {first})" for begin in ("row", "second_row"))
    lines = f"source, target = {row}, {to}\nfor i in range({count}):\n    target[i] = source[i]"
    return indent(
        lines if cut.per_word == 1 else f"pair_rows({row}, {second}, {to}, {count}, has_second)", " " * spaces
    )


def _columns_of_tiles(cut: Blocks, spaces: int) -> str:
    """Return the lines that copy a row of a, tile by tile; words are copied side by side."""
    if cut.per_word > 1:
        return _copy("a", cut, "first", "moved(left, s * rows)", "rows", spaces)
    tile, copies = f"u8({cut.rows})", "        target[i] = source[i]"
    lines = f"""\
source, target = moved(a0, row + first), moved(left, s * {tile})
for _ in range(rows // {tile}):
    for i in range({tile}):
{copies}
    source, target = moved(source, {tile}), moved(target, depth * {tile})
for i in range(rows % {tile}):
{copies[4:]}"""
    return indent(lines, " " * spaces)


def _word_lines(cut: Blocks, lanes: int, at: tuple[str, str]) -> str:
    """Return `product_lines` in bfloat16, where `numbers` of the inner dimension are `depth` words."""
    width = lanes * cut.vectors
    b = "moved(b0, start * b_row + j), b_row"
    return f"""\
{_dot_lines(cut, lanes, at)}
    else:
        left, copied, low = lefts(), panel(), aside()
        high = moved(low, u8({ROW_BLOCK}))
        step = (k // (k // u8({2 * WORD_BLOCK}) + u8(1)) + u8(2)) // u8(2) * u8(2)
        while start < k:
            numbers = min(step, k - start)
            depth, first = (numbers + u8(1)) // u8(2), u8(0)
            while first < m:
                last = min(first + u8({ROW_BLOCK}), m)
                rows = last - first
{_begins(at, 16)}
                a_step = u8(1) if a_column == u8(1) else rows
                if a_column == u8(1):
                    for r in range(rows):
                        pair_row(moved(a0, a_at[r] + start), moved(left, r * depth), numbers)
                        a_at[r] = r * depth
                else:
                    for s in range(depth):
                        has_second, to = numbers - u8(2) * s - u8(1), moved(left, s * rows)
                        x = moved(a0, (start + u8(2) * s) * a_column)
                        y = moved(x, a_column if has_second != u8(0) else u8(0))
                        if a_row == u8(1):  # of what is multiplied one after the other
                            pair_rows(moved(x, a_at[u8(0)]), moved(y, a_at[u8(0)]), to, rows, has_second)
                        else:
                            for r in range(rows):
                                low[r], high[r] = x[a_at[r]], y[a_at[r]]
                            pair_rows(low, high, to, rows, has_second)
                    for r in range(rows):
                        a_at[r] = r
                j = u8(0)
                packs = (b_column != u8(1)) | (rows > u8({REGISTER_ROWS})) | (numbers != depth + depth)
{_few_rows(cut, lanes, f"left, starts_a, a_step, {b}", "rounding")}
                while j < n:
                    columns = min(u8({width}), n - j)
                    if packs:
                        for s in range(depth if b_column == u8(1) else u8(0)):
                            x, to = moved(b0, (start + u8(2) * s) * b_row + j), moved(copied, s * u8({width}))
                            pair_rows(x, moved(x, b_row), to, columns, numbers - u8(2) * s - u8(1))
                        for i in range(columns if b_column != u8(1) else u8(0)):
                            x = moved(b0, start * b_row + (j + i) * b_column)
                            for s in range(numbers):
                                low[s] = x[s * b_row]
                            pair_row(low, high, numbers)
                            for s in range(depth):
                                copied[s * u8({width}) + i] = high[s]
{_tiles(cut, lanes, f"left, starts_a, a_step, copied, u8({width})", 24)}
                    else:
{_tiles(cut, lanes, f"left, starts_a, a_step, {b}", 24, "rounding")}
                    j += u8({width})
                first = last
            start += numbers
"""


def _rows_of_dots(cut: Blocks, columns: int) -> str:
    """Return the lines that compute some columns of all rows of a block."""
    rows = "moved(a0, start)" if cut.per_word == 1 else "left"
    factors = f"{rows}, starts_a, moved(b0, j * b_column + start), b_column"
    call = f"dots_{{}}_{columns}({factors}, moved(c0, j), starts_c, depth, start + accumulates)"
    return rows_lines(cut.dot_rows, call, 20)


def _tiles(cut: Blocks, lanes: int, factors: str, indent: int, name: str = "tile") -> str:
    """Return the lines that compute a tile's width of all rows of a block."""
    lines = []
    for vectors in range(cut.vectors, 0, -1):
        covered = f"u8({(vectors - 1) * lanes})"
        lines.append(f"{' ' * indent}{'if' if vectors == cut.vectors else 'elif'} columns > {covered}:")
        arguments = f"{factors}, moved(c0, j), starts_c, depth, columns - {covered}, start + accumulates"
        call = f"{name}_{{}}_{vectors}({arguments})"
        lines.append(rows_lines(cut.rows, call, indent + 4))
    return "\n".join(lines)


def _few_rows(cut: Blocks, lanes: int, factors: str, name: str = "tile") -> str:
    """Return the lines for few rows, whose columns fill wide tiles; j is the first column that remains."""
    lines = []
    for rows, vectors in enumerate(cut.wide_vectors, 1):
        width = f"u8({vectors * lanes})"
        arguments = f"{factors}, moved(c0, j), starts_c, depth, u8({lanes}), start + accumulates"
        call = f"{name}_{rows}_{vectors}({arguments})"
        lines += [
            f"{'if' if rows == 1 else 'elif'} last - first == u8({rows}) and not packs:",
            "    i = first",
            f"    while j + {width} <= n:",
            *(f"    {line}" for line in _call(rows, call)),
            f"        j += {width}",
        ]
    return "\n".join(" " * 16 + line for line in lines)


def rows_lines(rows: int, call: str, indent: int) -> str:
    """Return the lines that make `call` for `rows` rows at a time, and then for the rows that remain."""
    lines = ["i = first", f"while i + u8({rows}) <= last:", *_call(rows, call), f"    i += u8({rows})"]
    for count in range(1, rows):
        lines += [f"{'if' if count == 1 else 'elif'} last - i == u8({count}):", *_call(count, call)]
    return "\n".join(" " * indent + line for line in lines)


def _begins(at: tuple[str, str], indent: int) -> str:
    """Return the lines that compute the offsets of the rows of a block."""
    lines = ["for r in range(last - first):", f"    a_at[r], c_at[r] = {at[0]}, {at[1]}"]
    return "\n".join(" " * indent + line for line in lines)


def _call(rows: int, call: str) -> list[str]:
    """Return the lines that make a call for `rows` rows from row i on."""
    starts = "starts_a, starts_c = moved(a_at, i - first), moved(c_at, i - first)"
    return [f"    {starts}", f"    {call.format(rows)}"]
