"""A model of records: an embedding, a layer, scores."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, json
from tests.zoo.checks import compiled


def test_a_record_is_classified_by_one_more_layer():
    program, p = compiled(json(fb.GetItem("sizes") >> fb.Vector(2), Task(classes=3), hidden=4))
    first = np.maximum([1, 2] @ p["linear.weight"] + p["linear.bias"], 0)
    expected = first @ p["classify.weight"] + p["classify.bias"]
    np.testing.assert_allclose(program.run([({"sizes": [1, 2]}, None)])[0], expected, rtol=1e-5)


def test_trees_are_refused():
    with pytest.raises(
        fb.errors.BlockValueError, match="expected a task whose examples are pairs, found root"
    ):
        json(fb.Vector(2), Task("root", 2))
