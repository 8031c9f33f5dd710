"""Arrays of a device are arrays to NumPy, and what training does with them stays on the device."""

import copy
import pickle

import numpy as np
import pytest

from foldbatch.engines.cuda.device import DeviceArray
from foldbatch.errors import ExampleError
from tests.engines.cuda.emulated import device, needs_compiler

pytestmark = needs_compiler
NUMBERS = np.arange(6).reshape(2, 3) / 4 - 0.5

READINGS = {
    "asarray": np.asarray,
    "other dtype": lambda x: np.asarray(x, "float64"),
    "sum": lambda x: x.sum(),
    "axis": lambda x: np.sum(x, axis=0),
    "tolist": lambda x: x.tolist(),
    "astype": lambda x: x.astype("float64"),
    "copy": lambda x: x.copy(),
    "transpose": lambda x: x.T,
    "item": lambda x: x[1:, 2].item(),
    "index": lambda x: x[0],
    "mask": lambda x: x[x > 0],
    "rows": list,
    "len": len,
    "subtract": lambda x: x - 1,
    "reflected": lambda x: 1 - x,
    "divided": lambda x: 1 / (x + 3),
    "power": lambda x: x**2,
    "negative": lambda x: -x,
    "product": lambda x: x @ np.ones((3, 2)),
    "comparison": lambda x: x == 0.25,
    "ufunc": np.exp,
    "reduce": lambda x: np.add.reduce(x, axis=1),
    "stack": lambda x: np.stack([x, x]),
    "where": lambda x: np.where(x > 0, x, 0),
    "allclose": lambda x: np.allclose(x, x),
    "norm": np.linalg.norm,
    "repr": repr,
    "str": str,
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "times array": lambda x: x * np.arange(3.0),
    "times double": lambda x: x * np.float64(0.5),
}


def test_numpy_reads_it_as_it_reads_its_own():
    for read in READINGS.values():
        host = NUMBERS.astype("float32")
        expected, found = read(host), read(device().put(host))
        assert type(found) is type(expected)
        np.testing.assert_array_equal(found, expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


DONE_THERE = {
    "times": lambda x: x * 3.0,
    "number first": lambda x: 3 * x,
    "divided": lambda x: x / 3,
    "add": lambda x: x + x,
    "numpy's number": lambda x: x * x.dtype.type(0.1),
    "copied": copy.copy,
    "deeply": copy.deepcopy,
}


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2), (700,)])
@pytest.mark.parametrize("compute", DONE_THERE.values(), ids=DONE_THERE)
def test_arithmetic_of_gradients_stays_on_the_device_and_is_numpys_to_the_last_bit(compute, shape):
    for dtype in ["float32", "float64"]:
        host = np.random.default_rng(0).normal(size=shape).astype(dtype)
        array = device().put(host)
        found = compute(array)
        assert isinstance(found, DeviceArray)
        assert found.buffer is not array.buffer
        assert (found.shape, found.dtype) == (host.shape, host.dtype)
        np.testing.assert_array_equal(found, compute(np.array(host)))
        np.testing.assert_array_equal(array, host)


def test_arithmetic_in_place_changes_the_array_itself():
    array = device().put(NUMBERS)
    same = array
    same *= 2
    same += np.ones(3)
    same -= same / 2
    assert same is array
    np.testing.assert_array_equal(array, (NUMBERS * 2 + 1) / 2)
    host = np.zeros((2, 3))
    np.add(array, 1, out=host)
    np.testing.assert_array_equal(host, np.asarray(array) + 1)
    whole = device().put(np.arange(3))
    with pytest.raises(TypeError):
        whole *= 0.5


def test_other_dtypes_are_read_and_not_computed_with():
    array = device().put(np.arange(3))
    np.testing.assert_array_equal(array * 2, [0, 2, 4])
    assert isinstance(array * 2, np.ndarray)
    assert isinstance(device().put(NUMBERS) + device().put(NUMBERS.astype("float32")), np.ndarray)


def test_a_single_number_is_read_as_one():
    array = device().put(np.array(2.5))
    assert (float(array), int(array), bool(array), f"{array:.2f}", array.ndim, array.size) == (
        2.5, 2, True, "2.50", 0, 1,
    )  # fmt: skip
    with pytest.raises(TypeError, match="unsized"):
        len(array)
    with pytest.raises(ValueError, match="ambiguous"):
        bool(device().put(NUMBERS))


def test_what_would_change_a_copy_is_refused():
    array = device().put(NUMBERS)
    with pytest.raises(TypeError):
        array[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        array.fill(0.0)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(array, copy=False)
    with pytest.raises(AttributeError, match="no attribute 'gradient'"):
        _ = array.gradient
    np.testing.assert_array_equal(array, NUMBERS)


def test_another_library_sees_the_same_memory():
    whole = device().put(np.arange(8.0))
    part = DeviceArray(device(), whole.buffer, (2, 2), "float64", 16)
    shared = np.from_dlpack(part)
    np.testing.assert_array_equal(shared, [[2, 3], [4, 5]])
    whole *= 2
    np.testing.assert_array_equal(shared, [[4, 6], [8, 10]])
    assert part.__dlpack_device__() == (1, 0)
    assert not hasattr(part, "__cuda_array_interface__")  # the memory is the host's here


class Guard:
    """A batch that is bad, if its word is not 0."""

    def __init__(self, word: int) -> None:
        self.word = device().put(np.array([word]))

    def check(self) -> None:
        if np.asarray(self.word)[0]:
            raise ExampleError("table at example 3", "ids from 0 to 4", "9")


def test_reading_what_a_bad_batch_yields_raises_its_error_whatever_was_computed_of_it():
    good, bad = Guard(0), Guard(1)
    array, other = device().put(NUMBERS), device().put(NUMBERS)
    array.guards, other.guards = (good,), (bad, good)
    np.testing.assert_array_equal(array * 2, NUMBERS * 2)
    made = (array + other * 2) / 3
    assert made.guards == (good, bad)
    with pytest.raises(ExampleError, match="at example 3"):
        made.tolist()
