from foldbatch.engines.cuda.texts.units import ROUNDED, units_step


def test_a_step_is_two_multiplications_of_tf32_or_one_of_bf16():
    tf32, bf16 = (units_step(name, 4, 16) for name in ("tf32", "bf16"))
    assert "k < 16; k += 8" in tf32
    assert "m16n8k8.row.col.f32.tf32.tf32.f32" in tf32
    assert "k < 16; k += 16" in bf16
    assert "m16n8k16.row.col.f32.bf16.bf16.f32" in bf16
    assert set(ROUNDED) == {"tf32", "bf16"}
