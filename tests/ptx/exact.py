"""What PTX instructions compute, from the definition: whole numbers of any size, and fractions that are rounded once.

Nothing here is shared with the machine: `meaning` takes an instruction's name apart itself.
"""

import math
import operator
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Value = Any  # a whole number, a float, or a bool
FORMATS = {
    "f32": (24, -149, 128),
    "f64": (53, -1074, 1024),
    "tf32": (11, -136, 128),
}  # digits, the last place of the smallest, the limit
COMPARED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def wrapped(value: int, type_: str) -> int:
    """Return a whole number as its type holds it.

    >>> wrapped(255, "s8"), wrapped(-1, "u16")
    (-1, 65535)
    """
    bits = int(type_[1:])
    value %= 1 << bits
    return value - (1 << bits) if type_[0] == "s" and value >> (bits - 1) else value


def rounded(x: Fraction, type_: str, direction: str = "rn", zero: float = 0.0) -> float:
    """Return the float of a type next to a fraction; `zero` tells the sign of 0.

    >>> rounded(Fraction(1, 3), "f32", "rz"), rounded(Fraction(1, 3), "f32", "rp")
    (0.3333333134651184, 0.3333333432674408)
    """
    digits, least, limit = FORMATS[type_]
    if not x:
        return zero
    size, sign = abs(x), -1.0 if x < 0 else 1.0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    place = max(exponent - digits + 1, least)
    whole, rest = divmod(size / Fraction(2) ** place, 1)
    up = {
        "rz": False,
        "rm": x < 0,
        "rp": x > 0,
        "rn": rest * 2 > 1 or (rest * 2 == 1 and whole % 2),
        "rna": rest * 2 >= 1,
    }[direction]
    whole += bool(up and rest)
    result = Fraction(whole) * Fraction(2) ** place
    if result >= Fraction(2) ** limit:
        largest = math.ldexp(2**digits - 1, limit - digits)
        return sign * (math.inf if up or direction in ("rn", "rna") else largest)
    return sign * float(result)


def _finite(*values: float) -> bool:
    return all(math.isfinite(value) for value in values)


def _sum(a: float, b: float, type_: str, direction: str) -> float:
    if not _finite(a, b):
        return a + b
    if a == b == 0 and math.copysign(1, a) == math.copysign(1, b):
        return a
    return rounded(Fraction(a) + Fraction(b), type_, direction, -0.0 if direction == "rm" else 0.0)


def _product(a: float, b: float, type_: str, direction: str) -> float:
    if not _finite(a, b):
        return a * b
    return rounded(Fraction(a) * Fraction(b), type_, direction, math.copysign(0, a) * math.copysign(1, b))


def _fused(a: float, b: float, c: float, type_: str, direction: str) -> float:
    if not _finite(a, b):
        return a * b + c
    if not math.isfinite(c):
        return c
    product = Fraction(a) * Fraction(b)
    if not product:
        return _sum(math.copysign(0, a) * math.copysign(1, b), c, type_, direction)
    return rounded(product + Fraction(c), type_, direction, -0.0 if direction == "rm" else 0.0)


def _quotient(a: float, b: float, type_: str) -> float:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    if math.isinf(a) or b == 0:
        return sign * math.inf
    if math.isinf(b):
        return sign * 0.0
    return rounded(Fraction(a) / Fraction(b), type_, zero=sign * 0.0)


def _root(a: float, type_: str) -> float:
    if a < 0:
        return math.nan
    if not math.isfinite(a) or a == 0:
        return a
    shift = 200 + (Fraction(a).denominator.bit_length() + 1) // 2  # far more digits than the type has
    scaled = Fraction(a) * 4**shift
    root = math.isqrt(int(scaled))
    exact = root * root == scaled
    return rounded(Fraction(2 * root + (not exact), 2 * 2**shift), type_)


def _extreme(a: float, b: float, least: bool) -> float:
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    ordered = sorted([a, b], key=lambda x: (x, math.copysign(1, x)))
    return ordered[0] if least else ordered[1]


def _whole(a: float, mode: str) -> float:
    if not math.isfinite(a):
        return a
    near = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode](Fraction(a))
    return math.copysign(float(near), a)


def _to_whole(a: float, to: str, of: str, mode: str) -> int:
    bits = int(to[1:])
    if math.isnan(a):
        return wrapped(1 << (bits - 1), to) if of == "f64" or bits == 64 else 0
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    return int(min(max(_whole(a, mode), least), most)) if not math.isinf(a) else (most if a > 0 else least)


def _compared(name: str, type_: str) -> Callable[[Value, Value], bool]:
    if type_[0] != "f":
        return COMPARED[name]
    unordered = lambda a, b: math.isnan(a) or math.isnan(b)  # noqa: E731
    if name in ("nan", "num"):
        return lambda a, b: unordered(a, b) == (name == "nan")
    either = len(name) == 3
    return lambda a, b: either if unordered(a, b) else COMPARED[name[:2]](a, b)


def _extracted(a: int, b: int, c: int, type_: str) -> int:
    bits, at, length = int(type_[1:]), b & 255, c & 255
    sign = a >> min(at + length - 1, bits - 1) & 1 if type_[0] == "s" and length else 0
    picked = [a >> (at + k) & 1 if k < length and at + k < bits else sign for k in range(bits)]
    return sum(bit << k for k, bit in enumerate(picked))


def _inserted(a: int, b: int, c: int, d: int, bits: int) -> int:
    for k in range(min(d & 255, max(0, bits - (c & 255)))):
        place = (c & 255) + k
        b = b & ~(1 << place) | (a >> k & 1) << place
    return b


def _permuted(a: int, b: int, c: int) -> int:
    bytes_ = (a | b << 32).to_bytes(8, "little")
    picked = [bytes_[c >> 4 * k & 7] for k in range(4)]
    return sum((255 * (byte >> 7) if c >> 4 * k & 8 else byte) << 8 * k for k, byte in enumerate(picked))


def _dot(a: int, b: int, c: int, of_a: str, of_b: str, count: int, first: int) -> int:
    size = 32 // count
    total = c
    for k in range(count):
        left = wrapped(a >> size * k, f"{of_a}{size}")
        total += left * wrapped(b >> 8 * (k + first), f"{of_b}8")
    return total


def _truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _flushed(a: float) -> float:
    return math.copysign(0, a) if abs(a) < 2.0**-126 else a


def _coarse(a: float) -> float:
    (bits,) = struct.unpack("<Q", struct.pack("<d", a))
    (cut,) = struct.unpack("<d", struct.pack("<Q", bits >> 32 << 32))
    return math.copysign(0, cut) if abs(cut) < 2.0**-1022 else cut


def _power(a: float) -> float:
    return math.inf if a > 2000 else 0.0 if a < -2000 else 2.0**a


def _logarithm(a: float) -> float:
    return (
        math.nan if a < 0 or math.isnan(a) else -math.inf if a == 0 else math.log2(a) if a < math.inf else a
    )


APPROXIMATED: dict[str, Callable[[float], float]] = {
    "ex2": _power,
    "lg2": _logarithm,
    "rcp": lambda a: _quotient(1.0, a, "f64"),
    "sqrt": lambda a: _root(a, "f64"),
}


def meaning(name: str) -> Callable[..., Any]:  # noqa: PLR0915 - a case for each instruction
    """Return a function of an instruction's operands; where it has several results, it returns a tuple.

    Whole numbers need not fit into the type of the result.
    """
    root, *parts = name.split(".")
    type_ = parts[-1]
    real = type_[0] == "f"
    direction = next((part for part in parts if part in ("rn", "rz", "rm", "rp")), "rn")
    carries = "cc" in parts
    mask = (1 << 32) - 1
    match root:
        case "mov" | "cvta":
            window = {"shared": 2 << 56, "local": 3 << 56}.get(parts[-2] if root == "cvta" else "", 0)
            sign = -1 if "to" in parts else 1
            return (lambda a: a + sign * window) if window else (lambda a: a)
        case "pack":
            return lambda a, b: a | b << int(parts[0][1:]) // 2
        case "unpack":
            half = int(parts[0][1:]) // 2
            return lambda a: (a % (1 << half), a >> half)
        case "add" | "addc" if not real:
            carry = root == "addc"
            total = lambda a, b, c=0: a + b + c * carry  # noqa: E731
            return (lambda *x: (total(*x), total(*x) > mask)) if carries else total
        case "sub" | "subc" if not real:
            difference = lambda a, b, c=0: a - b - c  # noqa: E731
            return (lambda *x: (difference(*x), difference(*x) < 0)) if carries else difference
        case "mul" | "mad" | "madc" if not real:
            high, bits = "hi" in parts, int(type_[1:])

            def multiplied(a: int, b: int, c: int = 0, carry: bool = False) -> Any:
                product = a * b >> bits if high else a * b
                total = (product & mask if carries else product) + c + carry
                return (total, total > mask) if carries else total

            return multiplied
        case "div" | "rem" if not real:
            return lambda a, b: _truncated(a, b) if root == "div" else a - b * _truncated(a, b)
        case "add":
            return lambda a, b: _sum(a, b, type_, direction)
        case "sub":
            return lambda a, b: _sum(a, -b, type_, direction)
        case "mul" if "ftz" in parts:
            return lambda a, b: _flushed(_product(_flushed(a), _flushed(b), type_, "rn"))
        case "mul":
            return lambda a, b: _product(a, b, type_, direction)
        case "fma":
            return lambda a, b, c: _fused(a, b, c, type_, direction)
        case "div" if "approx" in parts:
            vast = lambda b: 2.0**126 < abs(b) < math.inf  # noqa: E731
            return lambda a, b: a * math.copysign(0, b) if vast(b) else _quotient(a, b, type_)
        case _ if "approx" in parts:
            exact = APPROXIMATED[root]
            if type_ == "f64":
                return lambda a: _coarse(exact(_coarse(a)))
            flush = _flushed if "ftz" in parts else float
            return lambda a: flush(exact(flush(a)))
        case "div":
            return lambda a, b: _quotient(a, b, type_)
        case "rcp":
            return lambda a: _quotient(1.0, a, type_)
        case "sqrt":
            return lambda a: _root(a, type_)
        case "neg":
            return operator.neg
        case "abs":
            return abs
        case "copysign":
            return lambda a, b: math.copysign(b, a)
        case "min" | "max":
            return (lambda a, b: _extreme(a, b, root == "min")) if real else {"min": min, "max": max}[root]
        case "setp":
            return _compared(parts[0], type_)
        case "selp":
            return lambda a, b, c: a if c else b
        case "and" | "or" | "xor":
            return {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[root]
        case "not":
            return operator.not_ if type_ == "pred" else operator.invert
        case "shl":
            return lambda a, b: a << min(b, int(type_[1:]))
        case "shr":
            return lambda a, b: a >> min(b, int(type_[1:]))
        case "bfe":
            return lambda a, b, c: _extracted(a, b, c, type_)
        case "bfi":
            return lambda a, b, c, d: _inserted(a, b, c, d, int(type_[1:]))
        case "clz":
            return lambda a: int(type_[1:]) - a.bit_length()
        case "popc":
            return int.bit_count
        case "prmt":
            return _permuted
        case "shf":
            left = parts[0] == "l"
            return lambda a, b, c: (a | b << 32) << (c & 31) >> 32 if left else (a | b << 32) >> (c & 31)
        case "dp4a":
            return lambda a, b, c: _dot(a, b, c, parts[0][0], parts[1][0], 4, 0)
        case "dp2a":
            return lambda a, b, c: _dot(a, b, c, parts[1][0], parts[2][0], 2, 2 * (parts[0] == "hi"))
        case "cvt":
            return _converted(parts)
    raise KeyError(name)


def _to_tf32(a: float) -> int:
    """Return the bits of a number of 10 bits behind the point."""
    if math.isnan(a):
        return 0x7FFF_FFFF
    near = rounded(Fraction(a), "tf32", "rna", zero=a) if math.isfinite(a) else a
    return int(struct.unpack("<I", struct.pack("<f", near))[0])


def _converted(parts: list[str]) -> Callable[[Value], Value]:
    *modes, to, of = parts
    if to == "tf32":
        return _to_tf32
    if "sat" in modes:
        return lambda a: 0.0 if math.isnan(a) else min(max(a, 0.0), 1.0) + 0.0
    if to[0] == "f" and of[0] != "f":
        return lambda a: rounded(Fraction(a), to)
    if to[0] != "f" and of[0] == "f":
        return lambda a: _to_whole(a, to, of, modes[0])
    if to[0] == "f" and modes and modes[0].endswith("i"):
        return lambda a: _whole(a, modes[0])
    if to == "f32":
        return lambda a: rounded(Fraction(a), "f32", zero=a) if math.isfinite(a) else a
    return lambda a: a
