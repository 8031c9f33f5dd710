"""Trainer: what it does is the loop that a user would write."""

from __future__ import annotations

import numpy as np

import foldbatch as fb
from foldbatch import ops
from foldbatch.train import Accuracy, Callback, Trainer


def model() -> fb.Block:
    scores = fb.GetItem(0) >> fb.Vector(3) >> fb.Linear(2, name="out")
    label = fb.GetItem(1)
    loss = fb.AllOf(scores, label >> fb.Scalar("int32")) >> fb.Function(ops.cross_entropy) >> fb.Loss()
    seen = fb.AllOf(scores, label) >> fb.Metric("out")
    return fb.AllOf(scores, loss, seen) >> fb.GetItem(0)


rng = np.random.default_rng(0)
EXAMPLES = [(x, int(x[0] > x[1])) for x in rng.normal(size=(20, 3)).tolist()]


class Watch(Callback):
    def __init__(self):
        self.calls = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            return lambda trainer: self.calls.append((name[3:], trainer.epoch, trainer.steps))
        return super().__getattribute__(name)


def test_fit_is_the_loop_by_hand():
    trainer = Trainer(fb.compile(model()), fb.Adam(0.1), batch=8, metrics=[Accuracy("out")], seed=3)
    figures = trainer.fit(EXAMPLES, EXAMPLES[:5], epochs=3)
    program, optimizer = fb.compile(model()), fb.Adam(0.1)
    sampler = fb.train.shuffled(EXAMPLES, 8, 3)
    for epoch in range(3):
        total = 0.0
        for batch in sampler.epoch(epoch):
            loss, gradients = program.value_and_grad([EXAMPLES[i] for i in batch])
            optimizer.update(program.params, gradients, scale=1 / len(batch))
            total += loss
        assert figures[epoch]["loss"] == total / 20
    for name, array in program.params.items():
        np.testing.assert_array_equal(trainer.program.params[name], array)
    right = [
        result.argmax() == label
        for result, (_, label) in zip(program.run(EXAMPLES[:5]), EXAMPLES, strict=False)
    ]
    assert figures[-1]["dev_accuracy"] == np.mean(right)
    assert trainer.evaluate(EXAMPLES)["loss"] < figures[0]["loss"]
    np.testing.assert_array_equal(trainer.predict(EXAMPLES[:2]), list(program.run(EXAMPLES[:2])))


def test_callbacks_are_called_in_order():
    watch = Watch()
    Trainer(fb.compile(model()), fb.SGD(0.1), batch=16, callbacks=[watch]).fit(EXAMPLES, epochs=1)
    steps = ["step_start", "gradients", "step_end"]
    names = ["fit_start", "epoch_start", *steps, *steps, "epoch_end", "fit_end"]
    assert [name for name, *_ in watch.calls] == names
    assert watch.calls[-1] == ("fit_end", 1, 2)
