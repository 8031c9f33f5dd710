"""Walks that decide by numbers, written once: for foldbatch, and for PyTorch, which runs them as they are.

What a walk calls on tensors are functions of `Tensors`; those of foldbatch make cells of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import foldbatch as fb

START, END, LONGEST, BEAMS = 0, 1, 40, 4
SHIFT, REDUCE, LIMIT = 0, 1, 10
ENDS = (
    0.2  # is added to the score of END: sentences of 10 to 30 words on average, most of them shorter than 40
)


@dataclass(frozen=True)
class Tensors:
    """What a library calls the same things.

    Attributes:
        cell: makes a function of tensors one call.
        weights: by name, as the library computes with them.
        loss: takes a scalar that is part of the loss.
        number: makes a tensor of a number.
        row: takes a row of a table.
        read: gives the number of a scalar.
    """

    ops: Any
    cell: Callable[[Any], Any]
    concat: Callable[[list[Any]], Any]
    weights: dict[str, Any]
    loss: Callable[[Any], Any]
    number: Callable[[float], Any]
    row: Callable[[Any, Any], Any]
    read: Callable[[Any], float]


def weights(hidden: int, words: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of all walks."""
    draw = np.random.default_rng(seed)
    shapes = {
        "embed": (words, hidden),
        "node": (2 * hidden, 5 * hidden),
        "step": (2 * hidden, 4 * hidden),
        "out": (hidden, words),
        "end": (words,),
        "score": (hidden, 1),
        "judge": (3 * hidden, 2),
    }
    found = {
        name: draw.normal(0, 1 if name == "embed" else shape[0] ** -0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    found["end"] = np.zeros(words, np.float32)
    found["end"][END] = ENDS
    return found


def walks(t: Tensors, hidden: int) -> dict[str, Any]:  # noqa: PLR0915 - five models
    """Return the walks by name; ``encode`` alone reads no number."""
    ops, w = t.ops, t.weights

    def lstm(gates: Any, c: Any) -> tuple[Any, Any]:
        i, f, o, u = (gates[k * hidden : (k + 1) * hidden] for k in range(4))
        c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(u)
        return ops.sigmoid(o) * ops.tanh(c), c

    @t.cell
    def leaf(word: Any) -> Any:
        x = t.row(w["embed"], word)
        return ops.tanh(x), x

    @t.cell
    def node(left: Any, right: Any) -> Any:
        (h, c), (k, d) = left, right
        gates = ops.matmul(t.concat([h, k]), w["node"])
        i, f, g, o, u = (gates[j * hidden : (j + 1) * hidden] for j in range(5))
        c = ops.sigmoid(f) * c + ops.sigmoid(g) * d + ops.sigmoid(i) * ops.tanh(u)
        return ops.sigmoid(o) * ops.tanh(c), c

    @t.cell
    def step(word: Any, state: Any) -> Any:
        h, c = state
        return lstm(ops.matmul(t.concat([t.row(w["embed"], word), h]), w["step"]), c)

    @t.cell
    def best(h: Any) -> Any:
        return ops.argmax(ops.matmul(h, w["out"]) + w["end"])

    @t.cell
    def likely(h: Any) -> Any:
        return ops.topk(ops.log_softmax(ops.matmul(h, w["out"]) + w["end"], -1), BEAMS)

    @t.cell
    def score(h: Any) -> Any:
        return ops.matmul(h, w["score"])[0]

    @t.cell
    def judge(word: Any, top: Any, second: Any) -> Any:
        return ops.argmax(ops.matmul(t.concat([t.row(w["embed"], word), top, second]), w["judge"]))

    @t.cell
    def halt(h: Any, bias: Any, left: Any) -> Any:
        p = ops.sigmoid(ops.matmul(h, w["score"])[0] - bias)
        return p, left - p

    @t.cell
    def zeros(word: Any) -> Any:
        return t.row(w["embed"], word) * 0.0

    @t.cell
    def weighted(mean: Any, h: Any, weight: Any) -> Any:
        return mean + h * weight

    @t.cell
    def ended(mean: Any, left: Any) -> Any:
        return ops.sum(mean * mean) + left

    @t.cell
    def squared(h: Any) -> Any:
        return ops.sum(h * h)

    def encode(tree: Any) -> Any:
        return leaf(tree) if isinstance(tree, int) else node(encode(tree[0]), encode(tree[1]))

    def decode(tree: Any) -> list[int]:
        state, word = encode(tree), START
        said: list[int] = []
        while word != END and len(said) < LONGEST:
            state = step(word, state)
            word = int(best(state[0]))
            said.append(word)
        return said

    def beams(tree: Any) -> list[int]:
        found: list[Any] = [(0.0, [START], encode(tree))]
        done: list[Any] = []
        while found and len(found[0][1]) <= 20:
            states = [step(words[-1], state) for _, words, state in found]
            grown = []
            for (total, words, _), state, (chances, ids) in zip(
                found, states, [likely(h) for h, _ in states], strict=True
            ):
                for chance, word in zip(chances.tolist(), ids.tolist(), strict=True):
                    grown.append((total + chance, [*words, word], state))
            grown.sort(key=lambda beam: -beam[0])
            kept = grown[:BEAMS]
            done += [beam for beam in kept if beam[1][-1] == END]
            found = [beam for beam in kept if beam[1][-1] != END]
        said: list[int] = max(done + found, key=lambda beam: beam[0])[1]
        return said

    def halting(example: tuple[int, float]) -> int:
        word, bar = example
        state, times = leaf(word), 0
        while times < LIMIT and t.read(score(state[0])) > bar - 0.3 * times:
            state, times = step(word, state), times + 1
        t.loss(squared(state[0]))
        return times

    def adaptive(example: tuple[int, float]) -> int:
        word, bias = example
        state, left, times = leaf(word), t.number(1.0), 0
        mean = zeros(word)
        while True:
            state, times = step(word, state), times + 1
            p, rest = halt(state[0], bias, left)
            over = times == LIMIT or t.read(rest) <= 0.01
            mean = weighted(mean, state[0], left if over else p)
            if over:
                break
            left = rest
        t.loss(ended(mean, left))
        return times

    def parse(words: list[int]) -> list[int]:
        stack: list[Any] = []
        i, actions, nothing = 0, [], leaf(START)
        while i < len(words) or len(stack) > 1:
            if len(stack) < 2:
                action = SHIFT
            elif i == len(words):
                action = REDUCE
            else:
                action = int(judge(words[i], stack[-1][0], (stack[-2] if len(stack) > 1 else nothing)[0]))
            actions.append(action)
            if action == SHIFT:
                stack.append(leaf(words[i]))
                i += 1
            else:
                right = stack.pop()
                stack.append(node(stack.pop(), right))
        return actions

    found = {"decode": decode, "beams": beams, "halting": halting, "adaptive": adaptive, "parse": parse}
    return {**found, "encode": encode}


def ours(values: dict[str, np.ndarray]) -> Tensors:
    """Return what foldbatch calls things."""
    parameters = {name: fb.Parameter([*value.shape], init=value, name=name) for name, value in values.items()}
    loss = fb.cell(lambda x: fb.loss(x))  # noqa: PLW0108 - fb.loss has an argument that is no tensor
    return Tensors(fb.ops, fb.cell, fb.ops.concat, parameters, loss, fb.tensor, fb.ops.gather, float)
