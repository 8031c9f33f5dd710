"""Trainer: what it does is the loop that a user would write."""

import sys

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.pending import Pending
from foldbatch.errors import ExampleError, ExampleTypeError, TrainingError, UnknownNameError
from foldbatch.train import Accuracy, Callback, LambdaCallback, NaNGuard, Sampler, Trainer
from foldbatch.train.checks import fitting_examples
from foldbatch.trees import Tree
from tests.engines.cuda.checked import driven
from tests.engines.cuda.emulated import needs_compiler
from tests.train import small


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


PROGRAM = fb.compile(small.model(), "numpy")


def test_fit_is_the_loop_by_hand():
    trainer = Trainer(fb.compile(model()), fb.Adam(0.1), batch_size=8, metrics=[Accuracy("out")], seed=3)
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
    assert figures[-1]["validation_accuracy"] == np.mean(right)
    assert trainer.evaluate(EXAMPLES)["loss"] < figures[0]["loss"]
    np.testing.assert_array_equal(trainer.predict(EXAMPLES[:2]), list(program.run(EXAMPLES[:2])))


def test_callbacks_are_called_in_order():
    watch = Watch()
    Trainer(fb.compile(model()), fb.SGD(0.1), batch_size=16, callbacks=[watch]).fit(EXAMPLES, epochs=1)
    steps = ["step_start", "gradients", "step_end"]
    names = ["fit_start", "epoch_start", *steps, *steps, "epoch_end", "fit_end"]
    assert [name for name, *_ in watch.calls] == names
    assert watch.calls[-1] == ("fit_end", 1, 2)


@pytest.mark.parametrize(
    ("examples", "dev", "error", "message"),
    [
        ([], None, TrainingError, "fit examples: expected one example or more, found none"),
        (iter(()), None, TrainingError, "fit examples: expected one example or more"),
        (EXAMPLES, [], TrainingError, "fit validation: expected one example or more"),
        (Tree.leaf(), None, ExampleTypeError, "for a single example, pass a list of one"),
        ("text", None, ExampleTypeError, "for a single example, pass a list of one"),
        (7, None, ExampleTypeError, "an iterable of examples"),
        ([([1, 2, 3], None)], None, ExampleError, "example 0"),
        (EXAMPLES, [([1, 2, 3], None)], ExampleError, "example 0"),
    ],
)
def test_data_are_looked_at_before_anything_changes(examples, dev, error, message):
    watch = Watch()
    trainer = Trainer(fb.compile(small.model(), "numpy"), fb.SGD(0.1), callbacks=[watch])
    with pytest.raises(error, match=message) as raised:
        trainer.fit(examples, dev, epochs=1)
    assert watch.calls == []
    assert trainer.program.steps_drawn == 0
    if error is ExampleError:
        name = "examples" if dev is None else "validation"
        assert raised.value.__notes__ == [
            f"this is the first of fit's {name}; losses and metrics need labels"
        ]


def test_an_error_of_an_example_says_which_it_is():
    bad = [*EXAMPLES[:19], ([1, 2], 0)]
    trainer = Trainer(PROGRAM, fb.SGD(0.1), batch_size=20, seed=1)
    with pytest.raises(ExampleError, match=r"at example (\d+)") as raised:
        trainer.fit(bad, epochs=1)
    order = fb.train.shuffled(bad, 20, 1).epoch(0)[0]
    assert f"at example {order.index(19)}" in str(raised.value)
    assert raised.value.__notes__ == [f"the examples of this batch have the numbers {order}"]
    with pytest.raises(ExampleError, match="at example 44") as raised:
        trainer.evaluate(EXAMPLES * 15 + [([1, 2], 0)])
    assert raised.value.__notes__ == ["example 0 is the one of number 256"]


def test_what_is_without_length_is_fitted_evaluated_and_predicted():
    one, other = (Trainer(fb.compile(small.model(), "numpy"), fb.SGD(0.1), batch_size=6) for _ in range(2))
    many = EXAMPLES * 15
    figures = [dict(t.fit(data, epochs=1)[0], seconds=0) for t, data in ((one, many), (other, iter(many)))]
    assert figures[0] == figures[1]
    assert one.evaluate(many) == one.evaluate(iter(many))
    np.testing.assert_array_equal(one.predict(many), one.predict(iter(many)))
    np.testing.assert_array_equal(one.predict(many), one.predict([(x, None) for x, _ in many]))
    assert one.predict([]) == []
    with pytest.raises(TrainingError, match="evaluate examples: expected one example or more"):
        one.evaluate([])


def test_arrays_and_what_is_only_indexed_are_examples():
    class Lazy:
        def __len__(self):
            return 5

        def __getitem__(self, number):
            if not 0 <= number < 5:
                raise IndexError(number)
            return EXAMPLES[number]

    trainer = Trainer(fb.compile(small.model(), "numpy"), fb.SGD(0.1))
    trainer.fit(Lazy(), Lazy(), epochs=1)
    assert trainer.evaluate(Lazy()) == trainer.evaluate(EXAMPLES[:5])
    w = fb.Parameter([], init=1.0, name="w")
    total = fb.Vector(2) >> fb.Function(lambda x: ops.sum(w * x)) >> fb.Loss()
    assert Trainer(fb.compile(total, "numpy"), fb.SGD(0.1)).evaluate(np.ones((3, 2)))["loss"] == 2


def test_a_sampler_makes_the_batches_of_its_examples():
    sampler = Sampler([1] * 20, 6, seed=5)
    seen = []

    class Indices(Callback):
        def on_step_start(self, trainer):
            seen.append(trainer.batch.indices)
            assert trainer.batch.examples == [EXAMPLES[i] for i in trainer.batch.indices]
            assert (trainer.batches, trainer.fitting) == (4, True)

    trainer = Trainer(PROGRAM, fb.SGD(0.1), sampler=sampler, callbacks=[Indices()])
    trainer.fit(EXAMPLES, epochs=2)
    assert seen == sampler.epoch(0) + sampler.epoch(1)
    assert not trainer.fitting
    with pytest.raises(TrainingError, match="a sampler of 19 examples, found one of 20"):
        trainer.fit(EXAMPLES[1:], epochs=3)
    with pytest.raises(TrainingError, match="fit epochs: expected a whole number"):
        trainer.fit(EXAMPLES, epochs=1.5)


def test_a_callback_has_no_moments_that_nobody_calls() -> None:
    with pytest.raises(UnknownNameError, match="Lost: expected a moment of on_fit_start, .*'on_batch_end'"):
        type("Lost", (Callback,), {"on_batch_end": print})


def test_a_callback_stops_a_fit_after_its_epoch():
    class Stop(Callback):
        def on_step_end(self, trainer):
            if trainer.steps == 3:
                trainer.stop("enough")

    trainer = Trainer(fb.compile(small.model(), "numpy"), fb.SGD(0.1), batch_size=10, callbacks=[Stop()])
    trainer.fit(EXAMPLES, epochs=9)
    assert (trainer.epoch, trainer.steps, trainer.stopped) == (2, 4, "enough")
    trainer.fit(EXAMPLES, epochs=3)
    assert (trainer.epoch, trainer.stopped) == (3, None)


def test_no_step_waits_for_a_loss_that_a_device_computes():
    trainer = Trainer(fb.compile(small.model(), "numpy"), fb.Adam(0.1), batch_size=10)
    seen, read, run = [], [], trainer.program.value_and_grad

    def late(examples):
        loss, gradients = run(examples)
        return Pending(lambda: read.append(loss) or loss), gradients

    class Watching(Callback):
        def on_step_end(self, trainer):
            seen.append(len(read))

    trainer.program.value_and_grad = late
    trainer.callbacks.append(Watching())
    (figures,) = trainer.fit(EXAMPLES, epochs=1)
    assert (seen, len(read)) == ([0, 0], 2)
    assert figures["loss"] == sum(read) / 20


def _squares():
    w = fb.Parameter([3], init=1.0, name="w")
    return fb.Vector(3) >> fb.Function(lambda x: fb.ops.sum((x * w) ** 2)) >> fb.Loss()


def _waits(calls, starts):
    """Yield, for each time that the host waits for an event: the step under way, and the step that the event is of."""
    recorded = {}
    for number, (name, arguments) in enumerate(calls):
        step = sum(start <= number for start in starts)
        if name == "record":
            recorded[arguments[0]] = step
        elif name == "synchronize":
            yield step, recorded[arguments[0]]


@needs_compiler
@pytest.mark.parametrize("is_captured", [False, True])
def test_the_host_never_waits_for_the_last_two_steps_of_a_device(is_captured, monkeypatch):
    monkeypatch.setattr(
        "foldbatch.engines.pending.PENDING_STEPS", 4
    )  # however long the sums of pending losses may be
    monkeypatch.setattr(sys.modules[Device.__module__], "IN_FLIGHT", 9)  # those of four steps
    starts, ends = [], []
    with driven() as driver:
        program = fb.compile(_squares(), "cuda-on-cpu", launch="captured" if is_captured else "straight")
        marks = LambdaCallback(
            on_step_start=lambda trainer: starts.append(len(driver.calls)),
            on_epoch_end=lambda trainer: ends.append(len(driver.calls)),
        )
        made = Trainer(program, fb.Adam(0.1), batch_size=2, callbacks=[marks, NaNGuard()])
        examples = [[1.0, 2.0, float(number)] for number in range(20)]
        (first,) = made.fit(examples, epochs=1)
        assert len(starts) == 10
        waits = list(_waits(driver.calls[: ends[0]], starts))
    during = [(step, of) for step, of in waits if step < 10]
    assert {step for step, _ in during} >= set(range(3, 10))  # it does wait, for what is older
    assert [(step, of) for step, of in during if of > max(0, step - 2)] == []
    plain = Trainer(fb.compile(_squares(), "numpy"), fb.Adam(0.1), batch_size=2)
    assert first["loss"] == pytest.approx(plain.fit(examples, epochs=1)[0]["loss"], rel=1e-5)


def test_examples_to_fit_have_a_length_and_the_first_one_is_tried():
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    assert fitting_examples(program, "dev", iter([[1, 2], "wrong"])) == [[1, 2], "wrong"]
    with pytest.raises(fb.errors.ExampleError) as raised:
        fitting_examples(program, "dev", ["wrong"])
    assert raised.value.__notes__ == ["this is the first of fit's dev; losses and metrics need labels"]
