"""Texts are taken apart: variables, scopes, calls put in their place; and what is not known is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.decode import UnknownPtxError, decoded, taken_apart
from tests.ptx.driver import Memory
from tests.ptx.machine import execute, has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="there is no C compiler")
CALLS = """
.version 9.5 // of PTX
.global .align 4 .u32 table[3] = {7, 8,
 9};
.global .align 1 .u8 nothing;
.func (.param .b64 func_retval0) half(.param .b64 half_param_0);
.func (.param .align 8 .b8 func_retval0[16]) both
(
  .param .b64 both_param_0
)
{
  .reg .b64 %rd<4>;
  ld.param.b64 %rd1, [both_param_0];
  { .param .b64 param0; st.param.b64 [param0+0], %rd1; .param .b64 retval0;
    call.uni (retval0), half, (param0);
    ld.param.b64 %rd2, [retval0+0]; }
  st.param.b64 [func_retval0+0], %rd2;
  st.param.b64 [func_retval0+8], %rd1;
  ret;
}
.func (.param .b64 func_retval0) half
(.param .b64 half_param_0)
{
  .reg .pred %p<2>; .reg .b64 %rd<3>;
  .local .align 8 .b8 own[8];
  ld.param.b64 %rd1, [half_param_0];
  st.local.u64 [own], %rd1;
  setp.gt.s64 %p1, %rd1, 9;
  @%p1 bra LARGE;
  ld.local.u64 %rd2, [own];
  shr.u64 %rd2, %rd2, 1;
  st.param.b64 [func_retval0+0], %rd2;
  ret;
LARGE:
  st.param.b64 [func_retval0+0], 1000;
  ret;
}
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
.maxntid 64, 2, 1
{
  .reg .b64 %rd<9>;
  ld.param.u64 %rd1, [k_param_0];
  ld.param.u64 %rd5, [k_param_1];
  {
    .reg .b64 %rd5, t; // hides the other one
    mov.u64 %rd5, table;
    mov.u64 t, %rd5;
    mov.b64 {_, %rd2}, 5;
    ld.global.u32 %rd2, [t+8];
  }
  { .param .b64 param0; st.param.b64 [param0+0], %rd5; .param .align 8 .b8 retval0[16];
    call.uni (retval0), both, (param0);
    ld.param.b64 %rd3, [retval0+0]; ld.param.b64 %rd4, [retval0+8]; }
  st.global.v2.u64 [%rd1], {%rd2, %rd3};
  st.global.u64 [%rd1+16], %rd4;
  ret;
}
"""


@needs_compiler
def test_functions_are_put_where_they_are_called() -> None:
    text = taken_apart(CALLS)
    assert text.kernels == ["k"]
    assert text.variables == {"table": np.array([7, 8, 9], "<u4").tobytes(), "nothing": b"\0"}
    table, out = Memory(12), Memory(32)
    table.array((3,), "uint32")[:] = [7, 8, 9]
    kernel = decoded(text, "k", {"table": table.pointer})
    assert (kernel.threads, kernel.parameters, kernel.local_bytes) == (128, 2, 8)
    for given, half in ((6, 3), (20, 1000)):
        execute(kernel, 1, (1, 1), [out.pointer, given])
        assert out.array((3,), "uint64").tolist() == [9, half, given]


REGISTERS = "%r<9>, %rd<9>, %f<9>, %p<9>"
REFUSED = [
    "mov.u32 %r1, %r9",
    "mov.u32 %r1, _",
    "mov.u32 %r1, %laneid_",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2}",
    "cp.async.ca.shared.global [%r1], [%rd1], 4, 4",
    "setp.lt.and.s32 %p1, %r1, %r2, %p2",
    "add.f32 %f1, %f2",
    "add.sat.f32 %f1, %f2, %f3",
    "ld.volatile.global.u32 %r1, [%rd1]",
    "ld.global.v2.u32 {%r1}, [%rd1]",
    "ld.global.u32 %r1, [%rd1+%rd2]",
    "ld.global.v8.b32 %r1, [%rd1]",
    "ld.param.u32 %r1, [k_param_0]",
    "st.release.gpu.global.u32 [%rd1], %r1",
    "atom.acq_rel.gpu.global.add.u32 %r1, [%rd1], 1",
    "atom.global.add.f16 %r1, [%rd1], 1",
    "bar.sync 1",
    "bar.sync 0, 64",
    "barrier.cluster.arrive",
    "shfl.down.b32 %r1, %r2, 1, 31",
    "vote.all.pred %p1, %p2",
    "brx.idx %r1, targets",
    "call.uni unknown, (%r1)",
    "mov.u32 %r1, %clock",
    "mov.u64 %rd1, unknown",
    "and.pred %p1, %p2, !%p3",
    ".shared .align 4 .b8 dynamic[]",
    ".branchtargets a, b",
    "fence.acq_rel.gpu",
    "membar.gl",
    "bra.uni elsewhere",
]


def test_what_is_not_known_is_refused() -> None:
    for line in REFUSED:
        text = taken_apart(
            f".visible .entry k(.param .u64 k_param_0)\n{{\n.reg .b64 {REGISTERS};\n{line};\nret;\n}}\n"
        )
        with pytest.raises(UnknownPtxError, match="PTX: "):
            decoded(text, "k")


def test_functions_that_call_each_other_are_refused() -> None:
    text = taken_apart(".func f() { call.uni f; }\n.visible .entry k()\n{\ncall.uni f;\nret;\n}\n")
    with pytest.raises(UnknownPtxError, match="call"):
        decoded(text, "k")
