"""The functions that read values for blocks of schemas."""

from foldbatch.schema import reading
from foldbatch.trees import Vocabulary


def test_each_function_reads_its_kind_and_nothing_else():
    functions = {
        "flag": reading.as_flag,
        "number": lambda x: reading.as_number(x, 0.0, 1.0),
        "string": lambda x: reading.as_category(x, Vocabulary(["a"])),
        "text": lambda x: reading.as_ngrams(x, 2, 10),
        "list": reading.as_list,
        "record": lambda x: reading.as_fields(x, ("a",)),
        "pairs": reading.as_pairs,
    }
    reads = {
        name: [
            i
            for i, value in enumerate((True, 1, 1.5, "a", [1], {"a": 1}, None))
            if function(value) is not None
        ]
        for name, function in functions.items()
    }
    assert reads == {
        "flag": [0],
        "number": [1, 2],
        "string": [3],
        "text": [3],
        "list": [4],
        "record": [5],
        "pairs": [5],
    }


def test_numbers_without_a_place_on_the_line_are_missing_and_far_ones_are_drawn_near():
    assert reading.as_number(float("nan"), 0.0, 1.0) is None
    assert reading.as_number(float("inf"), 0.0, 1.0) is None
    assert reading.as_number(10**400, 0.0, 1.0) == [10.0]


def test_ngrams_tell_the_ends_of_a_text_and_are_the_same_everywhere():
    assert reading.as_ngrams("ab", 2, 10**9) == [230643635, 659403885, 400930400]
    assert reading.as_ngrams("", 3, 100) == reading.as_ngrams("", 7, 100)
    assert len(reading.as_ngrams("x" * 5000, 3, 100)) == reading.LONGEST
    assert reading.as_ngrams("\ud800", 1, 100) is not None
    assert reading.as_ngrams("ab", 2, 10**9)[0] != reading.as_ngrams("ba", 2, 10**9)[-1]
