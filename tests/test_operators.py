"""Operators, methods and NumPy's functions on symbolic tensors mean what they mean on arrays, on every engine."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError
from foldbatch.operators import FUNCTIONS, TAKEN, in_function, nearest
from foldbatch.static.graph import Node, input_node
from foldbatch.types import TensorType
from tests.backends import BACKENDS

X = np.array([3.0, -1.5, 2.5, 0.5], np.float32)
C = np.array([1.0, 2.0, -3.0, 0.5], np.float32)

# Each is a function of an array as well as of a symbolic tensor.
MEANT = {
    "==": lambda x: x == 3,
    "!=": lambda x: x != C,
    "== both": lambda x: x == abs(x),
    "abs": abs,
    "round": np.round,
    "floor": np.floor,
    "%": lambda x: x % 2,
    "% of a negative": lambda x: x % -2.0,
    "//": lambda x: x // 2,
    "2 //": lambda x: 2 // x,
    "2 **": lambda x: 2**x,
    "** 2": lambda x: x**2,
    "np.power": lambda x: np.power(x, 3),
    "and": lambda x: (x > 0) & (x < 3),
    "or": lambda x: (x < 0) | (x == 3),
    "xor": lambda x: (x > 0) ^ (x < 3),
    "not": lambda x: ~(x > 0),
    "+x": lambda x: +x,
    "array on the left": lambda x: C * x - C / x,
    "array on the right": lambda x: x @ C,
    "negative step": lambda x: x[::-1],
    "step": lambda x: x[::2],
    "negative steps": lambda x: x[::-3],
    "step within": lambda x: x[3:0:-2],
    "nothing": lambda x: x[2:2:-1],
    "list of ids": lambda x: x[[2, 0]],
    "array of ids": lambda x: x[np.array([[2, 0], [1, 1]])],
    "computed id": lambda x: x[x.argmax()],
    "methods": lambda x: (x.sum() + x.mean() * x.max()) / x.min() - x.dot(C),
    "clip": lambda x: x.clip(0, 1),
    "reshape": lambda x: x.reshape(2, 2).transpose(),
    "astype": lambda x: x.astype("int32"),
    "np.sum": lambda x: np.sum(np.exp(x)) + np.tanh(x) - np.mean(x),
    "np.concatenate": lambda x: np.concatenate([x, C, np.stack([x[0], x[1]])]),
    "np.where": lambda x: np.where(x > 0, x, C),
    "np.clip": lambda x: np.clip(x, 0, 1),
    "np.dot": lambda x: np.dot(x, C),
    "np.einsum": lambda x: np.einsum("i,j->ij", x, C),
    "np.max": lambda x: np.max(x.reshape(2, 2), axis=1),
    "np.maximum": lambda x: np.maximum(C, np.minimum(x, 1)),
    "np.reshape": lambda x: np.transpose(np.reshape(x, (2, 2))),
    "np.expand_dims": lambda x: np.squeeze(np.expand_dims(x, 0), 0),
}


def test_an_operator_means_what_it_means_on_arrays():
    for name, function in MEANT.items():
        wanted = np.asarray(function(X))
        for backend in BACKENDS:
            found = fb.compile(fb.Vector(4) >> fb.Function(function), backend).run([X])[0]
            assert found.shape == wanted.shape, name
            assert (found.dtype == bool) == (wanted.dtype == bool)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_gradients_pass_through_them():
    def fn(x):
        return (x[::-1][::2] * C[:2]).sum() + x[x.argmax()] * 2 + np.exp(x).mean() + x.clip(0, 1).sum()

    w = fb.Parameter([4], init=X, name="w")
    block = fb.Scalar() >> fb.Function(lambda s: s * fn(w + s * 0)) >> fb.Loss()
    expected = np.exp(X) / 4 + [2, 0, 0, 1] + [0, C[1], 0, C[0]]
    for backend in BACKENDS:
        _, gradients = fb.compile(block, backend).value_and_grad([1.0])
        np.testing.assert_allclose(gradients["w"], expected, rtol=1e-5)


@pytest.mark.parametrize("array", [np.arange(3), np.ones(3), np.int64(2), np.ones(3, "float16")])
def test_arrays_beside_floats_take_their_dtype_through_both_doors(array):
    def scaled(x):
        return x * array + fb.ops.maximum(array, x) - fb.ops.where(x > 1, array, x)

    x = np.array([0.5, 1.0, 2.0], "float32")
    expected = x * array + np.maximum(array, x) - np.where(x > 1, array, x)
    found = (fb.Vector(3) >> fb.Function(scaled)).eval(x)
    assert found.dtype == "float32"
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(fb.compile(lambda x: scaled(fb.tensor(x)), "numpy").run([x])[0], expected)
    assert (fb.Vector(3, "float64") >> fb.Function(lambda x: x * array)).output_type.dtype == "float64"


def test_integers_of_two_dtypes_compare_without_loss():
    pair = fb.Record((fb.Scalar("int32"), fb.Scalar("int64"))) >> fb.Function(lambda a, b: (a == b, a < b))
    assert [bool(x) for x in pair.eval((1, 1 + 2**32))] == [False, True]
    right = fb.Record((fb.Vector(3), fb.Scalar("int32"))) >> fb.Function(lambda y, t: ops.argmax(y) == t)
    assert bool(right.eval(([1, 5, 2], 1)))


def test_two_tensors_are_compared_by_their_elements_in_a_function_only():
    x, y = input_node(TensorType((3,))), input_node(TensorType((3,)))
    assert (x == y, x != y) == (False, True)
    assert y in [x, y]
    with in_function():
        assert isinstance(x == y, Node)
        assert isinstance(x != y, Node)
    assert isinstance(x == 1, Node)
    assert x != None  # noqa: E711 - that is asked


def test_a_function_that_compares_within_one_that_compares():
    inner = fb.Function(lambda x: ops.where(x == 1, 5.0, x))
    outer = fb.Function(lambda x, y: ops.where(x == y, inner(x), inner(y) + 1))
    assert float((fb.Record((fb.Scalar(), fb.Scalar())) >> outer).eval((1, 1))) == 5
    assert float((fb.Record((fb.Scalar(), fb.Scalar())) >> outer).eval((2, 3))) == 4


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (lambda x: x.cumsum(), "a symbolic tensor has no 'cumsum'; use ops.cumsum"),
        (lambda x: x.sigmoide(), "use ops.sigmoid"),
        (lambda x: x if x in (1, 2) else -x, "combine with & and |"),
        (lambda x: x * 0 + 7 if x == 1 else x, "choose with ops.where"),
        (lambda x: np.arctan2(x, x), "np.arctan2: expected arrays of numbers"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_nearest_op(fn, match):
    with pytest.raises(BlockTypeError) as caught:
        fb.Vector(4) >> fb.Function(fn)
    assert match in str(caught.value)


def test_all_names_lead_to_an_op():
    assert set(FUNCTIONS) >= TAKEN
    assert nearest("softmaxx") == "use ops.softmax"
    assert nearest("detach") == "use ops.stop_gradient"
    assert nearest("item").startswith("it holds no numbers")
    assert nearest("fill") == "dir(fb.ops) lists the ops"
    assert nearest("qqq") == "dir(fb.ops) lists the ops"


def test_formulas_that_hints_write_compute_what_the_missing_op_would():
    low = np.minimum(X, 0)
    meant = {
        "silu": X / (1 + np.exp(-X)),
        "elu": np.where(X > 0, X, np.exp(low) - 1),
        "leaky_relu": np.maximum(X, 0.01 * X),
        "l1_loss": abs(X - C),
        "outer": np.outer(X, C),
        "var": X.var(),
    }
    for name, expected in meant.items():
        formula = nearest(name).removeprefix("write ")

        def compute(x, formula=formula):
            return eval(formula, {"ops": ops, "x": x, "a": x, "b": C})

        result = (fb.Vector(4) >> fb.Function(compute)).eval(X)
        assert np.allclose(result, expected, rtol=1e-6, atol=0), name
