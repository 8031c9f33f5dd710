from foldbatch.engines.cuda.texts.tile_bodies import BODIES, SHARED, SIZES, TYPES, bodies


def test_there_is_a_body_for_each_type_and_size():
    assert set(BODIES) == {(kind, size) for kind in ("f4", "f8", "tf32", "bf16") for size in SIZES}
    assert SHARED * 8 <= 48 * 1024  # bytes that a block may have without asking


def test_a_text_holds_what_its_bodies_call_and_no_more():
    for name, k in TYPES.items():
        text = bodies({name})
        assert text.count("DEVICE void tile_") == len(SIZES)
        assert f"copy_{k}_2_1(" in text
        assert f"copy_{'f8' if k == 'f4' else 'f4'}_2_1(" not in text
        assert ("mma.sync" in text) == (name in ("tf32", "bf16"))
