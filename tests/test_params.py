"""Parameters: names, initialisers, assignment, sparse gradients."""

import numpy as np
import pytest

from foldbatch.errors import BlockTypeError, ParameterError, UnknownNameError
from foldbatch.params import INITIALIZERS, Owner, Parameter, ParameterStore, SparseRows, name_parameters


@pytest.mark.parametrize("init", [*INITIALIZERS, 0.5, np.ones((4, 6)), lambda rng, shape: rng.random(shape)])
def test_initialisers_fill_the_shape_and_depend_on_seed_and_name_alone(init: object) -> None:
    """The same seed and name give the same numbers, another name others (if they are drawn)."""
    made = []
    for seed, name in ((1, "a"), (1, "a"), (2, "a"), (1, "b")):
        parameter = Parameter([4, 6], init, "w")
        parameter.initialize(seed, name)
        made.append(parameter.value)
    assert made[0].shape == (4, 6)
    assert made[0].dtype == np.float32
    np.testing.assert_array_equal(made[0], made[1])
    drawn = callable(init) or (isinstance(init, str) and init not in ("zeros", "ones"))
    assert (made[0] == made[2]).all() != drawn
    assert (made[0] == made[3]).all() != drawn


def test_scales_are_those_of_the_papers() -> None:
    """Glorot: limit sqrt(6 / (in + out)); He: sqrt(6 / in); orthogonal: q'q = 1."""
    rng = np.random.default_rng(0)
    assert abs(np.abs(INITIALIZERS["glorot_uniform"](rng, (300, 200))).max() - np.sqrt(6 / 500)) < 1e-3
    assert abs(np.abs(INITIALIZERS["he_uniform"](rng, (300, 200))).max() - np.sqrt(6 / 300)) < 1e-3
    assert abs(np.std(INITIALIZERS["glorot_normal"](rng, (300, 200))) - np.sqrt(2 / 500)) < 1e-3
    q = np.asarray(INITIALIZERS["orthogonal"](rng, (5, 3)))
    np.testing.assert_allclose(q.T @ q, np.eye(3), atol=1e-12)


def test_assigning_checks_and_copies_into_the_same_array() -> None:
    """Programs hold the array; a wrong shape or a NaN changes nothing."""
    parameter = Parameter([2], 0.0, "bias")
    held = parameter.value
    mine = np.array([1.0, 2.0])
    parameter.assign(mine)
    mine[0] = 9
    assert held.tolist() == [1, 2]
    for wrong in ([1.0], [[1.0, 2.0]], ["a", "b"], [1.0, np.nan], [np.inf, 0.0]):
        with pytest.raises(ParameterError, match="bias"):
            parameter.assign(wrong)
    assert held.tolist() == [1, 2]


def test_unknown_initialisers_and_types_are_refused() -> None:
    """With the names there are."""
    with pytest.raises(UnknownNameError, match="glorot_uniform"):
        Parameter([2], "magic")
    with pytest.raises(BlockTypeError, match="the type of a tensor"):
        Parameter((2, 3))  # a tuple stands for a TupleType


def test_names_are_unique_and_predictable() -> None:
    """By owner, in order of appearance."""
    first, second = Owner("linear"), Owner("linear")
    parameters = [
        Parameter([1], name="weight", owner=first),
        Parameter([1], name="weight", owner=second),
        Parameter([1], name="bias", owner=first),
        Parameter([1], name="alone"),
        Parameter([1], name="alone"),
    ]
    assert list(name_parameters(parameters)) == [
        "linear.weight",
        "linear_1.weight",
        "linear.bias",
        "alone",
        "alone_1",
    ]


def test_the_store_is_a_mapping_that_checks() -> None:
    """Getting an unknown name lists the known ones; parameters cannot be deleted."""
    store = ParameterStore({"bias": Parameter([2], 0.0)})
    store["bias"] = [1, 2]
    assert store["bias"].tolist() == [1, 2]
    assert len(store) == 1
    assert "float32[2]" in repr(store)
    with pytest.raises(KeyError, match="a parameter of bias"):
        store["weight"]
    with pytest.raises(ParameterError):
        del store["bias"]


def test_sparse_rows_become_a_dense_table() -> None:
    """Rows not named are zero."""
    dense = SparseRows(np.array([0, 2]), np.ones((2, 2), np.float32), (4, 2)).dense()
    assert dense.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
