"""Parameters: names, initialisers, assignment, sparse gradients."""

import copy
import pickle
import threading
from collections.abc import Callable

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ParameterError
from foldbatch.params.parameters import INITIALIZERS, Parameter, SparseRows


def test_initialisers_fill_the_shape_and_depend_on_seed_and_name_alone() -> None:
    """The same seed and name give the same numbers, another name others (if they are drawn)."""
    for init in [*INITIALIZERS, 0.5, np.ones((4, 6)), lambda rng, shape: rng.random(shape)]:
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


def test_sparse_rows_become_a_dense_table() -> None:
    """Rows not named are zero."""
    rows = SparseRows(np.array([0, 2]), np.ones((2, 2), np.float32), (4, 2))
    dense = rows.dense()
    for computed, right in ((0.5 * rows, 0.5 * dense), (1 - rows, 1 - dense), (rows**2 + rows, 2 * dense)):
        assert (computed == right).all()
    grads = {"w": rows}
    grads["w"] *= 0.5
    assert (grads["w"] == 0.5 * dense).all()
    with pytest.raises(ParameterError, match="expected an init that takes a generator of NumPy and a shape"):
        Parameter([2], init=lambda: 1).initialize(0, "w")
    assert dense.tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]


class Elsewhere:
    """Numbers that are not in a parameter's array; `stays` says whether they live there."""

    stays = False

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = numbers
        self.lock = threading.RLock()
        self.readings = 0

    def read_into(self, array: np.ndarray) -> None:
        self.readings += 1
        array[...] = self.numbers

    def write(self, array: np.ndarray) -> None:
        self.numbers = array.tolist()


def away() -> tuple[Parameter, np.ndarray, Elsewhere]:
    """A parameter whose numbers are elsewhere, the array it had, and that place."""
    parameter, elsewhere = Parameter([2], init=1.0, name="w"), Elsewhere([3.0, 4.0])
    array = parameter.value
    parameter.take_away(elsewhere)
    return parameter, array, elsewhere


def test_numbers_that_are_away_come_home_into_the_same_array_when_somebody_asks() -> None:
    parameter, array, elsewhere = away()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5.0
    assert parameter.value is array
    assert array.tolist() == [3.0, 4.0]
    array[0] = 5.0
    assert parameter.value.tolist() == [5.0, 4.0]
    assert elsewhere.readings == 1
    assert parameter.away is None


def test_numbers_that_cannot_be_read_stay_away() -> None:
    parameter, array, elsewhere = away()
    elsewhere.numbers = [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="broadcast"):
        _ = parameter.value
    assert parameter.away is elsewhere
    assert not array.flags.writeable
    elsewhere.numbers = [1.0, 2.0]
    assert parameter.value.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_has_the_newest_numbers_at_home(copied: Callable[[Parameter], Parameter]) -> None:
    parameter, _, _ = away()
    made = copied(parameter)
    assert made.away is None
    assert made.value.tolist() == [3.0, 4.0]


def test_numbers_that_live_elsewhere_are_read_as_a_copy_and_assigned_there() -> None:
    parameter, array, elsewhere = away()
    _ = parameter.value
    elsewhere.stays = True
    parameter.settle(elsewhere)
    elsewhere.numbers = [5.0, 6.0]
    assert parameter.value is array
    assert array.tolist() == [5.0, 6.0]
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1.0
    elsewhere.numbers = [7.0, 8.0]  # by somebody else, after the copy was read
    assert parameter.value.tolist() == [7.0, 8.0]
    parameter.assign([1.0, 2.0])
    assert elsewhere.numbers == [1.0, 2.0]
    copied = copy.deepcopy(parameter)
    assert copied.away is None
    assert copied.value.tolist() == [1.0, 2.0]
    copied.value[0] = 3.0
    parameter.settle(None)
    assert parameter.away is None
    parameter.value[0] = 4.0
    assert parameter.value.tolist() == [4.0, 2.0]


def test_numbers_come_home_once_for_all_threads() -> None:
    parameter, _, elsewhere = away()
    with elsewhere.lock:
        threads = [threading.Thread(target=lambda: parameter.value) for _ in range(4)]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join()
    assert elsewhere.readings == 1


def test_a_parameter_is_a_tensor_in_a_function() -> None:
    """Operators, methods and NumPy's functions are those of an array; outside, it is compared by identity."""
    array = np.array([[0.5, -1], [2, 3]], "float32")
    P = Parameter([2, 2], array, "P")
    cases = {
        "item": lambda p: p[1],
        "computed": lambda p: -p + abs(p) ** 2,
        "product": lambda p: p @ p,
        "method": lambda p: p.T.reshape(4).sum() * p.shape[0] + p.ndim,
        "NumPy": lambda p: np.where(p > 0, np.exp(p), 0),
        "equal": lambda p: np.where(p == 2, p, 1),
        "parts": lambda p: sum(row * len(p) for row in p),
    }
    for name, function in cases.items():
        block = fb.Vector(2) >> fb.Function(lambda x, f=function: fb.ops.sum(f(P)) + fb.ops.sum(x) * 0)
        np.testing.assert_allclose(
            block.eval([1, 1], "numpy"), function(array).sum(), rtol=1e-6, err_msg=name
        )
        (gradient,) = fb.compile(block >> fb.Loss(), "numpy").value_and_grad([[1, 1]])[1].values()
        assert gradient.any()
    assert P and {P: 1}[P] and P != Parameter([2, 2], array, "P")


def test_the_numbers_of_a_parameter_are_no_constant_of_a_function() -> None:
    w = Parameter([2], 1.0, "w")
    with pytest.raises(BlockTypeError, match=r"w\.value: expected the parameter itself.*write w without"):
        fb.Vector(2) >> fb.Function(lambda x: x * w.value)
