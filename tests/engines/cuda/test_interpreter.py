import foldbatch as fb
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.tiles import tile_kernels


def test_each_op_has_a_kernel():
    w = fb.Parameter([70, 70], name="w")
    program = fb.compile(
        fb.Vector(70) >> fb.Function(lambda x: fb.ops.sum(x @ w)) >> fb.Loss(), "cuda-on-cpu"
    )
    phase = program.engine.training
    text = source(phase.kernels, phase.ops, tile_kernels(phase.kernels))
    assert text.count("KERNEL at_") == len(phase.ops.ops)
