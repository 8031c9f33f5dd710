"""Planted faults: kernels that are right pass with the right numbers, and each broken one is noticed.

A broken kernel is a right one with a line changed, as somebody might write it.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.ptx.decode import UnknownPtxError, decoded, taken_apart
from tests.ptx.driver import ARCHITECTURE, Memory, loaded, ptx_of
from tests.ptx.machine import PtxFaultError, execute
from tests.ptx.needed import needs_ptx

pytestmark = needs_ptx
N = 100


class Right(NamedTuple):
    """A kernel that is right: ``KERNEL right(i8 x_, i8 y_, i8 n)`` reads x and writes y."""

    text: str
    expected: Callable[[np.ndarray], np.ndarray]
    blocks: int = 3
    threads: tuple[int, int] = (32, 2)


HEAD = "KERNEL right(i8 x_, i8 y_, i8 n) {\n  f4 *x = (f4*)x_, *y = (f4*)y_;\n"
SPLIT = "  const i8 lane = LANE_Y * LANES_X + LANE_X, lanes = LANES_X * LANES_Y, i = BLOCK * lanes + lane;\n"
RIGHT = {
    "guard": Right(HEAD + SPLIT + "  if (i < n) {\n    y[i] = x[i] * 2;\n  }\n}", lambda x: x * 2),
    "loop": Right(
        HEAD + SPLIT + "  for (i8 k = i; k < n; k += lanes * BLOCKS) {\n    y[k] = x[k] * 2;\n  }\n}",
        lambda x: x * 2,
        blocks=1,
    ),
    "vector": Right(
        HEAD + SPLIT + "  for (i8 k = 4 * i; k < n; k += 4 * lanes * BLOCKS) {\n"
        "    f4x4 v = *(f4x4*)(x + k);\n    for (i4 j = 0; j < 4; j++) v.v[j] *= 2;\n    *(f4x4*)(y + k) = v;\n  }\n}",
        lambda x: x * 2,
    ),
    "tree": Right(
        HEAD + SPLIT + "  SHARED f4 part[64];\n  f4 total = 0;\n"
        "  for (i8 k = lane; k < n; k += lanes) total += x[k];\n  part[lane] = total;\n"
        "  for (i8 step = 32; step; step /= 2) {\n    BARRIER();\n"
        "    if (lane < step) part[lane] += part[lane + step];\n  }\n"
        "  if (lane == 0) y[BLOCK] = part[0];\n}",
        lambda x: np.full(3, x.sum()),
    ),
    "turned": Right(
        HEAD + SPLIT + "  SHARED f4 tile[64];\n  SHARED f4 other[64];\n"
        "  tile[lane] = i < n ? x[i] : 0;\n  other[lane] = 1;\n  BARRIER();\n"
        "  const f4 found = tile[63 - lane] + other[63 - lane];\n  BARRIER();\n"
        "  tile[lane] = found;\n  if (i < n) y[i] = found;\n}",
        lambda x: (np.pad(x, (0, 92)).reshape(3, 64)[:, ::-1].ravel() + 1)[:N],
    ),
    "warp": Right(
        HEAD + SPLIT + "  f4 total = i < n ? x[i] : 0;\n"
        "  for (int step = 16; step; step /= 2)\n    total += __shfl_xor_sync(0xffffffffu, total, step);\n"
        "  if (LANE_X == 0) y[i / 32] = total;\n}",
        lambda x: np.pad(x, (0, 92)).reshape(6, 32).sum(1),
    ),
    "warp memory": Right(
        HEAD + SPLIT + "  SHARED f4 part[64];\n  part[lane] = i < n ? x[i] : 0;\n  __syncwarp();\n"
        "  const f4 next = part[lane ^ 1];\n  if (i < n) y[i] = next;\n}",
        lambda x: x.reshape(-1, 2)[:, ::-1].ravel(),
    ),
    "warp's first": Right(
        HEAD + SPLIT + "  SHARED f4 part[64];\n  part[lane] = i < n ? x[i] : 0;\n  __syncwarp();\n"
        "  const f4 first = part[lane / 32 * 32];\n  __syncwarp();\n  part[lane] += first;\n"
        "  if (i < n) y[i] = part[lane];\n}",
        lambda x: x + np.repeat(x[::32], 32)[:N],
    ),
    "counts": Right(
        HEAD + SPLIT + "  if (i < n) {\n    atomicAdd(y + (i4)x[i] % 4, 1.0f);\n  }\n}",
        lambda x: np.bincount(x.astype(int) % 4, minlength=4),
    ),
    "rows": Right(
        HEAD
        + "  const i8 width = 10;\n  for (i8 r = BLOCK * LANES_Y + LANE_Y; r < n / width; r += BLOCKS * LANES_Y)\n"
        "    for (i8 e = LANE_X; e < width; e += LANES_X) {\n      y[r * width + e] = x[r * width + e] + r;\n    }\n}",
        lambda x: x + np.repeat(np.arange(10), 10),
    ),
    "longest": Right(
        HEAD + SPLIT + "  SHARED f4 part[64];\n  f4 top = x[lane];\n"
        "  for (i8 k = lane; k < n; k += lanes) if (x[k] > top) top = x[k];\n  part[lane] = top;\n  BARRIER();\n"
        "  if (lane == 0) {\n    for (i4 k = 1; k < 64; k++) if (part[k] > top) top = part[k];\n    y[BLOCK] = top;\n  }\n}",
        lambda x: np.full(3, x.max()),
    ),
    "own": Right(
        HEAD + SPLIT + "  f4 kept[8];\n  for (i8 k = 0; k < 8; k++) kept[k] = k;\n"
        "  if (i < n) y[i] = kept[(i8)x[i] % 8];\n}",
        lambda x: x % 8,
    ),
    "place": Right(
        HEAD + SPLIT + "  if (i < n) y[i % BLOCKS * ((n + BLOCKS - 1) / BLOCKS) + i / BLOCKS] = x[i];\n}",
        lambda x: np.concatenate([x[k::4] for k in range(4)]),
        blocks=4,
        threads=(32, 1),
    ),
}
RACE = "race of a read with a write before it|race of a write with a read before it"
WRITES = "race of two writes"
GLOBAL, SHARED = "out of bounds of global memory", "out of bounds of shared memory"
NUMBERS = "numbers"  # no access is wrong, but the result is
BROKEN: dict[str, tuple[str, str, str, str]] = {
    # what: the right kernel, what of it, becomes what, and what is said
    # what lies behind may be memory of another array, which nobody wrote
    "no guard of the grid": ("guard", "if (i < n)", "", f"{GLOBAL}|nobody wrote"),
    "a guard that lets one more through": ("guard", "i < n", "i <= n", f"{GLOBAL}|nobody wrote"),
    "one read too far": ("loop", "x[k] * 2", "x[k + 1] * 2", GLOBAL),
    "one write too far": ("loop", "y[k] =", "y[k + 1] =", f"{GLOBAL}|{WRITES}"),
    "a read before the beginning": ("loop", "x[k] * 2", "x[k - 1] * 2", GLOBAL),
    "an index of 32 bits that overflows": ("loop", "x[k] * 2", "x[(i4)(k << 30)] * 2", GLOBAL),
    "a wide load from an odd place": ("vector", "(x + k)", "(x + k + 1)", "misaligned address"),
    "a wide store to an odd place": ("vector", "(y + k)", "(y + k + 2)", "misaligned address"),
    "a barrier dropped in a loop": ("tree", "    BARRIER();\n", "", f"{RACE}|nobody wrote"),
    "a loop of one round too many": ("tree", "lane < step", "lane <= step", f"{RACE}|{SHARED}"),
    "the barrier before reading dropped": ("turned", "other[lane] = 1;\n  BARRIER();", "other[lane] = 1;", RACE),
    "the barrier before writing dropped": ("turned", "  BARRIER();\n  tile[lane]", "  tile[lane]", RACE),
    "a barrier that half of a block meets": (
        "turned",
        "other[lane] = 1;\n  BARRIER();",
        "other[lane] = 1;\n  if (lane < 32) BARRIER();",
        f"barrier|{RACE}|nobody wrote",
    ),
    "a thread that leaves before a barrier": ("turned", "  tile[lane] = i", "  if (i >= n) return;\n  tile[lane] = i", "barrier"),
    "shared memory that nobody wrote": ("turned", "other[lane] = 1;", "if (lane) other[lane] = 1;", "nobody wrote"),
    "an index beyond shared memory": ("turned", "tile[63 - lane]", "tile[64 - lane]", SHARED),
    "a mask without half of the warp": ("warp", "0xffffffffu", "0x0000ffffu", "its own mask|nobody wrote"),
    "a mask with lanes that do not come": (
        "warp",
        "  for (int step",
        "  if (LANE_X < 16) for (int step",
        "lanes which never come",
    ),
    "a lane that the mask does not name": ("warp", "  for (int step", "  if (LANE_X < 16) total += __shfl_sync(0xffffu, total, 20);\n  for (int step", "nobody wrote"),
    "a warp's second barrier dropped": ("warp's first", "  __syncwarp();\n  part[lane] +=", "  part[lane] +=", RACE),
    "a warp's barrier dropped": ("warp memory", "  __syncwarp();\n", "", RACE),
    "neighbours in another warp": ("warp memory", "part[lane ^ 1]", "part[lane ^ 32]", f"{RACE}|nobody wrote"),
    "atomics left out": ("counts", "atomicAdd(y + (i4)x[i] % 4, 1.0f)", "y[(i4)x[i] % 4] += 1.0f", f"{RACE}|{WRITES}"),
    "a store to the wrong row": ("rows", "y[r * width + e]", "y[r / 2 * width + e]", WRITES),
    "rows that are too wide": ("rows", "y[r * width + e] =", "y[r * (width + 1) + e] =", f"{GLOBAL}|{WRITES}"),
    "a read of what another block writes": ("rows", "x[r * width + e] + r", "(r ? y[(r - 1) * width + e] : 0)", f"{RACE}|nobody wrote"),
    "a wrong predicate": ("longest", "(x[k] > top)", "(x[k] < top)", NUMBERS),
    "a limit that is too low": ("rows", "e < width", "e < width - 1", NUMBERS),
    "elements of its own that nobody wrote": ("own", "k < 8; k++", "k < 7; k++", "nobody wrote"),
    "an index beyond its own elements": ("own", "x[i] % 8]", "x[i] % 8 + 16]", "out of bounds of local memory|nobody wrote"),
    "a division by zero": ("place", "i % BLOCKS *", "i % (n - 100) *", "division by zero"),
    "all threads store, not the first": ("longest", "if (lane == 0) {", "{", WRITES),
    "a loop that does not end": ("loop", "k += lanes * BLOCKS", "k += 0 * lanes", "does not end"),
    "a read-only load of what is written": ("guard", "y[i] = x[i] * 2;", 'y[i] = x[i]; i8 j = i; asm volatile("" : "+l"(j)); y[i] = __ldg(y + j) * 2;', "ld.global.nc"),
}  # fmt: skip


def ran(right: Right, text: str, seed: int = 0, architecture: str = ARCHITECTURE) -> np.ndarray:
    """Run a kernel on 100 numbers, and return what it wrote: as many numbers as are expected."""
    x = (np.arange(N) * 71 % 101).astype(np.float32)
    wanted = right.expected(x)
    memory = [Memory(4 * N), Memory(4 * len(wanted))]
    memory[0].array((N,), "float32")[:] = x
    if "atomic" in right.text:
        memory[1].array((len(wanted),), "float32")[:] = 0
    function = loaded(text, architecture)("right")
    kernel = function.ptx.kernel(function.name)
    execute(kernel, right.blocks, right.threads, [memory[0].pointer, memory[1].pointer, N], seed, 1_000_000)
    found = memory[1].array((len(wanted),), "float32").copy()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    return found


@pytest.mark.parametrize("architecture", ["compute_80", "compute_90", "compute_100"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_kernels_pass(name: str, architecture: str) -> None:
    for seed in range(3):
        ran(RIGHT[name], RIGHT[name].text, seed, architecture)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_noticed_in_every_order(name: str) -> None:
    which, old, new, said = BROKEN[name]
    right = RIGHT[which]
    assert right.text.count(old) == 1
    for seed in range(3):
        if said == NUMBERS:
            with pytest.raises(AssertionError, match="Mismatched|nobody wrote"):
                ran(right, right.text.replace(old, new), seed)
        else:
            with pytest.raises(PtxFaultError, match=said):
                ran(right, right.text.replace(old, new), seed)


OWN = ["mov.u32 %rd1, %tid.x", "mul.lo.u32 %rd2, %rd1, 8", "setp.eq.u32 %p1, %rd1, 0"]
NEXT = ["xor.b64 %rd4, %rd2, 8", "ld.shared.u64 %rd5, [%rd4]"]


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["st.shared.u64 [s], 1"], "race of two writes"),
        (["@%p1 bra L", "bar.sync 0", "bra.uni M", "L: bar.sync 0", "M: mov.u64 %rd1, 0"], "two barriers"),
        (["st.shared.u64 [%rd2], 0", *NEXT], "race of a read with a write before it"),
        (
            ["st.shared.u64 [%rd2], 0", "bar.sync 0", *NEXT, "st.shared.u64 [%rd2], 1"],
            "race of a write with a read before it",
        ),
        (
            [
                "@%p1 st.shared.u64 [s], 0",
                "bar.sync 0",
                "ld.shared.u64 %rd5, [s]",
                "@%p1 st.shared.u64 [s], 1",
            ],
            "race of a write with a read before it",
        ),
        (  # here and in the next one of the last bytes alone
            [
                "setp.eq.u32 %p2, %rd1, 1",
                "@%p1 st.shared.u32 [s], 0",
                "@%p2 st.shared.u32 [s+4], 0",
                "@%p1 ld.shared.u64 %rd5, [s]",
            ],
            "race of a read with a write before it",
        ),
        (
            ["st.shared.u32 [%rd2], 0", "ld.shared.u64 %rd5, [%rd2]", "st.shared.u64 [%rd2], %rd5"],
            "nobody wrote",
        ),
        (["atom.shared.exch.b64 %rd5, [%rd2], 1"], "atomic operation on memory that nobody wrote"),
        (
            [
                "@%p1 st.shared.u64 [s], 0",
                "bar.sync 0",
                "atom.shared.add.u64 %rd5, [s], 1",
                "setp.eq.u32 %p2, %rd1, 3",
                "@!%p2 bra L",
                "st.shared.u64 [s], 1",
                "L: mov.u64 %rd5, 1",
            ],
            "race of two writes",
        ),
        (["@%p1 st.shared.u64 [s], 0", "atom.shared.add.u64 %rd5, [s], 1"], "race of two writes"),
        (
            [
                "@%p1 st.shared.u64 [s], 0",
                "bar.sync 0",
                "atom.shared.add.u64 %rd5, [s], 1",
                "ld.shared.u64 %rd5, [s]",
            ],
            "race of a read",
        ),
    ],
)
def test_each_kind_of_race_is_told(lines: Sequence[str], kind: str) -> None:
    faulty([*OWN, *lines], kind)


@pytest.mark.parametrize("seed", range(6))
def test_a_block_knows_nothing_of_the_block_before_it(seed: int) -> None:
    """Neither registers nor shared memory."""
    last = ["mov.u32 %rd3, %ctaid.x", "setp.eq.u32 %p2, %rd3, 1"]
    faulty(
        [*last, "@%p2 st.shared.u64 [%rd2], %rd6", "mov.u64 %rd6, 1"],
        "address that nobody|number that nobody",
        2,
        seed,
    )
    shared = [*OWN, *last, "@%p2 ld.shared.u64 %rd7, [%rd2]", "st.shared.u64 [%rd2], 1", "mov.u64 %rd6, 0"]
    faulty([*shared, "@%p2 st.shared.u64 [%rd2], %rd7"], "number that nobody", 2, seed)


def test_there_are_more_than_twenty_faults() -> None:
    assert len(BROKEN) >= 20


def test_memory_that_was_freed_is_no_memory() -> None:
    function = loaded(RIGHT["guard"].text)("right")
    kernel = function.ptx.kernel(function.name)
    x, y = Memory(4 * N), Memory(4 * N)
    x.array((N,), "float32")[:] = 1
    addresses: list[Any] = [x.pointer, y.pointer]
    execute(kernel, 2, (32, 2), [*addresses, N])
    del x
    with pytest.raises(PtxFaultError, match=GLOBAL):
        execute(kernel, 2, (32, 2), [*addresses, N])


def test_memory_of_the_device_that_nobody_wrote_is_not_stored() -> None:
    function = loaded(RIGHT["guard"].text)("right")
    kernel = function.ptx.kernel(function.name)
    x, y = Memory(4 * N), Memory(4 * N)
    with pytest.raises(PtxFaultError, match="nobody wrote"):
        execute(kernel, 2, (32, 2), [x.pointer, y.pointer, N])


def test_an_access_that_begins_in_a_buffer_must_end_there() -> None:
    short = RIGHT["vector"].text.replace("k < n", "k < 4")
    function = loaded(short)("right")
    for nbytes in ((12, 16), (16, 12)):
        x, y = Memory(nbytes[0]), Memory(nbytes[1])
        x.array((nbytes[0],), "uint8")[:] = 0
        with pytest.raises(PtxFaultError, match=GLOBAL):
            execute(function.ptx.kernel(function.name), 1, (1, 1), [x.pointer, y.pointer, 4])


def faulty(lines: Sequence[str], kind: str, blocks: int = 1, seed: int = 0) -> None:
    """Fail where PTX written by hand has no fault of a kind."""
    with pytest.raises(PtxFaultError, match=kind):
        by_hand(lines, blocks, seed)


def by_hand(lines: Sequence[str], blocks: int = 1, seed: int = 0) -> None:
    """Run PTX written by hand on blocks of 4 threads."""
    body = ";\n".join(lines)
    text = f".visible .entry k()\n{{\n.reg .pred %p<9>; .reg .b64 %rd<10>; .shared .align 8 .b8 s[64]; .shared .align 8 .b8 t[4]; .local .align 8 .b8 l[4];\n{body};\nret;\n}}\n"
    execute(decoded(taken_apart(text), "k"), blocks, (4, 1), [], seed)


HALF = ["mov.u32 %rd1, 5", "mov.b64 %rd2, {%rd1, %rd9}"]  # nobody wrote %rd9


@pytest.mark.parametrize(
    "lines",
    [
        [*HALF, "cvt.u32.u64 %rd3, %rd2"],
        [*HALF, "mov.b64 {%rd3, %rd4}, %rd2"],
        [*HALF, "mov.u64 %rd5, %rd2", "cvt.u16.u64 %rd3, %rd5"],
        ["mov.b64 %rd2, {%rd9, %rd9}", "mov.u64 %rd3, 1"],
        ["mov.u64 %rd1, 1", "setp.eq.s64 %p1, %rd1, 1", "selp.b64 %rd3, %rd1, %rd9, %p1"],
        ["mov.u64 %rd1, 1", "setp.eq.s64 %p1, %rd1, 2", "selp.b64 %rd3, %rd9, %rd1, %p1"],
    ],
)
def test_what_nobody_wrote_may_be_moved_and_left(lines: Sequence[str]) -> None:
    """Compilers do so; the other half of a register, or what was not selected."""
    by_hand([*OWN[:2], *lines, "st.local.u32 [l], %rd3"])


@pytest.mark.parametrize(
    "lines",
    [
        [*HALF, "mov.u64 %rd3, %rd2"],
        [*HALF, "mov.b64 {%rd4, %rd3}, %rd2"],
        [*HALF, "shr.u64 %rd3, %rd2, 32"],
        ["mov.b64 %rd2, {%rd9, %rd9}", "cvt.u32.u64 %rd3, %rd2"],
        ["mov.u64 %rd1, 1", "setp.eq.s64 %p1, %rd1, 2", "selp.b64 %rd3, %rd1, %rd9, %p1"],
        ["mov.u64 %rd1, 1", "selp.b64 %rd3, %rd1, %rd1, %p1"],
    ],
)
def test_what_nobody_wrote_is_not_stored(lines: Sequence[str]) -> None:
    faulty([*lines, "st.local.u32 [l], %rd3"], "number that nobody wrote or computed")


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["st.shared.u64 [s], %rd1"], "number that nobody wrote or computed"),
        (["add.s64 %rd2, %rd1, 1", "st.shared.u64 [s], %rd2"], "number that nobody wrote or computed"),
        (["ld.shared.u64 %rd2, [%rd1]"], "address that nobody computed"),
        (["@%p1 bra L", "L: mov.u64 %rd1, 0"], "predicate that nobody computed"),
        (["ld.shared.u64 %rd2, [s+60]"], "misaligned address"),
        (["ld.shared.v2.u64 {%rd2, %rd3}, [s+56]"], "misaligned address"),
        (["ld.shared.v2.u64 {%rd2, %rd3}, [s+64]"], SHARED),
        (["ld.shared.u64 %rd2, [t]"], SHARED),
        (["ld.local.u64 %rd2, [l]"], "out of bounds of local memory"),
        (["atom.shared.add.u64 %rd2, [s], 1"], "atomic operation on memory that nobody wrote"),
    ],
)
def test_registers_that_nobody_wrote_are_not_used(lines: Sequence[str], kind: str) -> None:
    faulty(lines, kind)


def test_instructions_that_are_not_known_are_refused_by_name() -> None:
    right = ptx_of(RIGHT["guard"].text)
    for line in (
        "mma.sync.aligned.m16n8k8 %f1",
        "add.v2.f32 %f1, %f1, %f1",
        "ld.global.cv.f32 %f1, [%rd1]",
        "bar.sync 1",
    ):
        text = taken_apart(re.sub(r"\n\tret;", f"\n\t{line};\n\tret;", right))
        with pytest.raises(UnknownPtxError, match=re.escape(line.split()[0])):
            decoded(text, text.kernels[0])
