import pytest

import foldbatch as fb
from foldbatch.engines.report import Captures
from foldbatch.errors import BlockValueError, ExampleError


class _Launcher:
    """Stands for what captures graphs: it is told of batches as they are made ready."""

    def __init__(self):
        self.batches = []
        self.learned = 0

    def learn(self):
        self.learned += 1

    def wait(self):
        pass

    def captures(self):
        return Captures((len(self.batches),), 0, {}, ())


class _Engine:
    """An engine with a launcher, for training only; it runs nothing."""

    def __init__(self, engine):
        self._engine = engine
        self.launchers = {True: _Launcher(), False: None}

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def launcher(self, *, training):
        return self.launchers[training]

    def ready(self, batch, *, training):
        self.launchers[training].batches.append(len(batch.results))


def _program():
    return fb.compile(fb.Map(fb.Scalar()) >> fb.Sum() >> fb.Loss(), "numpy")


def test_batches_of_a_data_set_are_made_ready_and_then_learned_from():
    program = _program()
    engine = program._runner.engine = _Engine(program.engine)
    learned = program.warm([[1], [2], [3], [4], [5]], batch_size=3, batches=4)
    launcher = engine.launchers[True]
    assert launcher.batches == [3, 3, 3, 3]
    assert launcher.learned == 1
    assert learned == launcher.captures() == Captures((4,), 0, {}, ())
    program.warm([[1], [2]], batches=1)
    assert launcher.batches[4:] == [2]
    program.warm([])
    assert launcher.batches[5:] == []


def test_engines_without_graphs_have_nothing_to_learn():
    program = _program()
    assert program.engine.launcher(training=True) is None
    assert program.warm([[1]]) is None
    assert program.describe([[1]], compare=False).captures is None


def test_what_cannot_be_batches_is_refused():
    program = _program()
    program._runner.engine = _Engine(program.engine)
    with pytest.raises(BlockValueError, match="batch_size"):
        program.warm([[1]], batch_size=0)
    with pytest.raises(BlockValueError, match="batches"):
        program.warm([[1]], batches=0)
    with pytest.raises(ExampleError):
        program.warm([["a"]])
