"""Functions that loops call: of one number, as straight arithmetic, which LLVM can vectorise.

They are in the language of `translation`. The library functions behind ``math.tanh`` take one number at a
time, some 25 ns each; these take half a nanosecond. Fused multiply-add is allowed, so the last bit depends on
the machine; NaN stays NaN, and infinities have their limits. Importing this needs llvmlite.
"""
# ruff: noqa: FURB136 - of a number and NaN, max and min would return the number

from __future__ import annotations

import math
from math import inf

import numpy as np
from llvmlite import ir

from foldbatch.loops.numbers import (
    TYPES,
    Builder,
    Instruction,
    LoopFunction,
    Number,
    Typed,
    compare,
    fetch,
    further,
    intrinsic,
    is_float,
)

f4, f8, u8 = np.float32, np.float64, np.uint64


def _two_to(builder: Builder, x: Typed) -> Typed:
    bias, shift = (127, 23) if x.kind == "f4" else (1023, 52)
    integer = TYPES[x.kind.replace("f", "i")]
    exponent = builder.add(builder.bitcast(x.at, integer), ir.Constant(integer, bias))
    return Typed(x.kind, builder.bitcast(builder.shl(exponent, ir.Constant(integer, shift)), x.at.type))


# 2 ** k, where k stands in the lowest bits of a float that is MAGIC + k
two_to: LoopFunction = Instruction(_two_to)


def _intrinsic(name: str) -> Instruction:
    """Return one of LLVM's intrinsic functions of one float."""
    return Instruction(lambda builder, x: intrinsic(builder, f"llvm.{name}", x))


log: LoopFunction = _intrinsic("log")

# Adding this to a small float rounds it to a whole number, and leaves that in the lowest bits.
MAGIC_F4, MAGIC_F8 = 1.5 * 2.0**23, 1.5 * 2.0**52
LOG2_E = math.log2(math.e)
# ln 2 in two parts, the first with zeros at its end, so that a multiple of it is exact
LN2_HIGH_F4 = 355 / 512
LN2_LOW_F4 = math.log(2) - LN2_HIGH_F4
LN2_HIGH_F8 = math.floor(math.log(2) * 2.0**32) / 2.0**32
LN2_LOW_F8 = 1.9082149292705877e-10


def tanh_f4(x: np.float32) -> np.float32:
    """Return tanh(x) as x P(x^2) / Q(x^2), of degrees 13 and 6; within 4e-7, relatively.

    Coefficients: our own fit of least greatest relative error for 0 < x <= 9.011, beyond which
    tanh is 1 in float32.
    """
    x = f4(-9.011) if x < f4(-9.011) else x
    x = f4(9.011) if x > f4(9.011) else x
    z = x * x
    p = f4(-8.459665911658463e-14)
    p = p * z + f4(5.2668300325723445e-11)
    p = p * z + f4(-2.0202489387978185e-08)
    p = p * z + f4(1.1148769551889823e-05)
    p = p * z + f4(0.0031034301100615756)
    p = p * z + f4(0.13083539996718574)
    p = p * z + f4(0.9999999932960056)
    q = f4(0.00025453771350516353)
    q = q * z + f4(0.024493086157887752)
    q = q * z + f4(0.4641686702040192)
    q = q * z + f4(1)
    y = x * p / q
    y = f4(-1) if y < f4(-1) else y
    return f4(1) if y > f4(1) else y


def less_one_f4(r: np.float32) -> np.float32:
    """Return exp(r) - 1 for |r| <= ln 2 / 2: Taylor's series."""
    p = f4(1 / 5040)
    p = p * r + f4(1 / 720)
    p = p * r + f4(1 / 120)
    p = p * r + f4(1 / 24)
    p = p * r + f4(1 / 6)
    p = p * r + f4(1 / 2)
    return r + r * r * p


def less_one_f8(r: np.float64) -> np.float64:
    """Return exp(r) - 1 for |r| <= ln 2 / 2: Taylor's series."""
    p = f8(1 / 6227020800)
    p = p * r + f8(1 / 479001600)
    p = p * r + f8(1 / 39916800)
    p = p * r + f8(1 / 3628800)
    p = p * r + f8(1 / 362880)
    p = p * r + f8(1 / 40320)
    p = p * r + f8(1 / 5040)
    p = p * r + f8(1 / 720)
    p = p * r + f8(1 / 120)
    p = p * r + f8(1 / 24)
    p = p * r + f8(1 / 6)
    p = p * r + f8(1 / 2)
    return r + r * r * p


def exp_f4(x: np.float32) -> np.float32:
    """Return exp(x) as 2^k exp(r), |r| <= ln 2 / 2; below -104 it is 0.

    A result near or below the least normal number is computed 2^64 times as large, and brought down last.
    """
    none, small = x < f4(-104), x < f4(-86)
    x = f4(-104) if none else x
    x = f4(89) if x > f4(89) else x
    shifted = x * f4(LOG2_E) + f4(MAGIC_F4)
    k = shifted - f4(MAGIC_F4)
    r = x - k * f4(LN2_HIGH_F4) - k * f4(LN2_LOW_F4)
    half = two_to(shifted + (f4(64) if small else f4(-1)))  # 2^k itself may be too large
    y = half + half * less_one_f4(r)
    y = f4(0) if none else y  # here, as products that are rounded to 0 are slow
    return y * (f4(2.0**-64) if small else f4(2))


def exp_f8(x: np.float64) -> np.float64:
    """Return exp(x) as 2^k exp(r), |r| <= ln 2 / 2; below -746 it is 0.

    A result near or below the least normal number is computed 2^64 times as large, and brought down last.
    """
    none, small = x < f8(-746), x < f8(-707)
    x = f8(-746) if none else x
    x = f8(710) if x > f8(710) else x
    shifted = x * f8(LOG2_E) + f8(MAGIC_F8)
    k = shifted - f8(MAGIC_F8)
    r = x - k * f8(LN2_HIGH_F8) - k * f8(LN2_LOW_F8)
    half = two_to(shifted + (f8(64) if small else f8(-1)))  # 2^k itself may be too large
    y = half + half * less_one_f8(r)
    y = f8(0) if none else y  # here, as products that are rounded to 0 are slow
    return y * (f8(2.0**-64) if small else f8(2))


def tanh_f8(x: np.float64) -> Number:
    """Return tanh(x) as e / (e + 2), e = exp(2x) - 1, which keeps the digits of small x; within 1e-15."""
    x = f8(-20) if x < f8(-20) else x
    x = f8(20) if x > f8(20) else x
    x = x + x
    shifted = x * f8(LOG2_E) + f8(MAGIC_F8)
    k = shifted - f8(MAGIC_F8)
    r = x - k * f8(LN2_HIGH_F8) - k * f8(LN2_LOW_F8)
    power = two_to(shifted)
    e = power * less_one_f8(r) + (power - f8(1))
    return copysign(e / (e + f8(2)), x)


def sigmoid_f4(x: np.float32) -> Number:
    """Return 1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) where x < 0: neither overflows nor loses digits.

    The exponential is that of `exp_f4`, with less to decide as it is at most 1.
    """
    y = -abs(x)
    y = f4(-104) if y < f4(-104) else y
    shifted = y * f4(LOG2_E) + f4(MAGIC_F4)
    k = shifted - f4(MAGIC_F4)
    r = y - k * f4(LN2_HIGH_F4) - k * f4(LN2_LOW_F4)
    power = two_to(shifted + f4(64))
    e = (power + power * less_one_f4(r)) * f4(2.0**-64)
    return (e if x < f4(0) else f4(1)) / (f4(1) + e)


def sigmoid_f8(x: np.float64) -> Number:
    """Return 1 / (1 + exp(-x)), or exp(x) / (1 + exp(x)) where x < 0: neither overflows nor loses digits.

    The exponential is that of `exp_f8`, with less to decide as it is at most 1.
    """
    y = -abs(x)
    y = f8(-746) if y < f8(-746) else y
    shifted = y * f8(LOG2_E) + f8(MAGIC_F8)
    k = shifted - f8(MAGIC_F8)
    r = y - k * f8(LN2_HIGH_F8) - k * f8(LN2_LOW_F8)
    power = two_to(shifted + f8(64))
    e = (power + power * less_one_f8(r)) * f8(2.0**-64)
    return (e if x < f8(0) else f8(1)) / (f8(1) + e)


def log1p(x: np.floating) -> np.floating:
    """Return log(1 + x) as log(u) x / (u - 1), u being 1 + x rounded, which makes up for what that loses.

    Source: Kahan; see Goldberg, "What every computer scientist should know about floating-point arithmetic",
    theorem 4.
    """
    u = 1 + x
    d = u - 1
    return x if (d == 0) | (u == inf) else log(u) * (x / d)


def mixed(z: np.uint64) -> np.uint64:
    """Return a whole number with each bit depending on all others, as `ops.random.mixed`."""
    z = (z ^ (z >> u8(30))) * u8(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> u8(27))) * u8(0x94D049BB133111EB)
    return z ^ (z >> u8(31))


ACCUMULATORS = 1024  # sums of columns that are under way at once


def stack(kind: str, size: int) -> Instruction:
    """Return the writer of ``stack()``: memory for `size` numbers, until the function returns."""

    def write(builder: Builder) -> Typed:
        with builder.goto_entry_block():
            return Typed(f"*{kind}", builder.alloca(TYPES[kind], size))

    return Instruction(write)


def _as_f8(builder: Builder, bits: Typed) -> Typed:
    return Typed("f8", builder.bitcast(bits.at, TYPES["f8"]))


def _greatest(builder: Builder, x: Typed, y: Typed) -> Typed:
    """Return the greater number, NaN where one is, 0 rather than -0."""
    if is_float(x.kind):
        return intrinsic(builder, "llvm.maximum", x, y)
    return Typed(x.kind, builder.select(compare(builder, ">", x, y).at, x.at, y.at))


moved: LoopFunction = Instruction(further)  # built in, so that a text need not name it
copysign: LoopFunction = Instruction(lambda builder, x, y: intrinsic(builder, "llvm.copysign", x, y))
# exact, with the sign of x
fmod: LoopFunction = Instruction(lambda builder, x, y: Typed(x.kind, builder.frem(x.at, y.at)))

SCOPE: dict[str, object] = {
    "inf": inf,
    "nan": math.nan,
    "log": log,
    "log1p": log1p,
    "greatest": Instruction(_greatest),
    "sin": _intrinsic("sin"),
    "cos": _intrinsic("cos"),
    "copysign": copysign,
    "floor": _intrinsic("floor"),
    "fmod": fmod,
    "pow": Instruction(lambda builder, x, y: intrinsic(builder, "llvm.pow", x, y)),
    "rint": _intrinsic("rint"),
    "sqrt": _intrinsic("sqrt"),
    "as_f8": Instruction(_as_f8),  # the float64 of these bits
    "fetch": fetch,
    "exp": {"f4": exp_f4, "f8": exp_f8},
    "tanh": {"f4": tanh_f4, "f8": tanh_f8},
    "sigmoid": {"f4": sigmoid_f4, "f8": sigmoid_f8},
    "accumulators": stack("f8", ACCUMULATORS),
    "mixed": mixed,
}
