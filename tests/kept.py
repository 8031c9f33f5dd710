"""Programs to keep, of functions with import paths only, and what spoils their files."""

import copy
import operator
from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Any

import numpy as np

import foldbatch as fb

WORDS = fb.trees.Vocabulary(["good", "bad"])


def squared(h: Any) -> Any:
    return fb.ops.sum(h * h)


def distance(a: Any, b: Any) -> Any:
    return squared(a - b)


def tree_model() -> fb.Block:
    """A composition of a recursion with a frozen table, a vocabulary, shared layers, a loss and a metric."""
    state = fb.ForwardDeclaration(output_type=(4, 4), name="state")
    cell = fb.TreeLSTM(4, name="cell")
    table = fb.Embedding(3, 5, init=np.ones((3, 5)), trainable=False)
    word = fb.GetItem("token") >> fb.InputTransform(WORDS) >> fb.Scalar("int32")
    leaf = fb.AllOf(word >> table, fb.Record(())) >> cell
    inner = fb.AllOf(fb.Void(), fb.GetItem("children") >> fb.Record((state(), state()))) >> cell
    state.resolve_to(fb.OneOf(operator.attrgetter("is_leaf"), {True: leaf, False: inner}))
    model = fb.Composition("model")
    with model.scope():
        h = state().reads(model.input)
        label = (fb.GetItem("label") >> fb.Scalar("int32")).reads(model.input)
        logits = (fb.Linear(3) >> fb.Dropout(0.3) >> fb.Linear(2)).reads(h[0])
        entropy = partial(fb.ops.cross_entropy, weights=np.array([1.0, 2.0], "float32"))
        (fb.Function(entropy) >> fb.Loss()).reads(logits, label)
        (fb.Function(squared) >> fb.Metric("squared")).reads(h[1])
        model.output.reads(logits)
    return model


def trees() -> list[Any]:
    """Examples of `tree_model`."""
    nested: list[Any] = [
        (1, (0, "good"), (1, "bad")),
        (0, "none"),
        (1, (1, (0, "bad"), (0, "x")), (1, "good")),
    ]
    return list(map(fb.trees.Tree.from_nested, nested))


def spoilt(header: dict[str, Any], rng: Random) -> dict[str, Any]:
    """Return a header of which one part is another one's, or nonsense, or is left out."""
    header = copy.deepcopy(header)
    found = list(places(header))
    holder, key = rng.choice(found)
    other, other_key = rng.choice(found)
    nonsense: list[Any] = [None, True, -1, 0, 7, 10**5, 0.5, "", "x", "os:system", [], {}, [[]], {"tuple": 3}]
    nonsense += [{"function": "os:system"}, {"object": 5}, {"object": 10**12}, {"array": "x"}, {"type": [-1]}]
    nonsense += [{"partial": [{"function": "builtins:len"}, [], []]}, {"dict": [[[], 1]]}, {"items": []}]
    match rng.randrange(4):
        case 0:
            holder[key] = copy.deepcopy(other[other_key])
        case 1 if isinstance(holder, dict):
            del holder[key]
        case 2 if isinstance(holder, dict):
            holder[rng.choice(["x", "name", "size", "fn", "object"])] = holder.pop(key)
        case _:
            holder[key] = rng.choice(nonsense)
    return header


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all places in nested data, each as what holds it and a key."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, part in list(items):
        yield data, key
        if isinstance(part, dict | list):
            yield from places(part)


BESIDE = fb.Linear(2, name="beside")


def through(layer, x):
    return layer(x) + x


def through_a_layer(x):
    return BESIDE(x) + x
