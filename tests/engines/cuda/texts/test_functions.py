from foldbatch.engines.cuda.row_kernels import MOVES
from foldbatch.engines.cuda.texts.functions import LANES, THREAD, as_functions, shared_sizes
from tests.engines.cuda.emulator import load_driver


def test_shared_arrays_of_a_function_lie_apart_and_aligned():
    source = "KERNEL k(i8 table) { SHARED i4 a[3], b[1]; SHARED f8 c[4]; }"
    made = as_functions(source)
    assert "i4* a = (i4*)(shared_ + 0);" in made
    assert "i4* b = (i4*)(shared_ + 2);" in made
    assert "f8* c = (f8*)(shared_ + 4);" in made
    assert shared_sizes(source) == {"k": 8}


def test_functions_take_turns_in_the_shared_memory():
    source = "KERNEL a() { SHARED f8 x[100]; } KERNEL_WIDE b() { SHARED f8 y[40]; }"
    assert as_functions(source).count("shared_ + 0") == 2
    assert shared_sizes(source) == {"a": 100, "b": 40}


def test_the_functions_of_kernels_compile():
    source = "\n".join(MOVES.values())
    load_driver().load("\n".join([THREAD, LANES, as_functions(source)]))
