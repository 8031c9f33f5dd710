"""Random models as plain functions, with examples: every construct that a walk may use, drawn by a seed.

`walk_program` makes one. Its oracle is the same function run in eager mode in float64, op by op, one example at a
time; numerical differences of its loss are those that gradients must agree with.
"""

# ruff: noqa: F821 - annotations name types of tensors

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

import foldbatch as fb

SIZES = (2, 3)
IDS = 5
ops = fb.ops
UNARY = (
    ops.tanh,
    ops.sigmoid,
    ops.square,
    lambda x: x * 0.5,
    lambda x: 1.0 - x,
    lambda x: x[::-1],
    ops.softmax,
)


@dataclass
class Node:
    """A part of an example: any object will do."""

    number: float
    word: int
    vector: Any
    kids: list[Node]
    label: int | None


@dataclass
class State:
    """A state of two tensors."""

    h: Any
    c: Any


@dataclass
class WalkProgram:
    """A random walk, and examples for it."""

    walk: Any
    examples: list[Any]
    seed: int


def _expression(draw: random.Random, layers: list[Any], size: int) -> Any:
    """Return a function of tensors ``[size]`` that mixes them."""
    steps = [
        (draw.choice(UNARY), draw.choice(("add", "multiply", "subtract"))) for _ in range(draw.randint(1, 3))
    ]
    linear = (
        fb.Linear(size, draw.choice((None, "tanh")), name=f"linear{len(layers)}")
        if draw.random() < 0.6
        else None
    )
    if linear is not None:
        layers.append(linear)
    bias = (
        fb.Parameter([size], init=draw.random(), name=f"bias{draw.randrange(10**9)}")
        if draw.random() < 0.3
        else None
    )

    def function(*xs: Any) -> Any:
        result = xs[0]
        for number, (unary, binary) in enumerate(steps):
            other = xs[(number + 1) % len(xs)]
            result = getattr(ops, binary)(unary(result), other)
        if linear is not None:
            result = linear(result)
        if bias is not None:
            result = result + bias
        return ops.tanh(result)

    return function


def walk_program(seed: int) -> WalkProgram:  # noqa: PLR0915 - a table of choices
    """Return a random walk with its examples."""
    draw = random.Random(seed)
    size = draw.choice(SIZES)
    layers: list[Any] = []
    embed = fb.Embedding(IDS, size, name="embed")
    classify = fb.Linear(3, name="classify")
    joins, starts, ends = (
        _expression(draw, layers, size),
        _expression(draw, layers, size),
        _expression(draw, layers, size),
    )
    style = draw.choice(("pair", "tuple", "dict", "state", "single"))
    many = draw.random() < 0.5
    static = draw.random() < 0.4
    loose = draw.random() < 0.5
    shares = draw.random() < 0.4
    looped = draw.random() < 0.4
    result_kind = draw.choice(("state", "list", "none", "logits", "mixed"))
    losses = draw.choice(("all", "root", "walk", "none"))
    metrics = draw.random() < 0.5
    vector = f"float32[{size}]"

    def made(h: Any, c: Any) -> Any:
        match style:
            case "pair" | "tuple":
                return h, c
            case "dict":
                return {"h": h, "c": c}
            case "state":
                return State(h, c)
        return h

    def opened(s: Any) -> tuple[Any, Any]:
        match style:
            case "pair" | "tuple":
                return s
            case "dict":
                return s["h"], s["c"]
            case "state":
                return s.h, s.c
        return s, s

    @fb.cell
    def leaf(word, number: float32):
        x = starts(embed(word), embed(word) * number)
        return made(x, ops.tanh(x))

    @fb.cell
    def node(left, right, x):
        h, c = opened(left)
        k, d = opened(right)
        new = joins(h, k, x)
        return made(new, ops.tanh(c + d))

    @fb.cell
    def kinded(state, *, kind):
        h, c = opened(state)
        return made(h * 0.5, c) if kind == 0 else made(ends(h, c), h) if kind == 1 else made(c, h)

    @fb.cell
    def summed(children: list[vector], x):
        return ops.tanh(ops.segment_sum(children) + x)

    @fb.cell
    def score(h, label):
        logits = classify(h)
        if metrics:
            fb.metric("logits", logits)
        if losses == "all":
            fb.loss(ops.cross_entropy(logits, label), "all")
        return logits

    @fb.cell
    def named(h, name):
        fb.metric("named", ops.sum(h), label=name)

    def visit(t: Any, known: dict[int, Any]) -> Any:
        if shares and id(t) in known:
            return known[id(t)]
        if not t.kids:
            state = leaf(t.word, t.number)
        elif many and len(t.kids) != 2:
            kids = [opened(visit(kid, known))[0] for kid in t.kids]
            h = summed(kids, fb.tensor(t.vector))
            state = made(h, h)
        else:
            state = visit(t.kids[0], known)
            for kid in t.kids[1:]:
                state = node(state, visit(kid, known), t.vector)
        if static:
            state = kinded(state, kind=t.word % 3)
        if loose:
            h, c = opened(state)
            state = made(ops.tanh(h + c * 0.25) - t.number * 0.1, c)
        h, _ = opened(state)
        if losses != "none" or metrics:
            score(h, t.label)
        if metrics:
            named(h, f"node {t.word}")
        known[id(t)] = state
        return state

    def walk(t: Any) -> Any:
        state = visit(t, {})
        h, c = opened(state)
        if looped:
            for kid in t.kids:
                h = ops.tanh(h * 0.5 + embed(kid.word))
        if losses in {"root", "walk"}:
            fb.loss(ops.sum(h * h), "square")
        if losses == "walk":
            fb.loss(ops.cross_entropy(classify(h), t.label), weight=0.5)
        match result_kind:
            case "state":
                return h, c
            case "list":
                return [embed(kid.word) for kid in t.kids]
            case "logits":
                return classify(h)
            case "mixed":
                return (h, None, "text", [c])
        return None

    def example(depth: int) -> Node:
        count = 0 if depth == 0 else draw.choice((0, 1, 2, 2, 3))
        kids = [example(depth - 1) for _ in range(count)]
        if kids and draw.random() < 0.2:
            kids.append(draw.choice(kids))
        label = draw.randrange(3)
        return Node(
            draw.uniform(-1, 1),
            draw.randrange(IDS),
            np.array([draw.uniform(-1, 1) for _ in range(size)]),
            kids,
            label,
        )

    examples = [example(draw.randint(0, 4)) for _ in range(draw.randint(1, 5))]
    return WalkProgram(walk, examples, seed)
