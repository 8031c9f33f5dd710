import foldbatch as fb
from foldbatch.engines.cuda.tiles import tile_kernels


def test_each_product_is_a_kernel():
    w = fb.Parameter([70, 70], name="w")
    program = fb.compile(
        fb.Vector(70) >> fb.Function(lambda x: fb.ops.sum(x @ w)) >> fb.Loss(), "cuda-on-cpu"
    )
    kernels = program.engine.training.kernels
    text = tile_kernels(kernels)
    products = [task for kernel in kernels for task in kernel.tasks if task.multiplied is not None]
    assert products
    for task in products:
        assert f"KERNEL {task.tile}(i8 table, i8 launch, i8 level)" in text
    assert "tile_f8" not in text
    assert "tile_tf32" not in text
    assert "tile_tf32_2(shared" in tile_kernels(kernels, "tf32")
    assert tile_kernels([]) == ""
