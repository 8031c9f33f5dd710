"""Models written with blocks make the structures' calls, and every policy computes the same."""

from __future__ import annotations

from benchmarks import models
from benchmarks.structures import (
    LATTICE,
    OUTPUTS,
    ROOT,
    TAGGER,
    TREE_OVER_TAGGER,
    count,
    random_lattices,
    structures,
)
from benchmarks.workload import random_trees

TREES = random_trees(12, seed=4)
LATTICES = random_lattices(TREES)


def test_compiled_models_need_as_many_groups_as_structures_written_by_hand() -> None:
    """Tree-LSTMs exactly; elsewhere a cell more for a chain's zeros or less for a word's vector, once a batch."""
    by_hand = structures(TREES, LATTICES)
    compiled = models.models(TREES, LATTICES)
    assert list(compiled) == list(by_hand)
    for name in (ROOT, OUTPUTS, TAGGER, TREE_OVER_TAGGER, LATTICE):
        expected, found = count(by_hand[name]), count(compiled[name])
        tolerance = 0 if name in (ROOT, OUTPUTS) else 3
        assert abs(found.groups["by_component"] - expected.groups["by_component"]) <= tolerance
        assert abs(found.bound - expected.bound) <= tolerance
