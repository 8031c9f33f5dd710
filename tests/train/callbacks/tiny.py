"""A tiny model to train with callbacks, and a run that is cut in two."""

import copy
import json

import msgspec
import numpy as np

import foldbatch as fb
from foldbatch.train import Callback, Trainer
from tests.train.small import model

EXAMPLES = [(x, int(x[0] > x[1])) for x in np.random.default_rng(0).normal(size=(10, 2)).tolist()]
DEV = [(x, int(x[0] > x[1])) for x in np.random.default_rng(1).normal(size=(6, 2)).tolist()]


class Fake:
    """Stands for a trainer: figures and counts, and whether it was stopped."""

    def __init__(self, callback: Callback, lr: float = 0.1):
        self.callback = callback
        self.epoch, self.steps, self.stopped, self.history = 0, 0, None, []
        self.optimizer = fb.SGD(lr)

    def stop(self, reason):
        self.stopped = reason

    def run_epoch(self, **figures):
        self.callback.on_epoch_start(self)
        self.epoch += 1
        self.figures = {"epoch": self.epoch, **figures}
        self.history.append(self.figures)
        self.callback.on_epoch_end(self)


def program() -> fb.Program:
    return fb.compile(model(vector=fb.Vector(2)))


def trainer(*callbacks: Callback, lr: float = 0.5, **options) -> Trainer:
    return Trainer(program(), fb.Adam(lr), batch_size=4, callbacks=callbacks, seed=2, **options)


def through_json(state):
    """Return a state as a checkpoint would give it back: arrays as they are, the rest by way of JSON."""
    plain = {key: value for key, value in state.items() if not isinstance(value, np.ndarray)}
    return {**copy.deepcopy(state), **msgspec.json.decode(msgspec.json.encode(plain))}


def resume(old: Trainer, new: Trainer) -> None:
    """Let a new trainer stand where an old one does."""
    new.program.params = dict(old.program.params)
    new.optimizer.load_state(through_json(old.optimizer.state()))
    new.epoch, new.steps, new.history = old.epoch, old.steps, copy.deepcopy(old.history)
    for callback, before in zip(new.callbacks, old.callbacks, strict=True):
        callback.load_state(through_json(before.state()))


def assert_same(whole: Trainer, resumed: Trainer) -> None:
    assert [drop_time(figures) for figures in resumed.history] == [drop_time(f) for f in whole.history]
    for name, array in whole.program.params.items():
        np.testing.assert_array_equal(resumed.program.params[name], array)


def drop_time(figures):
    return {name: value for name, value in figures.items() if name != "seconds"}


def without_seconds(text):
    """Return the records of a log, without how long epochs took."""
    if text.startswith("{"):
        return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in text.splitlines()]
    place = text.splitlines()[0].split(",").index("seconds")
    rows = [line.split(",") for line in text.splitlines()]
    return [row[:place] + row[place + 1 :] for row in rows]
