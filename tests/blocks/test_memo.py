"""A part of an example that is shared is visited once where that is asked for, or changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ExampleTypeError
from foldbatch.trees import Tree
from tests.blocks.results import BACKENDS
from tests.knobs import knobs

ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)
LOSS = fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0)


def is_list(x: Any) -> bool:
    return isinstance(x, list)


def sum_of(memo: bool | None = None, at_node: fb.Block | None = None, leaf: fb.Block = ONE) -> fb.Block:
    """The sum of the numbers in nested lists of two; `at_node` sees the sum of each list."""
    total = fb.ForwardDeclaration(output_type="float32", name="total", memo=memo)
    pair = fb.Record((total(), total())) >> ADD >> (at_node or fb.Identity())
    total.resolve_to(fb.OneOf(is_list, {False: leaf, True: pair}))
    return total()


def doubled(levels: int, at_the_end: Any) -> Any:
    shared = at_the_end
    for _ in range(levels):
        shared = [shared, shared]
    return shared


def unfolded(data: Any) -> Any:
    """Equal lists, none of which is in two places."""
    return [unfolded(part) for part in data] if is_list(data) else data


def net(memo: bool | None) -> fb.Block:
    tree = fb.ForwardDeclaration(output_type=3, name="tree", memo=memo)
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> fb.Linear(3, "tanh", name="pair")
    words = fb.Scalar("int32") >> fb.Embedding(9, 3, name="words")
    tree.resolve_to(fb.OneOf(is_list, {False: words, True: pair}))
    return tree() >> fb.Function(lambda x: ops.sum(x * x)) >> fb.Loss()


@pytest.mark.parametrize("backend", ["numpy", *BACKENDS])
@pytest.mark.parametrize(
    "options", [{}, {"layout": "producer", "share": None}, {"policy": "by_agenda"}], ids=str
)
def test_gradients_are_those_of_the_unfolded_example(backend, options):
    shared, other = [1, 2], [3, 1]
    for part in (other, 4, shared):
        shared = [shared, [part, shared]]
    examples = [shared, [other, shared], 5]
    once, often = (fb.compile(net(memo), backend, **knobs(options)) for memo in (None, False))
    for name, value in once.params.items():
        often.params[name] = value
    assert once.describe(examples).calls < often.describe(examples).calls / 2
    (loss, gradients), (right, expected) = (p.value_and_grad(examples) for p in (once, often))
    assert loss == pytest.approx(right, rel=1e-5)
    for name, gradient in gradients.items():
        values = [g.dense() if isinstance(g, fb.params.SparseRows) else g for g in (gradient, expected[name])]
        np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", *BACKENDS])
def test_sixty_levels_of_twice_the_same_are_sixty_calls(backend):
    program = fb.compile(sum_of() >> fb.AllOf(fb.Identity(), fb.Loss()), backend)
    example = doubled(60, 1.0)
    assert program.describe([example]).calls == 60 + 2 + 1  # a scalar has no identity; and the loss
    assert program.value_and_grad([example])[0] == 2.0**60


def test_what_an_example_holds_once_is_as_ever():
    rng = np.random.default_rng(0)

    def nested(size: int) -> Any:
        left = int(rng.integers(1, size)) if size > 1 else 0
        return [nested(left), nested(size - left)] if left else int(rng.integers(5))

    examples = [nested(20) for _ in range(5)]
    traces = [fb.compile(sum_of(memo), "reference")._trace_all(examples) for memo in (None, False, True)]
    for one, other, third in zip(*traces, strict=True):
        assert one.packed.tolist() == other.packed.tolist() == third.packed.tolist()


COUNTED = {
    "loss": LOSS,
    "metric": fb.AllOf(fb.Identity(), fb.Metric("sum")) >> fb.GetItem(0),
    "collect": fb.blocks.Collect(),
    "random": fb.Dropout(0.5),
}


@pytest.mark.parametrize("at_node", COUNTED.values(), ids=COUNTED)
def test_what_counts_visits_is_visited_at_each_place_unless_memo_says_otherwise(at_node):
    example = doubled(3, 1)

    def calls(memo: bool | None) -> int:
        block = (
            fb.blocks.Collected(sum_of(memo, at_node))
            if at_node is COUNTED["collect"]
            else sum_of(memo, at_node)
        )
        return int(fb.compile(block, "reference").describe([example]).calls)

    assert (calls(None), calls(False), calls(True)) == (calls(None), calls(None), calls(None) - 15 + 5)


def test_with_memo_losses_metrics_and_collected_values_are_one_for_each_object():
    at_node = LOSS >> COUNTED["metric"] >> fb.blocks.Collect()
    example = [doubled(2, 1), [[1, 1], 1]]
    for memo, sums in ((None, [2, 2, 4, 2, 3, 7]), (True, [2, 4, 2, 3, 7])):
        results = fb.compile(fb.blocks.Collected(sum_of(memo, at_node)), "reference").run(
            [example], losses=True, metrics=True
        )
        assert results.loss == sum(sums)
        assert results.metrics["sum"].values.tolist() == sums
        assert results.metrics["sum"].nodes.tolist() == list(range(len(sums)))
        assert [float(x) for x in results[0][1]] == sums


def test_effects_of_what_a_recursion_calls_count_as_its_own():
    """The leaves are a declaration that has a loss, and does not call itself."""
    leaf = fb.ForwardDeclaration(output_type="float32", name="leaf")
    leaf.resolve_to(ONE >> LOSS)
    program = fb.compile(sum_of(leaf=leaf()), "reference")
    assert program.run([doubled(3, 1)], losses=True).loss == 8.0


def test_tensors_that_are_read_besides_must_be_the_same():
    down = fb.ForwardDeclaration((fb.types.OBJECT, "float32"), "float32", "down")
    same, half = fb.GetItem(1), fb.GetItem(1) >> fb.Function(lambda w: w / 2)
    leaf = fb.AllOf(fb.GetItem(0) >> ONE, fb.GetItem(1)) >> fb.Function(lambda x, w: x * w)
    parts = [fb.AllOf(fb.GetItem(0) >> fb.GetItem(k), w) >> down() for k, w in enumerate((same, same, half))]
    choice = fb.GetItem(0) >> fb.InputTransform(is_list)
    down.resolve_to(
        fb.OneOf(choice, {False: leaf, True: fb.AllOf(*parts) >> fb.Function(lambda a, b, c: a + b + c)})
    )
    program = fb.compile(fb.AllOf(fb.Identity(), fb.FromTensor(1.0)) >> down(), "reference")
    bottom = [1, 1, 1]
    example = [bottom, bottom, bottom]
    assert float(program.run([example])[0]) == 2.5 * 2.5
    assert program.describe([example]).calls == program.describe([unfolded(example)]).calls - 5  # with w / 2


def test_sequences_that_are_read_besides_must_be_the_same():
    """Each node reads all the words, which are one list of the program."""
    words = fb.types.SequenceType(fb.types.TensorType(()))
    node = fb.ForwardDeclaration((fb.types.OBJECT, words), "float32", "node")
    children = [fb.AllOf(fb.GetItem(0) >> fb.GetItem(k), fb.GetItem(1)) >> node() for k in (0, 1)]
    choice = fb.GetItem(0) >> fb.InputTransform(is_list)
    leaf = fb.AllOf(fb.GetItem(0) >> ONE, fb.GetItem(1) >> fb.Sum()) >> ADD
    node.resolve_to(fb.OneOf(choice, {False: leaf, True: fb.AllOf(*children) >> ADD}))
    program = fb.compile(fb.AllOf(fb.GetItem(0), fb.GetItem(1) >> fb.Map(ONE)) >> node())
    example = (doubled(30, 1), [1, 2, 3])
    assert float(program.run([example])[0]) == 7 * 2.0**30


def test_objects_made_on_the_way_are_not_taken_for_each_other():
    """Lists that a function makes die at once, and their ids are given to others."""
    total = fb.ForwardDeclaration(output_type="float32", name="total")
    cut = fb.InputTransform(lambda x: [x[: len(x) // 2], x[len(x) // 2 :]])
    pair = cut >> (total(), total()) >> ADD
    total.resolve_to(fb.OneOf(lambda x: min(len(x), 2), {1: fb.GetItem(0) >> ONE, 2: pair}))
    numbers = list(range(150))
    assert float(total().eval(numbers)) == sum(numbers)


def test_trees_and_values_are_visited_at_each_place():
    tree, word = Tree.from_nested(("S", ("A", "x"), ("B", "y"))), "word"
    visit = fb.ForwardDeclaration(output_type="float32", name="visit", memo=True)
    visit.resolve_to(
        fb.OneOf(is_list, {True: fb.Map(visit()) >> fb.Sum(), False: fb.FromTensor(1.0) >> LOSS})
    )
    program = fb.compile(visit(), "reference")
    for part in (tree, tree[0], word, 1, 2.5, None, True, b"x", np.float32(1)):
        assert program.run([[part, part, part]], losses=True).loss == 3.0
    part = {"a": 1}
    assert program.run([[part, part, part]], losses=True).loss == 1.0


def test_a_declaration_that_does_not_recur_has_a_memo_if_asked():
    for memo, calls in ((None, 4), (True, 2)):
        square = fb.ForwardDeclaration(output_type="float32", name="square", memo=memo)
        square.resolve_to(fb.GetItem("x") >> ONE >> fb.Function(lambda x: x * x))
        program = fb.compile(fb.Map(square()) >> fb.Sum(), "reference")
        part = {"x": 2}
        assert float(program.run([[part] * 3])[0]) == 12.0
        assert program.describe([[part] * 3]).calls == calls


def test_declarations_that_call_each_other_share_what_both_reach():
    plus = fb.ForwardDeclaration(output_type="float32", name="plus")
    times = fb.ForwardDeclaration(output_type="float32", name="times")
    plus.resolve_to(fb.OneOf(is_list, {False: ONE, True: (times(), times()) >> ADD}))
    product = (plus(), plus()) >> fb.Function(lambda a, b: ops.tanh(a * b))
    times.resolve_to(fb.OneOf(is_list, {False: ONE, True: product}))
    program = fb.compile(plus(), "reference")
    example = doubled(9, 1)
    assert program.describe([example]).calls == 9 + 2
    assert float(program.run([example])[0]) == pytest.approx(float(program.run([unfolded(example)])[0]))


def test_an_error_in_a_shared_part_names_the_first_way_to_it():
    part = [1, "no number"]
    with pytest.raises(ExampleTypeError) as caught:
        fb.compile(sum_of(), "reference").run([[[1, part], part]])
    assert caught.value.where.endswith("at example 0 [0][1][1]")


def test_each_example_has_memos_of_its_own_and_keeps_nothing():
    program = fb.compile(sum_of(), "reference")
    part = [1, 1]
    assert [float(x) for x in program.run([part, [part, part], part])] == [2.0, 4.0, 2.0]
    part[1] = 5
    assert float(program.run([part])[0]) == 6.0
    tracer = program.lowered.tracer
    assert not any(namespace[name] for namespace in tracer.unused for name in tracer.memos)


def test_a_memo_of_another_type_is_refused_and_it_is_printed():
    with pytest.raises(BlockTypeError, match="ForwardDeclaration memo: expected True, False or None, found"):
        fb.ForwardDeclaration(memo=1)
    assert repr(fb.ForwardDeclaration(name="a", memo=True)) == "ForwardDeclaration(name='a', memo=True)"


def test_an_example_of_more_calls_than_allowed_is_refused():
    examples = [[1, 1], [doubled(3, 1), 1]]
    assert float(fb.compile(sum_of(False), "reference", options={"max_calls": 17}).run(examples)[1]) == 9.0
    message = r"model at example 1: expected at most 16 calls, found more; .*memo=True"
    with pytest.raises(ExampleError, match=message):
        fb.compile(sum_of(False), "reference", options={"max_calls": 16}).run(examples)
    with pytest.raises(BlockValueError, match="max_calls: expected a whole number of 1 or more"):
        fb.compile(sum_of(), options={"max_calls": 0})
