"""A part of an example that is shared is visited once where that is asked for, or changes nothing."""

from typing import Any

import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ExampleTypeError
from tests.blocks.results import BACKENDS

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
    return [unfolded(part) for part in data] if is_list(data) else data


@pytest.mark.parametrize("backend", ["numpy", *BACKENDS])
def test_sixty_levels_of_twice_the_same_are_sixty_calls(backend):
    program = fb.compile(sum_of() >> fb.AllOf(fb.Identity(), fb.Loss()), backend)
    example = doubled(60, 1.0)
    assert program.describe([example]).calls == 60 + 2 + 1  # a scalar has no identity; and the loss
    assert program.value_and_grad([example])[0] == 2.0**60


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
    tracer = program.lowered
    assert not any(namespace[name] for namespace, _ in tracer.unused for name in tracer.memos)


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
