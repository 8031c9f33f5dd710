"""Metrics: figures over whole data sets."""

from __future__ import annotations

import math

import numpy as np

import foldbatch as fb
from foldbatch.train.metrics import Accuracy, Tally


def test_accuracy_of_nothing_is_no_number():
    assert math.isnan(Accuracy("root").compute(np.zeros((0, 2)), []))


def test_what_has_no_label_does_not_count():
    program = fb.compile(fb.Record((fb.Vector(2), fb.Identity())) >> fb.Metric("root"))
    tally = Tally([Accuracy("root")])
    tally.add(program.run([([1, 2], None), ([1, 2], 1), ([2, 1], 1)], losses=True, metrics=True), 3)
    assert tally.figures()["accuracy"] == 0.5
