"""Attention is the sum of the items, weighted by the softmax of their scores, over any number of items."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from tests.blocks.layers.checks import check_layer

QUERY, ITEM, SIZE = 3, 4, 5
RNG = np.random.default_rng(0)


def attended(query: Any, items: Any, p: Any, score: str) -> Any:
    """The equations, item by item."""
    query, items = np.asarray(query), [np.asarray(item) for item in items]
    if not items:
        return np.zeros(ITEM)
    if score == "dot":
        scores = np.array([query @ item / np.sqrt(len(query)) for item in items])
    else:
        hidden = [np.tanh(query @ p["attention.query"] + item @ p["attention.items"]) for item in items]
        scores = np.array([h @ p["attention.score"] for h in hidden])
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(weight * item for weight, item in zip(weights, items, strict=True))


def layers(score: str) -> tuple[fb.Block, fb.Block]:
    """The attention, and a layer that makes its query and whose gradient passes through it."""
    attention = fb.blocks.Attention(SIZE) if score == "additive" else fb.blocks.Attention(score="dot")
    return attention, fb.Linear(ITEM if score == "dot" else QUERY, bias=False, name="asked")


def examples(*lengths: int) -> list[Any]:
    return [[RNG.normal(size=QUERY).tolist(), RNG.normal(size=(n, ITEM)).tolist()] for n in lengths]


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_over_a_sequence_of_any_length_none_included(score: str) -> None:
    attention, asked = layers(score)
    offered = fb.Map(fb.Vector(ITEM, "float64") >> fb.Linear(ITEM, bias=False, name="offered"))
    block = fb.Record((fb.Vector(QUERY, "float64") >> asked, offered)) >> attention

    def reference(example: Any, p: Any) -> Any:
        items = [np.asarray(item) @ p["offered.weight"] for item in example[1]]
        return attended(np.asarray(example[0]) @ p["asked.weight"], items, p, score)

    check_layer(block, reference, examples(3, 0, 1, 5, 0))


@pytest.mark.parametrize("score", ["additive", "dot"])
@pytest.mark.parametrize("count", [1, 3])
def test_over_a_tuple(score: str, count: int) -> None:
    attention, asked = layers(score)
    offered = fb.Vector(ITEM, "float64") >> fb.Linear(ITEM, bias=False, name="offered")
    block = fb.Record((fb.Vector(QUERY, "float64") >> asked, fb.Record((offered,) * count))) >> attention

    def reference(example: Any, p: Any) -> Any:
        items = [np.asarray(item) @ p["offered.weight"] for item in example[1]]
        return attended(np.asarray(example[0]) @ p["asked.weight"], items, p, score)

    check_layer(block, reference, examples(count, count))
