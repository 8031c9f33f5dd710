import numpy as np

from foldbatch.engines.cuda.recording.nothing import Nothing
from tests.engines.cuda import pipeline


def test_a_program_runs_on_nothing_and_reads_zero():
    assert np.array_equal(pipeline.run(Nothing()), np.zeros((pipeline.ROUNDS, pipeline.COUNT)))


def test_memory_has_addresses_of_its_own():
    driver = Nothing()
    one, two = driver.allocate(256), driver.allocate(1)
    assert one.pointer % 256 == two.pointer % 256 == 0 < one.pointer
    assert one.pointer + 256 < two.pointer
    assert driver.array(one, (2, 3), "float32").shape == (2, 3)
