"""Languages of a few short sentences."""

import random

import numpy as np
import pytest

import foldbatch as fb


@pytest.fixture(scope="module")
def language_id(load):
    return load("sequences/language_id")


def test_words_to_test_are_new_and_of_one_language(language_id):
    names, training, test = language_id.read_words()
    assert len(names) == len(set(names)) == len(training) == len(test) == 6
    words = [word for part in (training, test) for each in part for word in each]
    assert len(words) == len(set(words))
    assert all(len(each) >= 60 for each in training)


def test_sentences_have_two_to_seven_words_of_their_language(language_id):
    words = [["a", "b"], ["c"]]
    for sentence, language in language_id.sentences(words, 50, random.Random(0)):
        assert 2 <= len(sentence.split()) <= 7
        assert set(sentence.split()) <= set(words[language])


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


def test_the_untrained_program_fails_and_prints_what_was_expected(language_id, capsys):
    assert language_id.main(count=50, epochs=0, size=4) == 1
    printed = capsys.readouterr().out
    assert "counting pairs of letters" in printed
    assert "expected: at least 89%; guessing: 17%" in printed
    assert "one by one" in printed
