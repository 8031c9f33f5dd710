"""A program's parameters by name: unique names, assignment of some or all of them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import NumberedNamesWarning, ParameterError, UnknownNameError
from foldbatch.params.parameters import (
    Owner,
    Parameter,
    ParameterStore,
    RemoteUpdates,
    Rule,
    name_parameters,
    numbered_names,
)


def _held(*names: str) -> ParameterStore:
    return ParameterStore(name_parameters([Parameter([2], 0.0, name) for name in names]))


def _values(store: ParameterStore) -> list[list[float]]:
    return [value.tolist() for value in store.values()]


def test_layers_without_names_are_numbered_in_order_of_appearance() -> None:
    first, second = Owner("linear"), Owner("linear")
    parameters = [
        Parameter([1], name="weight", owner=first),
        Parameter([1], name="weight", owner=second),
        Parameter([1], name="bias", owner=first),
        Parameter([1]),
        Parameter([1]),
    ]
    expected = ["linear.weight", "linear_1.weight", "linear.bias", "parameter", "parameter_1"]
    assert list(name_parameters(parameters)) == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_a_given_name_stays_whatever_is_built_before(reverse: bool) -> None:
    """Layers without names make way, for a layer and for a stand-alone parameter of their names."""
    weight = Parameter([1], name="weight", owner=Owner("linear", given=True))
    bias = Parameter([2], name="linear_1.bias")
    other = Parameter([3], name="bias", owner=Owner("linear"))
    parameters = [weight, bias, other]
    named = name_parameters(parameters[::-1] if reverse else parameters)
    assert named == {"linear.weight": weight, "linear_1.bias": bias, "linear_2.bias": other}
    assert not numbered_names(named)


def test_a_name_given_twice_is_numbered_and_hides_nothing() -> None:
    """Two layers, a layer and a parameter, two parameters; blocks made by one function can be combined."""
    outs = Owner("out", given=True), Owner("out", given=True)
    parameters = [Parameter([1], name="bias", owner=owner) for owner in outs]
    parameters += [Parameter([1], name=name) for name in ("out.bias", "a", "a")]
    named = name_parameters(parameters)
    assert list(named) == ["out.bias", "out_1.bias", "out.bias_1", "a", "a_1"]
    assert numbered_names(named) == set(named)


def test_the_store_is_a_mapping_that_checks() -> None:
    """Getting an unknown name suggests the nearest one; parameters cannot be deleted."""
    store = _held("bias")
    store["bias"] = [1, 2]
    assert store["bias"].tolist() == [1, 2]
    assert len(store) == 1
    assert "float32[2]" in repr(store)
    with pytest.raises(KeyError, match="a parameter of bias, found 'bais' .did you mean 'bias'"):
        store["bais"]
    with pytest.raises(ParameterError):
        del store["bias"]


def test_errors_name_the_whole_parameter() -> None:
    program = fb.compile(fb.Scalar("int32") >> fb.Embedding(3, 2, name="words"), "numpy")
    for assign in (program.params.__setitem__, lambda name, value: program.params.update({name: value})):
        with pytest.raises(
            ParameterError, match=r"^words\.weight: expected float32\[3,2\], found float64\[2,2\]"
        ):
            assign("words.weight", np.zeros((2, 2)))


def test_assigning_params_copies_into_the_arrays_that_run() -> None:
    w = fb.Parameter([], init=2.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x * w) >> fb.Loss(), "numpy")
    saved = {"w": np.float64(5)}
    program.params = saved
    assert program.run([1], losses=True).loss == 5
    assert program.value_and_grad([1])[0] == 5
    saved["w"] = np.float64(9)
    assert program.params["w"] == 5
    program.params = program.params
    assert program.params["w"] == 5


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"a": [1, 1]}, "expected all names of parameters, found 1 missing: b; nothing was changed"),
        ({"a": [1, 1], "b": [1, 1], "ab": [1, 1]}, "found 1 unknown: 'ab'; "),
        ({"a": [1, 1], "B": [1, 1], 7: 0}, r"found 1 missing: b and 2 unknown: 'B', 7; "),
        ({"a": [1, 1], "b": [1, 1, 1]}, r"^b: expected float32\[2\], found int64\[3\]"),
        ({"a": [1, 1], "b": [1, np.nan]}, r"^b: expected finite numbers, found nan at \(1,\)"),
        ({"a": [1, 1], "b": ["x", "y"]}, r"^b: expected float32\[2\]"),
        ({"a": [1, 1], "b": [1j, 0]}, r"^b: expected float32\[2\], found complex128"),
        ({"a": [1, 1], "b": [[1], [1, 2]]}, r"^b: expected float32\[2\], found "),
        ({"a": [1, 1], "b": [1e39, 0]}, r"^b: expected numbers that float32 can hold"),
        ("file.npz", "params: expected arrays by name"),
        (3, "params: expected arrays by name"),
    ],
)
def test_what_does_not_fit_wholly_changes_nothing(saved: Any, message: str) -> None:
    w = fb.Parameter([2], init=0.0, name="a"), fb.Parameter([2], init=0.0, name="b")
    program = fb.compile(fb.Vector(2) >> fb.Function(lambda x: x * w[0] + w[1]), "numpy")
    with pytest.raises((ParameterError, UnknownNameError), match=message):
        program.params = saved
    with pytest.raises((ParameterError, UnknownNameError), match=message):
        program.params.update(saved, strict=True)
    assert _values(program.params) == [[0, 0], [0, 0]]


def test_updating_a_part_names_what_is_unknown_and_changes_nothing() -> None:
    """Long lists are cut; the nearest name is one that is not given."""
    store = _held("weight", "weight2", "bias")
    store.update({"bias": [1, 2]})
    with pytest.raises(UnknownNameError, match=r"1 unknown: 'weigth2' \(did you mean 'weight2'\?\)"):
        store.update({"bias": [3, 4], "weight": [0, 0], "weigth2": [0, 0]})
    with pytest.raises(UnknownNameError, match=r"9 unknown: 'x0', 'x1', 'x2', 'x3', 'x4' and 4 more"):
        store.update({f"x{i}": 0 for i in range(9)})
    assert _values(store) == [[0, 0], [0, 0], [1, 2]]
    store.update(weight=[5, 6])
    store.update([("weight2", [7, 8])], bias=[9, 9])
    assert _values(store) == [[5, 6], [7, 8], [9, 9]]


def test_what_numpy_saved_is_loaded(tmp_path: Path) -> None:
    def program(seed: int) -> fb.Program:
        return fb.compile(
            fb.Vector(2) >> fb.Linear(2, name="in") >> fb.Linear(1, name="out"), "numpy", seed=seed
        )

    first, second = program(1), program(2)
    np.savez(tmp_path / "params.npz", **first.params)
    with np.load(tmp_path / "params.npz") as saved:
        second.params = saved
    np.testing.assert_array_equal(first.run([[1, 2]])[0], second.run([[1, 2]])[0])


def test_a_warning_tells_that_loaded_names_are_numbered() -> None:
    """Once a call, at the caller's line; not where a kind stands alone, nor where names are given."""
    program = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Linear(2) >> fb.Linear(2, name="out"), "numpy")
    saved = {name: value.copy() for name, value in program.params.items()}
    message = "found numbered ones: linear.weight, linear.bias, linear_1.weight, linear_1.bias; "
    with pytest.warns(NumberedNamesWarning, match=message) as record:
        program.params.update(saved)
    assert [warning.filename for warning in record] == [__file__]
    with pytest.warns(NumberedNamesWarning) as record:
        program.params = saved
    assert [warning.filename for warning in record] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.params.update({"out.bias": saved["out.bias"]})
        program.params["linear.bias"] = saved["linear.bias"]
        single = fb.compile(fb.Vector(2) >> fb.Linear(2) >> fb.Linear(2, name="out"), "numpy")
        single.params = {name: value.copy() for name, value in single.params.items()}


def test_names_that_lines_assign_are_told_apart():
    rule = Rule(("g = g + p", "work = g * g", "m = m + work", "work = work + m", "p = p - work"), ("m",), ())
    assert rule.locals == ("g", "work")


@pytest.mark.parametrize(
    "call", [lambda u: u.full(Parameter([2]), 0.0), lambda u: u.apply([], lambda: None), lambda u: u.look()]
)
def test_a_device_must_say_how(call):
    with pytest.raises(NotImplementedError):
        call(RemoteUpdates())
