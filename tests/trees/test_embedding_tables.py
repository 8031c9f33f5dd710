"""Tables of a vocabulary's vectors, and the report on words without one."""

from collections import Counter

import numpy as np

from foldbatch.trees import Coverage, Vectors, Vocabulary, embedding_matrix, read_sst, read_vectors

SMALL = Vectors(("the", "(", "and/or", ")", "/"), np.arange(10, dtype=np.float32).reshape(5, 2))


def test_a_table_takes_a_word_as_it_stands_then_in_lower_case():
    table, coverage = embedding_matrix(["the", "The", "loom"], SMALL)
    assert (table.dtype, coverage) == (np.float32, Coverage(1, 1, 1, ("loom",)))
    assert table[:2].tolist() == [[0, 1], [0, 1]]
    cased = Vectors(("the", "The"), np.array([[1], [2]], np.float32))
    assert embedding_matrix(["The", "the", "THE"], cased)[0].tolist() == [[2], [1], [1]]


def test_a_table_undoes_the_escapes_of_treebanks():
    table, coverage = embedding_matrix(["-LRB-", "-RRB-", "\\/", "and\\/or", "AND\\/OR"], SMALL)
    assert table.tolist() == [[2, 3], [6, 7], [8, 9], [4, 5], [4, 5]]
    assert coverage == Coverage(found=4, lowered=1, missing=0)


def test_missing_words_are_drawn_from_the_seed_and_their_row_alone():
    words = [f"w{i}" for i in range(1000)]
    table, coverage = embedding_matrix(words, SMALL, seed=3, scale=0.2)
    assert coverage.missing == 1000
    assert np.abs(table).max() <= 0.2
    assert np.abs(table).max() > 0.19
    assert abs(table.mean()) < 0.02
    again, _ = embedding_matrix(["the", *words[1:]], SMALL, seed=np.random.default_rng(3), scale=0.2)
    assert again[1:].tolist() == table[1:].tolist()
    assert embedding_matrix(words, SMALL, seed=4, scale=0.2)[0].tolist() != table.tolist()


def test_of_repeated_words_in_vectors_the_first_counts():
    twice = Vectors(("a", "a"), np.array([[1], [2]], np.float32))
    assert embedding_matrix(["a"], twice)[0].tolist() == [[1]]


def test_the_report_names_the_most_frequent_missing_words():
    tokens = "the loom the LOOM x y y y of of".split()
    _, coverage = embedding_matrix(Vocabulary.count(tokens), SMALL, counts=Counter(tokens))
    assert coverage == Coverage(
        1, 0, 6, ("y", "of", "loom", "LOOM", "x", "<unk>"), tokens=10, missing_tokens=8
    )
    assert str(coverage) == (
        "1 of 7 words have a vector (14.3 %); 6 words have none.\n"
        "The words without a vector are 8 of 10 tokens (80.0 %).\n"
        "Missing: 'y', 'of', 'loom', 'LOOM', 'x', '<unk>'."
    )


def test_the_report_is_short_whatever_is_missing():
    _, coverage = embedding_matrix([f"w{i}" for i in range(3000)] + ["The"], SMALL)
    assert len(coverage.most_missed) == 20
    assert str(coverage) == (
        "1 of 3,001 words have a vector (0.0 %), 1 of them in lower case; 3,000 words have none.\n"
        "Missing: 'w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7' and 2,992 more."
    )
    assert (
        str(embedding_matrix(["the"], SMALL)[1]) == "1 of 1 word have a vector (100.0 %); 0 words have none."
    )
    assert str(embedding_matrix([], SMALL)[1]) == "0 of 0 words have a vector; 0 words have none."


def test_the_words_of_the_treebank_are_covered(data_folder):
    vectors = read_vectors(data_folder / "glove" / "glove.6B.100d.sst.txt.gz")
    words = (word for tree in read_sst(data_folder / "sst" / "dev.txt") for word in tree.words())
    table, coverage = embedding_matrix(Vocabulary.count(words), vectors)
    assert coverage.found + coverage.lowered + coverage.missing == len(table)
    assert coverage.missing < 0.1 * len(table)
    assert coverage.lowered > 0
