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
