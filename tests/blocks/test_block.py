"""Blocks combine, print as the expressions that build them, and run."""

import copy
import pickle

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.block import keyed
from foldbatch.blocks.function import FromTensor
from foldbatch.blocks.writer import shown
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError


def test_the_cause_of_an_error_in_a_users_function_is_attached():
    with pytest.raises(ExampleError) as caught:
        fb.compile(fb.InputTransform(lambda x: 1 // x) >> fb.Scalar()).run([1, 0])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(BlockTypeError) as caught:
        fb.compile(fb.Vector(2) >> fb.Function(lambda x: x.missing))
    assert isinstance(caught.value.__cause__, AttributeError)


def test_a_batch_that_fails_leaves_the_program_as_it_was():
    block = (
        fb.GetItem("x")
        >> fb.Vector(2)
        >> fb.Linear(3)
        >> fb.Function(ops.sum)
        >> fb.AllOf(fb.Identity(), fb.Loss())
    )
    program = fb.compile(block)
    good = [{"x": [1, 2]}, {"x": [3, 4]}]
    params = {name: array.copy() for name, array in program.params.items()}
    before = program.run(good), program.value_and_grad(good)
    for bad in ({"x": [1]}, {"y": 1}, {"x": [1, "a"]}, None):
        for call in (program.run, program.value_and_grad, program.prepare, program.describe):
            with pytest.raises(ExampleError, match="at example 2"):
                call([*good, bad])
        assert {name: array.tolist() for name, array in program.params.items()} == {
            n: a.tolist() for n, a in params.items()
        }
    after = program.run(good), program.value_and_grad(good)
    assert [float(x) for x, _ in before[0]] == [float(x) for x, _ in after[0]]
    assert before[1][0] == after[1][0]
    assert all((before[1][1][name] == after[1][1][name]).all() for name in params)


def test_a_parameter_stands_for_a_block():
    weight = fb.Parameter(fb.types.TensorType((2,)), [1.0, 2.0], "w")
    block = weight >> fb.Function(lambda w: w * 2)
    assert block.eval(None).tolist() == [2.0, 4.0]
    assert list(fb.compile(block).params) == ["w"]


BLOCK_PRINTS = [
    ("Scalar('int32')", 1),
    ("Tensor([1, 2], 'bool')", [[True, False]]),
    ("Vector(2, 'float64') >> Function(tanh)", [1, 2]),
    ("InputTransform(len) >> Scalar('float32')", "abc"),
    ("Pipe()", "x"),
    ("Identity() >> Void()", "x"),
    ("OneHot(3)", 1),
    ("OneHot(3, dtype='int32')", 1),
    ("OneHot(1, 3, 'float64')", 1),
    ("OneHotFromList(['a', ('b', 1)])", "a"),
    ("OneHotFromList(['a', None], dtype='int64', strict=False)", "c"),
    ("Optional(Scalar('float32'))", None),
    ("Optional(Vector(1, 'int32'), none=FromTensor(array([3], dtype=int32)))", None),
    ("FromTensor(array([1.5, 2. ], dtype=float64))", "x"),
    ("FromTensor(array([[1., 2.],       [3., 4.]], dtype=float32))", "x"),
    ("FromTensor(array(3))", "x"),
    ("FromTensor(array(True))", "x"),
    ("Zeros('float32')", "x"),
    ("Zeros(([2], 'float64', None, ([2, 3, 'int32'],)))", "x"),
    ("Zeros(SequenceType(element=TensorType(shape=(2,), dtype='float32')))", "x"),
    ("Record({'a': Scalar('float32'), 1: Identity()})", {"a": 1, 1: 2}),
    ("Record([(slice(0, 2, None), Map(Scalar('float32')))])", [1, 2, 3]),
    ("Record((Scalar('float32'),))", [1]),
    ("Record(())", "x"),
    ("AllOf(Scalar('float32'), Identity())", 1),
    ("AllOf()", "x"),
    ("GetItem('a')", {"a": 1}),
    ("GetItem(slice(1, None, None))", "abc"),
    ("Slice(start=1, step=-1)", "abc"),
    ("Record((Map(Scalar('float32')), Identity())) >> Nth()", [[1, 2], -1]),
    ("Map(Scalar('float32')) >> Fold(Function(add), Zeros('float32'))", [1, 2]),
    ("Map(Vector(2, 'float32')) >> RNN(LSTMCell(2))", [[1, 2]]),
    ("Map(Vector(2, 'float32')) >> RNN(GRUCell(2), initial_state=Zeros([2]))", [[1, 2]]),
    ("Map(Scalar('float32')) >> Reduce(Function(add), default=FromTensor(array(1., dtype=float32)))", []),
    ("Map(Scalar('float32')) >> AllOf(Sum(), Min(), Max(), Mean(), Length(dtype='int32'))", [1, 2]),
    ("AllOf(Map(Scalar('float32')), Scalar('float32') >> Broadcast()) >> GetItem(0)", []),
    ("Record((Map(Scalar('float32')), Map(Scalar('float32')))) >> ZipWith(Function(add))", [[1], [2]]),
    ("Record((Identity(), Identity())) >> Zip()", ["ab", "cd"]),
    ("NGrams(2)", "abc"),
    ("Record((Scalar('float32'), Vector(2, 'float32'))) >> Concat()", [1, [2, 3]]),
    ("AllOf(AllOf(Scalar('float32'))) >> Concat(flatten=True)", 1),
    ("OneOf(len, {1: Void(), 'a': Void()})", "x"),
    ("OneOf(len, [Void(), Void()], pre_block=GetItem(0))", "x"),
    ("OneOf(GetItem('kind'), {'a': Identity()})", {"kind": "a"}),
    ("Scalar('float32') >> AllOf(Metric('m'), Loss(name='l'))", 1),
    ("Collected(Map(Scalar('float32') >> Collect(name='n')), name='n')", [1]),
    ("Vector(2, 'float32') >> Linear(2, activation='tanh') >> LayerNorm() >> Dropout(0.5)", [1, 2]),
    ("Scalar('int32') >> Embedding(3, 2, name='words')", 1),
    ("Record((Vector(2, 'float32'), Record(()))) >> TreeLSTM(2, arity=3)", [[1, 2], []]),
    (
        "Record((Vector(2, 'float32'), Map(Record((Vector(2, 'float32'), Vector(2, 'float32')))))) >> ChildSumTreeLSTM(2)",
        [[1, 2], []],
    ),
]


def test_a_block_prints_as_the_expression_that_builds_it():
    for text, example in BLOCK_PRINTS:
        numpy = {name: getattr(np, name) for name in ("array", "float32", "float64", "int32", "int64")}
        names = {**vars(fb.blocks), **vars(fb), **vars(fb.types), **numpy, "tanh": ops.tanh, "add": ops.add}
        block, again = eval(text, names), eval(text, names)
        assert repr(block) == text
        np.testing.assert_equal(again.eval(example), block.eval(example))


def test_what_has_no_short_expression_prints_what_it_is():
    assert repr(FromTensor(np.zeros((100, 3)))) == "FromTensor(<float64[100,3]>)"
    assert repr(fb.Function(lambda x: x)) == "Function(<lambda>)"
    assert repr(fb.Composition("cell")) == "Composition('cell')"
    tree = fb.ForwardDeclaration(output_type=(2, "int64"), name="tree")
    assert repr(tree) == "ForwardDeclaration(output_type=([2], 'int64'), name='tree')"
    assert repr(tree()) == "tree()"
    assert shown(fb.AllOf(*[fb.Identity()] * 9)) == "AllOf(...)"


def test_a_block_may_stand_in_several_places_and_programs():
    word = fb.GetItem("word") >> fb.Scalar("int32") >> fb.Embedding(5, 2)
    pair = fb.AllOf(word, {"other": word}, word)
    first, _, third = pair.eval({"word": 1, "other": {"word": 1}})
    assert (first == third).all()
    a, b = fb.compile(pair), fb.compile(word)
    a.params["embedding.weight"] = np.ones((5, 2))
    assert list(a.params) == list(b.params) == ["embedding.weight"]
    assert b.run([{"word": 1}])[0].tolist() == [1.0, 1.0]


def test_what_stands_for_blocks_is_found_by_its_keys():
    a, b = fb.Scalar(), fb.Vector(2)
    assert keyed({"a": a}, "here") == ([("a", a)], True)
    assert keyed([("a", a), (("b", 1), b)], "here") == ([("a", a), (("b", 1), b)], True)
    assert keyed((a, b), "here") == ([(0, a), (1, b)], False)
    assert keyed((block for block in (a, b)), "here") == ([(0, a), (1, b)], False)
    pairs, given = keyed(((a, b), (b, a)), "here")  # two records of two, not keys and blocks
    assert not given
    assert [repr(block) for _, block in pairs] == [f"Record(({a!r}, {b!r}))", f"Record(({b!r}, {a!r}))"]
    assert keyed(((), {}), "here")[1] is False
    with pytest.raises(BlockValueError, match=r"here: expected every key once, found True twice"):
        keyed([(1, a), (True, b)], "here")


def blocks_to_pickle() -> list[fb.Block]:
    """Blocks of many kinds, without lambdas of ours."""
    vector = fb.Vector(3)
    tree = fb.ForwardDeclaration(output_type=(4, 4), name="tree")
    cell = fb.TreeLSTM(4)
    leaf = fb.AllOf(fb.Scalar("int32") >> fb.Embedding(50, 4), fb.Record(())) >> cell
    node = fb.AllOf(fb.Void(), fb.Record((tree(), tree()))) >> cell
    tree.resolve_to(fb.OneOf(type, {int: leaf, tuple: node}))
    wired = fb.Composition()
    with wired.scope():
        wired.output.reads(fb.Linear(2).reads(vector.reads(wired.input)))
    return [
        vector >> fb.Linear(2) >> fb.blocks.LayerNorm() >> fb.Dropout(0.5) >> fb.Metric("m"),
        fb.AllOf(fb.FromTensor(np.ones(3, "float32")), fb.FromTensor(fb.Parameter([3])), fb.Zeros(3))
        >> fb.Concat(),
        fb.Map(vector) >> fb.RNN(fb.LSTMCell(2)),
        fb.Map(vector >> fb.Linear(3, "tanh")) >> fb.Reduce(fb.Concat() >> fb.Linear(3)),
        {"a": vector, "b": fb.OneHotFromList(["x", "y"])} >> fb.Concat(),
        fb.Optional(vector),
        wired,
        tree() >> fb.GetItem(0) >> fb.Function(ops.sum) >> fb.Loss("a"),
    ]


@pytest.mark.parametrize("copied", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_blocks_can_be_pickled_and_copied(copied):
    """Types that were inferred before are inferred anew; parameters that are shared stay shared."""
    for block in blocks_to_pickle():
        types = block.output_type  # which is remembered
        twin = copied(block)
        assert (repr(twin), twin.output_type) == (repr(block), types)
    layer = fb.Linear(2)
    program = fb.compile(copied(fb.Vector(2) >> layer >> layer), "numpy")
    assert [name.partition(".")[2] for name in program.params] == ["weight", "bias"]
