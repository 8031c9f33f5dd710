from foldbatch.engines.cuda.texts.tile_bodies import BODIES, SHARED, SIZES


def test_there_is_a_body_for_each_type_and_size():
    assert set(BODIES) == {(kind, size) for kind in ("f4", "f8") for size in SIZES}
    assert SHARED * 8 <= 48 * 1024  # bytes that a block may have without asking
