"""Values that leave an engine or come to it: results, cotangents, ids out of range, what is not finite."""

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines.cotangents import numbered, seeds_of
from foldbatch.engines.cuda.kernel_text import computed
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.nonfinite import NotFinite, has_nan, is_finite, shown
from foldbatch.engines.results import Losses, Metrics, MetricValues, Results
from foldbatch.engines.visits import InputGradients
from foldbatch.errors import ExampleError
from foldbatch.static.bodies import template
from foldbatch.static.op import OPS
from foldbatch.types import TensorType
from tests.backends import BACKENDS


def _results(items: list[int], values: list[float], examples: list[int], labels: list[str] | None) -> Results:
    nodes = np.zeros(len(values), np.int64)
    metric = MetricValues(np.array(values), np.array(examples, np.int64), nodes, labels)
    return Results(items, Metrics({"m": metric}), Losses(float(sum(values)), {"loss": float(sum(values))}))


def test_results_behave_as_a_list() -> None:
    """Index, slice, iterate, compare."""
    results = _results([1, 2, 3], [], [], None)
    assert (len(results), results[0], results[-1], results[1:]) == (3, 1, 3, [2, 3])
    assert list(results) == [1, 2, 3]
    assert results == _results([1, 2, 3], [1.0], [0], None)
    assert results != [1, 2]
    assert repr(results) == "[1, 2, 3]"
    with pytest.raises(TypeError, match="unhashable"):
        hash(results)


def test_values_of_metrics_print_in_a_line() -> None:
    """Kind and number, however many there are; a program's schedule likewise."""
    examples = np.repeat([0, 2, 3], 50)
    values = MetricValues(np.zeros((150, 5), "float32"), examples, np.arange(150), ["label"] * 150)
    assert repr(values) == "MetricValues(150 values float32[5] of 3 examples, labelled)"
    plain = MetricValues(values.values[:, 0], examples, values.nodes, None)
    assert repr(Metrics({"seen": plain})) == (
        "Metrics({'seen': MetricValues(150 values float32 of 3 examples)})"
    )
    assert repr(InputGradients({})) == "InputGradients({})"
    program = fb.compile(fb.Map(fb.Scalar()), "numpy")
    assert repr(fb.program.schedule(program, [[1, 2], [3]])) == "Batch(2 examples, 3 calls in 1 step)"


PAIR = TensorType((2,), "float64")
G, H = [0.5, -1.0], [3.0, 4.0]  # cotangents of a pair


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "given", [[1, 2], np.array([1, 2], "int8"), np.array([1.0, 2.0], "float16")], ids=repr
)
def test_cotangents_have_the_dtype_of_their_result(dtype, given):
    ((_, g),) = numbered(TensorType((2,), dtype), iter([0]), given, "here")
    assert (g.dtype, g.tolist()) == (np.dtype(dtype), [1.0, 2.0])


def test_cotangents_are_copied():
    given = np.ones(2)
    ((_, g),) = numbered(PAIR, iter([0]), given, "here")
    given[:] = 5
    assert g.tolist() == [1.0, 1.0]


def seeds(cotangents: Any) -> list[list[tuple[int, Any]]]:
    found = seeds_of(PAIR, [[3], [0], [8]], cotangents)
    return [[(number, g.tolist()) for number, g in of_example] for of_example in found]


def test_each_example_has_its_own_cotangents_or_none():
    right = [[(3, G)], [], [(8, H)]]
    assert seeds([G, None, H]) == seeds(iter((G, None, H))) == right
    assert seeds(np.array([G, H, G])) == [[(3, G)], [(0, H)], [(8, G)]]
    assert seeds_of(PAIR, [], []) == []


def test_it_says_which_call_which_id_and_which_size() -> None:
    error = OutOfRangeError(3, -1, 5)
    assert (error.rank, error.id, error.size, error.launch, error.cell) == (3, -1, 5, -1, -1)
    again = pickle.loads(pickle.dumps(OutOfRangeError(3, -1, 5, 7, 2)))
    assert (again.rank, again.id, again.size, again.launch, again.cell) == (3, -1, 5, 7, 2)
    assert isinstance(error, IndexError)


@pytest.mark.parametrize("policy", ["by_component", "by_depth"])
@pytest.mark.parametrize("method", ["run", "value_and_grad"])
def test_users_read_the_example_and_the_cell(policy: str, method: str) -> None:
    """Whichever level the call ran in, and whichever part of the batch it was in."""
    table = fb.Parameter([4], [1.0, 2.0, 3.0, 4.0], "table")
    chain = fb.ForwardDeclaration(output_type=fb.types.TensorType((), "int32"), name="chain")
    again = (
        fb.GetItem(0) >> chain() >> fb.Function(lambda i: i + ops.cast(ops.gather(table, i), "int32") * 0 + 1)
    )
    chain.resolve_to(fb.OneOf(lambda x: isinstance(x, tuple), {True: again, False: fb.Scalar("int32")}))
    loss = fb.Function(lambda i: ops.gather(table, i)) >> fb.Loss()
    program = fb.compile(chain() >> loss, "numpy", options={"policy": policy}, threads=1)

    def nested(depth: int) -> object:
        return (nested(depth - 1),) if depth else 0

    call = partial(program.run, losses=True) if method == "run" else program.value_and_grad
    call([nested(3)])
    with pytest.raises(ExampleError, match=r"at example 2: expected ids from 0 to 3, found 4"):
        call([nested(3), 1, nested(4), 2])


VALUES_IN = [
    (np.array(3, "int32"), True, False, "int32 3"),
    (np.array(0.5), True, False, "float64 0.5"),
    (np.array([1.0, -np.inf], "float32"), False, False, "float32[2] [  1., -inf]"),
    ([np.array([1.0]), np.array([np.nan])], False, True, "a sequence of 2: float64[2,1] [[ 1.], [nan]]"),
    ([], True, False, "a sequence of 0"),
    (np.full((3, 3), np.nan), False, True, "float64[3,3], 9 nan"),
    (np.array([np.nan, -np.inf, *range(7)]), False, True, "float64[9], 1 nan, 1 -inf, 7 from 0 to 6"),
    (np.zeros((0, 2)), True, False, "float64[0,2] []"),
]


def test_values_in_short() -> None:
    for value, finite, nan, text in VALUES_IN:
        assert (is_finite(value), has_nan(value), shown(value)) == (finite, nan, text)


def test_a_place_is_printed_whole() -> None:
    found = NotFinite(
        3, "model", "log", "forward", "float32 -inf", ("float32 0.",), 0, 0, "the loss", "['x']"
    )
    assert str(found).splitlines() == [
        "model at example 3 ['x']: log (forward) yields float32 -inf",
        "  of float32 0.",
        "  so that the loss is not finite",
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_sum_may_have_hundreds_of_terms(backend: str) -> None:
    """Of one op, and of a chain of sums: each is a loop of its own in compiled engines."""
    count = 400
    numbers = np.linspace(-1, 1, count, dtype="float32") ** 2

    def sums(x: Any) -> Any:
        return ops.add(*[x[i] for i in range(count)]), sum(x[i] for i in range(count))

    program = fb.compile(fb.Vector(count) >> fb.Function(sums), backend)
    np.testing.assert_allclose(program.run([numbers])[0], [numbers.sum()] * 2, rtol=1e-5)


def test_texts_of_sums_do_not_nest_as_deep_as_they_have_terms() -> None:
    count = 5000
    lines, value = template(OPS["add"].body, count)
    names = {f"x{i}": str(i) for i in range(count)} | {"mark": "", "t": ""}
    scope: dict[str, Any] = {}
    exec("\n".join([*lines, f"total = {value}"]).format(**names), scope)
    assert scope["total"] == sum(range(count))
    operands = [f"x{i}" for i in range(count)]
    texts, text = computed(OPS["add"], "float32", operands, ["float32"] * count, {}, "_0")
    assert " ".join([*texts, text]).count("+") == count - 1
