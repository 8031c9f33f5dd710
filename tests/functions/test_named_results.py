"""Walks return dicts and dataclasses of values, as they return tuples, wherever results come from."""

import pickle
from collections import deque
from dataclasses import dataclass, field, make_dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleTypeError, ModelError, ReadError, WalkError
from tests.backends import BACKENDS

ops = fb.ops
layer = fb.Linear(3, name="layer")


@dataclass(frozen=True, slots=True)
class Out:
    score: Any
    states: Any
    twice: Any = field(init=False)
    made: list[int] = field(default_factory=list, init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "twice", self.score * 2.0)
        object.__setattr__(self, "made", [1])


class Pair(NamedTuple):
    v: Any
    rest: Any


def walk(x: Any) -> Any:
    v = layer(fb.tensor(np.array(x, np.float32)))
    fb.loss(ops.sum(v))
    states = [{"name": "state", "state": v * float(i)} for i in range(len(x) - 1)]
    return {"out": Out(ops.sum(v), states), "pair": Pair(v, {}), "name": str(x[0])}


def deciding(x: Any) -> Any:
    return walk(x) if float(ops.sum(fb.tensor(np.array(x)))) > 0 else walk([-number for number in x])


def expected(program: fb.Program, x: Any) -> Any:
    weight, bias = (np.asarray(program.params[name]) for name in ("layer.weight", "layer.bias"))
    x = [abs(number) for number in x]
    v = np.array(x, np.float32) @ weight + bias
    states = [{"name": "state", "state": v * i} for i in range(len(x) - 1)]
    return {"out": (v.sum(), states, 2 * v.sum(), [1]), "pair": Pair(v, {}), "name": str(x[0])}


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert type(found) is dict
        assert [*found] == [*wanted]
        assert_same([*found.values()], [*wanted.values()])
    elif isinstance(wanted, list | tuple):
        assert isinstance(found, Pair) == isinstance(wanted, Pair)
        if type(found) is Out:
            found = found.score, found.states, found.twice, found.made
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other)
    elif isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


EXAMPLES = [[1.0, 2.0], [3.0, 4.0], [-5.0, -6.0]]


@pytest.mark.parametrize("engine", BACKENDS)
@pytest.mark.parametrize("function", [walk, deciding])
def test_results_are_dicts_and_dataclasses_wherever_they_come_from(
    function: Any, engine: str, tmp_path: Any
) -> None:
    program = fb.compile(function, engine)
    xs = EXAMPLES[:2] if function is walk else EXAMPLES
    program.run(xs[:1])
    wanted = [expected(program, x) for x in xs]
    assert_same(list(program.run(xs)), wanted)
    assert_same(list(program.run(xs)), wanted)
    assert_same(list(program.run(xs[:1])), wanted[:1])
    assert_same(list(program.run(xs, losses=True)), wanted)
    assert_same(list(program.step(xs).results), wanted)
    assert_same([program.debug(x).result for x in xs], wanted)
    assert program.predict(xs[:1])[0]["result"]["out"]["made"] == [1]
    if function is walk:
        prepared = pickle.loads(pickle.dumps(program.prepare(xs)))
        assert_same(list(program.run(prepared)), wanted)
        assert_same(list(program.run(program.plan(xs))), wanted)
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", engine, trust=(__name__,))
    assert_same(list(loaded.run(xs)), wanted)
    assert str(loaded.model.result) == str(program.model.result)


def test_cotangents_have_the_form_of_results() -> None:
    program = fb.compile(walk, "numpy")
    state = program.run([[1.0, 2.0]])[0]
    out = Out(np.float32(1.0), None)
    object.__setattr__(out, "twice", np.float32(2.0))
    object.__setattr__(out, "made", None)
    given = {"out": out, "pair": (np.ones(3, np.float32), None), "name": None}
    found = program.vjp([[1.0, 2.0]], [given], losses=False).gradients["layer.bias"]
    np.testing.assert_allclose(np.asarray(found), np.full(3, 1.0 + 2.0 * 2.0 + 1.0))
    for wrong in ({"out": None}, (None, None, None), {**given, "out": {"score": None}}):
        with pytest.raises(
            ExampleTypeError, match=r"cotangents\[0\].*: expected a .* of cotangents, or None"
        ):
            program.vjp([[1.0, 2.0]], [wrong], losses=False)
    assert [*state] == ["out", "pair", "name"]


def test_pytorch_has_them() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch: pip install -e '.[torch]'")
    (result,) = fb.torch.Module(walk, "numpy").warm([[1.0, 2.0]])([[1.0, 2.0]])
    assert type(result["out"]) is Out
    assert isinstance(result["out"].score, torch.Tensor)
    assert result["pair"][0].shape == (3,)


@dataclass
class Other:
    a: Any


@pytest.mark.parametrize(
    "second",
    [lambda v: {"b": v}, lambda v: {"a": v, "b": v}, Other, lambda v: (v,), lambda v: {"a": 1}, lambda v: {}],
)
def test_the_structure_is_that_of_other_examples(second: Any) -> None:
    for decides in (False, True):
        program = fb.compile(
            lambda x, decides=decides: (
                {"a": fb.tensor(x)} if (float(fb.tensor(x)) if decides else x) < 2 else second(fb.tensor(x))
            ),
            "numpy",
        )
        with pytest.raises(
            WalkError, match=r"example 1: expected a result of dict\(a: float32\), as of other"
        ):
            program.run([1.0, 2.0])


@dataclass
class Unset(Other):
    b: Any = field(init=False)


def test_results_that_have_no_end_or_no_value_are_refused() -> None:
    def endless(_: Any) -> Any:
        return (made := {"a": fb.tensor(1.0), "b": []}, made["b"].append(made))[0]

    deep = "expected a nest of 100 levels at most, found one that holds itself"
    unset = "expected a dataclass whose fields have values, found 'Unset' object has no attribute 'b'"
    for wrong, message in ((endless, deep), (lambda _: Unset(fb.tensor(1.0)), unset)):
        program = fb.compile(wrong, "numpy")
        for run in (program.run, program.debug):
            with pytest.raises(WalkError, match=f"walk.*: {message}"):
                run([1.0])


def test_what_cannot_be_a_result_is_refused() -> None:
    class Kept(dict):
        pass

    read_only = type("ReadOnly", (Other,), {"a": property(lambda _: 1), "__init__": lambda _: None})
    for wrong, found in (
        ({1: 2}, "dict with keys"),
        (Kept(a=1), "a Kept, which is another dict"),
        (read_only(), "a ReadOnly, with its own __new__ or a property as a field"),
    ):
        with pytest.raises(
            WalkError,
            match=f"expected values, tuples, lists, dicts with keys that are texts, and .* found {found}",
        ):
            fb.compile(lambda x, wrong=wrong: {**wrong} if wrong == {1: 2} else wrong, "numpy").run([1.0])


@pytest.mark.parametrize(
    "made",
    [
        lambda v: map(ops.tanh, [v]),
        lambda v: {"a": v}.items(),
        lambda v: chain([v]),
        lambda v: np.array([v, None]),
        lambda v: deque([v]),
    ],
)
def test_values_that_would_come_back_without_numbers_are_refused(made: Any) -> None:
    with pytest.raises(
        WalkError,
        match="example 0: expected values, .* found (map|dict_items|itertools.chain|chain|object|deque)",
    ):
        fb.compile(lambda x: [made(fb.tensor(x))], "numpy").run([1.0])
    assert fb.compile(lambda _: deque([1]), "numpy").run([1.0]) == [deque([1])]


def test_a_class_without_an_import_path_is_refused_in_a_file(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fb.compile(walk, "numpy")
    program.run(EXAMPLES[:1])
    monkeypatch.setitem(globals(), "Out", None)
    with pytest.raises(
        ModelError, match="the result: expected what an import path leads to, found the class Out"
    ):
        program.save(tmp_path / "file")


@pytest.mark.parametrize(
    "changed",
    [make_dataclass("Out", ["score"], namespace={"__module__": __name__}), NamedTuple("Pair", [("v", Any)])],
)
def test_a_class_that_has_other_fields_by_now_is_refused(
    changed: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    program = fb.compile(walk, "numpy")
    program.run(EXAMPLES[:1])
    program.save(tmp_path / "file")
    monkeypatch.setitem(globals(), changed.__name__, changed)
    with pytest.raises(
        ReadError, match=rf"{changed.__name__}: expected the fields \('.*, found \('\w+',\); restore"
    ):
        fb.load(tmp_path / "file", "numpy", trust=(__name__,))


class Both(NamedTuple):
    a: Any
    b: Any


@fb.cell
def less(both):
    return both.a - both.b


def differing(x):
    return less(Both(fb.tensor(x), fb.tensor(x) * 3.0))


def test_a_cell_knows_the_fields_of_a_named_tuple_that_it_takes(tmp_path: Any, monkeypatch: Any) -> None:
    """Read by number they would change places in silence."""
    program = fb.compile(differing, "numpy")
    assert program.run([1.0]) == [-2.0]
    program.save(tmp_path / "file")
    assert fb.load(tmp_path / "file", "numpy", trust=(__name__,)).run([1.0]) == [-2.0]
    monkeypatch.setitem(globals(), "Both", NamedTuple("Both", [("b", Any), ("a", Any)]))
    with pytest.raises(ReadError, match=r"Both: expected the fields \('a', 'b'\), found \('b', 'a'\)"):
        fb.load(tmp_path / "file", "numpy", trust=(__name__,))


def test_objects_beside_values_in_tuples_of_lists() -> None:
    program = fb.compile(lambda x: [("a", fb.tensor(x)), ("b", fb.tensor(x) * 2.0)], "numpy")
    for _ in range(2):
        assert [*program.run([1.0, 3.0], losses=True)] == [[("a", 1.0), ("b", 2.0)], [("a", 3.0), ("b", 6.0)]]


def test_tuples_of_other_lengths_are_another_structure() -> None:
    program = fb.compile(lambda x: tuple([fb.tensor(x)] * int(x)), "numpy")
    with pytest.raises(
        WalkError, match=r"example 1: expected a result of \(float32,\), as of other examples"
    ):
        program.run([1.0, 2.0])


@dataclass
class Nothing:
    pass


@pytest.mark.parametrize("nothing", [(), {}, Nothing()])
def test_a_result_of_nothing_keeps_its_form(nothing: Any) -> None:
    program = fb.compile(lambda x: (fb.loss(layer(fb.tensor(x)).sum()), nothing)[1], "numpy")
    examples = [np.ones(2, np.float32)] * 2
    for count in (1, 2):
        assert [*program.run(examples[:count])] == [nothing] * count
        assert [*program.run(examples[:count], losses=True)] == [nothing] * count
    assert program.debug(examples[0]).result == nothing
