from foldbatch.engines.cuda.drivers.emulator import parameters
from foldbatch.engines.cuda.texts.holding import FIELDS, FIRSTS, TEXT


def test_each_kernel_begins_with_the_descriptor():
    assert parameters(TEXT) == {"held_offsets": 2, "held_rows": 4, "held_ranges": 4, "held_plans": 4}
    assert TEXT.count("*d = t + at;") == 4
    assert FIRSTS == FIELDS - 1
