"""Metrics: figures over whole data sets."""

from __future__ import annotations

import math

import numpy as np

from foldbatch.train.metrics import Accuracy


def test_accuracy_of_nothing_is_no_number():
    assert math.isnan(Accuracy("root").compute(np.zeros((0, 2)), []))
