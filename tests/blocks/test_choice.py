"""OneOf: the case is chosen by the example alone, and cases yield one type."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ExampleError, ExampleKeyError
from foldbatch.types import TensorType
from tests.blocks.results import slopes, yields

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
