"""Examples learn, and read what they should."""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from unittest import mock

import numpy as np
import pytest

import foldbatch as fb

LoadExample = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def corpus() -> fb.trees.Corpus:
    """A few dozen functions of one package of the standard library, which is read faster than the whole."""
    whole = fb.trees.standard_library_functions(Path(asyncio.__file__).parent)
    return fb.trees.Corpus(whole.train[:60], whole.dev[:10], whole.test[:20], whole.verbs)


def test_it_trains_and_prints_both_baselines(load, corpus, tmp_path, capsys, monkeypatch):
    """Three epochs on a few functions: the loss falls, and the figures are written."""
    monkeypatch.setattr(fb.trees, "standard_library_functions", lambda **_: corpus)
    file = tmp_path / "figures.json"
    assert load("trees/function_names").main(["--epochs", "3", "--hidden", "8", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    losses = [epoch["loss"] for epoch in figures["epochs"]]
    assert losses[-1] < losses[0]
    printed = capsys.readouterr().out
    assert "bag " in printed and "majority" in printed


def test_the_bag_of_node_types_cannot_see_more(load: LoadExample) -> None:
    """It learns what they tell."""
    example = load("trees/function_names")

    def examples(labels: tuple[str, str]) -> tuple[fb.trees.Example, ...]:
        tree = fb.trees.Tree
        return tuple(
            fb.trees.Example(tree([1, -1], [labels[i % 2], "F"]), i % 2, "m", "f") for i in range(20)
        )

    told = fb.trees.Corpus(*[examples(("If", "For"))] * 3, ("a", "b"))
    untold = fb.trees.Corpus(*[examples(("If", "If"))] * 3, ("a", "b"))
    assert example.bag_baseline(told) == 1.0
    assert example.bag_baseline(untold) == example.majority_baseline(untold) == 0.5


TREES = "(4 (3 good) (2 film))\n(0 (1 bad) (2 film))\n(2 (2 a) (2 (2 film) (2 .)))\n(3 good)\n"
VECTORS = "good 1.0 0.5\nbad -1.0 0.5\nfilm 0.1 0.2\n"


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    """A directory with four trees in each file, one of them a single word."""
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text(TREES, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
def test_it_learns_four_trees_by_heart(load: LoadExample, treebank: Path, optimizer: str) -> None:
    """And writes every figure for programs."""
    file = treebank / "figures.json"
    options = ["--data", str(treebank), *"--hidden 12 --epochs 25 --batch 2 --json".split(), str(file)]
    rate = "0.1" if optimizer != "adam" else "0.02"
    assert load("trees/sentiment").main([*options, "--optimizer", optimizer, "--lr", rate]) == 0
    figures = json.loads(file.read_text())
    assert len(figures["epochs"]) == 25
    assert figures["epochs"][-1]["loss"] < 0.7 * figures["epochs"][0]["loss"]
    assert {"loss", "dev_fine", "dev_binary", "seconds"} <= figures["epochs"][0].keys()
    assert figures["options"]["optimizer"] == optimizer
    assert {"test_fine", "test_binary", "test_majority"} <= figures.keys()


def test_a_limit_draws_from_sorted_data_and_the_most_frequent_class_is_told(load, tmp_path, capsys):
    """The first half of the file is positive, as most of the treebank's is."""
    lines = [f"({4 - label} (2 good) (2 film))\n" for label in (0, 4) for _ in range(50)]
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.txt").write_text("".join(lines), encoding="utf-8")
    options = ["--data", str(tmp_path), *"--hidden 2 --epochs 1 --limit 40".split()]
    drawn, value_and_grad = [], fb.Program.value_and_grad

    def noted(program, trees):
        drawn.extend(tree.label for tree in trees)
        return value_and_grad(program, trees)

    with mock.patch.object(fb.Program, "value_and_grad", noted):
        assert load("trees/sentiment").main(options) == 0
    assert len(drawn) == 40 and 10 < drawn.count(4) < 30
    printed = capsys.readouterr().out
    assert "50.0%       50.0%  always the most frequent class" in printed
    assert "always the most frequent class: 50.0%, binary 50.0%" in printed


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("train.txt", None, "train.txt"),
        ("train.txt", "", "train.txt"),
        ("dev.txt", "(4 (3 good) (2 film)\n", "dev.txt:"),
        ("test.txt", "(7 good)\n", "test.txt:1:2"),
        ("vectors.txt", "good 1.0 nan\n", "vectors.txt:1:"),
    ],
)
def test_bad_files_are_one_line(load, treebank, capsys, name, text, expected):
    """File, line and what was expected; status 2; no traceback."""
    (treebank / "vectors.txt").write_text(VECTORS, encoding="utf-8")
    if text is None:
        (treebank / name).unlink()
    else:
        (treebank / name).write_text(text, encoding="utf-8")
    vectors = str(treebank / "vectors.txt")
    options = ["--data", str(treebank), "--vectors", vectors, *"--hidden 5 --epochs 1".split()]
    assert load("trees/sentiment").main(options) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    assert expected in printed
    assert "expected" in printed


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


@pytest.fixture(scope="module")
def beam_trees(load):
    return load("trees/beam_trees")


def test_operations_have_the_values_that_their_brackets_say(beam_trees):
    """Each token becomes a piece of Python, whose value is the answer."""
    pieces = {"[MIN": "min([", "[MAX": "max([", "]": "]), "}
    for tokens, value in beam_trees.data(random.Random(0), 50, (5, 20)):
        written = "".join(pieces.get(token, f"{token}, ") for token in tokens)
        assert 5 <= len(tokens) <= 20
        assert eval(written) == (value,)


def test_beams_find_the_best_tree_where_all_are_followed(beam_trees):
    """Beside all trees of six leaves, one after the other; a narrow beam finds a worse one, or the same."""

    def score(left, right):
        return float(np.random.default_rng([len(str(left)), *map(ord, f"{left}{right}")]).normal())

    def trees(leaves):
        if len(leaves) == 1:
            return [(leaves[0], 0.0)]
        return [
            ((left, right), below + beside + score(left, right))
            for cut in range(1, len(leaves))
            for left, below in trees(leaves[:cut])
            for right, beside in trees(leaves[cut:])
        ]

    cells = beam_trees.Cells(
        token=None,
        join=lambda left, right: ((left, right), score(left, right)),
        sum=sum,
        mean_root=lambda beams: max(beams, key=lambda beam: beam[1]),
        answer=None,
    )
    best, total = max(trees([*"abcdef"]), key=lambda tree: tree[1])
    found, sum_of_scores = beam_trees.by_beams(cells, [*"abcdef"], 1000)
    assert found == best and sum_of_scores == pytest.approx(total)
    assert beam_trees.by_beams(cells, [*"abcdef"], 2)[1] <= sum_of_scores


def test_brackets_join_arguments_to_their_operation(beam_trees):
    cells = beam_trees.Cells(None, lambda left, right: (f"({left}{right})", 0.0), None, None, None)
    tokens = ["[MAX", "1", "[MIN", "2", "3", "]", "4", "]"]
    assert beam_trees.by_brackets(cells, tokens, tokens) == "(((([MAX1)((([MIN2)3)]))4)])"


def test_scores_of_joins_are_learnt_through_the_weights_of_roots(beam_trees):
    """The loss falls, and gradients reach the layer of scores; a batch is what its examples are alone."""
    examples = beam_trees.data(random.Random(0), 48, (5, 9))
    program = fb.compile(beam_trees.walk_of(beam_trees.cells(8), "beams", 2), seed=0)
    before, gradients = program.value_and_grad(examples)
    assert all(np.any(np.asarray(gradient)) for gradient in gradients.values())
    beam_trees.train(program, examples, epochs=4, batch=16)
    assert program.value_and_grad(examples)[0] < before
    alone = [program.run([example])[0] for example in examples[:6]]
    assert np.allclose(program.run(examples)[:6], alone, atol=1e-5)


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
