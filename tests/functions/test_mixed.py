"""Blocks called in walks, and walks that stand for blocks, where the laws of random programs do not look."""

import importlib
import itertools
import sys

import msgspec
import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ExampleError, ExampleKeyError, ModelError, WalkError
from foldbatch.params.parameters import dense
from foldbatch.static.ops import functions

Walk = fb.functions.Walk

embed, join = fb.Embedding(9, 3, name="embed"), fb.Linear(3, "tanh", name="join")


def is_word(x):
    return isinstance(x, int)


word = fb.GetItem("word") >> fb.Scalar("int32") >> embed


def tree(x):
    return embed(x) if is_word(x) else pair(x)


pair = fb.Record((Walk(tree, 3), Walk(tree, 3))) >> fb.Concat() >> join


def only_a_walk(x):
    return embed(x) if is_word(x) else join(fb.ops.concat([only_a_walk(x[0]), only_a_walk(x[1])]))


def test_a_recursion_through_both_doors_is_deep():
    deep = 1
    for _ in range(10_000 if sys.version_info < (3, 12) else 300):  # calls of blocks take the machine's stack
        deep = (deep, 2)
    (found,), (right,) = (fb.compile(walk, "numpy").run([deep]) for walk in (tree, only_a_walk))
    np.testing.assert_allclose(found, right, atol=1e-6)


def test_data_that_hold_themselves_are_refused_in_a_block_of_a_walk():
    block = fb.ForwardDeclaration(output_type=3, name="tree")
    block.resolve_to(
        fb.OneOf(is_word, {True: fb.Scalar("int32") >> embed, False: fb.Map(block()) >> fb.Sum()})
    )
    whole, endless = block(), [1, 2]
    endless.append(endless)
    for walk in (lambda x: whole(x), fb.Map(Walk(lambda x: whole(x), 3)) >> fb.Sum()):
        with pytest.raises(ExampleError, match=r"data that ends, found a part that contains itself"):
            fb.compile(walk, "numpy").run([[endless]])


def test_what_a_block_cannot_read_is_told_with_its_path_its_example_and_its_place():
    program = fb.compile(lambda x: word(x["left"]), "numpy")
    good = {"left": {"word": 1}}
    with pytest.raises(
        ExampleError, match=r"Scalar\('int32'\) at example 1 \['word'\]: expected int32 from 0 to 8"
    ):
        program.run([good, {"left": {"word": 9}}])
    with pytest.raises(ExampleKeyError, match=r"GetItem\('word'\) at example 2: expected an item 'word'"):
        program.run([good, good, {"left": {}}])
    assert np.asarray(program.run([good])).shape == (1, 3)


def test_no_encoder_writes_the_number_of_a_value_for_the_value():
    def walk(x):
        with pytest.raises(TypeError, match="ValueOfAWalk"):
            msgspec.json.encode([fb.tensor(x)])

    program = fb.compile(walk, "numpy")
    program.run([1.0])
    program.debug(1.0)


def test_eager_mode_computes_the_blocks_that_a_walk_calls():
    double = fb.Map(fb.Scalar() >> fb.Function(lambda x: x * 2)) >> fb.Sum()
    program = fb.compile(lambda xs: double(xs) + 1.0, "numpy")
    assert program.debug([1.0, 2.0]).result == 7


def test_an_exception_of_a_walk_in_a_block_passes_as_it_is():
    class BrokenError(Exception):
        pass

    def walk(x):
        if x == 3:
            raise BrokenError
        return embed(x)

    def tries(xs):
        try:
            return block(xs)
        except BrokenError:
            return block(xs[:1])

    block = fb.Map(Walk(walk, 3)) >> fb.Sum()
    with pytest.raises(BrokenError) as caught:
        fb.compile(block, "numpy").run([[1], [2, 3]])
    assert "in the walk of example 1" in caught.value.__notes__[0]
    found = fb.compile(tries, "numpy").run([[2, 3], [2]])
    np.testing.assert_array_equal(*found)


def test_calls_that_cannot_be_are_refused():
    outside = (
        "expected a call in a plain function given to foldbatch.compile, found one elsewhere; block.eval"
    )
    with pytest.raises(WalkError, match=outside):
        word({"word": 1})
    inside = fb.cell(lambda x: word(x))
    with pytest.raises(WalkError, match="expected a call in a plain function"):
        fb.compile(lambda x: inside(fb.tensor(x)), "numpy").run([1.0])
    with pytest.raises(BlockTypeError, match=r"Scalar\('float32'\).*, found float32"):
        fb.compile(lambda x: fb.Scalar()(fb.tensor(1.0)), "numpy").run([1])

    async def later(x):
        return embed(x)

    for walk, found in (
        (later, "an async def"),
        (lambda x: 1.0, "float 1.0"),
        (lambda x: fb.tensor(x), "a int32"),
    ):
        with pytest.raises(WalkError, match=rf"Walk\(.*\): .*found {found}"):
            fb.compile(fb.Map(Walk(walk, 3)), "numpy").run([[1]])
    with pytest.raises(BlockTypeError, match=r"Walk: expected a function, found"):
        Walk(word, 3)


@pytest.mark.parametrize("data", [fb.Vector(3), fb.InputTransform(lambda x: float(x[0])) >> fb.Scalar()])
def test_a_block_that_reads_a_value_as_data_is_refused(data):
    made = Walk(lambda x: {"a": fb.tensor(x)}, "object") >> fb.GetItem("a")
    found = "expected blocks that read data of the example, found a value that one has read, or"
    with pytest.raises(WalkError, match=f"walk at example 0: {found}"):
        fb.compile(made >> data, "numpy").run([[1.0, 2.0, 3.0]])
    assert fb.compile(made, "numpy").run([[1.0, 2.0, 3.0]])[0].tolist() == [1.0, 2.0, 3.0]


def test_what_a_block_collects_is_its_own_though_a_walk_in_it_calls_it_again():
    def further(xs):
        return fb.ops.sum(block(xs[1:])) if len(xs) > 1 else fb.tensor(0.0)

    seen = fb.GetItem(0) >> fb.Scalar() >> fb.blocks.Collect()
    parts = fb.AllOf(seen, Walk(further, "float32"), seen)
    block = (
        fb.blocks.Collected(parts)
        >> fb.AllOf(fb.GetItem(0) >> fb.GetItem(1), fb.GetItem(1) >> fb.Sum())
        >> fb.Function(lambda a, b: fb.ops.stack([a, b]))
    )
    found = fb.compile(lambda xs: block(xs), "numpy").run([[1.0, 2.0, 4.0]])
    np.testing.assert_array_equal(found[0], [12.0, 2.0])


def test_a_block_that_is_built_again_is_the_same_where_a_tensor_is_equal_in_all_calls():
    """Its node is found and not made anew, so it is older than the other nodes of the second building."""
    shift = fb.Parameter([2], init=3.0, name="shift")
    block = (
        fb.Function(lambda x: (x * 2.0, fb.ops.batched(shift)))
        >> fb.AllOf(Walk(lambda a, b: a + b, 2), fb.Identity())
        >> fb.Function(lambda total, pair: total * pair[0] - pair[1])
    )
    walk = lambda x: block(fb.tensor(np.float32(x)))  # noqa: E731
    for _ in range(2):
        program = fb.compile(walk, "numpy")
        np.testing.assert_array_equal(program.run([[1.0, 2.0]])[0], [7.0, 25.0])
        gradients = program.vjp([[1.0, 2.0]], [np.ones(2, "float32")]).gradients
        assert gradients["shift"].tolist() == [1.0, 3.0]


# One cell draws, and another cell of the same block reads the node that it drew, beyond a choice.
drawn = fb.GetItem(0) >> fb.Tensor([3]) >> fb.Linear(3, name="inner") >> fb.Dropout(0.5)
chosen = fb.OneOf(fb.GetItem(1), {n: fb.GetItem(0) >> fb.Linear(2, name=f"case{n}") for n in range(2)})
drawing = (
    fb.AllOf(drawn, fb.GetItem(1))
    >> fb.AllOf(chosen, fb.GetItem(0))
    >> fb.Function(lambda a, b: fb.ops.sum(a) + fb.ops.sum(b * b))
    >> fb.Loss()
)


def draws(x):
    return drawing(x)


def test_a_block_that_is_built_again_draws_where_it_drew(tmp_path, monkeypatch):
    """The second building has other sites of random numbers, also behind what its cells read."""
    monkeypatch.setattr(
        functions, "SITES", itertools.count()
    )  # as where the process draws for the first time
    examples = [([1.0, 2.0, 3.0], 0), ([3.0, 2.0, 3.0], 1)]
    losses = []
    for _ in range(2):
        program = fb.compile(draws, "numpy", seed=1)
        losses.append(program.value_and_grad(examples)[0])
    of_block = fb.compile(drawing, "numpy", seed=1).value_and_grad(examples)[0]
    assert losses == [pytest.approx(of_block)] * 2
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy", trust=(__name__,))
    assert loaded.run(examples, losses=True).loss == program.run(examples, losses=True).loss


def test_elements_of_several_values_arrive_in_their_places():
    pairs = fb.Map(fb.Record((fb.Scalar(), fb.Scalar() >> fb.Function(fb.ops.square))))
    made = pairs >> fb.Map(fb.AllOf(fb.GetItem(0), fb.GetItem(1)))
    joined = made >> fb.Function(lambda a, b: fb.ops.segment_sum(a * 10.0 + b))
    later = fb.AllOf(Walk(lambda xs: fb.tensor(float(len(xs))), "float32"), joined) >> fb.GetItem(1)
    example = [(1.0, 2.0), (3.0, 4.0)]
    (found,) = fb.compile(lambda xs: later(xs), "numpy").run([example])
    assert found == 10.0 * 4.0 + 4.0 + 16.0


def test_a_walk_in_a_block_decides_by_numbers_in_rounds_of_the_batch():
    scale = fb.Parameter([], init=0.5, name="scale")

    def halved(x):
        value, steps = fb.tensor(x) * 1.0, 0
        while value > 1.0:
            value, steps = value * scale, steps + 1
        return value, steps

    block = (
        fb.Map(Walk(halved, ("float32", fb.types.OBJECT)))
        >> fb.Map(fb.GetItem(0))
        >> fb.Sum()
        >> fb.AllOf(fb.Identity(), fb.Loss())
        >> fb.GetItem(0)
    )
    program = fb.compile(block, "numpy")
    examples = [[8.0, 3.0], [], [0.25], [5.0, 64.0, 1.0]]
    right = [1.0 + 0.75, 0.0, 0.25, 0.625 + 1.0 + 1.0]
    np.testing.assert_allclose(np.asarray(program.run(examples)), right)
    loss, gradients = program.value_and_grad(examples)
    assert loss == sum(right)
    slope = sum(
        n * 0.5 ** (n - 1) * x for xs in examples for x in xs if (n := max(int(np.ceil(np.log2(x))), 0))
    )
    np.testing.assert_allclose(gradients["scale"], slope)


MODEL = """
import foldbatch as fb

embed, join = fb.Embedding(9, 3, name="embed"), fb.Linear(3, "tanh", name="join")
loss = lambda: fb.AllOf(fb.Identity(), fb.Function(fb.ops.sum) >> fb.Loss()) >> fb.GetItem(0)

def tree(x):
    return embed(x) if isinstance(x, int) else pair(x)

pair = fb.Record((fb.functions.Walk(tree, 3), fb.functions.Walk(tree, 3))) >> fb.Concat() >> join >> loss()
trees = fb.Map(fb.functions.Walk(tree, 3)) >> fb.Sum() >> loss()

def walk(xs):
    return join(fb.ops.concat([trees(xs), tree(xs[0])]))
"""


@pytest.mark.parametrize("name", ["walk", "trees"])
def test_a_program_of_both_doors_is_kept_in_a_file(tmp_path, monkeypatch, name):
    (tmp_path / "mixedmodel.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    mixedmodel = importlib.import_module("mixedmodel")

    examples = [[1, (2, 3)], [((1, 2), (3, (4, 5)))]]
    program = fb.compile(getattr(mixedmodel, name), "numpy", seed=3)
    loss, gradients = program.value_and_grad(examples)
    program.save(tmp_path / "file")
    loaded = fb.load(tmp_path / "file", "numpy", trust=("mixedmodel",))
    known = loaded.model
    again, its = loaded.value_and_grad(examples)
    assert again == loss != 0 and its.keys() == gradients.keys()
    for key, gradient in gradients.items():
        np.testing.assert_array_equal(dense(its[key]), dense(gradient))
    assert loaded.model is known
    nobody_holds = fb.Map(Walk(mixedmodel.tree, 3))
    alone = fb.compile(nobody_holds, "numpy")
    alone.warm(examples)
    with pytest.raises(ModelError, match="which no variable holds"):
        alone.save(tmp_path / "other")
