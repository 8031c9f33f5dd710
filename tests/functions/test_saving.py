"""A program of a walk comes back from its file as it was: it has nothing to learn, and asks for nothing but what is trusted."""

import copy
import importlib
import random
import sys
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import FoldbatchError, ModelError, ReadError
from foldbatch.params.parameters import dense
from foldbatch.params.saved import KIND
from foldbatch.system import files

MODEL = """
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Any
import os
import numpy as np
import foldbatch as fb

lstm, embed, classify = fb.TreeLSTM(4, name="lstm"), fb.Embedding(9, 4, name="embed"), fb.Linear(3, name="classify")

judge, unread = fb.Linear(1, name="judge"), fb.Linear(2, name="unread")

@dataclass
class State:
    h: Any
    c: Any

@fb.cell
def leaf(word):
    return lstm(embed(word), ())

@fb.cell
def node(left, right, *, kind="a"):
    h, c = lstm(None, (left, right))
    return (h, c) if kind == "a" else (h * 0.5, c)

@fb.cell
def boxed(state):
    return State(*state)

@fb.cell
def picked(parts):
    return parts["h"] * parts["c"]["h"]

@fb.cell
def summed(states: list, box):
    return fb.ops.segment_sum(states) + box.h

def tree(t):
    state = leaf(t["word"]) if "word" in t else node(tree(t["left"]), tree(t["right"]), kind=t.get("kind", "a"))
    fb.loss(fb.ops.cross_entropy(classify(state[0]), t["label"]))
    return state

def walk(t):
    state = tree(t)
    x = summed([state[0], state[0]], boxed(state))
    y = fb.ops.tanh(x * 2.0)[..., :3] + fb.tensor(np.ones(3)) + t["label"]
    fb.loss(fb.ops.mean(y), "mean", weight=0.5)
    fb.metric("y", y, label=t)
    fb.loss(fb.ops.sum(judge(state[0])), "judge")
    unread(state[0])
    return classify(state[0]), [y]

class Part(fb.Module):
    def __init__(self):
        self.layers = [fb.Linear(4), fb.Linear(4)]
    @fb.cell
    def hidden(self, x, *, n):
        return fb.ops.tanh(self.layers[n](x))

class Net(Part):
    def __init__(self):
        super().__init__()
        self.part, self.out = Part(), fb.Linear(2)
    @fb.cell
    def hidden(self, x, *, n):
        return super().hidden(x, n=n) * 2.0
    def __call__(self, example):
        x = fb.tensor(example["vector"])
        for n in range(2):
            x = self.part.hidden(self.hidden(x, n=n), n=n)
        fb.loss(fb.ops.sum(x * x))
        return self.out(x)
    def other(self, example):
        return self(example)

class Inner(fb.Module):
    def __init__(self):
        self.layer = fb.Linear(4)
    @fb.cell
    def __call__(self, x):
        return self.layer(x)

class Private(Part):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    @fb.cell
    def __half(self, x):
        return x * 0.5
    @fb.cell
    def hidden(self, x, *, n):
        return x + 1.0
    def _walk(self, example):
        x = self.inner(self.__half(super().hidden(fb.tensor(example["vector"]), n=0)))
        fb.loss(fb.ops.sum(x * x))
        return x
    @classmethod
    def made(cls, example):
        return private._walk(example)
    @property
    def _ran(self):
        raise KeyboardInterrupt

class Private(Private):
    @fb.cell
    def hidden(self, x, *, n):
        return x * 3.0
    def _walk(self, example):
        return self.hidden(super().hidden(super()._walk(example), n=0), n=0)

scale = fb.Parameter([], init=1.0, name="scale")

def deciding(example):
    value, steps = fb.tensor(example["vector"][0] + 2.0) * scale, 0
    while value > 0.5:
        value, steps = value * 0.5, steps + 1
    fb.loss(value * value)
    return value, steps

start, table = fb.Parameter([4], init=0.5, name="start"), fb.Parameter([9, 4], name="table")

def begun(example):
    state = lstm(table[len(example)], ((start, fb.ops.tanh(start)),))
    parts = OrderedDict(h=start, c=defaultdict(list, h=start))
    x = summed([start, state[0]], boxed((start, picked(parts))))
    fb.loss(fb.ops.sum(start * x) + fb.ops.mean(fb.tensor(table)))
    return fb.tensor(start), fb.ops.concat([x, start])

class Chain(fb.Module):
    def __init__(self, length):
        self.layer, self.next = fb.Linear(3, init=1.0), Chain(length - 1) if length else None
    def __call__(self, example):
        return self.next(example) if self.next else self.layer(fb.tensor(example["vector"]))

chain, looped = Chain(60), {}
looped["me"] = [looped]
net, private = Net(), Private()
nets = {"first": [net]}
scaled = partial(walk)
read = os.listdir

def factory():
    @fb.cell
    def inner(x):
        return x * 2.0
    return inner

inner = factory()

class Held:
    layer = fb.Linear(2)

def hidden_cell(x):
    return inner(x)

def hidden_layer(x):
    return Held.layer(fb.tensor([x]))

def static_object(x):
    return of_object(x, thing=twice)

twice = lambda y: y * 2.0

@fb.cell
def of_object(x, *, thing):
    return thing(x)
"""
SMALL = {
    "left": {"word": 3, "label": 1},
    "right": {"word": 7, "label": 2},
    "label": 2,
    "vector": [0.5, -1.0, 2.0],
}
EXAMPLES = [
    SMALL,
    {"word": 1, "label": 0, "vector": [1.0, 2.0, 3.0]},
    {"left": SMALL, "right": {"word": 2, "label": 1}, "label": 0, "kind": "b", "vector": [0.0, 1.0, 0.0]},
]


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "walkmodel.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield fresh
    sys.modules.pop("walkmodel", None)


def fresh() -> Any:
    """The module as another process has it: its layers are new."""
    sys.modules.pop("walkmodel", None)
    importlib.invalidate_caches()
    return importlib.import_module("walkmodel")


def trained(walk: Any) -> fb.Program:
    program = fb.compile(walk, "numpy", seed=3)
    _, gradients = program.value_and_grad(EXAMPLES)
    fb.Adam(lr=0.1).update(program.params, gradients)
    return program


def assert_same(one: fb.Program, other: fb.Program) -> None:
    """Check that two programs compute the same bits."""
    loss, gradients = one.value_and_grad(EXAMPLES, step=7)
    found, its = other.value_and_grad(EXAMPLES, step=7)
    assert found == loss and its.keys() == gradients.keys() and loss != 0
    for name, gradient in gradients.items():
        np.testing.assert_array_equal(dense(gradient), dense(its[name]))
    assert repr(list(one.run(EXAMPLES))) == repr(list(other.run(EXAMPLES)))
    assert repr(one.debug(EXAMPLES[0]).result) == repr(other.debug(EXAMPLES[0]).result)


@pytest.mark.parametrize(
    "name", ["walk", "scaled", "net", "net.other", "private._walk", "Private.made", "deciding", "begun"]
)
def test_a_loaded_program_is_the_saved_one_and_learns_nothing(model, tmp_path, name):
    walk = eval(f"m.{name}", {"m": model()})
    program = trained(walk)
    next(iter(program.params.parameters.values())).trainable = False
    program.save(tmp_path / "file", {"a": 1})
    model()
    loaded = fb.load(tmp_path / "file", "numpy", trust=("walkmodel",))
    before = loaded.model
    assert list(loaded.params) == list(program.params)
    assert loaded.lowered.decides == (name == "deciding")  # before it has run
    assert [p.trainable for p in loaded.params.parameters.values()] == [False] + [True] * (
        len(program.params) - 1
    )
    beside = fb.compile(walk, "numpy")
    beside.warm(EXAMPLES)
    assert_same(program, loaded)
    assert loaded.model is before
    loaded.save(tmp_path / "again")
    assert (
        files.read(tmp_path / "again", KIND, "")[1]["origin"]
        == files.read(tmp_path / "file", KIND, "")[1]["origin"]
    )


def test_a_layer_may_stand_deep_inside_of_modules(model, tmp_path):
    program = fb.compile(model().chain, "numpy")
    result = program.run(EXAMPLES[:1])[0]
    program.save(tmp_path / "file")
    assert (fb.load(tmp_path / "file", trust=("walkmodel",)).run(EXAMPLES[:1])[0] == result).all()


def test_layers_of_losses_and_of_what_nobody_reads_are_saved_of_a_program_that_has_only_run(model, tmp_path):
    program = fb.compile(model().walk, "numpy", seed=3)
    program.run(EXAMPLES)
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy", trust=("walkmodel",))
    assert {"judge.weight", "unread.weight"} < {*loaded.params}
    assert_same(program, loaded)


def test_a_loaded_program_leaves_the_layers_of_others_alone(model, tmp_path):
    program = trained(model().walk)
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy", trust=("walkmodel",))
    kept = {name: value.copy() for name, value in program.params.items()}
    for name in loaded.params:
        loaded.params[name] = loaded.params[name] * 2.0
    assert all((program.params[name] == value).all() for name, value in kept.items())
    assert loaded.debug(EXAMPLES[0]).loss != program.debug(EXAMPLES[0]).loss


@pytest.mark.parametrize(
    ("name", "match"),
    [
        (
            "lambda x: m.walk(x)",
            r"the walk: expected what an import path leads to, found a lambda \(.*; define it with def",
        ),
        ("m.hidden_cell", r"the cell inner: .* found a function within another \(walkmodel.py:\d+\)"),
        (
            "m.hidden_layer",
            r"the cell linear: .* found Linear\(2.*\), which no variable holds; let a variable",
        ),
        ("m.static_object", r"the cell of_object: .* found a lambda"),
        ("m.Net()", r"the walk: .* found a Net, which no variable holds"),
        ("partial(m.walk_of, fb.Linear(2))", r"the walk: .* found"),
    ],
)
def test_what_no_path_leads_to_is_refused_and_the_file_stays(model, tmp_path, name, match):
    m = model()
    m.walk_of = lambda layer, x: layer(fb.tensor([x]))
    walk = eval(name, {"m": m, "partial": m.partial, "fb": fb})
    program = fb.compile(walk, "numpy")
    program.warm(EXAMPLES if "walk(" in name or "Net" in name else [1.0])
    (tmp_path / "file").write_text("former")
    with pytest.raises(ModelError, match=match):
        program.save(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "former"


@pytest.mark.parametrize(
    ("trust", "old", "new", "match"),
    [
        (
            (),
            "",
            "",
            r"walkmodel:walk: expected a function of foldbatch or one that the caller trusts.*pass trust=\(.walkmodel.,\)",
        ),
        (("walkmodel:walk",), "", "", "walkmodel:leaf: expected a function"),
        (
            ("walkmodel",),
            "def node(left, right,",
            "def node(first, second,",
            r"the cell node: expected the arguments left, right, kind",
        ),
        (("walkmodel",), "Embedding(9", "Embedding(8", r"embed.weight: expected float32\[8,4\]"),
        (
            ("walkmodel",),
            "embed(word)",
            "fb.Linear(4)(embed(word))",
            "the cell leaf: expected the parameters embed.weight, lstm",
        ),
        (
            ("walkmodel",),
            "lstm, embed, classify =",
            "lstm, embed, other =",
            "walkmodel:classify: expected a name",
        ),
        (
            ("walkmodel",),
            "@fb.cell\ndef leaf",
            "def leaf",
            "walkmodel:leaf: expected a function with @fb.cell",
        ),
        (
            ("walkmodel",),
            "c: Any",
            "c: Any = 0\n    d: Any = 0",
            r"State: expected the fields \('h', 'c'\), found",
        ),
        (("walkmodel",), "walk", "wander", "walkmodel:walk: expected a function or class"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(model, tmp_path, trust, old, new, match):
    trained(model().walk).save(tmp_path / "file")
    (tmp_path / "walkmodel.py").write_text(MODEL.replace(old, new))
    sys.modules.pop("walkmodel")
    importlib.invalidate_caches()
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        importlib.invalidate_caches()
        for cached in (tmp_path / "__pycache__").glob("*"):
            cached.unlink()
        with pytest.raises(ReadError, match=match):
            fb.load(tmp_path / "file", "numpy", trust=trust)
        if new == "Embedding(8":  # what was read before it was refused has left nothing
            assert sys.modules["walkmodel"].lstm.parameters == {}
            fb.compile(sys.modules["walkmodel"].walk, "numpy").run([{"word": 1, "label": 0}])
    finally:
        sys.dont_write_bytecode = before


@pytest.mark.parametrize("name", ["_ran", "__init__", "__class__", "walkmodel.Part._walk"])
def test_a_file_names_no_method_but_those_of_ones_own(model, tmp_path, name):
    trained(model().private._walk).save(tmp_path / "file")
    arrays, header = files.read(tmp_path / "file", KIND, "")
    header["origin"]["walk"]["method"][1] = name
    files.write(tmp_path / "file", KIND, arrays, header)
    with pytest.raises(ReadError, match=f"walkmodel:private.{name}: expected a method of a Module"):
        fb.load(tmp_path / "file", "numpy", trust=("walkmodel",))


def test_a_file_of_before_names_classes_without_their_modules(model, tmp_path):
    program = trained(model().private._walk)
    program.save(tmp_path / "file")
    arrays, header = files.read(tmp_path / "file", KIND, "")
    (found,) = [c["place"]["method"] for c in header["origin"]["cells"] if "Part.hidden" in str(c["place"])]
    assert found[1] == "walkmodel.Part.hidden"
    found[1] = "Part.hidden"
    files.write(tmp_path / "file", KIND, arrays, header)
    assert_same(program, fb.load(tmp_path / "file", "numpy", trust=("walkmodel",)))


def edited(walk: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return the data of a walk with something exchanged, left out or put in."""
    walk = copy.deepcopy(walk)
    places: list[tuple[Any, Any]] = []
    stack: list[Any] = [walk]
    while stack:
        x = stack.pop()
        for key in list(x) if isinstance(x, dict) else range(len(x)):
            places.append((x, key))
            if isinstance(x[key], dict | list):
                stack.append(x[key])
    holder, key = draw.choice(places)
    other, its = draw.choice(places)
    match draw.randrange(4):
        case 0:
            holder[key] = copy.deepcopy(other[its])
        case 1:
            holder.pop(key)
        case 2:
            names = "walkmodel:read os:system builtins:exec walkmodel:os sys:modules __class__".split()
            holder[key] = draw.choice(
                [draw.choice(names), {"function": draw.choice(names)}, {"variable": [names[0]]}]
            )
        case 3:
            holder[key] = draw.choice([None, -1, 3, 1 << 40, 0.5, "x", [], {}, True])
    return walk


def test_files_of_strangers_are_read_or_refused(model, tmp_path):
    trained(model().walk).save(tmp_path / "file")
    arrays, header = files.read(tmp_path / "file", KIND, "")
    outcomes = {True: 0, False: 0}
    for seed in range(80):
        walk = edited(header["origin"], random.Random(seed))
        files.write(tmp_path / "edited", KIND, arrays, {**header, "origin": walk})
        try:
            fb.load(tmp_path / "edited", "numpy", trust=("walkmodel",)).run(EXAMPLES[:1])
            outcomes[True] += 1
        except FoldbatchError as error:
            assert str(error)
            outcomes[False] += 1
    assert outcomes[True] > 0 and outcomes[False] > 30, outcomes


def test_a_fresh_program_goes_on_with_parameters_of_its_own_when_it_is_loaded(tmp_path, monkeypatch):
    text = "import foldbatch as fb\n"
    text += "first, later = fb.Linear(2, name='first'), fb.Linear(2, name='later')\n"
    text += "def walk(x):\n    y = (first if x[0] > 0 else later)(fb.tensor(x))\n"
    text += "    fb.loss(fb.ops.sum(y * y))\n    return y\n"
    (tmp_path / "freshmodel.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    walk = importlib.import_module("freshmodel").walk
    both = [[1.0, 2.0], [-1.0, 2.0]]
    shared = fb.compile(walk, "numpy")
    shared.run(both)
    program = fb.compile(walk, "numpy", seed=5, fresh=True)
    program.run(both[:1])
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy", trust=("freshmodel",))
    kept = {name: value.copy() for name, value in shared.params.items()}
    _, gradients = loaded.value_and_grad(both)  # which bring a cell and two parameters
    fb.SGD(0.1).update(loaded.params, gradients)
    assert {*loaded.params} == {*kept}
    assert all((shared.params[name] == value).all() for name, value in kept.items())
    assert {*loaded.params.parameters.values()}.isdisjoint(shared.params.parameters.values())
    sys.modules.pop("freshmodel")
