"""Structures make the calls they are said to make, and policies differ on them as published."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.bench.structures import (
    LATTICE,
    OUTPUTS,
    ROOT,
    SHIFT_REDUCE,
    SPELLING,
    TAGGER,
    TREE_OVER_TAGGER,
    Calls,
    batch_of,
    count,
    lattice,
    random_lattice,
    random_lattices,
    rare_words,
    shift_reduce,
    spelling_tagger,
    structures,
    tagger,
    tree_lstm,
    tree_over_tagger,
)
from foldbatch.bench.workload import random_trees
from foldbatch.trees import Tree

TREE = Tree.from_nested((0, (0, (0, "a"), (0, "bc")), (0, "d")))


def _made(structure, example, **options) -> list[str]:
    calls = Calls()
    structure(calls, example, **options)
    return [f"{cell} {' '.join(map(str, read))}".strip() for cell, read in calls.made]


def test_calls_number_their_results() -> None:
    """And a chain hands each its predecessor's."""
    calls = Calls()
    words = [calls("word"), calls("word")]
    assert calls.chain("step", words) == [2, 3]
    assert calls.made == [("word", ()), ("word", ()), ("step", (0,)), ("step", (2, 1))]


def test_a_tree_lstm_combines_children_and_classifies_nodes() -> None:
    """Leaves project words; a classifier follows each node."""
    leaves = ["word", "leaf 0", "word", "leaf 2", "word", "leaf 4"]
    assert _made(tree_lstm, TREE) == [*leaves, "node 1 3", "node 6 5"]
    made = _made(tree_lstm, TREE, outputs=True)
    assert made == [
        *leaves,
        "output 1",
        "output 3",
        "node 1 3",
        "output 8",
        "output 5",
        "node 8 5",
        "output 11",
    ]


def test_a_tagger_reads_in_both_directions() -> None:
    """Word i meets forward state i and backward state i."""
    made = _made(tagger, TREE)
    assert made[:6] == ["word", "word", "word", "forward 0", "forward 3 1", "forward 4 2"]
    assert made[6:9] == ["backward 2", "backward 6 1", "backward 7 0"]
    assert made[9:] == ["hidden 3 8", "tag 9", "hidden 4 7", "tag 11", "hidden 5 6", "tag 13"]


def test_rare_words_are_spelled_both_ways() -> None:
    """By all their letters."""
    made = _made(spelling_tagger, TREE, rare=frozenset({"bc"}))
    assert made[:4] == ["word", "letter", "letter", "spell 1"]
    assert made[4:8] == ["spell 3 2", "spell back 2", "spell back 5 1", "spelled word 4 6"]


def test_a_tree_stands_on_a_tagger() -> None:
    """A leaf reads both states of its word."""
    made = _made(tree_over_tagger, TREE)
    assert made[9:12] == ["leaf 3 8", "leaf 4 7", "leaf 5 6"]
    assert [call for call in made if call.startswith("node")] == ["node 9 10", "node 14 11"]


def test_a_tracker_reads_the_stack_and_the_next_word() -> None:
    """Shift a, shift bc, reduce, shift d, reduce; each composition reads the tracker."""
    made = [call for call in _made(shift_reduce, TREE) if not call.startswith("transition")]
    assert made[:3] == ["word"] * 3
    assert made[3:] == [
        "track 0",
        "track 3 0 1",
        "track 5 0 1 2",
        "compose 0 1 7",
        "track 7 9 2",
        "track 10 9 2",
        "compose 9 2 12",
    ]


def test_every_composition_waits_for_those_before_it() -> None:
    """So their chain is as long as there are words, less one, and the tracker's twice as long."""
    for tree in random_trees(5, seed=1):
        n = len(tree.words())
        assert count(batch_of(shift_reduce, [tree])).bound == 1 + (2 * n - 1) + (n - 1) + 1


def test_a_lattice_merges_words_where_they_end() -> None:
    """A word reads the state of its first character; here one of two characters ends at the third."""
    made = _made(lattice, [[], [], [1]])
    assert made[:6] == ["embed", "character 0", "tag 1", "embed", "character 3 1", "tag 4"]
    assert made[6:] == ["embed", "character 6 4", "embed word", "word 8 4", "merge 7 9", "tag 10"]


def test_words_of_a_random_lattice_begin_inside_the_sentence() -> None:
    """And there are about as many as characters."""
    words = random_lattice(np.random.default_rng(0), 2000)
    assert all(back <= at for at, backs in enumerate(words) for back in backs)
    assert {back for backs in words for back in backs} == {1, 2, 3}
    assert 1800 < sum(map(len, words)) < 2200


def test_rare_words_make_up_their_share_of_the_tokens() -> None:
    """Never more, and hardly less; no frequent word is among them."""
    trees = random_trees(50, seed=2)
    rare = rare_words(trees, 0.15)
    tokens = [word for tree in trees for word in tree.words()]
    assert 0.14 * len(tokens) < sum(word in rare for word in tokens) <= 0.15 * len(tokens)
    assert "w0" not in rare
    assert rare_words(trees, 0.0) == frozenset()


def test_components_are_those_of_the_calls_made() -> None:
    """Tracker and composition read each other; the word and the transition stand apart."""
    cells = {cell.name: cell for cell in batch_of(shift_reduce, [TREE]).cells}
    assert cells["word"].component < cells["track"].component == cells["compose"].component
    assert cells["transition"].component > cells["track"].component
    assert [name for name, cell in cells.items() if cell.recursive] == ["track", "compose"]


@pytest.fixture(scope="module")
def counts():
    trees = random_trees(24, seed=0)
    batches = structures(trees, random_lattices(trees))
    return trees, {name: count(batch) for name, batch in batches.items()}


def test_counts_follow_from_heights_and_lengths(counts) -> None:
    """A tree of height h: words, leaves, h levels, outputs. A sentence of n: words, two chains, two layers."""
    trees, found = counts
    height, length = max(tree.height for tree in trees), max(len(tree.words()) for tree in trees)
    assert found[ROOT].groups == dict.fromkeys(found[ROOT].groups, 2 + height)
    assert found[OUTPUTS].groups == {
        "by_component": 3 + height,
        "by_agenda": 3 + 2 * height,
        "by_depth": 3 + 2 * height,
    }
    assert found[TAGGER].bound == found[TAGGER].groups["by_component"] == 2 * length + 3
    assert found[TREE_OVER_TAGGER].groups["by_component"] == 3 + 2 * length + height


def test_by_component_beats_the_others_where_there_is_something_to_gain(counts) -> None:
    """By_agenda is no better than it on any of these models, by_depth on none but the simplest tree."""
    _, found = counts
    assert list(found) == [ROOT, OUTPUTS, TAGGER, SPELLING, TREE_OVER_TAGGER, SHIFT_REDUCE, LATTICE]
    for name, counted in found.items():
        groups = counted.groups
        assert counted.bound <= groups["by_component"] <= groups["by_agenda"]
        assert groups["by_component"] < groups["by_depth"] or name == ROOT
    assert found[SHIFT_REDUCE].groups["by_component"] < 0.75 * found[SHIFT_REDUCE].groups["by_agenda"]
    assert found[LATTICE].groups["by_component"] < 0.75 * found[LATTICE].groups["by_depth"]
