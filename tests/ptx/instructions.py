"""What each PTX instruction computes: the types of its results and operands, and a statement of C.

An instruction that is not in `OPERATIONS` is refused when a kernel is decoded. Operands are ``a``, ``b``, ``c``, ``e``,
results ``d`` and ``f``. Types are PTX's, or ``p`` for a predicate. What hardware approximates is computed to the last
place. PTX leaves a division by zero open: here it is a fault.
"""

from typing import NamedTuple

INTEGERS = [f"{kind}{bits}" for bits in (16, 32, 64) for kind in "us"]
FLOATS = ("f32", "f64")
UNTYPED = ("b16", "b32", "b64")
SIZES = {"p": 1, "pred": 1} | {f"{kind}{bits}": bits // 8 for kind in "usbf" for bits in (8, 16, 32, 64)}
DIRECTIONS = {"rni": "FE_TONEAREST", "rzi": "FE_TOWARDZERO", "rmi": "FE_DOWNWARD", "rpi": "FE_UPWARD"}
ROUNDED = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}


class Operation(NamedTuple):
    """What an instruction computes.

    Attributes:
        results: the types of its results.
        operands: the types of its operands.
        statement: C that sets the results.
    """

    results: tuple[str, ...]
    operands: tuple[str, ...]
    statement: str


OPERATIONS: dict[str, Operation] = {}


def define(name: str, results: str, operands: str, statement: str) -> None:
    """Add an instruction; types are separated by blanks."""
    assert name not in OPERATIONS, name
    OPERATIONS[name] = Operation(tuple(results.split()), tuple(operands.split()), statement)


def _moves() -> None:
    for type_ in (*INTEGERS, *UNTYPED, *FLOATS):
        define(f"mov.{type_}", type_, type_, "d = a;")
    define("mov.pred", "p", "p", "d = a;")
    for space in ("shared", "local"):
        for way, sign in (("", "+"), ("to.", "-")):
            window = f"((u64){space.upper()} << WINDOW)"
            define(f"cvta.{way}{space}.u64", "u64", "u64", f"d = a {sign} {window};")
    for name in ("cvta.global.u64", "cvta.to.global.u64"):
        define(name, "u64", "u64", "d = a;")
    define("pack.b64.2", "b64", "b32 b32", "d = a | (u64)b << 32;")
    define("pack.b32.2", "b32", "b16 b16", "d = a | (u32)b << 16;")
    define("unpack.b64.2", "b32 b32", "b64", "d = (u32)a; f = (u32)(a >> 32);")
    define("unpack.b32.2", "b16 b16", "b32", "d = (u16)a; f = (u16)(a >> 16);")


def _integers() -> None:
    for type_ in INTEGERS:
        kind, bits = type_[0], int(type_[1:])
        unsigned, wide = f"u{bits}", f"{kind}{2 * bits}" if bits < 64 else f"{kind}128"
        product, two, three = f"({wide})a * ({wide})b", f"{type_} {type_}", f"{type_} {type_} {type_}"
        for name, sign in (("add", "+"), ("sub", "-"), ("mul.lo", "*")):
            define(f"{name}.{type_}", type_, two, f"d = (u64)a {sign} (u64)b;")
        define(f"mad.lo.{type_}", type_, three, "d = (u64)a * (u64)b + (u64)c;")
        define(f"mul.hi.{type_}", type_, two, f"d = ({product}) >> {bits};")
        define(f"mad.hi.{type_}", type_, three, f"d = (u64)(({product}) >> {bits}) + (u64)c;")
        if bits < 64:
            define(f"mul.wide.{type_}", wide, two, f"d = {product};")
            define(f"mad.wide.{type_}", wide, f"{type_} {type_} {wide}", f"d = (u64)({product}) + (u64)c;")
        by_zero = 'if (b == 0) fault("division by zero", pc, 32 * warp + lane, 0);'
        minus = f"if (b == ({type_})-1) d = {{}}; else " if kind == "s" else ""
        define(f"div.{type_}", type_, f"{type_} {type_}", f"{by_zero} {minus.format('-(u64)a')}d = a / b;")
        define(f"rem.{type_}", type_, f"{type_} {type_}", f"{by_zero} {minus.format('0')}d = a % b;")
        for name, sign in (("min", "<"), ("max", ">")):
            define(f"{name}.{type_}", type_, f"{type_} {type_}", f"d = a {sign} b ? a : b;")
        for name, sign in _COMPARED.items():
            define(f"setp.{name}.{type_}", "p", f"{type_} {type_}", f"d = a {sign} b;")
        past = "a < 0 ? -1 : 0" if kind == "s" else "0"
        define(f"shr.{type_}", type_, f"{type_} u32", f"d = b >= {bits} ? ({past}) : a >> b;")
        if kind == "s":
            define(f"neg.{type_}", type_, type_, "d = -(u64)a;")
            define(f"abs.{type_}", type_, type_, "d = a < 0 ? -(u64)a : a;")
        if bits > 16:
            define(f"bfe.{type_}", type_, f"{type_} u32 u32", _extracted(kind, bits))
        define(f"selp.{type_}", type_, f"{type_} {type_} p", "d = c ? a : b;")
        if kind == "u" and bits == 32:
            _carries(unsigned)


def _extracted(kind: str, bits: int) -> str:
    most = bits - 1
    sign = f"c ? a >> (b + c > {most} ? {most} : b + c - 1) & 1 : 0" if kind == "s" else "0"
    return (
        f"b &= 255; c &= 255; u64 sign = {sign}, x = 0; for (u32 k = 0; k < {bits}; k++)"
        f" x |= (k < c && b + k < {bits} ? (u64)a >> (b + k) & 1 : sign) << k; d = x;"
    )


def _carries(type_: str) -> None:
    """Sums of several words: the carry is one more result, and one more operand, of type ``p``."""
    two, three = f"{type_} {type_}", f"{type_} {type_} {type_}"
    low, high = "(u64)(u32)((u64)a * b)", "((u64)a * b >> 32)"
    for name, given, total in (
        ("add", two, "(u64)a + b"),
        ("mad.lo", three, f"{low} + c"),
        ("mad.hi", three, f"{high} + c"),
    ):
        further = name.replace("add", "addc").replace("mad", "madc")
        carry = "c" if name == "add" else "e"
        define(f"{name}.cc.{type_}", f"{type_} p", given, f"u64 x = {total}; d = x; f = x >> 32;")
        define(f"{further}.{type_}", type_, f"{given} p", f"d = {total} + {carry};")
        define(
            f"{further}.cc.{type_}",
            f"{type_} p",
            f"{given} p",
            f"u64 x = {total} + {carry}; d = x; f = x >> 32;",
        )
    define(f"sub.cc.{type_}", f"{type_} p", two, "d = a - b; f = a < b;")
    define(f"subc.{type_}", type_, f"{two} p", "d = a - b - c;")
    define(f"subc.cc.{type_}", f"{type_} p", f"{two} p", "d = a - b - c; f = (u64)a < (u64)b + c;")


_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _bits() -> None:
    for type_ in UNTYPED:
        bits = int(type_[1:])
        define(f"shl.{type_}", type_, f"{type_} u32", f"d = b >= {bits} ? 0 : (u64)a << b;")
        define(f"shr.{type_}", type_, f"{type_} u32", f"d = b >= {bits} ? 0 : a >> b;")
        define(f"not.{type_}", type_, type_, "d = ~a;")
        for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
            define(f"{name}.{type_}", type_, f"{type_} {type_}", f"d = a {sign} b;")
        for name in ("eq", "ne"):
            define(f"setp.{name}.{type_}", "p", f"{type_} {type_}", f"d = a {_COMPARED[name]} b;")
        define(f"selp.{type_}", type_, f"{type_} {type_} p", "d = c ? a : b;")
    for name, sign in (("and", "&"), ("or", "|"), ("xor", "^")):
        define(f"{name}.pred", "p", "p p", f"d = a {sign} b;")
    define("not.pred", "p", "p", "d = !a;")
    for bits in (32, 64):
        ending = "ll" if bits == 64 else ""
        define(f"clz.b{bits}", "u32", f"b{bits}", f"d = a ? __builtin_clz{ending}(a) : {bits};")
        define(f"popc.b{bits}", "u32", f"b{bits}", f"d = __builtin_popcount{ending}(a);")
        define(
            f"bfi.b{bits}",
            f"b{bits}",
            f"b{bits} b{bits} u32 u32",
            f"c &= 255; e &= 255; u64 x = b; for (u32 k = 0; k < e && c + k < {bits}; k++)"
            " x = (x & ~((u64)1 << (c + k))) | ((u64)a >> k & 1) << (c + k); d = x;",
        )
    define(
        "prmt.b32",
        "b32",
        "b32 b32 b32",
        "u64 x = a | (u64)b << 32; u32 y = 0; for (int k = 0; k < 4; k++) {"
        " u32 s = c >> 4 * k & 15, v = x >> 8 * (s & 7) & 255;"
        " y |= (s & 8 ? (v & 128 ? 255 : 0) : v) << 8 * k; } d = y;",
    )
    define("shf.l.wrap.b32", "b32", "b32 b32 u32", "d = ((u64)b << 32 | a) << (c & 31) >> 32;")
    define("shf.r.wrap.b32", "b32", "b32 b32 u32", "d = ((u64)b << 32 | a) >> (c & 31);")


def _dots() -> None:
    """Products of small numbers, which a compiler makes of indices."""
    for a in "us":
        for b in "us":
            types = f"{a}32.{b}32"
            bytes_ = [f"({a}8)(a >> {8 * k}) * ({b}8)(b >> {8 * k})" for k in range(4)]
            define(f"dp4a.{types}", f"{a}32", f"{a}32 {b}32 {a}32", f"d = c + {' + '.join(bytes_)};")
            for half, shift in (("lo", 0), ("hi", 16)):
                halves = [f"({a}16)(a >> {16 * k}) * ({b}8)(b >> {8 * k + shift})" for k in range(2)]
                define(
                    f"dp2a.{half}.{types}", f"{a}32", f"{a}32 {b}32 {a}32", f"d = c + {' + '.join(halves)};"
                )


def _floats() -> None:
    for type_ in FLOATS:
        one, two, three = type_, f"{type_} {type_}", f"{type_} {type_} {type_}"
        ending = "f" if type_ == "f32" else ""
        for rounding in ("", ".rn"):
            for name, sign in (("add", "+"), ("sub", "-"), ("mul", "*")):
                define(f"{name}{rounding}.{type_}", one, two, f"d = number(a {sign} b);")
        for name in ("add", "mul", "fma"):
            for rounding, direction in ROUNDED.items():
                arguments = "a, b, c" if name == "fma" else "a, b, 0"
                define(
                    f"{name}.{rounding}.{type_}",
                    one,
                    three if name == "fma" else two,
                    f"d = number({name}_{type_}({arguments}, {direction}));",
                )
        define(f"fma.rn.{type_}", one, three, f"d = number(fma{ending}(a, b, c));")
        define(f"div.rn.{type_}", one, two, "d = number(a / b);")
        define(f"rcp.rn.{type_}", one, one, "d = number(1 / a);")
        define(f"sqrt.rn.{type_}", one, one, f"d = number(sqrt{ending}(a));")
        define(f"neg.{type_}", one, one, "d = -a;")
        define(f"abs.{type_}", one, one, f"d = fabs{ending}(a);")
        define(f"copysign.{type_}", one, two, f"d = copysign{ending}(b, a);")  # the sign of a
        for name, sign in (("min", "<"), ("max", ">")):
            zero = f"(signbit(a) != 0) {'>' if name == 'min' else '<'} (signbit(b) != 0)"
            define(
                f"{name}.{type_}",
                one,
                two,
                f"d = number(a != a ? b : b != b ? a : a == b ? ({zero} ? a : b) : a {sign} b ? a : b);",
            )
        for name, sign in _COMPARED.items():
            holds = f"a {sign} b" if name != "ne" else "a < b || a > b"
            define(f"setp.{name}.{type_}", "p", two, f"d = {holds};")
            define(f"setp.{name}u.{type_}", "p", two, f"d = a != a || b != b || {holds};")
        define(f"setp.num.{type_}", "p", two, "d = a == a && b == b;")
        define(f"setp.nan.{type_}", "p", two, "d = a != a || b != b;")
        define(f"selp.{type_}", one, f"{two} p", "d = c ? a : b;")
    flushed = {"": "({})", ".ftz": "flushed({})"}
    for ftz, form in flushed.items():
        a, b = form.format("a"), form.format("b")
        define(f"ex2.approx{ftz}.f32", "f32", "f32", f"d = number({form.format(f'exp2f({a})')});")
        define(f"lg2.approx{ftz}.f32", "f32", "f32", f"d = number({form.format(f'log2f({a})')});")
        define(f"rcp.approx{ftz}.f32", "f32", "f32", f"d = number({form.format(f'1 / {a}')});")
        define(f"sqrt.approx{ftz}.f32", "f32", "f32", f"d = number({form.format(f'sqrtf({a})')});")
        if ftz:
            define("mul.ftz.f32", "f32", "f32 f32", f"d = number({form.format(f'{a} * {b}')});")
    define(  # a product by 1 / b, which is 0 where b is very large
        "div.approx.f32",
        "f32",
        "f32 f32",
        "const int vast = fabsf(b) > 0x1p126f && !isinf(b); d = number(a * (vast ? copysignf(0, b) : 1));"
        " if (!vast) d = number(a / b);",
    )
    define("rcp.approx.ftz.f64", "f64", "f64", "d = coarse(1 / coarse(a));")
    define("cvt.sat.f32.f32", "f32", "f32", "d = a >= 1 ? 1 : a > 0 ? a : 0;")


def _conversions() -> None:
    everything = ["u8", "s8", *INTEGERS]
    for to in everything:
        for of in everything:
            define(f"cvt.{to}.{of}", to, of, "d = a;")
    for kind in FLOATS:
        for of in everything:
            define(f"cvt.rn.{kind}.{of}", kind, of, "d = a;")
        for name, direction in DIRECTIONS.items():
            define(f"cvt.{name}.{kind}.{kind}", kind, kind, f"d = number(whole(a, {direction}));")
            for to in INTEGERS:
                least, greatest = _range(to)
                bits = int(to[1:])
                nothing = f"(u64)1 << {bits - 1}" if kind == "f64" or bits == 64 else "0"
                most = 2.0 ** (bits - (to[0] == "s"))
                least_ = -most if to[0] == "s" else 0.0
                define(
                    f"cvt.{name}.{to}.{kind}",
                    to,
                    kind,
                    f"f64 x = whole(a, {direction}); if (a != a) d = {nothing};"
                    f" else if (x >= {most!r}) d = {greatest}; else if (x <= {least_!r}) d = {least}; else d = x;",
                )
    rounded = "(bits_f32(a) + 0x1000) & 0xffffe000"  # ties away from zero
    define("cvt.rna.tf32.f32", "b32", "f32", f"d = a != a ? 0x7fffffff : {rounded};")
    define("cvt.f64.f32", "f64", "f32", "d = number(a);")
    define("cvt.rn.f32.f64", "f32", "f64", "d = number((f32)a);")


def _range(type_: str) -> tuple[str, str]:
    bits = int(type_[1:])
    if type_[0] == "u":
        return "0", f"{2**bits - 1}ull"
    return f"(-{2 ** (bits - 1) - 1}ll - 1)", f"{2 ** (bits - 1) - 1}ll"


_moves()
_integers()
_bits()
_dots()
_floats()
_conversions()

ATOMICS = {  # what an atomic operation writes, of what is there, `a`, and operands `b` and `c`
    "cas": "a == b ? c : a",
    "exch": "b",
    "add": "a + b",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
    "min.u": "a < b ? a : b",
    "max.u": "a > b ? a : b",
    "min.s": "with_sign(a, i->item) < with_sign(b, i->item) ? a : b",
    "max.s": "with_sign(a, i->item) > with_sign(b, i->item) ? a : b",
    "add.f32": "bits_f32(of_f32(a) + of_f32(b))",
    "add.f64": "bits_f64(of_f64(a) + of_f64(b))",
}
CONTROL = "BRANCH EXIT BARRIER WARP_BARRIER VOTE SHUFFLE MMA LOAD STORE CHANGE SELECT".split()
NUMBERS = {name: number for number, name in enumerate([*CONTROL, *OPERATIONS])}


def cases() -> str:
    return "\n".join(_case(name, operation) for name, operation in OPERATIONS.items())


def _case(name: str, operation: Operation) -> str:
    ins, outs = list(enumerate(operation.operands)), list(enumerate(operation.results))
    lines = [f"case {NUMBERS[name]}: {{ /* {name} */"]
    lines += [f"const u64* s{k} = SOURCE({k}); const i64 t{k} = STRIDE({k});" for k, _ in ins]
    lines += [f"u64* o{k} = R + 32 * i->out[{k}];" for k, _ in outs]
    lines.append("EACH { const int lane = active[q]; (void)lane;")
    lines += [f"{_c(type_)} {'abce'[k]} = of_{_c(type_)}(s{k}[t{k} * lane]);" for k, type_ in ins]
    lines += [f"{_c(type_)} {'df'[k]};" for k, type_ in outs]
    lines.append(operation.statement)
    lines += [f"o{k}[lane] = bits_{_c(type_)}({'df'[k]});" for k, type_ in outs]
    return " ".join([*lines, "} break; }"])


def _c(type_: str) -> str:
    return {"b": "u"}.get(type_[0], type_[0]) + type_[1:]
