"""N-grams of letters on a hundred words."""

import random

import numpy as np
import pytest

import foldbatch as fb


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


def test_an_anagram_that_is_a_word_is_shuffled_again(ngrams):
    known = {"abc", "acb", "bac", "bca", "cab"}
    assert ngrams.with_anagrams(["abc"], known, random.Random(0)) == [("abc", 1), ("cba", 0)]


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


def test_the_maximum_along_the_word_is_a_reduction(ngrams):
    letters = fb.Map(fb.Scalar())
    pairwise = letters >> fb.Reduce(fb.Function(fb.ops.maximum))
    assert (letters >> fb.Max()).eval([3, 9, 4]) == pairwise.eval([3, 9, 4]) == 9


def test_the_untrained_program_fails_and_prints_what_was_expected(ngrams, capsys):
    assert ngrams.main(words=60, epochs=0, size=4) == 1
    printed = capsys.readouterr().out
    assert "n-grams of 1 " in printed
    assert "expected: at least 89%; without order: exactly 50%" in printed
    assert "one by one" in printed
