"""Blocks of schemas: values become vectors, and what the samples did not have becomes zeros."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.schema import infer, reading
from foldbatch.trees import Vocabulary

SAMPLES = [
    {
        "kind": "cat" if i % 2 else "dog",
        "name": f"name {i}",
        "ok": i % 3 == 0,
        "age": i,
        "tags": ["x"] * (i % 3),
        "scores": {f"user{i}": i / 2},
        "mixed": 1 if i % 2 else "one",
        "nothing": None,
        "none": {},
        "never": [],
    }
    for i in range(80)
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*SAMPLES[0], "new"]), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def program():
    return fb.compile(infer(SAMPLES).block(4), backend="numpy", seed=1)


def embed(block, *values):
    return np.stack(fb.compile(block, backend="numpy", seed=1).run(list(values)))


def test_samples_become_vectors_that_tell_them_apart(program):
    vectors = np.stack(program.run(SAMPLES))
    assert (vectors.shape, vectors.dtype) == ((80, 4), np.float32)
    assert len({tuple(vector) for vector in vectors.tolist()}) == 80


@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(max_examples=12)
def test_no_value_of_json_is_an_error(program, values):
    assert np.isfinite(np.stack(program.run(values))).all()


def test_null_another_kind_and_an_absent_field_are_alike(program):
    base = {**SAMPLES[5]}
    del base["age"]
    vectors = np.stack(program.run([base, {**base, "age": None}, {**base, "age": "old"}, {**base, "new": 1}]))
    assert (vectors == vectors[0]).all()
    assert not np.stack(program.run([None, 7, [], "text"])).any()


def test_each_kind_is_embedded():
    assert embed(infer([True, False]).block(3), True, False, 1).any(axis=1).tolist() == [True, True, False]
    numbers = embed(infer([1, 2, 3]).block(3), 2, 3, 10**400, float("nan"), "3")
    assert numbers.any(axis=1).tolist() == [False, True, True, False, False]
    words = embed(infer([*"aabb"]).block(3), "a", "b", "new", "newer", None)
    assert (words[2] == words[3]).all()
    assert len({*map(tuple, words.tolist())}) == 4
    texts = embed(infer(["one", "two"]).block(3, ngram=2), "one", "eno", "", 5)
    assert len({*map(tuple, texts.tolist())}) == 4
    assert texts.any(axis=1).tolist() == [True, True, True, False]
    lists = embed(infer([[1, 2], [5]]).block(3, pooling=("sum",)), [1], [1, 1], [], None)
    assert lists.any(axis=1).tolist() == [True, True, False, False]
    pairs = embed(infer([{f"k{i}": i} for i in range(40)]).block(3), {"k1": 1}, {"k2": 1}, {"k1": 30}, {})
    assert len({*map(tuple, pairs.tolist())}) == 4
    keys = embed(infer([{f"k{i}": None} for i in range(40)]).block(3), {"k1": 1}, {"k2": None})
    assert len({*map(tuple, keys.tolist())}) == 2


def test_mixed_values_are_read_by_their_kind():
    vectors = embed(infer([1, 5, "a", "a", [True], None]).block(3), 1, "a", [True], None, {"a": 1})
    assert vectors.any(axis=1).tolist() == [True, True, True, False, False]


def test_fields_without_values_are_left_out():
    block = infer([{"a": True, "b": None, "c": [], "d": {"e": None}}]).block(3)
    assert len(fb.compile(block, backend="numpy").params) == 3  # a table, a weight and a bias


def test_the_gradient_reaches_every_layer():
    block = infer(SAMPLES).block(4) >> fb.Function(lambda x: fb.ops.sum(x * x)) >> fb.Loss()
    program = fb.compile(block, backend="numpy", seed=1)
    _, gradients = program.value_and_grad(SAMPLES)
    assert len(list(gradients)) == len(program.params)


def test_blocks_hold_functions_of_modules_vocabularies_and_numbers_only():
    plain, seen = (str, int, float, tuple, Vocabulary), []

    def visit(block):
        for value in vars(block).values():
            for part in value if isinstance(value, tuple) else [value]:
                part = part[1] if isinstance(part, tuple) and len(part) == 2 else part
                if isinstance(part, fb.Block):
                    visit(part)
        if isinstance(block, fb.InputTransform):
            fn = block.fn.func if isinstance(block.fn, partial) else block.fn
            seen.append(fn)
            assert getattr(reading, fn.__name__) is fn
            assert all(isinstance(value, plain) for value in getattr(block.fn, "keywords", {}).values())

    visit(infer(SAMPLES).block(4))
    assert len(set(seen)) == 7


def test_a_deep_schema_has_a_block():
    deep = 1.0
    for level in range(40):
        deep = [deep] if level % 2 else {"a": deep}
    assert embed(infer([deep]).block(2), deep).shape == (1, 2)
