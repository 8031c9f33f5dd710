"""Inferring schemas of samples, and keeping them as plain data."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, ModelError
from foldbatch.schema import Schema, infer

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(0, 3), st.integers(0, 3))
@settings(max_examples=50)
def test_any_samples_have_a_schema_that_is_plain_data(samples, categories, fields):
    text = json.dumps(infer(iter(samples), categories=categories, fields=fields).to_plain(), allow_nan=False)
    schema = Schema.from_plain(json.loads(text))
    assert schema == infer(samples, categories=categories, fields=fields)
    assert len(str(schema).splitlines()) >= 1


def test_samples_may_be_lines_of_a_file():
    schema = infer(fb.read_jsonlines(['{"a": 1}', '{"a": 2, "b": "x"}']))
    assert {name: place.missing for name, place in schema.root.kinds[0].fields.items()} == {"a": 0, "b": 1}
    assert repr(schema) == "Schema(record)"


@pytest.mark.parametrize("samples", [{"a": 1}, "text", b"x", 5, None])
def test_one_sample_in_place_of_several_is_refused(samples):
    with pytest.raises(
        ExampleTypeError, match=r"infer: expected a list of samples, found .*; write \[sample\]"
    ):
        infer(samples)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (
            {"a": [1, {"b": {1, 2}}]},
            r"samples\[1\]\['a'\]\[1\]\['b'\]: expected a value of JSON, found set of 2",
        ),
        ([{1: 2}], r"samples\[1\]\[0\]: expected keys of str, found dict with keys \[1\]"),
        (b"x", r"samples\[1\]: expected a value of JSON, found bytes b'x'; give samples as read_json"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(sample, message):
    with pytest.raises(ExampleTypeError, match=message):
        infer([None, sample])


def test_great_depth_and_no_samples_are_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(
        ExampleError, match="expected 64 levels or fewer, found more; describe data of any depth"
    ):
        infer([deep])
    with pytest.raises(ExampleError, match="expected one sample or more, found none"):
        infer([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "expected a positive int as size, found int 0"),
        ({"size": 2, "pooling": ("median",)}, "expected pooling as some of 'mean', 'max', 'sum', 'min'"),
        ({"size": 2, "pooling": "mean"}, "expected pooling as some of"),
        ({"size": 2, "ngram": 1.5}, "expected a positive int as ngram, found float 1.5"),
    ],
)
def test_settings_of_blocks_are_checked(options, message):
    with pytest.raises(BlockValueError, match=message):
        infer([1]).block(**options)


def test_a_schema_without_values_has_no_block():
    with pytest.raises(BlockValueError, match="expected a schema with values, found record"):
        infer([{"a": None, "b": []}]).block(3)


def _deep(levels):
    plain = {"missing": 0, "kinds": []}
    for _ in range(levels):
        plain = {
            "missing": 0,
            "kinds": [{"kind": "list", "count": 1, "shortest": 1, "longest": 1, "item": plain}],
        }
    return plain


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([], "expected a schema, found Expected `object`, got `array`"),
        ({"missing": 0, "kinds": [{"kind": "colour"}]}, "colour"),
        ({"missing": 0, "kinds": [{"kind": "flag", "count": "3", "true": 1}]}, "Expected `int`, got `str`"),
        (
            {"missing": 0, "kinds": [{"kind": "number", "count": 1, "mean": 0, "deviation": 0, "minimum": 0, "maximum": 0, "whole": True}]},
            "expected a deviation above 0, found 0.0",
        ),
        ({"missing": 0, "kinds": [{"kind": "category", "count": 2, "values": [["a", 1], ["a", 1]]}]}, "found one twice"),
        (_deep(65), "expected 64 levels or fewer, found more"),
        (_deep(100_000), "expected a schema"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused(plain, message):
    with pytest.raises(ModelError, match=message):
        Schema.from_plain(plain)
    assert Schema.from_plain(_deep(64)).to_plain() == _deep(64)
