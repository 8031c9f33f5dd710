"""The law above all: batched is one by one is the oracle, in values, metrics, losses and gradients, on every engine.

Random programs of blocks (see `programs`) and random walks (see `walks`) run on random data in float64, under policies,
layouts and sharing, in threads and one by one, from plans and files, with unused memory poisoned. They are compared to
`oracle`, which interprets blocks, and to `walks.exact`, which computes the calls of a walk; both know nothing of the
compiler; gradients to finite differences of them. ``python -m tests.programs`` tries other programs, for as long as one
likes. The other laws: the table of ops in `test_edges` and in the engines' rooms, models of the zoo, deep data, and the
table of errors in `test_errors`.
"""

import os
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from benchmarks.workload import tree_lstm
from benchmarks.zoo_models import MODELS
from foldbatch import ops
from foldbatch.params.parameters import dense
from tests.backends import lawful, running
from tests.programs import BlockProgram
from tests.programs.checks import DOORS, check, check_ways
from tests.programs.comparing import assert_differentiated

PROGRAMS = int(os.environ.get("FOLDBATCH_PROGRAMS") or 5)  # an engine, of each kind
LOT = 5  # programs a test
LOTS = [
    pytest.param(*engine.values, first, marks=engine.marks)
    for engine in lawful.args[1]
    for first in range(0, PROGRAMS, LOT)
]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("engine", "first"), LOTS)
def test_batched_is_one_by_one_is_the_oracle(engine: str, door: str, first: int) -> None:
    for number in range(first, min(first + LOT, PROGRAMS)):
        try:
            check(number, engine, door, many=False)
        except Exception as error:
            command = f"python -m tests.programs --door {door} --engine {engine} --seed {number} --count 1"
            error.add_note(f"{command} --here --few-ways")
            raise


WORDS = fb.trees.Vocabulary(["not", "very", "good"])
TREES = [
    fb.trees.parse_brackets(text, labels=int)
    for text in (
        "(1 (2 not) (3 (2 very) (4 good)))",
        "(4 good)",
        "(3 (2 (2 very) (2 (1 not) (2 very))) (0 (4 good) (1 not)))",
    )
]
ZOO = {"SST Tree-LSTM": (lambda: tree_lstm(8, WORDS), lambda tree: tree)} | {
    name: (lambda model=model: model.block(5, WORDS), model.example) for name, model in MODELS.items()
}


def trained(name: str, backend: str) -> dict[str, Any]:
    """Return losses and gradients of two steps of training, results after them, and parameters."""
    block, example = ZOO[name]
    examples = [example(tree) for tree in TREES]
    program, optimizer = fb.compile(block(), backend, seed=3, threads=1), fb.Adam(lr=0.01)
    found: dict[str, Any] = {}
    for step, batch in enumerate((examples, examples[1:])):
        loss, gradients = program.value_and_grad(batch)
        found[f"loss {step}"] = float(loss)
        found |= {f"gradient {step} of {n}": np.array(dense(g)) for n, g in gradients.items()}
        optimizer.update(program.params, gradients)
    found |= {f"result {i}": np.array(result) for i, result in enumerate(program.run(examples))}
    return found | {n: np.array(value) for n, value in program.params.items()}


@cache
def by_the_reference(name: str) -> dict[str, Any]:
    return trained(name, "reference")


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("name", ZOO)
@lawful
def test_models_of_the_zoo_train_as_on_the_reference(engine: str, name: str, number: int) -> None:
    right = by_the_reference(name)
    with running(engine, number) as backend:
        found = trained(name, backend)
    assert found.keys() == right.keys()
    for key, value in right.items():  # Adam's first steps divide by the size of a gradient
        np.testing.assert_allclose(found[key], value, rtol=2e-3, atol=2e-4, err_msg=key)


def folded(w: float, xs: Any) -> tuple[float, float]:
    """Return what ``h = w * h + x`` yields in the end, and its derivative."""
    h = slope = 0.0
    for x in xs:
        h, slope = w * h + x, h + w * slope
    return h, slope


@pytest.mark.parametrize("shape", ["chain", "sequence"])
@lawful
def test_data_of_many_levels_run_and_are_differentiated(engine: str, shape: str) -> None:
    """A chain of nested pairs, a sequence that is folded, and a short one of each in the same batch."""
    length = 500 if engine == "cuda-on-ptx" else 20_000
    rng = Random(0)
    lists = [[rng.uniform(-1, 1) for _ in range(n)] for n in (length, 3)]
    weight = fb.Parameter(fb.types.TensorType((), "float64"), 0.75, "w")
    if shape == "sequence":
        step = fb.Function(lambda h, x: weight * h + x)
        block = fb.Map(fb.Scalar("float64")) >> fb.Fold(step, fb.Zeros("float64")) >> fb.Loss()
        examples: list[Any] = lists
    else:
        chain = fb.ForwardDeclaration(output_type="float64", name="chain")
        pair = fb.Record((fb.Scalar("float64"), chain())) >> fb.Function(lambda x, h: weight * h + x)
        first = fb.Void() >> fb.Zeros("float64")
        chain.resolve_to(fb.OneOf(lambda x: x is None, {True: first, False: pair}))
        block, examples = chain() >> fb.Loss(), []
        for xs in lists:
            nested: Any = None
            for x in xs:
                nested = (x, nested)
            examples.append(nested)
    with running(engine, 0) as backend:
        loss, gradients = fb.compile(block, backend, threads=1).value_and_grad(examples)
    right = [folded(0.75, xs) for xs in lists]
    np.testing.assert_allclose([loss, float(gradients["w"])], np.sum(right, 0), rtol=1e-9)


def _table() -> fb.Block:
    return fb.Scalar("int32") >> fb.Embedding(4, 2, "glorot_normal", dtype="float64")


def _read_twice() -> fb.Block:
    table = _table()
    return fb.Record((table, table)) >> fb.Function(lambda a, b: ops.sum(ops.tanh(a - b))) >> fb.Loss()


def _value_in_two_cells() -> fb.Block:
    square = fb.ForwardDeclaration("float64", "float64", "square")
    square.resolve_to(fb.Function(lambda x: x * x))
    whole = _table() >> fb.Linear(1) >> fb.Function(lambda x: ops.tanh(x[0]))
    return whole >> fb.AllOf(fb.Loss("itself"), square() >> fb.Loss("its square"))


def _parameter_alone() -> fb.Block:
    weight = fb.Parameter(fb.types.TensorType((), "float64"), 0.5, "w")
    return fb.FromTensor(weight) >> fb.Function(lambda w: w * w) >> fb.Loss()


def _constant_logits() -> fb.Block:
    logits = fb.Parameter(fb.types.TensorType((3,), "float64"), "normal", "logits")
    return fb.Scalar("int32") >> fb.Function(lambda y: ops.cross_entropy(logits, y)) >> fb.Loss()


def _mean_of_weights() -> fb.Block:
    weights = fb.Parameter(fb.types.TensorType((3,), "float64"), "normal", "weights")
    mixed = fb.Function(lambda x: ops.sum(weights * ops.mean(x) + ops.mean(weights)))
    return fb.Vector(2, "float64") >> fb.Linear(2) >> mixed >> fb.Loss()


def _collected_around_a_loop() -> fb.Block:
    seen = fb.Scalar("float64") >> fb.blocks.Collect()
    return fb.blocks.Collected(fb.Record((seen, fb.Map(seen), seen))) >> fb.GetItem(1)


def _collected_around_a_call() -> fb.Block:
    seen = fb.Scalar("float64") >> fb.blocks.Collect()
    declared = fb.ForwardDeclaration(output_type="float64")
    declared.resolve_to(seen)
    return fb.blocks.Collected(fb.Record((seen, declared(), seen))) >> fb.GetItem(1)


@pytest.mark.parametrize("seed", [4, 1], ids=["with room", "without room, after another step"])
@lawful
@pytest.mark.parametrize(
    ("block", "examples"),
    [
        pytest.param(
            _read_twice, [(3, 2), (0, 0)], id="a table read twice by one cell, its gradients of one buffer"
        ),
        pytest.param(_value_in_two_cells, [1, 3, 1], id="a value computed by one cell, a loss of another"),
        pytest.param(
            _parameter_alone, [None, None], id="a loss without axes that is the same for all examples"
        ),
        pytest.param(
            _constant_logits, [0, 2, 2], id="a cross-entropy of logits that are the same for all examples"
        ),
        pytest.param(_mean_of_weights, [[1, 2], [3, 4]], id="what both directions need of weights alone"),
        pytest.param(_collected_around_a_loop, [(1, [2, 3], 4)], id="what is collected before a loop"),
        pytest.param(_collected_around_a_call, [(1, 2, 3)], id="what is collected before a call"),
    ],
)
def test_what_once_failed_is_lawful(engine: str, block: Any, examples: list[Any], seed: int) -> None:
    program = BlockProgram(block(), examples, seed)
    with running(engine, seed) as backend:
        debug = seed > 1
        compiled = fb.compile(program.block, backend, threads=1, debug=debug)
        check_ways(compiled, program, Random(seed), many=True)
        assert_differentiated(program, compiled)
