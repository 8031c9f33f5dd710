"""Functions that records of the control table call besides a model's own: they find memory by its number.

Their first parameter is the address of the packed table. `ADDRESS` is where a buffer of that number begins.
"""

from __future__ import annotations

from foldbatch.engines.cuda.common import FAULTS, STALLED
from foldbatch.engines.cuda.texts.kernel_text import ADDRESSES_AT, STATUS_AT

RECORD = 8  # numbers of a record: the op, and at most 7 arguments

# The functions that they call are those of `row_kernels.MOVES`.
_HEAD = "DEVICE void {name}(const i8 x_, f8* shared_, i8 table{parameters}) {{\n  {body}\n}}\n"
_EACH = "for (i8 e = BLOCK * LANES_X + LANE_X; e < {}; e += BLOCKS * LANES_X)"  # all threads run along x
BARRIERS = 24  # words before the note: two for each barrier of a grid, the second for one that nobody met
NOTE = 3  # words before the status: the address of the word of faults, that of the place, and how many words
_NOTE = (
    f"const i8 *s = (const i8*)STATUS, *w = s - {BARRIERS + NOTE}; i8 stalled = 0; "
    f"for (i8 e = 1; e < {BARRIERS}; e += 2) stalled |= w[e]; "
    "if (BLOCK == 0) for (i8 e = LANE_X; e < s[-1]; e += LANES_X) "
    f"((i8*)s[-2])[e] = e == {FAULTS} ? *(const i8*)s[-3] : e == {STALLED} ? stalled : s[e];"
)
_FUNCTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    # rows: where in the table the rows stand
    **{
        f"zero_at_{k}": (
            ("buffer", "rows", "count", "words"),
            f"zero_{k}(x_, shared_, ADDRESS(buffer), table + 8 * rows, count, words);",
        )
        for k in ("i4", "b1")
    },
    **{
        f"fill_at_{k}": (("buffer", "words"), f"{_EACH.format('words')} (({k}*)ADDRESS(buffer))[e] = 0;")
        for k in ("i4", "b1")
    },
    # one block adds up
    **{
        f"total_at_{k}": (
            ("buffer", "count", "place"),
            f"if (BLOCK == 0) total_{k}(x_, shared_, ADDRESS(buffer), count, STATUS + 8 * place);",
        )
        for k in ("f4", "f8", "i4", "i8")
    },
    **{
        f"add_rows_at_{k}": (
            ("terms", "plan", "width", "target"),
            f"add_rows_{k}(x_, shared_, ADDRESS(terms), table + 8 * plan, width, ADDRESS(target), 0);",
        )
        for k in ("f4", "f8")
    },
    # a flag of the status becomes 1
    **{
        f"flag_at_{k}": (
            ("buffer", "count", "place"),
            f"const {k}* a = (const {k}*)ADDRESS(buffer); b1 bad = 0; {_EACH.format('count')} "
            "{ const " + k + " x = a[e]; bad |= !(x - x == 0); } "
            "if (bad) (void)FIRST_OF((i8*)STATUS + place);",
        )
        for k in ("f4", "f8")
    },
    # the status goes to a place of its own, with the device's word of faults
    "note_at": ((), _NOTE),
    "copy_at_i8": (
        ("source", "count", "target"),
        f"{_EACH.format('count')} ((i8*)ADDRESS(target))[e] = ((const i8*)table)[source + e];",
    ),
}
RECORDS = {name: len(parameters) for name, (parameters, _) in _FUNCTIONS.items()}
TEXT = "\n".join(
    [
        f"#define ADDRESS(number) (((const i8*)table)[((const i8*)table)[{ADDRESSES_AT}] + (number)])",
        f"#define STATUS (((const i8*)table)[{STATUS_AT}])",
        *(
            _HEAD.format(name=name, parameters="".join(f", i8 {p}" for p in parameters), body=body)
            for name, (parameters, body) in _FUNCTIONS.items()
        ),
    ]
)
