"""Blocks as plain data: every class comes back as it was, and what is one object stays one."""

import enum
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

import foldbatch as fb
from foldbatch.blocks.block import settings_of
from foldbatch.blocks.plain import KINDS, Plain, PlainObject, from_plain, to_plain
from foldbatch.errors import ModelError
from foldbatch.model.paths import trust_in
from foldbatch.params.parameters import Owner
from foldbatch.types import sequence_of
from tests import kept


class Side(enum.Flag):
    LEFT, RIGHT = 1, 2


class Kind(enum.Enum):
    WORD = "word"
    NODE = "node"


class Doubled(fb.Linear):
    """A layer of somebody else's."""

    def __init__(self, size: int, times: int = 2) -> None:
        super().__init__(size)
        self.times = times


@dataclass(frozen=True)
class Scaled:
    """A function of tensors with settings and a layer."""

    factor: float
    layer: Any

    def __call__(self, x: Any) -> Any:
        return self.factor * self.layer(x)


def again(block: fb.Block, names: dict[str, fb.Parameter] | None = None) -> Any:
    written = to_plain(block, names or {})
    assert written.lost == []
    arrays = {**written.arrays, **{name: parameter.value for name, parameter in (names or {}).items()}}
    plain = msgspec.json.decode(msgspec.json.encode(written.plain), type=Plain)
    twin, _ = from_plain(plain, arrays, trust_in(["tests"]))
    assert to_plain(twin, {}).plain == to_plain(block, {}).plain or names
    return twin


declared = fb.ForwardDeclaration(output_type=(2, None), name="d", memo=False)
scalar = fb.Scalar()
BLOCKS: list[fb.Block] = [
    fb.AllOf(scalar, scalar, fb.Void()),
    fb.blocks.Attention(3, init="ones", name="a"),
    fb.blocks.Attention(score="dot"),
    fb.Broadcast(),
    fb.ChildSumTreeLSTM(3),
    fb.blocks.Collected(fb.Map(scalar >> fb.blocks.Collect("c")), "c"),
    fb.Concat(1, flatten=True),
    declared(),
    fb.Dropout(0.25),
    fb.Embedding(3, 2, "normal", trainable=False, dtype="float64", name="e"),
    fb.Fold(fb.Function(fb.ops.add), fb.Zeros([])),
    fb.FromTensor(np.arange(3)),
    fb.FromTensor(np.float64(2)),
    fb.FromTensor(fb.Parameter([2], 0.5, "p", trainable=False)),
    fb.FromTensor(fb.Parameter([2, "float64"], np.ones(2))),
    fb.Function(fb.ops.tanh),
    fb.Function(fb.Linear(2)),
    fb.Function(Scaled(2.0, fb.Linear(2))),
    fb.GRUCell(2, reset_after=False),
    *map(fb.GetItem, ("a", 0, -1, slice(1, None), ..., True, (1, "x"), 1.5, None, Kind.WORD)),
    fb.GetItem("a", default=None),
    fb.GetItem("a", default={"x": [1]}),
    fb.Identity(),
    fb.InputTransform(kept.WORDS),
    fb.InputTransform(kept.WORDS.__getitem__),
    fb.blocks.Items(),
    fb.LSTMCell(2, forget_bias=0.5),
    fb.blocks.LayerNorm(0.1),
    fb.Length("int64"),
    fb.Linear(2, fb.ops.relu, bias=False),
    Doubled(3, times=4),
    scalar >> fb.Loss("l", weight=np.float32(0.5)),
    fb.Map(fb.Vector(2)) >> fb.Max(),
    fb.Map(fb.Vector(2)) >> fb.Mean(),
    fb.Map(fb.Vector(2)) >> fb.Min(),
    fb.Map(fb.Vector(2)) >> fb.Sum(),
    fb.Metric("m"),
    fb.NGrams(3),
    fb.Nth(),
    fb.OneHot(4),
    fb.OneHot(1, 4, "int32"),
    fb.OneHotFromList(["a", (1, 2), None], "bool", strict=False),
    fb.OneOf(len, (scalar, scalar)),
    fb.OneOf(fb.GetItem("k"), {1: scalar, "x": scalar}, fb.Identity()),
    fb.OneOf(type, {int: scalar, bool: scalar, type(None): fb.Zeros([]), Kind.NODE: scalar, 2.5: scalar}),
    fb.Optional(scalar, fb.FromTensor(1.0)),
    fb.Pipe(),
    fb.RNN(fb.LSTMCell(2), (fb.Zeros(2), fb.Zeros(2))),
    fb.RNN(fb.GRUCell(2), initial_state_from_input=True),
    fb.blocks.RNTN(2, name="r"),
    fb.Record({"a": scalar, 1: scalar}),
    fb.Record([(slice(1), fb.Identity()), ("b", fb.Identity())]),
    fb.Record((scalar,), rest="ignore"),
    fb.Record({}),
    fb.Record(()),
    fb.Reduce(fb.Function(fb.ops.add), np.float32(1)),
    fb.Slice(start=1, step=-1),
    fb.Tensor([2, 3], "uint8"),
    fb.blocks.TreeGRU(2),
    fb.TreeLSTM(2, arity=3),
    fb.blocks.TreeRNN(2, 3, None),
    fb.Vector(4, "int32"),
    fb.Zeros((2, None, sequence_of(3), [2, "int64"])),
    fb.Zip(),
    fb.ZipWith(fb.Identity()),
    kept.tree_model(),
]


def test_a_block_comes_back():
    for block in BLOCKS:
        twin = again(block)
        assert repr(twin) == repr(block)
        assert type(twin) is type(block)
        assert repr(twin.settings()) == repr(block.settings()) or "0x" in repr(block.settings())


def test_every_class_is_among_them():
    seen = {obj.kind for block in BLOCKS for obj in to_plain(block, {}).plain.objects}
    drawn = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    seen |= {obj.kind for obj in to_plain(drawn.lowered.origin, drawn.params.parameters).plain.objects}
    assert set(KINDS) <= seen


def test_what_is_one_object_stays_one():
    layer, words = fb.Linear(2), kept.WORDS
    one, two = again(fb.Vector(2) >> fb.AllOf(layer, layer)).blocks[1].blocks
    assert one is two
    one, two = again(fb.AllOf(fb.InputTransform(words), fb.InputTransform(words.__getitem__))).blocks
    assert one.fn is two.fn.__self__


def test_a_parameter_of_a_layer_used_elsewhere_stays_its_parameter():
    layer = fb.Linear(2, bias=False, name="tied")
    block = fb.Vector(2) >> fb.AllOf(layer, layer >> fb.FromTensor(fb.Parameter([1], 0.0, "p")))
    fb.compile(block, "numpy")
    whole = fb.AllOf(fb.FromTensor(layer.parameters["weight"]), block)
    names = fb.compile(whole, "numpy").params.parameters
    twin = again(whole, names)
    found = fb.compile(twin, "numpy").params.parameters
    assert list(found) == list(names)
    assert twin.blocks[0].tensor is twin.blocks[1].blocks[1].blocks[0].parameters["weight"]


def test_declarations_that_refer_to_each_other_come_back():
    a, b = (fb.ForwardDeclaration(output_type=[], name=name) for name in "ab")
    deeper = fb.Map(b()) >> fb.Sum()
    a.resolve_to(fb.OneOf(type, {list: deeper, int: scalar}))
    b.resolve_to(fb.OneOf(type, {list: fb.Map(a()) >> fb.Max(), int: scalar}))
    program = fb.compile(again(a()), "numpy")
    assert float(program.run([[1, [2, [3, 4]], 5]])[0]) == 13.0
    unresolved = again(fb.ForwardDeclaration(name="later")())
    assert unresolved.declaration.output_type is None
    with pytest.raises(fb.errors.BlockTypeError, match="an unresolved one"):
        fb.compile(unresolved, "numpy")


def test_a_frozen_and_a_trainable_flag_changed_later_come_back():
    layer = fb.Linear(2)
    program = fb.compile(fb.Vector(2) >> layer, "numpy")
    layer.parameters["bias"].trainable = False
    twin = again(program.lowered.origin, program.params.parameters)
    assert [p.trainable for p in twin.blocks[1].parameters.values()] == [True, False]
    assert {p.owner for p in twin.blocks[1].parameters.values()} == {twin.blocks[1].owner}


def test_names_are_given_or_not_as_they_were():
    one, two = fb.Parameter([1], 0.0), fb.Parameter([1], 0.0, "parameter")
    twin = again(fb.AllOf(fb.FromTensor(one), fb.FromTensor(two)))
    assert [block.tensor.given for block in twin.blocks] == [False, True]


def test_initial_arrays_and_functions_of_drawn_parameters_are_not_written():
    table = fb.Embedding(100, 3, init=lambda rng, shape: rng.normal(size=shape))
    ids = fb.Scalar("int32") >> fb.AllOf(table, fb.Embedding(100, 3, init=np.ones((100, 3))))
    names = fb.compile(ids, "numpy").params.parameters
    written = to_plain(ids, names)
    assert (written.lost, written.arrays) == ([], {})


def test_a_deep_nest_and_a_long_pipe_need_no_recursion():
    block: Any = scalar
    for _ in range(3000):
        block = fb.Map(block)
    depth = 0
    twin = again(block)
    while isinstance(twin, fb.Map):
        twin, depth = twin.block, depth + 1
    assert depth == 3000
    long = fb.Pipe(scalar, *[fb.Identity() for _ in range(10_000)])
    assert len(again(long).blocks) == 10_001


def test_what_cannot_be_written_is_named_with_its_block():
    def local(x: Any) -> Any:
        return x

    class Here(fb.Identity):
        pass

    block = fb.Pipe(
        fb.InputTransform(lambda x: x), fb.InputTransform(local), Here(), fb.OneOf(lambda x: 0, [scalar])
    )
    both = fb.GetItem(Side.LEFT | Side.RIGHT)  # no member has this name
    one, two, three, four, five = to_plain(fb.AllOf(block, both), {}).lost
    assert re.fullmatch(r"a lambda \(test_plain.py:\d+\) of InputTransform\(<lambda>\)", one)
    assert re.fullmatch(r"the function .*local \(test_plain.py:\d+\) of InputTransform\(local\)", two)
    assert "the class" in three
    assert "of OneOf(<lambda>" in four
    assert "LEFT|RIGHT" in five


DATA_NO = [
    ([PlainObject("Nothing")], "unknown one"),
    ([PlainObject("os:system")], "or one that the caller trusts"),
    ([PlainObject("tests.blocks.test_plain:Doubled", {"size": 2})], "or one that the caller trusts"),
    ([PlainObject("builtins:len")], "no class of blocks"),
    ([PlainObject("builtins:dict")], "no class of blocks"),
    ([PlainObject("Map", {"block": {"object": 0}})], "object 0 of 0"),
    ([PlainObject("Identity"), PlainObject("Map", {"block": {"object": 7}})], "object 7 of 1"),
    ([PlainObject("Identity"), PlainObject("Map", {"block": {"object": True}})], "object True of 1"),
    ([PlainObject("Identity"), PlainObject("Map", {"block": {"object": -1}})], "object -1 of 1"),
    ([PlainObject("Linear", {"size": -3})], "int -3"),
    ([PlainObject("Linear", {"size": 3, "colour": 1})], "no argument colour"),
    ([PlainObject("Linear", {"size": 3}, {"parameters": 5})], "AttributeError"),
    ([PlainObject("Identity", {}, {"x": 1})], "expected no state"),
    ([PlainObject("Owner", {"name": 5})], "wrong settings"),
    ([PlainObject("Parameter", {"type": 3, "owner": 5})], "wrong settings"),
    ([PlainObject("Parameter", {"type": 3}, {"array": "x"})], "KeyError"),
    ([PlainObject("Parameter", {"type": 3}, {"array": "w"})], "float32[2]"),
    ([PlainObject("Vocabulary", {"words": []})], "in place of a Block"),
    ([PlainObject("GetItem", {"key": {"no": 1}})], "kind 'no'"),
]


def test_data_of_no_block_are_refused():
    for things, found in DATA_NO:
        with pytest.raises(ModelError, match=re.escape(found)):
            from_plain(Plain(things, [], len(things) - 1), {"w": np.zeros(2, "float32")})


def test_a_definition_is_that_of_a_declaration_and_the_only_one():
    things = [PlainObject("ForwardDeclaration"), PlainObject("Identity")]
    for definitions in ([(1, 1)], [(0, 0)], [(0, 9)], [(0, 1), (0, 1)]):
        with pytest.raises(ModelError):
            from_plain(Plain(things, definitions, 1), {})


def test_the_settings_of_an_owner_are_found():
    assert settings_of(Owner("x", given=True)) == {"name": "x", "given": True}


def test_what_contains_itself_is_named():
    scaled = Scaled(1.0, [])
    scaled.layer.append(scaled)
    (lost,) = to_plain(fb.Function(scaled), {}).lost
    assert lost.startswith("a Scaled that contains itself")


def test_a_parameter_called_as_a_constant_would_be_keeps_its_name():
    parameter = fb.Parameter([2], 0.5, "constant 0")
    block = fb.AllOf(fb.FromTensor(parameter), fb.FromTensor(np.ones(3)))
    names = fb.compile(block, "numpy").params.parameters
    written = to_plain(block, names)
    assert list(written.arrays) == ["constant 0'"]
    one, two = again(block, names).blocks
    np.testing.assert_array_equal(one.tensor.value, [0.5, 0.5])
    np.testing.assert_array_equal(two.tensor, np.ones(3))


def test_equal_constants_are_written_once():
    arrays = [np.ones(3), np.ones(3), np.ones(3, "float32"), np.ones((3, 1)), np.zeros((0, 2))]
    block = fb.AllOf(*map(fb.FromTensor, arrays))
    assert len(to_plain(block, {}).arrays) == 4
    for array, twin in zip(arrays, again(block).blocks, strict=True):
        np.testing.assert_array_equal(twin.tensor, array, strict=True)


def test_two_parameters_of_one_name_are_refused():
    things = [PlainObject("Parameter", {"type": [2]}, {"array": "w"})] * 2
    with pytest.raises(ModelError, match="two parameters 'w'"):
        from_plain(Plain(things, [], 1), {"w": np.zeros(2, "float32")})
