"""Sentences of words that name their heads, and the trees they make."""

import pytest

from foldbatch.errors import ReadError
from foldbatch.trees import Sentence, Word


def sentence(*heads):
    words = tuple(
        Word(f"w{i}", None, None, None, None, head, "x", None, None, i) for i, head in enumerate(heads, 1)
    )
    return Sentence(words, ("sent_id = 4", "a = b = c", "checked"), (), "here")


def test_notes_are_the_comments_with_an_equals_sign():
    assert sentence(0).notes() == {"sent_id": "4", "a": "b = c"}


def test_features_may_lack_a_value_or_be_none_at_all():
    word = sentence(0).words[0]
    assert word.features() == {}
    assert Word("w", None, None, None, "A=1,2|B", 0, None, None, None, 1).features() == {"A": "1,2", "B": ""}


def test_the_first_word_whose_subtree_has_a_gap_is_found():
    straight = sentence(2, 0, 2, 3)
    assert straight.first_crossing(straight.post_order(straight.roots())) == 0
    crossed = sentence(3, 0, 2, 1)  # 4 hangs from 1, and 2 between them does not
    assert crossed.first_crossing(crossed.post_order(crossed.roots())) == 1
    with pytest.raises(ReadError, match="here:1:1: expected a projective tree"):
        crossed.tree(crossing="error")


def test_words_without_a_lemma_are_nodes_without_a_token():
    assert sentence(0, 1).tree(words="lemma").tokens == (None, None)
