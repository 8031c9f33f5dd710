import foldbatch as fb
from foldbatch.engines.cuda.interpreter import source
from foldbatch.engines.cuda.tiles import tile_kernels


def test_each_op_has_a_kernel_or_a_case():
    w = fb.Parameter([70, 70], name="w")
    program = fb.compile(
        fb.Vector(70) >> fb.Function(lambda x: fb.ops.sum(x @ w)) >> fb.Loss(), "cuda-on-cpu"
    )
    phase = program.engine.training
    tiles = tile_kernels(phase.kernels)
    text = source(phase.kernels, phase.ops, tiles, walks=True)
    assert text.count("    case ") + text.count("  case ") >= len(phase.ops.ops)
    each = source(phase.kernels, phase.ops, tiles, only=[0, 2], walks=False)
    assert each.count("KERNEL at_") == 2
