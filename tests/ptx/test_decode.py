"""What is not known in a text is refused."""

import pytest

from tests.ptx.decode import UnknownPtxError, decoded, taken_apart

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
