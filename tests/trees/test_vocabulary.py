"""Words and their numbers."""

import pickle
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from foldbatch.trees import Vocabulary


@given(st.lists(st.text(max_size=3)), st.integers(1, 3))
def test_counted_words_are_numbered_from_one_and_others_are_zero(words, minimum):
    vocabulary = Vocabulary.count(words, minimum)
    counts = Counter(words)
    kept = [word for word in counts if counts[word] >= minimum]
    assert len(vocabulary) == len(kept) + 1
    assert [vocabulary[word] for word in vocabulary] == list(range(len(vocabulary)))
    for word in counts:
        assert (word in vocabulary) == (word in kept)
        assert (vocabulary[word] > 0) == (word in kept)
    assert [counts[word] for word in list(vocabulary)[1:]] == sorted(
        (counts[word] for word in kept), reverse=True
    )


def test_the_unknown_word_is_number_zero_wherever_it_stands():
    vocabulary = Vocabulary(["a", "*", "b"], unknown="*")
    assert list(vocabulary) == ["*", "a", "b"]
    assert (vocabulary["*"], vocabulary["b"], vocabulary["?"]) == (0, 2, 0)
    assert Vocabulary(vocabulary, unknown="*") == vocabulary


def test_vocabularies_compare_hash_and_pickle_by_their_words():
    vocabulary = Vocabulary(["a", "b"])
    again = pickle.loads(pickle.dumps(vocabulary))
    assert again == vocabulary
    assert hash(again) == hash(vocabulary)
    assert again["b"] == 2
    assert vocabulary != Vocabulary(["b", "a"])
    assert vocabulary != ("<unk>", "a", "b")
    assert repr(vocabulary) == "Vocabulary(3 words, unknown='<unk>')"
