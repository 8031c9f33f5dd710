import pytest

import foldbatch as fb
from foldbatch.engines import cuda
from foldbatch.engines.cuda import launchers
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.cuda.launchers import Choosing, launcher_of
from foldbatch.engines.cuda.recording.nothing import Nothing
from tests.engines.cuda.emulated import needs_compiler


class _Driver:
    multiprocessors = 1


class _Device:
    driver = _Driver()


def test_the_cpu_that_stands_for_a_gpu_runs_straight_unless_asked():
    assert launcher_of("auto", _Device(), [], None) is None
    assert launcher_of("straight", _Device(), [], None) is None
    assert launcher_of("captured", _Device(), [], None) is not None


def _engine_and_batch(monkeypatch, **options):
    """Return an engine whose device does nothing."""
    monkeypatch.setattr(cuda, "device", lambda precision: Device(Nothing()))
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy")
    return cuda.load(program.model, **options), program.schedule([[1, 2]])


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_the_model_of_cost_is_asked_in_the_precision_of_the_program(monkeypatch, precision):
    asked, choose = [], launchers.choose

    def noted(works, rates, **options):
        asked.append(options["precision"])
        return choose(works, rates, **options)

    monkeypatch.setattr(launchers, "choose", noted)
    engine, batch = _engine_and_batch(monkeypatch, precision=precision, engine="persistent")
    engine.ready(batch, training=True)
    assert asked == [precision]


def test_a_report_says_why_there_is_no_graph_now(monkeypatch):
    engine, batch = _engine_and_batch(monkeypatch, engine="captured")
    launcher = engine.launcher(training=True)
    engine.ready(batch, training=True)
    assert launchers.NO_CLASS in launcher.captures().reasons[0]
    launcher.learn()
    monkeypatch.setattr(launcher.captured, "arranged", lambda forward, backward: None)
    engine.ready(batch, training=True)
    assert launchers.NO_GRAPH in launcher.captures().reasons[0]


@needs_compiler
def test_a_launcher_that_cannot_be_made_is_left_out_unless_asked_for(monkeypatch):
    program = fb.compile(fb.Vector(3) >> fb.Linear(2) >> fb.Function(fb.ops.sum) >> fb.Loss(), "cuda-on-cpu")
    phase = program.engine.training

    def missing(*arguments):
        raise RuntimeError("no cooperative launch")

    monkeypatch.setattr(launchers, "Persistent", missing)
    for asked in ("auto", "persistent"):
        launcher = Choosing(program.engine.device, phase.kernels, phase.ops, asked)
        monkeypatch.setattr(launcher, "_chosen", lambda calls, numbers, lacking, idle: _Choice(lacking))
        program.engine.launchers[True] = launcher
        if asked == "persistent":
            with pytest.raises(RuntimeError, match="cooperative"):
                program.value_and_grad([[1, 2, 3]])
        else:
            program.value_and_grad([[1, 2, 3]])
            assert launcher.choice.lacking["persistent"] == "RuntimeError: no cooperative launch"


class _Choice:
    def __init__(self, lacking):
        self.lacking = lacking
        self.engine = "straight" if "persistent" in lacking else "persistent"
