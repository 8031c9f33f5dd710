"""A small model with dropout, and trainings of it that are compared to the last bit."""

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.train import Accuracy, Checkpoints, EarlyStopping, Schedule, Trainer, schedules

rng = np.random.default_rng(0)
EXAMPLES = [(x, int(x[0] > x[1])) for x in rng.normal(size=(20, 3)).tolist()]
DEV = EXAMPLES[:6]


def rows():
    """Return the examples as a stream's function does."""
    return iter(EXAMPLES)


def model(classes: int = 2, vector: fb.Block | None = None) -> fb.Block:
    """Scores of a vector; the label, which comes second, is read for loss and metric only."""
    scores = fb.GetItem(0) >> (vector or fb.Vector(3) >> fb.Dropout(0.5)) >> fb.Linear(classes, name="out")
    both = fb.Composition()
    with both.scope():
        row = scores.reads(both.input)
        label = fb.GetItem(1).reads(both.input)
        fb.Loss().reads(fb.Function(ops.cross_entropy).reads(row, fb.Scalar("int32").reads(label)))
        fb.Metric("out").reads(row, label)
        both.output.reads(row)
    return both


def trainer(folder=None, *, every=None, callbacks=(), backend="numpy", threads=1, **options) -> Trainer:
    kept = () if folder is None else [Checkpoints(folder, every=every, monitor="validation_loss")]
    options = {"optimizer": fb.Adam(0.1), "batch_size": 4, "seed": 3, **options}
    program = options.pop("program", None) or fb.compile(model(), backend, threads=threads)
    watching = [
        Schedule(schedules.exponential(0.9)),
        EarlyStopping("validation_accuracy", "max", patience=50),
    ]
    both = [*kept, *watching, *callbacks]
    return Trainer(program, options.pop("optimizer"), metrics=[Accuracy("out")], callbacks=both, **options)


def figures(made: Trainer) -> list[dict]:
    return [{name: value for name, value in each.items() if name != "seconds"} for each in made.history]


def assert_same(whole: Trainer, resumed: Trainer) -> None:
    assert figures(resumed) == figures(whole)
    assert (resumed.epoch, resumed.steps) == (whole.epoch, whole.steps)
    assert resumed.program.steps_drawn == whole.program.steps_drawn
    for name, array in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], array)
    state = whole.optimizer.state()
    assert state.keys() == resumed.optimizer.state().keys()
    for name, value in resumed.optimizer.state().items():
        np.testing.assert_array_equal(value, state[name])
