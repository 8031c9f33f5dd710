"""Blocks alone: how they are printed and chosen, and what runs forward."""

import copy
import pickle
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks import printing
from foldbatch.blocks.block import keyed
from foldbatch.blocks.function import FromTensor
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ExampleKeyError
from foldbatch.system.showing import shown
from foldbatch.types import TensorType
from tests.blocks.results import slopes, yields
from tests.blocks.test_tracer import parts_of
from tests.programs import CHOICES, drawn


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


ONE = fb.Scalar()
TWICE = fb.Function(lambda x: x * 2)


@pytest.mark.parametrize(
    ("key", "right"), [(0, 3.0), (1, 6.0), (2, 9.0), (-1, 9.0), (-2, 6.0), (-3, 3.0), (True, 6.0)]
)
def test_cases_in_a_list_are_numbered_from_either_end(key, right):
    cases = (ONE, ONE >> TWICE, ONE >> fb.Function(lambda x: x * 3))
    for listed in (cases, list(cases)):
        assert float(fb.OneOf(lambda x: x[0], listed, pre_block=fb.GetItem(1)).eval([key, 3])) == right


def test_classes_and_attributes_may_be_keys():
    assert fb.OneOf(type, {int: fb.FromTensor(1), str: fb.FromTensor(2)}).eval("text") == 2


def test_a_parameter_may_stand_for_what_is_missing():
    weight = fb.Parameter(TensorType(()), 2.0, "w")
    lossy = fb.Optional(ONE, weight >> TWICE) >> fb.Loss()
    assert slopes(lossy, [None, 3, None]) == {"w": 4.0}


def test_a_loss_may_be_taken_where_there_is_a_label():
    scale = fb.Parameter(TensorType(()), 2.0, "scale")
    guess = fb.GetItem("x") >> ONE >> fb.Function(lambda x: x * scale)
    loss = (fb.Identity(), ONE) >> fb.Function(lambda guess, label: guess * label) >> fb.Loss()
    labelled = fb.AllOf(guess, fb.GetItem("label", default=None))
    block = labelled >> fb.AllOf(fb.GetItem(0), fb.Optional(loss)) >> fb.GetItem(0)
    examples = [{"x": 1}, {"x": 2, "label": 10}, {"x": 3, "label": None}, {"x": 4, "label": 0.5}]
    yields(block, *((example, 2.0 * example["x"]) for example in examples))
    assert slopes(block, examples) == {"scale": 2 * 10 + 4 * 0.5}
    assert fb.compile(block).run(examples[:1], losses=True).loss == 0.0


def test_optional_of_a_tuple_asks_that_every_object_in_it_be_there():
    both = fb.Optional((ONE, ONE) >> fb.Function(lambda a, b: a + b), np.float32(9))
    yields(fb.AllOf(fb.GetItem(0), fb.GetItem(1)) >> both, ([1, 2], 3.0), ([None, 2], 9.0), ([1, None], 9.0))
    with pytest.raises(BlockTypeError, match=r"expected an object in the tuple, found \(float32, float32\)"):
        fb.AllOf(ONE, ONE) >> fb.Optional(fb.Sum())
    with pytest.raises(BlockTypeError, match="expected a Python object, found float32"):
        ONE >> fb.Optional(ONE)


def test_a_choice_of_2_000_cases_is_built_and_made_in_a_dozen_comparisons():
    block = fb.OneOf(lambda x: x, {i: fb.InputTransform(lambda _, i=i: -i) for i in range(2_000)})
    program = fb.compile(block, "reference")
    keys = [0, 1, 3, 4, 5, 999, 1_000, 1_001, 1_998, 1_999]
    assert [*program.run(keys)] == [-key for key in keys]
    for unknown in (-1, 2_000, "a"):
        with pytest.raises(ExampleKeyError, match=r"expected a key of 0, 1, 2, .*, \.\.\., found"):
            program.run([unknown])
    lines = program.lowered.source.splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines if "==" in line]
    assert max(indents) <= 4 * 11


def test_choices_stand_inside_each_other_deeper_than_python_indents():
    block, optional = ONE, ONE
    for _ in range(120):
        block = fb.OneOf(lambda x: isinstance(x, tuple), {False: ONE, True: fb.GetItem(0) >> block})
    for _ in range(60):
        optional = fb.Optional(fb.GetItem(0) >> optional)
    program = fb.compile(block, "reference")
    data = 3
    for depth in range(121):
        if depth in (0, 1, 60, 119, 120):
            assert float(program.run([data])[0]) == 3.0
        data = (data,)
    with pytest.raises(ExampleError, match=r"at example 0 (\[0\])+\.\.\.(\[0\])+: expected float32, found"):
        program.run([data])
    optional = fb.compile(optional, "reference")
    for depth, right in ((60, 5.0), (10, 0.0)):
        data = 5 if right else None
        for _ in range(depth):
            data = [data]
        assert float(optional.run([data])[0]) == right


@pytest.mark.parametrize("number", range(8))
def test_random_programs_are_traced_alike_however_deep_the_stack_is(number):
    drawn_program = drawn(number, CHOICES, dropout=number % 2 == 0)
    examples = drawn_program.examples
    found = []
    for depth, variables in ((1, 100), (2, 100), (500, 100), (500, 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foldbatch.blocks.lower.depth_left", lambda depth=depth: depth)
            patch.setattr(printing, "MANY_VARIABLES", variables)
            tracer = fb.compile(drawn_program.block, "reference").lowered
            found.append([parts_of(trace) for trace in tracer.trace_all(examples, range(len(examples)))])
    assert all(each == found[0] for each in found)


def test_an_iterator_is_read_once():
    program = fb.compile(fb.Map(fb.GetItem(0) >> fb.Scalar("int32")) >> fb.Sum(), "reference")
    (one, other) = program.run([iter([[1], [2]]), [[1], [2]]])
    assert one.tolist() == other.tolist()


def test_cases_that_exclude_each_other_share_variables():
    """Python makes room for all variables of a function at each call, so many cases would make it slow."""
    cases = {
        kind: fb.GetItem(1) >> fb.Vector(1) >> fb.Linear(1, init="ones", name=f"layer {kind}")
        for kind in range(60)
    }
    program = fb.compile(fb.OneOf(itemgetter(0), cases), "reference")
    variables = [getattr(each, "co_nlocals", 0) for each in program.lowered.code.co_consts]
    assert max(variables) < 20
    assert [float(x[0]) for x in program.run([(59, [1]), (0, [2]), (7, [3])])] == [1, 2, 3]
    with pytest.raises(fb.errors.ExampleError, match=r"at example 1 .*\[1\]"):
        program.run([(59, [1]), (0, "two")])


ADD = fb.Function(lambda a, b: a + b)


def is_list(x: Any) -> bool:
    return isinstance(x, list)


def test_a_declaration_may_be_called_before_and_after_it_is_resolved():
    total = fb.ForwardDeclaration(output_type="float32", name="total")
    early = total()
    total.resolve_to(fb.OneOf(is_list, {False: ONE, True: (early, total()) >> ADD}))
    late = total()
    for block in (early, late):
        assert float(block.eval([[1, 2], [3, [4, 5]]])) == 15.0
    assert float(((early, late) >> ADD).eval([1, [2, 3]])) == 6.0


@pytest.mark.parametrize("name", ["two words", "2nd", "größe", "def", "row0", "feed0", "x0", "{x}"])
def test_any_string_will_do_as_name(name):
    total = fb.ForwardDeclaration(output_type="float32", name=name)
    total.resolve_to(fb.OneOf(is_list, {False: ONE, True: (total(), total()) >> ADD}))
    assert float(total().eval([1, [2, 3]])) == 6.0


def test_a_declaration_without_end_is_found_when_compiling():
    """Only what a choice or a list guards may recur: anything else would never end."""
    for make in (
        lambda loop: loop(),
        lambda loop: fb.GetItem(0) >> loop(),
        lambda loop: fb.AllOf(loop(), ONE) >> ADD,
    ):
        loop = fb.ForwardDeclaration(output_type="float32", name="loop")
        loop.resolve_to(make(loop))
        with pytest.raises(BlockTypeError, match="loop: expected a definition that ends"):
            fb.compile(loop())
    guarded = fb.ForwardDeclaration(output_type="float32", name="guarded")
    guarded.resolve_to(fb.Map(guarded()) >> fb.Function(ops.segment_sum))
    assert float(guarded().eval([[], [[], []]])) == 0.0


def test_none_declares_that_nothing_is_yielded():
    nothing = fb.ForwardDeclaration(output_type=None, name="nothing")
    assert nothing().output_type == fb.types.VOID
    assert repr(nothing) == "ForwardDeclaration(output_type=None, name='nothing')"
    assert repr(fb.ForwardDeclaration(name="loop")) == "ForwardDeclaration(name='loop')"
    nothing.resolve_to(ONE)
    with pytest.raises(BlockTypeError, match="nothing: expected the declared void, found float32"):
        fb.compile(nothing())
    undeclared = fb.ForwardDeclaration(name="loop")
    undeclared.resolve_to(ONE)
    with pytest.raises(BlockTypeError, match=r"found none; pass output_type=.*, or None for void"):
        fb.compile(undeclared())


def test_a_declaration_and_its_uses_print_without_end():
    loop = fb.ForwardDeclaration(output_type="float32", name="loop")
    loop.resolve_to(fb.OneOf(is_list, {False: ONE, True: (loop(), loop()) >> ADD}))
    assert repr(loop()) == "loop()"
    assert repr(loop) == "ForwardDeclaration(output_type='float32', name='loop')"
    assert repr(loop.block) == (
        "OneOf(is_list, {False: Scalar('float32'), True: Record((loop(), loop())) >> Function(<lambda>)})"
    )


def test_a_declaration_inside_many_sequences_counts_its_own():
    """Python compiles 20 loops inside each other; the rest of 26 stands in a declaration."""
    block: fb.Block = ONE
    for level in range(26):
        block = fb.Map(block) >> fb.Sum()
        if level == 12:
            inner = fb.ForwardDeclaration(output_type="float32", name="inner")
            inner.resolve_to(block)
            block = inner()
    data: Any = 2
    for _ in range(26):
        data = [data]
    assert float(block.eval([data[0], data[0]])) == 4.0
