"""An example of weight n counts as n such examples, on every engine, wherever its losses are computed."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.engines import budget
from foldbatch.errors import BlockValueError
from foldbatch.params.parameters import dense
from tests.backends import needs_llvm
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.test_budget import compiled, need, sentences, tagger

backends = pytest.mark.parametrize(
    "backend",
    [
        "reference",
        "numpy",
        pytest.param("llvm", marks=needs_llvm),
        pytest.param("cuda-on-cpu", marks=needs_compiler),
    ],
)

TEXTS = ["(1 (0 no) (1 (1 very) (1 good)))", "(0 (0 bad) (1 film))", "(1 fine)", "(0 (1 so) (0 dull))"]
TREES = [fb.trees.parse_brackets(text, labels=int) for text in TEXTS]
COUNTS = [2, 0, 1, 3]
REPEATED = [tree for tree, count in zip(TREES, COUNTS, strict=True) for _ in range(count)]


def make_walk():
    """A loss at each node, of a cell that also yields the state; words are looked up in a table."""
    look_up, join = fb.Embedding(20, 4, name="words"), fb.Linear(4, "tanh", name="join")
    classify = fb.Linear(2, name="classify")

    def state(tree):
        if tree.is_leaf:
            vector = look_up(len(tree.token))
        else:
            vector = join(ops.concat(tuple(map(state, tree.children))))
        fb.loss(ops.cross_entropy(classify(vector), tree.label))
        fb.loss(ops.sum(vector * vector), "size")
        return vector

    return state


def make_block():
    """Scores, label and two losses in one cell, without recursion."""
    scores = fb.GetItem(0) >> fb.Vector(3) >> fb.Linear(2, name="scores")
    both = fb.Composition()
    with both.scope():
        row = scores.reads(both.input)
        label = fb.GetItem(1) >> fb.Scalar("int32")
        fb.Loss().reads(fb.Function(ops.cross_entropy).reads(row, label.reads(both.input)))
        fb.Loss("size").reads(fb.Function(lambda x: ops.sum(x * x)).reads(row))
        both.output.reads(row)
    return both


def assert_same(weighted, repeated):
    assert weighted[0] == pytest.approx(repeated[0], rel=1e-6)
    for name, gradient in repeated[1].items():
        np.testing.assert_allclose(dense(weighted[1][name]), dense(gradient), rtol=1e-5, atol=1e-6)


@backends
def test_a_weight_of_n_counts_as_n_examples(backend):
    program = fb.compile(make_walk(), backend)
    assert_same(program.value_and_grad(TREES, weights=COUNTS), program.value_and_grad(REPEATED))


@backends
@pytest.mark.parametrize("kind", ["prepared", "planned", "as they are"])
def test_any_batch_has_weights(backend, kind):
    program = fb.compile(make_block(), backend, threads=2)
    rows = [([number, 1, -number], number % 2) for number in range(40)]
    counts = [number % 3 for number in range(40)]
    repeated = [row for row, count in zip(rows, counts, strict=True) for _ in range(count)]
    made = {"prepared": program.prepare, "planned": program.plan}.get(kind, list)(rows)
    assert_same(program.value_and_grad(made, weights=np.array(counts)), program.value_and_grad(repeated))


@backends
def test_weights_are_multiplied_with_losses_and_change_nothing_else(backend):
    """Dropout draws the same; ones are no weights, to the last bit."""
    model = fb.Vector(3) >> fb.Dropout(0.5) >> fb.Linear(1, name="out") >> fb.Function(ops.sum) >> fb.Loss()
    program = fb.compile(model, backend)
    rows = np.arange(12).reshape(4, 3)
    plain = program.value_and_grad(rows, step=3)
    ones = program.value_and_grad(rows, step=3, weights=np.ones(4))
    assert plain[0] == ones[0]
    parts = [program.value_and_grad([row], step=3, numbers=[i])[1] for i, row in enumerate(rows)]
    weighted = program.value_and_grad(rows, step=3, weights=[0.5, 1, 0, 2])[1]
    for name in program.params:
        np.testing.assert_array_equal(dense(ones[1][name]), dense(plain[1][name]))
        each = sum(w * dense(part[name]) for w, part in zip([0.5, 1, 0, 2], parts, strict=True))
        np.testing.assert_allclose(dense(weighted[name]), each, rtol=1e-5)


@pytest.mark.parametrize(("share", "rows"), [(0.4, budget.CALLS_PER_LEVEL), (0.5, 1)])
def test_weights_go_with_examples_into_parts_that_bound_the_memory(monkeypatch, share, rows):
    """Parts of few examples, of few rows, or windows of levels."""
    monkeypatch.setattr(budget, "CALLS_PER_LEVEL", rows)
    walk, examples = tagger(), sentences()
    weights = np.arange(len(examples)) / 2
    whole = compiled(walk, None, backend="numpy")
    whole.warm(examples)
    bounded = compiled(walk, int(need(whole, examples) * share), backend="numpy")
    assert_same(*(p.value_and_grad(examples, step=7, weights=weights) for p in (bounded, whole)))


def test_weights_of_a_deciding_walk_go_with_its_examples():
    w = fb.Parameter([], init=1.0, name="w")

    def walk(x):
        if float(w * x) > 1:
            fb.loss(w * x * 10)
        fb.loss(w * x)

    program = fb.compile(walk, "numpy")
    assert program.value_and_grad([1.0, 2.0, 3.0], weights=[1, 0, 2])[0] == pytest.approx(1 + 66)


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([1, 1, 1], "list of 3"),
        ([1, -1], "-1 of example 1"),
        ([np.nan, 1], "nan of example 0"),
        (["a", "b"], "list of 2"),
        ([[1], [1, 2]], "list of 2"),
        (2.0, "float 2.0"),
    ],
)
def test_weights_that_are_none_are_refused(weights, found):
    w = fb.Parameter([], init=1.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: w * x) >> fb.Loss(), "numpy")
    with pytest.raises(BlockValueError, match=f"value_and_grad weights: expected .*{found}"):
        program.value_and_grad([1.0, 2.0], weights=weights)
