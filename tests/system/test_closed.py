"""Closed objects: what would do nothing, or the wrong thing, is not assigned in silence."""

import copy
import pickle

import pytest

import foldbatch as fb
from foldbatch.train import DataParallel, ReduceLROnPlateau, RMSprop, Sampler, Trainer

W = fb.Parameter([], init=0.0, name="w")
PROGRAM = fb.compile(fb.Scalar() >> fb.Function(lambda x: (W * x - 1) ** 2) >> fb.Loss(), "numpy")


@pytest.mark.parametrize(
    "thing, name, value, text",
    [
        (
            fb.SGD(0.1),
            "learning_rate",
            1,
            "SGD: expected an assignment to lr, weight_decay, .*'learning_rate'",
        ),
        (fb.SGD(0.1), "lr", float("nan"), "SGD lr: expected a number above 0, found float nan"),
        (fb.SGD(0.1), "nesterov", "no", "SGD nesterov: expected True or False, found str 'no'"),
        (RMSprop(), "momentums", 0.5, r"one to 'momentums' \(did you mean 'momentum'\?\)"),
        (ReduceLROnPlateau("loss"), "patience", "3", "patience: expected a whole number of 0 or more"),
        (
            ReduceLROnPlateau("loss"),
            "mode",
            "max",
            "ReduceLROnPlateau: expected an assignment to min_delta, ",
        ),
        (
            Trainer(PROGRAM, fb.SGD(0.1)),
            "batch_size",
            64,
            "Trainer: expected an assignment to metrics, found one",
        ),
        (Sampler([1, 1], 2), "limit", 1, "Sampler: expected no assignment, found one to 'limit'"),
        (fb.train.Accuracy("root"), "every", "value", "Accuracy: expected no assignment"),
        (DataParallel(PROGRAM), "program", None, "DataParallel: expected no assignment"),
        (PROGRAM, "seed", 3, "Program: expected an assignment to notes, steps_drawn, found one to 'seed'"),
        (PROGRAM, "steps_drawn", -1, "Program steps_drawn: expected a whole number of 0 or more"),
        (PROGRAM.params, "w", 1.0, "ParameterStore: expected no assignment"),
        (W, "trainable", "no", "Parameter trainable: expected True or False, found str 'no'"),
        (W, "init", "zeros", "Parameter: expected an assignment to trainable"),
        (fb.ForwardDeclaration(), "output_type", "float32", "ForwardDeclaration: expected no assignment"),
    ],
)
def test_what_nobody_reads_is_refused(thing, name, value, text):
    with pytest.raises(fb.errors.FoldbatchError, match=text):
        setattr(thing, name, value)
    if not isinstance(thing, fb.Program | Trainer | DataParallel):
        with pytest.raises(fb.errors.FoldbatchError, match=text):
            setattr(copy.deepcopy(thing), name, value)


def test_settings_methods_and_what_is_derived_elsewhere_are_open():
    class Mine(fb.SGD):
        """Has what it likes."""

    mine, trainer = Mine(0.1), Trainer(PROGRAM, fb.SGD(0.1))
    mine.note, trainer.seconds, trainer.metrics = "x", lambda: 3.0, ()  # type: ignore[attr-defined, method-assign]
    assert (mine.note, trainer.seconds()) == ("x", 3.0)  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(fb.SGD(0.5, momentum=0.9))).momentum == 0.9


@pytest.mark.parametrize("made", [fb.SGD, RMSprop])
def test_momentum_may_come_and_go(made):
    """The velocity of a parameter begins at 0 where momentum comes, and is forgotten where it goes."""
    optimizer, params = made(0.5), {"w": fb.Parameter([2], init=1.0).value}
    states = []
    for momentum in (0.0, 0.5, 0.0, 0.5):
        optimizer.momentum = momentum
        optimizer.update(params, {"w": params["w"] * 0 + 1})
        states.append([*optimizer.state()][1:])
    assert states[0] == states[2] == [x for x in states[1] if "velocity" not in x]
    assert states[1] == states[3] == [*states[0], "velocity/w"]
    if made is fb.SGD:
        assert params["w"].tolist() == [-1.0, -1.0]
        optimizer.nesterov, optimizer.momentum = True, 0.0
        with pytest.raises(fb.errors.TrainingError, match="SGD nesterov: expected a momentum above 0"):
            optimizer.update(params, {"w": params["w"]})
