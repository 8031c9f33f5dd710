"""Example programs learn what they say."""

import json
import random

import numpy as np
import pytest

import foldbatch as fb


@pytest.fixture(scope="module")
def calculator(load):
    return load("trees/calculator")


@pytest.mark.parametrize(
    ("expression", "result"),
    [(7, 7), (("+", 3, ("*", 2, 4)), 11), (("//", 7, 0), 0), (("//", ("-", 1, 2), 2), -1)],
)
def test_expressions_come_to_what_python_makes_of_them(calculator, expression, result):
    assert calculator.result(expression) == result
    assert calculator.SIGNS[calculator.sign(expression)] == ("zero", "positive", "negative")[np.sign(result)]


def test_it_learns_more_than_always_guessing_the_same(calculator):
    found = calculator.data(2300)
    training, test = found[:2000], found[2000:]
    program = fb.compile(calculator.model(16))
    calculator.train(program, training, epochs=4)
    guessed = max(np.mean([wanted == sign for _, wanted in test]) for sign in range(3))
    assert calculator.report(program, test) > guessed + 0.15


LAMP = {"kind": "lamp", "weight": 1.5}


@pytest.fixture(scope="module")
def records(load):
    return load("records/json_records")


def order(**changes):
    customer = {"address": {"country": "DE", "floor": None}, "ratings": []}
    return {"customer": customer, "items": [], "tags": [], **changes}


def test_orders_are_written_as_lines_with_their_costs(records, tmp_path):
    records.write(tmp_path / "orders", 20)
    parts = [
        (tmp_path / "orders" / f"{part}.jsonl").read_text().splitlines() for part in ("train", "dev", "test")
    ]
    assert [len(lines) for lines in parts] == [20, 2, 2]
    lines = [json.loads(line) for part in parts for line in part]
    pairs = [(json.loads(text), paid) for text, paid in records.data(24)]
    assert lines == [{**order, "cost": paid} for order, paid in pairs]


def test_a_kind_that_is_unknown_is_named_with_its_place(records):
    text = json.dumps(order(items=[LAMP, {"kind": "sofa"}]))
    with pytest.raises(fb.errors.ExampleError, match=r"(?s)\['items'\]\[1\].*'book', 'lamp', 'rug'.*'sofa'"):
        fb.compile(records.model(4)).run([(text, 0.0)])


def test_it_learns_what_flat_rows_do_not_tell(records):
    found = records.data(2200)
    program = fb.compile(records.model(32))
    records.train(program, found[:2000], epochs=4)
    paid = [euros for _, euros in found[2000:]]
    assert records.explained(list(program.run(found[2000:])), paid) > 0.85


@pytest.fixture(scope="module")
def language_id(load):
    return load("sequences/language_id")


def test_counting_letters_finds_the_language_that_has_them(language_id):
    score = language_id.counting([["aab", "ba"], ["xyz"]], list)
    assert np.argmax(score("abba")) == 0
    assert np.argmax(score("zyx xx")) == 1


def test_it_learns_more_than_guessing(language_id):
    _, training, held = language_id.read_words()
    letters = fb.trees.Vocabulary.count(letter for each in training for word in each for letter in word)
    program = fb.compile(language_id.model(letters, 6, 24))
    language_id.train(program, training, count=300, epochs=4, batch=30)
    test = language_id.sentences(held, 100, random.Random(2))
    assert language_id.accuracy(program.run(test), test) > 0.35


@pytest.fixture(scope="module")
def ngrams(load):
    return load("sequences/ngrams")


def test_anagrams_have_the_same_letters_and_are_no_words(ngrams):
    words = ngrams.dictionary()
    found = ngrams.with_anagrams(words[:300], set(words), random.Random(0))
    assert len(words) > 1500
    for (word, yes), (anagram, no) in zip(found[::2], found[1::2], strict=True):
        assert (yes, no) == (1, 0)
        assert sorted(word) == sorted(anagram)
        assert anagram not in words


def test_a_bag_of_letters_cannot_tell_words_from_anagrams(ngrams):
    program = fb.compile(ngrams.model([1], 8))
    scores = program.run([("listen", 1), ("silent", 1), ("listne", 0)])
    np.testing.assert_allclose(list(scores), [scores[0]] * 3, rtol=1e-5)
    pairs = fb.compile(ngrams.model([2], 8)).run([("listen", 1), ("silent", 1)])
    assert not np.allclose(*pairs)


def test_pairs_of_letters_learn_to_tell_words_from_anagrams(ngrams):
    words = ngrams.dictionary()
    program = fb.compile(ngrams.model([2], 32))
    ngrams.train(program, words[200:1400], set(words), epochs=3)
    assert ngrams.accuracy(program, ngrams.with_anagrams(words[:200], set(words), random.Random(0))) > 0.65
