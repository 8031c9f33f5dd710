"""The text of products by matrix units: operands of float32 are rounded, products are added up in float32.

Cards of compute capability 8.0 and later have matrix units. Elsewhere plain C rounds the operands in the same
way, so results differ by the order of sums alone.
"""

from __future__ import annotations

# tf32 keeps 10 bits behind the point, to the nearest, ties away from zero; bf16 keeps 7, ties to even.
ROUNDED = {
    "tf32": """\
#if defined(FB_CUDA) && __CUDA_ARCH__ >= 800
DEVICE u4 pack_tf32(f4 x) {
  u4 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
#else
DEVICE f4 rounded_tf32(f4 x) {
  u4 bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7F800000u) != 0x7F800000u) bits = (bits + 0x1000u) & 0xFFFFE000u;
  memcpy(&x, &bits, 4);
  return x;
}
#endif
""",
    "bf16": """\
#if defined(FB_CUDA) && __CUDA_ARCH__ >= 800
DEVICE u4 pack_bf16(f4 low, f4 high) {
  u4 bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#else
DEVICE f4 rounded_bf16(f4 x) {
  u4 bits;
  memcpy(&bits, &x, 4);
  if ((bits & 0x7F800000u) != 0x7F800000u) bits = (bits + 0x7FFFu + (bits >> 16 & 1)) & 0xFFFF0000u;
  memcpy(&x, &bits, 4);
  return x;
}
#endif
""",
}

# A warp multiplies 16 rows of a by 8 columns of b. Lane 4 * y + x holds numbers of rows y and y + 8 of a, and
# of column y of b; and of the sums columns 2 * x and 2 * x + 1 of rows y and y + 8.
_STEP = """\
for (i4 k = 0; k < {chunk}; k += {depth}) {{
  const i4 at = k + {first} * (lane % 4);
  const u4 a0 = {a0}, a1 = {a1}, a2 = {a2}, a3 = {a3};
  for (i4 q = 0; q < {size} * {size} / 4; q++) {{
    const i4 j = column + 8 * q;
    const u4 b0 = {b0}, b1_ = {b1};
    f4* s = &sums[0][0] + 4 * q;
    asm volatile("mma.sync.aligned.{shape}.row.col.f32.{type}.{type}.f32 "
                 "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1_));
  }}
}}
"""
_SHAPES = {"tf32": ("m16n8k8", 8, 1, 4), "bf16": ("m16n8k16", 16, 2, 8)}


def units_step(precision: str, size: int, chunk: int) -> str:
    """Return statements that add the products of a chunk to ``sums``, for a warp of a card.

    They read ``lane``; ``row`` and ``column`` of the tile, which the lane loads; and two chunks. Number k of
    row i of a lies at ``ours[i * a_i + k * a_k]``, that of column j of b at ``theirs[j * b_j + k * b_k]``.

    Args:
        precision: ``tf32`` or ``bf16``.
        size: see `tile_bodies.SIZES`.
        chunk: how many numbers are added up, a multiple of 16.
    """
    shape, depth, first, half = _SHAPES[precision]

    def word(name: str, r: str, k: str, more: int) -> str:
        at = f"{name}[({r}) * {'a_i' if name == 'ours' else 'b_j'} + (at + {more}) * {k}]"
        if precision == "tf32":
            return f"pack_tf32({at})"
        after = at.replace(f"(at + {more})", f"(at + {more + 1})")
        return f"pack_bf16({at}, {after})"

    return _STEP.format(
        size=size,
        chunk=chunk,
        depth=depth,
        first=first,
        shape=shape,
        type=precision,
        a0=word("ours", "row", "a_k", 0),
        a1=word("ours", "row + 8", "a_k", 0),
        a2=word("ours", "row", "a_k", half),
        a3=word("ours", "row + 8", "a_k", half),
        b0=word("theirs", "j", "b_k", 0),
        b1=word("theirs", "j", "b_k", half),
    )
