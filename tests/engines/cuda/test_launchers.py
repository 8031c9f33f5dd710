from foldbatch.engines.cuda.launchers import launcher_of


class _Driver:
    multiprocessors = 1
    precision = "fp32"


class _Device:
    driver = _Driver()


def test_the_cpu_that_stands_for_a_gpu_runs_straight_unless_asked():
    assert launcher_of("auto", _Device(), [], None) is None
    assert launcher_of("straight", _Device(), [], None) is None
    assert launcher_of("captured", _Device(), [], None) is not None
