"""Languages of a few short sentences."""

import random

import numpy as np
import pytest

import foldbatch as fb


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
