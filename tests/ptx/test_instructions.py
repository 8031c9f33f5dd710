"""Every instruction that the machine knows, on edge values, beside its definition."""

import itertools
import math
import struct
from typing import Any

import numpy as np
import pytest

from tests.ptx.decode import decoded, taken_apart
from tests.ptx.driver import Memory
from tests.ptx.exact import meaning, wrapped
from tests.ptx.instructions import OPERATIONS, SIZES
from tests.ptx.machine import execute
from tests.ptx.needed import needs_ptx

pytestmark = needs_ptx
POWERS = [1 << k for k in (3, 4, 5, 6, 7, 8, 15, 16, 31, 32, 63)]
WHOLE = [0, 1, 2, 3, 5, 0x3412, 0x7531_8642_9ABC_DEF0, 0x9E37_79B9, *POWERS, *(p - 1 for p in POWERS)]
WHOLE += [*(-p for p in POWERS), -1, -2, 33, 65, 100, 255, 256 + 7]
REAL = [0.0, 1.0, 0.5, 1.5, 2.5, 1 / 3, 0.1, 3.0e9, 5.0e9, 2.0**31, 2.0**63, 2.0**64, 1e19, 123456.789, 1e-40]
REAL += [math.inf, 1.0000001, 0.99999994, 2.0**-126, 2.0**-149, 3.4028234663852886e38, 1e300, 5e-324]
REAL += [2.0**-1022, 255.5, 65535.5]
REAL = [*REAL, *(-x for x in REAL), math.nan]
CASES = 1000  # of an instruction, at most
REGISTERS = "%a<4>, %p<4>, %b<2>, %q<2>, %at, %to, %x, %y, %n, %i, %j, %k, %e, %w, %p, %c, %d, %b, %t, %g, %q, %w<4>, %r<4>"
DRAWS = np.random.default_rng(0)
FORMS = {"f32": ("<f", "<I"), "f64": ("<d", "<Q")}  # a float, and its bits


def bits_of(value: Any, type_: str) -> int:
    if type_ in ("p", "pred"):
        return int(value)
    if type_[0] == "f":
        form, whole = FORMS[type_]
        return struct.unpack(whole, struct.pack(form, value))[0]
    return value % (1 << 8 * SIZES[type_])


def number_of(bits: int, type_: str) -> Any:
    if type_ in ("p", "pred"):
        return bool(bits)
    if type_[0] == "f":
        form, whole = FORMS[type_]
        return struct.unpack(form, struct.pack(whole, bits % (1 << 8 * SIZES[type_])))[0]
    return wrapped(bits, type_)


def values_of(type_: str) -> list[Any]:
    if type_ in ("p", "pred"):
        return [False, True]
    if type_[0] == "f":
        with np.errstate(over="ignore"):
            return (
                REAL if type_ == "f64" else list({repr(x): x for x in map(float, np.float32(REAL))}.values())
            )
    return list(dict.fromkeys(wrapped(x, type_) for x in WHOLE))


def text_of(name: str) -> str:
    """Return a kernel that applies an instruction to column after column of numbers, a thread a column."""
    operation = OPERATIONS[name]
    lines, given, made = [], [], []
    for k, type_ in enumerate(operation.operands):
        lines += [f"ld.global.u64 %a{k}, [%at+{8 * k}]"]
        if type_ in ("p", "pred"):
            lines += [f"setp.ne.s64 %p{k}, %a{k}, 0"]
        given.append(f"%p{k}" if type_ in ("p", "pred") else f"%a{k}")
    made = [f"%q{k}" if type_ in ("p", "pred") else f"%b{k}" for k, type_ in enumerate(operation.results)]
    written, shown = name, list(given)
    if name.startswith(("addc", "subc", "madc")):  # makes a carry of a predicate
        shown.pop()
        lines += [f"selp.u32 %c, -1, 0, {given[-1]}", "add.cc.u32 %c, %c, 1"]
    results = [result for result in made if not (".cc." in name and result == "%q1")]
    if name.startswith(("pack", "unpack")):
        written = f"mov.{name.split('.')[1]}"
        results, shown = [f"{{{', '.join(x)}}}" if len(x) > 1 else x[0] for x in (results, shown)], []
        results, shown = results[:1], results[1:]
    lines += [f"{written} {', '.join([*results, *shown])}"]
    for k, type_ in enumerate(operation.results):
        if ".cc." in name and k == 1:
            lines += ["addc.u32 %c, 0, 0", "cvt.u64.u32 %b1, %c"]
        elif type_ in ("p", "pred"):
            lines += [f"selp.b64 %b{k}, 1, 0, %q{k}"]
        lines += [f"st.global.u64 [%to+{8 * k}], %b{k}"]
    head = ["ld.param.u64 %x, [k_0]", "ld.param.u64 %y, [k_1]", "ld.param.u64 %n, [k_2]"]
    head += ["mov.u32 %i, %ctaid.x", "mov.u32 %j, %ntid.x", "mov.u32 %k, %tid.x", "mad.lo.s32 %e, %i, %j, %k"]
    head += ["cvt.u64.u32 %w, %e", "setp.ge.s64 %p, %w, %n", "@%p bra L"]
    head += ["mad.lo.s64 %at, %w, 32, %x", "mad.lo.s64 %to, %w, 16, %y"]
    head.insert(0, f".reg .b64 {REGISTERS}")
    body = ";\n".join([*head, *lines])
    return (
        f".visible .entry k(.param .u64 k_0, .param .u64 k_1, .param .u64 k_2)\n{{\n{body};\nL:\nret;\n}}\n"
    )


def computed(name: str, cases: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    operation = OPERATIONS[name]
    given, made = Memory(32 * len(cases)), Memory(16 * len(cases))
    rows = given.array((len(cases), 4), "uint64")
    junk = 0xA5A5_A5A5 << 32  # above numbers of 32 bits: nobody may look there
    for row, case in zip(rows, cases, strict=True):
        for k, (value, type_) in enumerate(zip(case, operation.operands, strict=True)):
            row[k] = bits_of(value, type_) | (junk if SIZES[type_] < 8 and type_ not in ("p", "pred") else 0)
    kernel = decoded(taken_apart(text_of(name)), "k")
    execute(kernel, -(-len(cases) // 64), (64, 1), [given.pointer, made.pointer, len(cases)])
    found = made.array((len(cases), 2), "uint64").tolist()
    return [tuple(number_of(row[k], type_) for k, type_ in enumerate(operation.results)) for row in found]


def cases_of(name: str) -> list[tuple[Any, ...]]:
    values = [values_of(type_) for type_ in OPERATIONS[name].operands]
    count = math.prod(map(len, values))
    if count <= CASES:
        cases = list(itertools.product(*values))
    else:
        cases = [tuple(column[int(DRAWS.integers(len(column)))] for column in values) for _ in range(CASES)]
    return [
        case
        for case in cases
        if not (name.startswith(("div", "rem")) and case[1] == 0 and isinstance(case[1], int))
    ]


@pytest.mark.parametrize("kind", dict.fromkeys(name.split(".")[0] for name in OPERATIONS))
def test_an_instruction_is_what_its_definition_says(kind: str) -> None:
    for name in OPERATIONS:
        if name.split(".")[0] == kind:
            cases = cases_of(name)
            with np.errstate(over="ignore"):
                _compare(cases, computed(name, cases), meaning(name), OPERATIONS[name].results, name)


def _compare(cases: Any, results: Any, right: Any, types: tuple[str, ...], name: str) -> None:
    for case, found in zip(cases, results, strict=True):
        expected = right(*case)
        for one, other, type_ in zip(
            found, expected if isinstance(expected, tuple) else (expected,), types, strict=True
        ):
            if type_ in ("p", "pred"):
                assert one == bool(other), (name, case, one, other)
            elif type_[0] != "f":
                assert one == wrapped(other, type_), (name, case, one, other)
            elif math.isnan(other):
                assert math.isnan(one), (name, case, one, other)
            elif "approx" in name and type_ == "f32" and one != float(np.float32(other)):
                assert abs(one - other) <= 2e-7 * abs(other) + 2e-45 * ("ftz" not in name), (case, one, other)
            elif "approx" not in name or type_ == "f64":
                assert (one, math.copysign(1, one)) == (other, math.copysign(1, other)), (case, one, other)


ATOMIC = {
    "atom.global.add.u64": lambda old, b: old + b,
    "atom.global.add.u32": lambda old, b: old + b,
    "atom.global.exch.b64": lambda old, b: b,
    "atom.global.min.s32": min,
    "atom.global.max.s64": max,
    "atom.global.min.u32": min,
    "atom.relaxed.gpu.global.and.b32": lambda old, b: old & b,
    "atom.or.b32": lambda old, b: old | b,
    "atom.global.xor.b64": lambda old, b: old ^ b,
}


@pytest.mark.parametrize("name", ATOMIC)
def test_an_atomic_operation_changes_memory_and_returns_what_was_there(name: str) -> None:
    type_ = name.rsplit(".", maxsplit=1)[-1]
    read = type_.replace("b", "u")
    memory, out = Memory(8), Memory(8)
    text = (
        ".visible .entry k(.param .u64 k_0, .param .u64 k_1, .param .u64 k_2)\n{\n.reg .b64 "
        + REGISTERS
        + ";\nld.param.u64 %x, [k_0];\n"
    )
    text += f"ld.param.u64 %y, [k_1];\nld.param.u64 %b, [k_2];\n{name} %d, [%x], %b;\nst.global.u64 [%y], %d;\nret;\n}}\n"
    kernel = decoded(taken_apart(text), "k")
    for old, b in itertools.product(values_of(read)[::4], values_of(read)[::5]):
        memory.array((1,), "uint64")[0] = bits_of(old, read)
        execute(kernel, 1, (1, 1), [memory.pointer, out.pointer, bits_of(b, read)])
        assert number_of(int(out.array((1,), "uint64")[0]), read) == old
        assert number_of(int(memory.array((1,), "uint64")[0]), read) == wrapped(ATOMIC[name](old, b), read)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shfl.sync.idx.b32 %d, %t, 5, 31", [5] * 32),
        ("shfl.sync.idx.b32 %d, %t, 33, 6175", [8 * (k // 8) + 1 for k in range(32)]),  # parts of 8 lanes
        ("shfl.sync.up.b32 %d, %t, 3, 0", [max(k - 3, 0) if k >= 3 else k for k in range(32)]),
        ("shfl.sync.down.b32 %d, %t, 4, 31", [k + 4 if k + 4 < 32 else k for k in range(32)]),
        ("shfl.sync.bfly.b32 %d, %t, 9, 31", [k ^ 9 for k in range(32)]),
        ("vote.sync.ballot.b32 %d, %p", [0xFFFF_FFF0] * 32),
        ("vote.sync.ballot.b32 %d, !%p", [0xF] * 32),
    ],
)
def test_lanes_of_a_warp_exchange_numbers(name: str, expected: list[int]) -> None:
    memory = Memory(4 * 32)
    text = f""".visible .entry k(.param .u64 k_0)
{{
.reg .b64 {REGISTERS};
ld.param.u64 %x, [k_0]; mov.u32 %t, %tid.x; setp.gt.u32 %p, %t, 3; mad.wide.u32 %to, %t, 4, %x;
{name}, 0xffffffff; st.global.u32 [%to], %d; ret;
}}
"""
    execute(decoded(taken_apart(text), "k"), 1, (32, 1), [memory.pointer])
    assert memory.array((32,), "uint32").tolist() == expected


def test_memory_holds_what_is_stored() -> None:
    """Smaller numbers are made wider by their sign; generic addresses reach all memory."""
    for type_ in "u8 s8 b8 u16 s16 u32 s32 b32 f32 u64 f64 v2.u8 v4.f32 v2.u64".split():
        for space in ["global", "shared", "local", ""]:
            count, item = int(type_[1]) if type_[0] == "v" else 1, type_.rsplit(".", maxsplit=1)[-1]
            written, read = ([f"%{name}{k}" for k in range(count)] for name in "wr")
            lists = ["{" + ", ".join(names) + "}" if count > 1 else names[0] for names in (written, read)]
            place = {"global": "%y", "shared": "s", "local": "l", "": "%g"}[space]
            dot = f".{space}" if space else ""
            text = f""".visible .entry k(.param .u64 k_0, .param .u64 k_1)
{{
.reg .b64 {REGISTERS}; .shared .align 16 .b8 s[64]; .local .align 16 .b8 l[64];
ld.param.u64 %x, [k_0]; ld.param.u64 %y, [k_1]; mov.u64 %q, s; cvta.shared.u64 %g, %q;
{" ".join(f"ld.global.u64 {name}, [%x+{8 * k}];" for k, name in enumerate(written))}
st{dot}.{type_} [{place}+16], {lists[0]}; ld{dot}.{type_} {lists[1]}, [{place}+16];
{" ".join(f"st.global.u64 [%x+{8 * k}], {name};" for k, name in enumerate(read))} ret;
}}
"""
            given, beside = Memory(64), Memory(64)
            numbers = [0x8899_AABB_CCDD_EEFF - 3 * k for k in range(8)]
            given.array((8,), "uint64")[:] = numbers
            execute(decoded(taken_apart(text), "k"), 1, (1, 1), [given.pointer, beside.pointer])
            found = given.array((8,), "uint64").tolist()
            bits = 8 * SIZES[item]
            for k in range(count):
                kept = numbers[k] % (1 << bits)
                if item[0] == "s" and kept >> (bits - 1):
                    kept -= 1 << bits
                assert found[k] == kept % (1 << 64)
            assert found[count:] == numbers[count:]
