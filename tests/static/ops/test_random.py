"""Random numbers: a pure function of key, site and place, and without visible pattern in any of them."""

import sys

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, constant, input_node
from foldbatch.static.op import CALL
from foldbatch.static.ops.random import BITS, KEY, random_bits
from foldbatch.types import TensorType
from tests.backends import BACKENDS
from tests.static.derivatives import samples_of
from tests.static.run_kernel import Rows, run_graph

KEYS = np.array([0, 1, 2, -1, 2**62, -(2**63), 1])
WORD = 2**64


def _mixed(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def _splitmix(seed: int, count: int) -> list[int]:
    """The published generator: a counter that grows by the golden ratio, finalised."""
    return [_mixed((seed + i * 0x9E3779B97F4A7C15) % WORD) for i in range(1, count + 1)]


def _uniform(keys: np.ndarray, site: int, shape: tuple[int, ...]) -> np.ndarray:
    return random_bits(keys, site, shape) / 2.0**BITS


def test_each_key_and_site_seeds_the_published_generator() -> None:
    """SplitMix64 in plain integers; from seed 1234567 it is known to begin with 6457827717110365317."""
    assert _splitmix(1234567, 1) == [6457827717110365317]
    for key in KEYS.tolist():
        for site in (0, 1, 7, 10**6):
            seed = _mixed((key + (site + 1) * 0x9E3779B97F4A7C15) % WORD)
            expected = [z >> (64 - BITS) for z in _splitmix(seed, 6)]
            assert random_bits(np.array([key]), site, (2, 3)).ravel().tolist() == expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_kernel_and_interpreter_draw_the_same_bits(dtype: str, shape: tuple[int, ...]) -> None:
    """The interpreter in float64 too, call by call; equal keys give equal rows."""
    y = ops.random(shape, dtype)
    assert (y.type, y.axis) == (TensorType(shape, dtype), CALL)
    graph = Graph((KEY,), (y,))
    (found,) = run_graph(graph, Rows(len(KEYS), (KEYS,), {}))
    assert found.dtype == dtype
    for row, key in zip(found, KEYS, strict=True):
        assert row.tolist() == evaluate(graph, [key])[0].tolist()
    assert found[1].tolist() == found[-1].tolist()
    assert ((found >= 0) & (found < 1)).all()


def test_no_keys_draw_no_numbers() -> None:
    (found,) = run_graph(Graph((KEY,), (ops.random((2,)),)), Rows(0, (KEYS[:0],), {}))
    assert found.shape == (0, 2)


def test_each_call_of_the_function_is_another_place() -> None:
    first, second = ops.random((3,)), ops.random(3)
    assert first is not second
    values = [evaluate(Graph((KEY,), (y,)), [np.int64(5)])[0] for y in (first, second)]
    assert not np.isin(*values).any()


def test_the_numbers_are_uniform() -> None:
    """Mean 1/2, variance 1/12 and every tenth equally full, up to five standard errors."""
    u = _uniform(np.arange(1000), 3, (200,)).ravel()
    n = len(u)
    assert abs(u.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / n)
    assert abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / n)
    counts = np.histogram(u, 10, (0, 1))[0]
    assert np.abs(counts - n / 10).max() < 5 * np.sqrt(n * 0.09)
    assert len(np.unique(u)) > 0.99 * n


def test_neighbours_do_not_correlate() -> None:
    """Neighbouring keys, sites and elements, and the same sum of key and site."""
    u = np.stack([_uniform(np.arange(-250, 250), site, (40,)) for site in range(10)])
    pairs = {
        "sites": (u[1:], u[:-1]),
        "keys": (u[:, 1:], u[:, :-1]),
        "elements": (u[..., 1:], u[..., :-1]),
        "key + site": (u[1:, :-1], u[:-1, 1:]),
        "key + element": (u[:, 1:, :-1], u[:, :-1, 1:]),
    }
    for name, (a, b) in pairs.items():
        correlation = np.corrcoef(a.ravel(), b.ravel())[0, 1]
        assert abs(correlation) < 5 / np.sqrt(a.size), name


@pytest.mark.parametrize("backend", BACKENDS)
def test_normal_numbers_are_normal_and_the_same_on_all_engines(backend: str) -> None:
    """Mean, variance, and what lies within one and two deviations, up to five standard errors."""
    assert fb.ops.random.normal is ops.normal
    draw = fb.Scalar() >> fb.Function(lambda m: (m + 2.0 * ops.normal((50,)), ops.normal(dtype="float64")))
    program = fb.compile(draw, backend)
    several, single = zip(*program.run([3.0] * 200), strict=True)
    z = (np.concatenate(several) - 3.0) / 2.0
    n = z.size
    assert abs(z.mean()) < 5 / np.sqrt(n)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    for bound, share in ((1, 0.6827), (2, 0.9545)):
        assert abs((abs(z) < bound).mean() - share) < 5 * np.sqrt(share * (1 - share) / n)
    assert len({float(x) for x in single}) == 200
    right = fb.compile(draw, "numpy").run([3.0, 3.0], step=7)
    for pair, expected in zip(program.run([3.0, 3.0], step=7), right, strict=True):
        np.testing.assert_allclose(pair[0], expected[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(pair[1], expected[1], rtol=1e-12)


def test_no_gradient_reaches_a_key() -> None:
    x = input_node(TensorType((3,), "float64"))
    y = ops.random((3,), "float64") * x
    (g_key, g_x) = vjp([y], [constant(np.ones(3))], [KEY, x])
    assert g_key is None
    assert g_x is not None


def test_all_samples_are_of_the_op() -> None:
    """The function of the same name must not hide the module."""
    assert {op.name for op, _ in samples_of(sys.modules["foldbatch.static.ops.random"])} == {"random"}
