"""What batching gains at a glance: who runs, what is timed, and that nothing is changed."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.gain import glance as module
from foldbatch.gain.glance import Glance, glance
from foldbatch.gain.measure import Batches


def program(**options) -> fb.Program:
    word = fb.Scalar("int32") >> fb.Embedding(9, 3)
    block = fb.Map(word) >> fb.Sum() >> fb.Function(lambda x: fb.ops.sum(x * x)) >> fb.Loss()
    return fb.compile(block, "numpy", **options)


EXAMPLES = [[n % 9] * (1 + n % 40) for n in range(80)]


def test_ratios_are_of_medians_of_seconds_an_example(monkeypatch):
    """A turn: 16 examples alone, known and new, then the batch of 40. The first turn does not count."""
    seconds = iter([9, 9, 9, 9] + [1.6, 3.2, 1.0, 4.0] * 6 + [50.0] * 4)
    ran: list[tuple[int, int]] = []

    def train(self, batches):
        ran.append((self.size, len(batches)))
        return next(seconds)

    monkeypatch.setattr(Batches, "train", train)
    assert glance(program(), EXAMPLES, 40) == Glance(40, pytest.approx(4.0), pytest.approx(2.0))
    assert ran == [(1, 16), (1, 16), (40, 1), (40, 1)] * 8


def test_a_slow_model_is_measured_once(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    ran: list[int] = []
    monkeypatch.setattr(Batches, "train", lambda self, _: ran.append(self.size) or 1.0)
    assert glance(program(), EXAMPLES[:3], 40).size == 3
    assert ran == [1, 1, 3, 3] * 2


def test_examples_alone_are_of_all_sizes(monkeypatch):
    alone: list[int] = []

    def train(_, batches):
        alone.extend(len(example) for batch in batches for example in batch)
        return 1.0

    monkeypatch.setattr(Batches, "train", train)
    monkeypatch.setattr(module, "traced_before", lambda _, examples: examples)
    glance(program(), EXAMPLES, 80)
    assert np.mean(alone[:16]) == pytest.approx(np.mean([len(example) for example in EXAMPLES]), abs=0.6)


def test_parameters_stay_and_the_gain_is_a_number():
    measured = program()
    before = {name: value.copy() for name, value in measured.params.items()}
    drawn = measured.steps_drawn
    gain = glance(measured, EXAMPLES, 8)
    assert gain.known > 0 and gain.new > 0
    assert all(np.array_equal(measured.params[name], value) for name, value in before.items())
    assert measured.steps_drawn == drawn


def test_there_is_none_without_batches():
    assert glance(program(), EXAMPLES[:1], 8) is None
    assert glance(program(batched=False), EXAMPLES, 8) is None
    assert glance(program(), EXAMPLES, 1) is None
