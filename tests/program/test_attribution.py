"""What decided a number: gradients and integrated gradients of an example's data, by node, of both doors."""

from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, UnknownNameError

WORDS = fb.trees.Vocabulary(["good", "very", "film"])
TREE = fb.trees.parse_brackets("(2 (2 good) (1 (1 very) (2 film)))", labels=int)
SIZE = 3


def table(count: int, size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(count, size))


def layers() -> tuple[fb.Embedding, fb.Linear, fb.Linear]:
    normal = partial(fb.Linear, init="glorot_normal")
    embed = fb.Embedding(4, SIZE, table(4, SIZE), dtype="float64", name="words")
    return embed, normal(SIZE, "tanh", name="join"), normal(2, name="classify")


def of_blocks() -> fb.Program:
    embed, join, classify = layers()
    tree = fb.ForwardDeclaration(output_type=[SIZE, "float64"], name="tree")
    leaf = fb.GetItem("token") >> fb.InputTransform(WORDS) >> fb.Scalar("int32") >> embed
    node = fb.Record((tree(), tree())) >> fb.Concat() >> join >> fb.Dropout(0.5)
    loss = fb.AllOf(fb.Identity(), fb.Function(ops.sum) >> fb.Loss()) >> fb.GetItem(0)
    tree.resolve_to(fb.OneOf(attrgetter("is_leaf"), {True: leaf, False: node}) >> loss)
    return fb.compile(tree() >> classify, "numpy", seed=3)


def of_a_function() -> fb.Program:
    embed, join, classify = layers()

    def state(node: Any) -> Any:
        if node.is_leaf:
            return embed(WORDS[node.token])
        return join(ops.concat([state(node[0]), state(node[1])]))

    return fb.compile(lambda tree: classify(state(tree)), "numpy", seed=3)


DOORS = {"blocks": of_blocks, "functions": of_a_function}
both_doors = pytest.mark.parametrize("program", [make() for make in DOORS.values()], ids=[*DOORS])


@both_doors
def test_amounts_add_up_to_the_number_less_that_of_zeros_and_more_steps_come_nearer(program):
    errors = [abs(program.attribute(TREE, 1, steps=steps).error) for steps in (1, 3, 12)]
    assert errors[0] > 2 * errors[1] > 1e-5
    assert errors[2] < 1e-7
    attribution = program.attribute(TREE, 1)
    assert attribution.number == pytest.approx(float(program.run([TREE])[0][1]), rel=1e-5)
    assert sum(attribution.amounts(TREE)) == pytest.approx(attribution.number - attribution.baseline)


@both_doors
def test_the_baseline_is_the_number_where_all_rows_are_zeros(program):
    baseline = program.attribute(TREE, 0).baseline
    before = program.params["words.weight"].copy()
    program.params["words.weight"] = np.zeros((4, SIZE))
    try:
        assert float(program.run([TREE])[0][0]) == pytest.approx(baseline, rel=1e-5, abs=1e-6)
    finally:
        program.params["words.weight"] = before


@both_doors
def test_gradients_of_rows_are_finite_differences(program):
    attribution = program.attribute(TREE, 1, steps=1)
    before = program.params["words.weight"].copy()
    assert [entry.table for entry in attribution.nodes] == ["words.weight"] * 3
    for entry in attribution.nodes:
        row = int(np.flatnonzero((before == entry.value).all(axis=1))[0])
        for place in range(SIZE):
            numbers = []
            for step in (1e-5, -1e-5):
                changed = before.copy()
                changed[row, place] += step
                program.params["words.weight"] = changed
                numbers.append(program.attribute(TREE, 1, steps=1).number)
            program.params["words.weight"] = before
            difference = (numbers[0] - numbers[1]) / 2e-5
            assert entry.gradient[place] == pytest.approx(difference, rel=1e-5, abs=1e-8)


def test_both_doors_say_the_same_at_the_same_nodes():
    blocks, function = of_blocks(), of_a_function()
    function.run([TREE])
    function.params = dict(blocks.params)
    one, two = blocks.attribute(TREE, 0), function.attribute(TREE, 0)
    np.testing.assert_allclose(one.amounts(TREE), two.amounts(TREE), rtol=1e-6)
    assert [entry.path for entry in one.nodes] == ["[0]['token']", "[1][0]['token']", "[1][1]['token']"]
    assert [entry.datum for entry in one.nodes] == ["good", "very", "film"]
    assert [entry.path for entry in two.nodes] == ["[0]", "[1][0]", "[1][1]"]
    assert [entry.node.index for entry in two.nodes] == [0, 1, 2]


def test_floats_of_records_have_gradients_and_paths_and_one_hot_vectors_are_inputs():
    weights = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]).T
    record = fb.Record({"kind": fb.OneHot(3), "size": fb.Vector(2)}) >> fb.Concat()
    program = fb.compile(record >> fb.Linear(1, init=weights), "numpy")
    attribution = program.attribute({"kind": 1, "size": [10.0, 20.0]})
    found = {entry.path: entry for entry in attribution.nodes}
    assert found["['kind']"].amount == pytest.approx(2.0)
    assert found["['kind']"].gradient.tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_allclose(found["['size']"].integrated, [40.0, 100.0])
    assert attribution.number == pytest.approx(142.0)


def test_a_datum_that_two_cells_read_is_one_entry():
    step = fb.AllOf(fb.GetItem(0), fb.GetItem(1)) >> fb.Function(lambda state, x: state * x + x)
    program = fb.compile(fb.Map(fb.Scalar("float64")) >> fb.Fold(step, np.array(1.0)), "numpy")
    (first, second) = program.attribute([2.0, 3.0]).nodes
    assert (first.path, second.path) == ("[0]", "[1]")
    assert (float(first.gradient), float(second.gradient)) == (6.0, 5.0)


def test_what_goes_through_functions_is_named_so():
    read = fb.InputTransform(attrgetter("children")) >> fb.Map(
        fb.GetItem("token") >> fb.InputTransform(len) >> fb.Scalar()
    )
    tree = fb.trees.parse_brackets("(1 (1 ab) (1 abc))", labels=int)
    first, second = fb.compile(read >> fb.Sum(), "numpy").attribute(tree).nodes
    assert (first.path, first.datum) == ("attrgetter(example)[0]['token']", "ab")
    assert (second.node.index, second.amount) == (1, pytest.approx(3.0))


def test_a_cotangent_compares_two_scores():
    program = of_blocks()
    both = program.attribute(TREE, cotangent=[1.0, -1.0])
    apart = [program.attribute(TREE, place).amounts(TREE) for place in (0, 1)]
    np.testing.assert_allclose(both.amounts(TREE), np.subtract(*apart), rtol=1e-6)
    assert both.target == "" and program.attribute(TREE).number == max(
        program.attribute(TREE, place).number for place in (0, 1)
    )


def test_a_class_has_a_name():
    program = of_blocks()
    program.notes = {"classes": ["no", "yes"]}
    assert program.attribute(TREE, "yes").number == program.attribute(TREE, 1).number
    assert program.attribute(TREE, 1).target == "yes"
    with pytest.raises(UnknownNameError, match="attribute target: expected a class of no, yes"):
        program.attribute(TREE, "maybe")


def test_decisions_stay_those_of_the_example():
    def walk(numbers: Any) -> Any:
        total = fb.tensor(0.0)
        for x in numbers:
            total = total + fb.tensor(x)
            if float(total) > 2.5:
                break
        return total

    attribution = fb.compile(walk, "numpy").attribute([1.0, 2.0, 3.0])
    assert attribution.number == pytest.approx(3.0) and abs(attribution.error) < 1e-9


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            {"target": 2},
            BlockValueError,
            r"attribute target: expected a place in a result of float64\[2\], found",
        ),
        ({"target": (0, 0)}, BlockValueError, "attribute target: expected a place"),
        ({"target": 0, "cotangent": [1, 0]}, BlockValueError, "attribute: expected a target or a cotangent"),
        ({"cotangent": [1, 0, 0]}, ExampleError, r"cotangent: expected numbers of shape \(2,\)"),
        ({"steps": 0}, BlockValueError, "attribute steps: expected a whole number of 1 or more"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(arguments, error, message):
    with pytest.raises(error, match=message):
        of_blocks().attribute(TREE, **arguments)


def test_results_of_several_tensors_need_a_cotangent():
    program = fb.compile(fb.AllOf(fb.Vector(2), fb.Vector(2)), "numpy")
    with pytest.raises(BlockValueError, match="give a cotangent"):
        program.attribute([1, 2])
    assert program.attribute([1, 2], cotangent=([1, 1], None)).number == pytest.approx(3.0)


def test_an_iterator_is_refused():
    def walk(numbers: Any) -> Any:
        return fb.tensor(float(next(numbers)))

    with pytest.raises(ExampleTypeError, match="attribute reads it twice"):
        fb.compile(walk, "numpy").attribute(iter([1.0]))


def test_an_attribution_prints_itself_and_is_data():
    attribution = of_blocks().attribute(TREE, 1)
    assert "[1][1]['token']" in str(attribution) and "film" in str(attribution)
    data = attribution.plain()
    assert [node["datum"] for node in data["nodes"]] == ["good", "very", "film"]
    assert sum(node["amount"] for node in data["nodes"]) == pytest.approx(
        data["number"] - data["baseline"], abs=1e-5
    )


def test_a_function_is_at_the_innermost_part_that_it_holds():
    def visit(node: Any, root: Any) -> Any:
        if node.is_leaf:
            return fb.tensor(float(len(node.token)))
        return visit(node[0], root) + visit(node[1], root)

    nodes = fb.compile(lambda tree: visit(tree, tree), "numpy").attribute(TREE).nodes
    assert [entry.path for entry in nodes] == ["[0]", "[1][0]", "[1][1]"]
    assert [entry.amount for entry in nodes] == pytest.approx([4, 4, 4])
