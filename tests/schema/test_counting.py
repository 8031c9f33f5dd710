"""Counting at one place: numbers in one pass, strings and keys up to a bound, places that are merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.schema import counting, infer, kinds
from foldbatch.schema.counting import Counts, Limits, Numbers

LIMITS = Limits(categories=4, fields=3)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), st.integers(0, 9))
@settings(max_examples=40)
def test_mean_and_deviation_are_those_of_all_numbers_in_whatever_parts(values, cut):
    parts = Numbers(), Numbers()
    for i, value in enumerate(values):
        parts[i >= cut].take(value)
    parts[0].merge(parts[1])
    kind = parts[0].kind()
    assert (kind.count, kind.minimum, kind.maximum) == (len(values), min(values), max(values))
    assert kind.mean == pytest.approx(np.mean(values), abs=1e-6)
    if np.std(values) > 1e-3:
        assert kind.deviation == pytest.approx(np.std(values), rel=1e-6)


def test_numbers_of_any_size_have_a_finite_mean_and_deviation():
    numbers = Numbers()
    for value in (10**400, -(10**400), 1e308, 5e-324):
        numbers.take(value)
    assert np.isfinite([numbers.kind().mean, numbers.kind().deviation]).all()
    counts = Counts()
    counts.take_number(float("nan"))
    counts.take_number(float("-inf"))
    assert counts.place(LIMITS) == kinds.Place(2, ())


def test_equal_numbers_have_deviation_one():
    numbers = Numbers()
    for _ in range(7):
        numbers.take(0.1)
    assert numbers.kind().deviation == 1.0


def test_strings_are_a_category_if_they_are_few_and_come_again():
    def kind(*values):
        return infer(values, categories=2).root.kinds[0]

    assert kind("b", "a", "b", "a", "b") == kinds.Category(5, (("b", 3), ("a", 2)))
    assert kind("a", "b", "a") == kinds.Text(3, 1, 1, ("a", "b"))  # 1.5 times on average
    assert kind(*"aabbccdd", "long") == kinds.Text(9, 1, 4, ("a", "b", "c"))


def test_objects_are_dictionaries_if_they_have_many_keys_and_each_few_of_them():
    def kind(samples):
        return type(infer(samples, fields=3).root.kinds[0])

    assert kind([{"a": 1, "b": 2, "c": 3}, {"d": 1}]) is kinds.Fields  # half of them on average
    assert kind([{"a": 1, "b": 2}, {"c": 3}, {"d": 1}]) is kinds.Dictionary
    assert kind([{c: 1} for c in "abc"]) is kinds.Fields
    assert kind([dict.fromkeys("abcdefgh", 1)] * 3) is kinds.Fields


def test_the_values_of_a_dictionary_are_counted_together():
    samples = [{k: {"x": i, "tags": [k], "d": {k * 2: True}}} for i, k in enumerate("abcdefgh")]
    (whole,) = infer([*samples, {"a": None}], fields=3).root.kinds
    assert (whole.count, whole.shortest, whole.longest, whole.value.missing) == (9, 1, 1, 1)
    assert whole.key.kinds[0].count == 9
    record = whole.value.kinds[0].fields
    assert record["x"].kinds[0] == kinds.Number(8, 3.5, pytest.approx(5.25**0.5), 0.0, 7.0, whole=True)
    assert record["tags"].kinds[0].item.kinds[0].count == 8
    assert record["d"].kinds[0] == kinds.Dictionary(
        8,
        1,
        1,
        kinds.Place(0, (kinds.Text(8, 2, 2, ("aa", "bb", "cc")),)),
        kinds.Place(0, (kinds.Flag(8, 8),)),
    )


def test_many_keys_and_strings_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(counting, "MANY_KEYS", 10)
    counts = Counts()
    for i in range(1000):
        for place in counts.take_object([f"k{i}", "same"], LIMITS):
            place.take_string(f"text {i}", LIMITS)
    assert counts.objects.fields == {}
    assert len(counts.objects.values.strings.counts) <= 4
    whole = counts.place(LIMITS).kinds[0]
    assert (whole.count, whole.key.kinds[0].count, whole.value.kinds[0].count) == (1000, 2000, 2000)
    other = Counts()
    other.take_object(["x"], LIMITS)[0].take_flag(value=True)
    other.merge(counts, LIMITS)
    assert other.place(LIMITS).kinds[0].count == 1001
    assert [type(kind) for kind in other.place(LIMITS).kinds[0].value.kinds] == [kinds.Flag, kinds.Text]
