"""What changes between two calls: examples that are written to, parameters, and which of these are trained.

A program that has seen all of it computes what one does that is made for the call.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ParameterError
from foldbatch.params.parameters import dense
from foldbatch.trees import Tree
from foldbatch.types import TensorType
from tests.backends import BACKENDS, always_known, lacking

TURNS = 8
VECTOR = TensorType((3,))


def layers() -> tuple[Any, ...]:
    return fb.Embedding(6, 3, name="words"), fb.Linear(3, name="inner"), fb.Linear(2, name="out")


def of_blocks() -> Any:
    """Return a model of a dict with a list of words, an array, a tree and, sometimes, a label."""
    embed, inner, out = layers()
    word = fb.Scalar("int32") >> embed
    node = fb.ForwardDeclaration(output_type=3, name="node")
    kind = fb.InputTransform(lambda t: t.label) >> fb.Scalar("int32") >> embed
    below = fb.GetItem("children") >> fb.Map(node()) >> fb.Sum()
    node.resolve_to(fb.AllOf(kind, below) >> fb.Function(lambda x, h: ops.tanh(inner(x + h))))
    words = fb.GetItem("words") >> fb.Map(word) >> fb.Sum()
    array = fb.GetItem("rows") >> fb.Vector(3)
    choice = fb.OneOf(
        lambda x: x["kind"], {1: fb.FromTensor(np.ones(3, "float32")), 2: fb.GetItem("more") >> fb.Vector(3)}
    )
    parts = fb.AllOf(words, array, fb.GetItem("tree") >> node(), choice)
    model = parts >> fb.Function(lambda a, b, c, d: out(ops.tanh(a * b + c - d)))
    return (
        model >> fb.AllOf(fb.Function(lambda x: ops.sum(x * x)) >> fb.Loss(), fb.Identity()) >> fb.GetItem(1)
    )


def of_functions() -> Any:
    """Return the same as a plain function."""
    embed, inner, out = layers()

    @fb.cell
    def node(label: Any, below: list[VECTOR]) -> Any:
        return ops.tanh(inner(embed(label) + ops.segment_sum(below)))

    def tree(t: Any) -> Any:
        return node(t.label, [tree(child) for child in t.children])

    def walk(example: dict[str, Any]) -> Any:
        total = fb.tensor(np.zeros(3, "float32"))
        for word in example["words"]:
            total = total + embed(word)
        more = fb.tensor([1.0] * 3) if example["kind"] == 1 else fb.tensor(example["more"])
        y = out(ops.tanh(total * fb.tensor(example["rows"]) + tree(example["tree"]) - more))
        fb.loss(ops.sum(y * y))
        return y

    return walk


TREES = [Tree.from_nested(nested) for nested in ((1, (2,), (3, (4,))), (5,), (0, (0,), (0,)))]


def example(draw: Random) -> dict[str, Any]:
    floats = [np.float32([draw.randrange(-8, 9) / 8 for _ in range(3)]) for _ in range(2)]
    words = [draw.randrange(6) for _ in range(draw.randrange(4))]
    more = floats[1] if draw.random() < 0.5 else floats[1].tolist()
    return {
        "words": words,
        "rows": floats[0],
        "tree": draw.choice(TREES),
        "kind": draw.choice([1, 2]),
        "more": more,
    }


def write_to(x: dict[str, Any], draw: Random) -> None:
    """Change an example, or what it holds, in place."""
    words, number = x["words"], draw.randrange(6)
    match draw.randrange(7):
        case 0:
            words.append(number)
        case 1:
            words[:] = words[::-1] or [number]
        case 2:
            x["rows"][draw.randrange(3)] = number / 4
        case 3:
            x["more"][draw.randrange(3)] = number / 8
        case 4:
            x["kind"] = 3 - x["kind"]
        case 5:
            x["tree"] = draw.choice(TREES)
        case 6:
            x["words"] = (*words, number) if isinstance(words, tuple) else [*words, number]


def write_to_parameter(program: fb.Program, draw: Random, optimizer: Any, batch: list[Any]) -> None:
    """Change a parameter in one of the ways that there are."""
    name = draw.choice(sorted(program.params))
    held = program.params.parameters[name]
    number, value = draw.randrange(-8, 9) / 8, program.params[name]
    match draw.randrange(7):
        case 0:
            program.params[name] = np.full(value.shape, number)
        case 1:
            program.params.update({name: value * number})
        case 2:
            held.value[...] = number
        case 3:
            held.assign(value[::-1])
        case 4:
            value += number
        case 5:
            optimizer.update(program.params, program.value_and_grad(batch)[1])
        case 6:
            held.trainable = False


def bits(program: fb.Program, batch: Any) -> list[Any]:
    """Return results, losses and gradients of a batch, to the bit."""
    found = program.run(batch, losses=True)
    loss, gradients = program.value_and_grad(batch)
    own = {name: dense(gradient).tobytes() for name, gradient in gradients.items()}
    return [[x.tobytes() for x in found], found.loss, loss, own]


def made_for(make: Callable[[], Any], engine: str, old: fb.Program, batch: list[Any]) -> list[Any]:
    """Return the same of a program that is made now, of a model with the parameters of an old one."""
    first = fb.compile(make(), engine)
    first.warm([{"words": [0], "rows": [0.0] * 3, "tree": TREES[0], "kind": 2, "more": [0.0] * 3}])
    for name, held in old.params.parameters.items():
        first.params[name] = held.value
        first.params.parameters[name].trainable = held.trainable
    return bits(first, copy.deepcopy(batch))


@pytest.mark.parametrize("make", [of_blocks, of_functions])
@pytest.mark.parametrize("engine", [name for name in BACKENDS if name != "reference"])
def test_a_program_computes_what_one_that_is_made_now_does(engine: str, make: Callable[[], Any]) -> None:
    if lacking(engine):
        pytest.skip(lacking(engine))
    draw, optimizer = Random(make.__name__), fb.Adam(0.1)
    program, examples = fb.compile(make(), engine), [example(draw) for _ in range(3)]
    program.warm([{**examples[0], "kind": 1}, {**examples[0], "kind": 2}])
    for turn in range(TURNS):
        with always_known() if turn % 2 and engine == "llvm" else nullcontext():
            batch = draw.sample(examples, draw.choice([1, 3]))
            expected = made_for(make, engine, program, batch)
            assert bits(program, batch) == expected
            ahead = draw.choice([program.prepare, program.plan])(batch)
            for _ in range(draw.randrange(1, 4)):
                write_to(draw.choice(batch), draw)
            assert bits(program, ahead) == expected  # as the examples were
        write_to_parameter(program, draw, optimizer, batch)


@pytest.mark.parametrize("make", [of_blocks, of_functions])
def test_a_parameter_that_was_compiled_as_frozen_is_not_trained_in_silence(make: Callable[[], Any]) -> None:
    model, batch = make(), [example(Random(1))]
    first = fb.compile(model, "numpy")
    whole = first.value_and_grad(batch)[1]
    held = first.params.parameters["inner.weight"]
    held.trainable = False
    frozen = fb.compile(model, "numpy")
    assert frozen.value_and_grad(batch)[1].keys() == whole.keys() - {"inner.weight"}
    held.trainable = True
    with pytest.raises(ParameterError, match="compile the block or the function again"):
        frozen.value_and_grad(batch)
    again = fb.compile(model, "numpy").value_and_grad(batch)[1]
    assert again["inner.weight"].tolist() == whole["inner.weight"].tolist()
