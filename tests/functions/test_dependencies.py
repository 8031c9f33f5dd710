"""What functions read besides their arguments: a program reads it as it is when the program is compiled.

The law: whatever of a model is changed between two compilations, the next program is one of a model that is made
anew with the changes; programs of before compute to the bit what they did, or refuse by name what is new to them.
"""

from __future__ import annotations

import gc
import importlib
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError, ChangedModelWarning, ReadError, UnknownNameError, WalkError
from foldbatch.functions.dependencies import dependencies_of, digest
from foldbatch.system import files
from tests.backends import lacking

Namespace = dict[str, Any]
Edit = tuple[str, float]

MODEL = """
import numpy as np
import foldbatch as fb
from foldbatch import ops

SCALE, TABLE, CONFIG, WEIGHTS = 2.0, [0.5, 1.0], {"shift": 0.25}, np.float32([1.0, 2.0, 3.0])
first = fb.Linear(3, "tanh", name="first")

def helper(x, by=1.5):
    return x * by

def closing():
    shift = 0.125
    @fb.cell
    def shifted(x, y=None):
        return helper(x + shift) if y is None else x - shift + ops.cast(y, "float32")
    def set_shift(value):
        nonlocal shift
        shift = value
    return shifted, set_shift

shifted, set_shift = closing()
blended = fb.Function(lambda x: x * WEIGHTS + SCALE)
counted = fb.Map(fb.Scalar() >> fb.Function(lambda x: x * SCALE)) >> fb.Sum()

@fb.cell
def passed(x):
    return x if CONFIG["shift"] == 0.25 else x + CONFIG["shift"]

class Net(fb.Module):
    def __init__(self):
        self.head, self.scale, self.parts = fb.Linear(3), 1.0, [fb.Linear(3)]
    def bend(self, x):
        return ops.tanh(x)
    @fb.cell
    def score(self, x, kids: list["float32[3]"], *, deep):
        h = self.bend(first(x)) * self.scale + TABLE[0] + ops.segment_sum(kids)
        for part in self.parts if deep else []:
            h = part(h) + CONFIG["shift"]
        return self.head(h)
    def __call__(self, example):
        numbers, label, deep = example
        x = passed(shifted(blended(fb.tensor(np.float32(numbers))), label))
        kids = [x for _ in range(label or 0)]
        return self.score(x, kids, deep=deep) * counted(numbers)

net = Net()
"""


def new_model() -> Namespace:
    scope: Namespace = {"__name__": "tests.functions.made"}
    exec(compile(MODEL, __file__, "exec"), scope)
    return scope


def bent(by: float) -> Callable[..., Any]:
    return lambda self, x: ops.tanh(x) * by


EDITS: dict[str, Callable[[Namespace, float], Any]] = {
    "layer": lambda m, v: setattr(m["net"], "head", fb.Linear(3 + int(8 * v))),
    "global layer": lambda m, v: m.update(first=fb.Linear(3, "relu" if v > 0.5 else "tanh", name="first")),
    "attribute": lambda m, v: setattr(m["net"], "scale", v),
    "closure": lambda m, v: m["set_shift"](v),
    "default": lambda m, v: setattr(m["helper"], "__defaults__", (v,)),
    "constant": lambda m, v: m.update(SCALE=v),
    "function": lambda m, v: m.update(helper=lambda x: x - v),
    "method": lambda m, v: setattr(m["Net"], "bend", bent(v)),
    "list": lambda m, v: m["TABLE"].__setitem__(0, v),
    "dict": lambda m, v: m["CONFIG"].update(shift=v),
    "array": lambda m, v: m["WEIGHTS"].__setitem__(1, v),
    "parts": lambda m, v: m["net"].parts.append(fb.Linear(3, name=f"part{len(m['net'].parts)}")),
}
EXAMPLES = [([1.0, 2.0, 3.0], None, False), ([0.5, 0.0, 1.0], 2, True), ([2.0, 1.0, 0.0], 1, False)]


def edited(edits: Sequence[Edit]) -> Namespace:
    made = new_model()
    for name, value in edits:
        EDITS[name](made, value)
    return made


def bits(program: fb.Program, examples: list[Any]) -> list[bytes]:
    return [x.tobytes() for x in program.run(examples)]


class Right:
    """What models that are made anew with edits compute."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.programs: dict[tuple[Edit, ...], fb.Program] = {}

    def of(self, edits: Sequence[Edit], examples: list[Any]) -> list[bytes]:
        key = tuple(edits)
        if key not in self.programs:
            self.programs[key] = fb.compile(edited(edits)["net"], self.engine)
            self.programs[key].warm(EXAMPLES)
        return bits(self.programs[key], examples)


@pytest.mark.parametrize("edit", [*EDITS])
def test_the_next_program_reads_what_has_changed(edit: str) -> None:
    model, right = new_model(), Right("numpy")
    first = fb.compile(model["net"], "numpy")
    before = bits(first, EXAMPLES[1:])
    EDITS[edit](model, 0.75)
    assert bits(fb.compile(model["net"], "numpy"), EXAMPLES[1:]) == right.of([(edit, 0.75)], EXAMPLES[1:])
    assert bits(first, EXAMPLES[1:]) == before


@given(st.lists(st.tuples(st.sampled_from([*EDITS]), st.sampled_from([0.25, 0.75])), min_size=1, max_size=2))
@example([("function", 0.25), ("function", 0.75)])  # equal code, and other closures
@settings(max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate])
@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_a_program_reads_its_model_as_it_is_when_it_is_compiled(engine: str, edits: Sequence[Edit]) -> None:
    if lacking(engine):
        pytest.skip(lacking(engine))
    model, draw, right = new_model(), Random(str(edits)), Right(engine)
    programs: list[tuple[fb.Program, Sequence[Edit], list[Any]]] = []
    for count in range(len(edits) + 1):
        done = edits[:count]
        for name, value in done[-1:]:
            EDITS[name](model, value)
        known = draw.sample(EXAMPLES, draw.randrange(3))
        program = fb.compile(model["net"], engine)
        assert bits(program, known) == right.of(done, known)
        programs.append((program, done, known))
        for former, before, seen in draw.sample(programs, len(programs)):
            assert bits(former, seen) == right.of(before, seen)
            others = draw.sample(EXAMPLES, 2)
            try:
                found = bits(former, others)
            except WalkError as error:  # the model has changed, and it has not seen all
                assert before != done
                assert "compile the walk again" in str(error)
            else:
                assert found == right.of(before, others)


def test_what_has_changed_is_named_where_an_older_program_would_have_to_read_it() -> None:
    model = new_model()
    program = fb.compile(model["net"], "numpy")
    program.run(EXAMPLES[:1])
    model["net"].scale = 3.0
    with pytest.raises(
        WalkError, match=r"^score: .* found other things in Net\.scale; compile the walk again"
    ):
        program.run(EXAMPLES)
    unused = fb.compile(model["net"], "numpy")
    model["net"].head = fb.Linear(7)
    with pytest.raises(WalkError, match=r"Net\.head"):
        unused.run(EXAMPLES[:1])


class Encoder(fb.Module):
    def __init__(self) -> None:
        self.inner = fb.Linear(2)

    @fb.cell
    def encode(self, x: Any) -> Any:
        return self.inner(x)


class Loose(fb.Module):
    """Whose walk calls all of it itself."""

    def __init__(self) -> None:
        self.encoder, self.out, self.added = Encoder(), fb.Linear(2), fb.Parameter([2], 1.0)
        self.block = fb.Vector(2) >> fb.Linear(2)

    def __call__(self, numbers: Any) -> Any:
        return self.out(self.encoder.encode(fb.tensor(numbers))) + self.added + self.block(numbers)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("encoder", Encoder),
        ("out", lambda: fb.Linear(2)),
        ("added", lambda: fb.Parameter([2], 2.0)),
        ("block", lambda: fb.Vector(2) >> fb.Linear(2)),
    ],
)
def test_what_the_walk_itself_calls_is_not_replaced_in_older_programs(name: str, make: Any) -> None:
    model = Loose()
    first = fb.compile(model, "numpy")
    first.run([[1.0, 2.0]])
    setattr(model, name, make())
    with pytest.raises(WalkError, match=rf"found other things in Loose\.{name}; compile the walk again"):
        first.run([[1.0, 2.0]])
    fb.compile(model, "numpy").run([[1.0, 2.0]])


def test_parameters_and_items_of_containers_are_known_by_identity() -> None:
    scope: Namespace = {"held": fb.Parameter([2], 1.0, "held"), "deep": [[fb.Linear(2, name="a")]]}

    @fb.cell
    def scaled(x: Any, y: Any = None) -> Any:
        return deep[0][0](x * held)

    deep, held = scope["deep"], scope["held"]

    def walk(example: Any) -> Any:
        return scaled(fb.tensor(example[0]), *map(fb.tensor, example[1:]))

    first, unused = fb.compile(walk, "numpy"), fb.compile(walk, "numpy")
    first.run([[[1.0, 2.0]]])
    deep[0][0] = fb.Linear(2, name="b")
    for program in (first, unused):
        with pytest.raises(WalkError, match="closure deep"):
            program.run([[[1.0, 2.0], 1.0]])
    deep[0][0], unused = fb.Linear(2, name="c"), fb.compile(walk, "numpy")
    held = fb.Parameter([2], 3.0, "held")
    with pytest.raises(WalkError, match="closure held"):
        unused.run([[[1.0, 2.0]]])
    assert fb.compile(walk, "numpy").run([[[1.0, 2.0]]])[0].shape == (2,)


def test_what_no_name_leads_to_is_found_by_running_the_cell_again() -> None:
    held = {"name": "by"}

    @fb.cell
    def scaled(x: Any, y: Any = None) -> Any:
        return x * getattr(Box, held["name"])

    class Box:
        by = 2.0

    def walk(example: Any) -> Any:
        return scaled(fb.tensor(example[0]), *map(fb.tensor, example[1:]))

    first = fb.compile(walk, "numpy")
    assert first.run([[1.0]]) == [2.0]
    Box.by = 5.0
    second = fb.compile(walk, "numpy")
    assert second.run([[1.0]]) == [5.0]
    assert first.run([[1.0]]) == [2.0]
    assert first.debug([1.0]).result == 2.0
    assert second.debug([1.0]).result == 5.0
    with pytest.raises(WalkError, match="scaled: .* computes something else by now"):
        first.run([[1.0, 2.0]])
    assert second.run([[1.0, 2.0]]) == [5.0]


def test_a_method_that_is_a_cell_may_be_replaced_in_its_class() -> None:
    model = new_model()
    first = fb.compile(model["net"], "numpy")
    first.run(EXAMPLES)
    model["Net"].score = fb.cell(lambda self, x, kids, *, deep: self.head(x) * 3.0)
    model["Net"].score.__set_name__(model["Net"], "score")
    found = bits(fb.compile(model["net"], "numpy"), EXAMPLES[:1])
    other = new_model()
    other["Net"].score = fb.cell(lambda self, x, kids, *, deep: self.head(x) * 3.0)
    other["Net"].score.__set_name__(other["Net"], "score")
    assert found == bits(fb.compile(other["net"], "numpy"), EXAMPLES[:1])


def test_annotations_are_read_anew() -> None:
    scope: Namespace = {"fb": fb, "KIND": "float32"}
    text = "@fb.cell\ndef halved(x: KIND):\n    return x * 2\n"
    exec("from __future__ import annotations\n" + text, scope)
    walk = lambda x: scope["halved"](x)  # noqa: E731
    assert fb.compile(walk, "numpy").run([3])[0].dtype == np.float32
    scope["KIND"] = "int32"
    assert fb.compile(walk, "numpy").run([3])[0].dtype == np.int32


def test_a_cell_that_draws_or_makes_layers_does_so_once_for_each_structure() -> None:
    generator = np.random.default_rng(0)

    @fb.cell
    def noisy(x: Any, y: Any = None) -> Any:
        return fb.Linear(2, name="inner")(x) + generator.normal(size=2).astype("float32")

    def walk(example: Any) -> Any:
        return noisy(fb.tensor(example[0]), *map(fb.tensor, example[1:]))

    program = fb.compile(walk, "numpy")
    (before,) = program.run([[[1.0, 2.0]]])
    program.run([[[1.0, 2.0], 1.0]])  # a new structure is no change
    assert (fb.compile(walk, "numpy").run([[[1.0, 2.0]]])[0] == before).all()


def test_cells_of_former_models_go_with_their_programs() -> None:
    model = new_model()
    program = fb.compile(model["net"], "numpy")
    program.run(EXAMPLES)
    former = weakref.ref(model["net"].head)
    model["net"].head = fb.Linear(3)
    fb.compile(model["net"], "numpy").run(EXAMPLES)
    assert former() is not None
    del program
    gc.collect()
    assert former() is None


def test_a_variant_of_a_block_that_has_changed_is_refused() -> None:
    scales = [2.0]
    block = fb.Scalar() >> fb.Function(lambda x: x * scales[0]) >> fb.AllOf(fb.Identity(), fb.Loss())
    program, other = fb.compile(block, "numpy"), fb.compile(block, "numpy")
    assert program.run([3.0])[0][0] == 6.0
    scales[0] = 5.0
    assert program.run([3.0])[0][0] == 6.0
    assert other.value_and_grad([3.0])[0] == 6.0
    with pytest.raises(BlockTypeError, match="compile the block again"):
        other.run([3.0])  # without losses, which is built at the first run
    assert fb.compile(block, "numpy").run([3.0])[0][0] == 15.0


# -- files

SAVED = """
import enum
import logging
import numpy as np
import foldbatch as fb

LIMIT, WORDS, ROWS, LOG = 3, fb.trees.Vocabulary(["a", "b"]), [1.0, 2.0], logging.getLogger("x")
SEEN, TOTAL = [], 0

class Mode(enum.Enum):
    PLAIN = 1.0

class Net(fb.Module):
    def __init__(self):
        self.embed, self.scale = fb.Embedding(3, 2), 1.5
    @fb.cell
    def score(self, word):
        return self.embed(word) * self.scale
    def read(self, words):
        global TOTAL
        TOTAL += 1
        SEEN.append(words)
        LOG.debug("read")
        return [WORDS[w] for w in words[:LIMIT]]
    def __call__(self, words):
        found = [self.score(n) for n in self.read(words)]
        return found[0] * (Mode.PLAIN.value + ROWS[0])

net = Net()
"""
# what is written in the place of what, and what `load` says: an error, a warning, or nothing
CHANGES = {
    "constant": ("= 3, fb", "= 2, fb", "NAME:LIMIT: expected 3, as when the file was saved, found 2"),
    "words": ('"a", "b"', '"b", "a"', "NAME:WORDS: expected a Vocabulary of 3 words, as"),
    "enum": ("PLAIN = 1.0", "PLAIN = 2.0", "NAME:Mode.PLAIN: expected <Mode.PLAIN: 1.0>, as"),
    "attribute": ("2), 1.5", "2), 2.5", "NAME:net.scale: expected 1.5, as"),
    "operator": ("(word) * self", "(word) + self", "the cell score: .* after changes of NAME:net.score"),
    "code": ("found[0] * (", "found[-1] * (", "changes of NAME:net.__call__"),
    "list": ("[1.0, 2.0]", "[3.0, 2.0]", "changes of NAME:ROWS"),
    "comment": ("        return found", "        # it is new\n\n        return found", ""),
    "counter": ("TOTAL = [], 0", "TOTAL = [], 7", ""),
    "data": ("= [], 0", "= [1], 0", ""),
    "no part": ("TOTAL = [], 0", "TOTAL, OTHER = [], 0, 5", ""),
}


def module_of(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a module that is imported anew, from a text."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, name, raising=False)
    importlib.invalidate_caches()
    found = types.ModuleType(name)
    found.__file__ = str(folder / f"{name}.py")
    monkeypatch.setitem(sys.modules, name, found)
    exec(compile(text, found.__file__, "exec"), vars(found))
    return found


@pytest.mark.parametrize("change", [*CHANGES])
def test_a_file_knows_what_its_functions_read(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, path, examples = "readings_saved", tmp_path / "m.safetensors", [["a", "b", "c", "a"], ["b"]]
    module = module_of(tmp_path, name, SAVED, monkeypatch)
    program = fb.compile(module.net, "numpy")
    expected = bits(program, examples)
    program.save(path)
    old, new, said = CHANGES[change]
    said = said.replace("NAME", name)
    module_of(tmp_path, name, SAVED.replace(old, new), monkeypatch)
    if said.startswith("changes"):
        with pytest.warns(ChangedModelWarning, match=said):
            fb.load(path, "numpy", trust=(name,))
    elif said:
        with pytest.raises(ReadError, match=said):
            fb.load(path, "numpy", trust=(name,))
    else:
        assert bits(fb.load(path, "numpy", trust=(name,)), examples) == expected


def test_what_has_changed_may_be_accepted_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = "readings_accepted", tmp_path / "m.safetensors"
    program = fb.compile(module_of(tmp_path, name, SAVED, monkeypatch).net, "numpy")
    program.warm([["a", "b"]])
    program.save(path)
    module_of(tmp_path, name, SAVED.replace("= 3, fb", "= 1, fb").replace("[1.0", "[3.0"), monkeypatch)
    loaded = fb.load(path, "numpy", trust=(name,), accept=(name,))
    assert (loaded.run([["a"]])[0] == 2 * program.run([["a"]])[0]).all()
    with pytest.raises(ReadError, match="LIMIT"):
        fb.load(path, "numpy", trust=(name,), accept=(f"{name}:ROWS",))
    with pytest.raises(UnknownNameError, match="a tuple of names"):
        fb.load(path, "numpy", trust=(name,), accept=name)
    changed = fb.load(path, "numpy", trust=(name,), accept=(f"{name}:LIMIT", f"{name}:ROWS"))
    changed.save(path)  # knows what is read now
    fb.load(path, "numpy", trust=(name,))


def test_files_of_before_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, path = "readings_before", tmp_path / "m.safetensors"
    program = fb.compile(module_of(tmp_path, name, SAVED, monkeypatch).net, "numpy")
    expected = bits(program, [["a"]])
    program.save(path)
    arrays, header = files.read(path, "model", "")
    for key in ("dependencies", "python", "version"):
        del header["origin"][key]
    for cell in header["origin"]["cells"]:
        del cell["computed"]
    files.write(path, "model", arrays, header)
    module_of(tmp_path, name, SAVED.replace("= 3, fb", "= 2, fb"), monkeypatch)
    assert bits(fb.load(path, "numpy", trust=(name,)), [["a"]]) == expected


ORDERED = """
import foldbatch as fb
from foldbatch import ops

first, held = fb.Linear(4, "tanh", name="first"), fb.Parameter([4, 4], name="held")

@fb.cell
def start(x: "float32[4]"):
    return first(x)

@fb.cell
def middle(a, b):
    u, w = ops.mean(a @ held), held[:, :2]
    return TERMS

def walk(xs):
    h = start(xs[0])
    for x in xs:
        h = middle(start(x), h)
        fb.loss(ops.sum(h * h))
    return h
"""
TERMS = ["ops.tanh(a)", "ops.tanh(u)", "ops.tanh(ops.dot(a, b) * 0.1)", "b * u", "ops.concat([a @ w, b @ w])"]
TERMS += ["ops.exp(-a * a)", "ops.sigmoid(b @ held)", "a * ops.sum(held)"]


@pytest.mark.parametrize("seed", range(3))
def test_a_loaded_walk_computes_the_same_bits_of_gradients(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, name, path = Random(seed), f"ordered_{seed}", tmp_path / "m.safetensors"
    terms = " + ".join(draw.choices(TERMS, k=5))
    module = module_of(tmp_path, name, ORDERED.replace("TERMS", terms), monkeypatch)
    rng = np.random.default_rng(seed)
    examples = [[rng.normal(size=4).astype("float32") for _ in range(k + 1)] for k in range(4)]
    program = fb.compile(module.walk, "numpy", threads=1)
    for one in examples:  # it grows: the wire that closes the loop comes with the second
        program.run([one], losses=True)
    program.save(path)
    loaded = fb.load(path, "numpy", trust=(name,), threads=1)
    assert bits(loaded, examples) == bits(program, examples)
    (loss, of_program), (again, of_loaded) = (p.value_and_grad(examples, step=0) for p in (program, loaded))
    assert loss == again
    assert {n: x.tobytes() for n, x in of_loaded.items()} == {n: x.tobytes() for n, x in of_program.items()}


# -- what is followed


def test_names_lead_to_what_functions_read() -> None:
    model = new_model()
    found = {entry.where: entry.kind for entry in dependencies_of([("net", model["net"])]).entries.values()}
    assert (
        found.items()
        >= {
            "tests.functions.made:WEIGHTS": "content",
            "tests.functions.made:SCALE": "constant",
            "tests.functions.made:first": "part",
            "tests.functions.made:helper": "code",
            "tests.functions.made:helper, default of by": "constant",
            "tests.functions.made:shifted, closure shift": "constant",
            "net.scale": "constant",
            "net.head": "part",
            "net.bend": "code",
            "net.__call__": "code",
        }.items()
    )
    assert not any(where.startswith(("numpy", "foldbatch")) for where in found)


@pytest.mark.parametrize(
    "pair",
    [
        ([1], [True]),
        ([0.0], [-0.0]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (("a", "bc"), ("ab", "c")),
        (np.float32([1]), np.float64([1])),
        (np.zeros((2, 1)), np.zeros((1, 2))),
        (((),), ((), ())),
        (b"a", "a"),
    ],
)
def test_data_that_differ_have_other_digests(pair: tuple[Any, Any]) -> None:
    assert digest(pair[0]) != digest(pair[1])
    assert digest({"a", "b"}) == digest({"b", "a"})
    assert digest(list(range(10)), items=10) is None
    assert digest(object()) is None
