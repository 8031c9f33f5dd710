"""Parts of a contest, alone: one split for all, features, measures, advice."""

import math
from dataclasses import replace

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.contest.advice import Facts, Result, advice, verdict
from foldbatch.contest.clock import Clock
from foldbatch.contest.columns import expression_tree
from foldbatch.contest.contender import Attempt, best_of, lesson_of
from foldbatch.contest.examples import examples_of
from foldbatch.contest.features import bag_of, counts_of, phrases_of, tokens_of
from foldbatch.contest.measures import (
    Interval,
    code_lines,
    difference,
    interval,
    mcnemar,
    outcome,
    score,
    wilson,
)
from foldbatch.contest.running import Figures
from foldbatch.contest.splitting import affordable, split

TEXTS = [f"{a} {b}" for a in "abcdefghij" for b in "klmnopqrst"]


def classes(count=100, rare=5):
    return examples_of(TEXTS[:count], ["rare" if i < rare else "usual" for i in range(count)], "made")


def test_parts_are_disjoint_complete_and_have_each_class():
    parts = split(classes(), seed=3)
    listed = [x for part in (parts.train, parts.dev, parts.test) for x in part.structures]
    assert sorted(listed) == sorted(classes().structures)
    assert len(set(listed)) == 100
    assert [len(part) for part in (parts.train, parts.dev, parts.test)] == [70, 10, 20] or len(
        parts.dev
    ) == 11
    for part in (parts.train, parts.dev, parts.test):
        assert set(part.answers.tolist()) == {0, 1}


def test_a_split_is_that_of_its_seed():
    again = [split(classes(), seed).test.structures for seed in (0, 0, 1)]
    assert again[0] == again[1] != again[2]


def test_answers_stay_with_their_structures():
    known = dict(zip(classes().structures, classes().answers.tolist(), strict=True))
    test = split(classes(), 0).test
    assert [known[x] for x in test.structures] == test.answers.tolist()


def test_more_than_the_time_allows_are_drawn_and_told():
    numbers = examples_of([f"text {i}" for i in range(3000)], [i + 0.5 for i in range(3000)], "made")
    drawn, told = affordable(numbers, minutes=1, limit=None, seed=0)
    assert len(drawn) == 2000
    assert "2,000 of 3,000 examples" in told
    assert affordable(numbers, minutes=2, limit=None, seed=0) == (numbers, "")
    drawn, told = affordable(classes(), minutes=5, limit=40, seed=0)
    assert (len(drawn), set(drawn.answers.tolist())) in ((41, {0, 1}), (40, {0, 1}))  # a class has 3 at least
    assert "as asked for" in told


def test_a_line_of_a_tree_tells_the_tree():
    lines = {tuple(tokens_of(expression_tree(text, "x"), "trees")) for text in ("f(g(a), b)", "f(g(a, b))")}
    assert len(lines) == 2
    assert all(line.count(")") == sum(token.endswith("(") for token in line) for line in lines)


def test_counts_know_pairs_of_nodes_and_figures_of_numbers():
    counts = counts_of(expression_tree("f(1, x)", "x"), "trees")
    assert (counts["Call over Constant:int"], counts["size"], counts["kind Name"]) == (1, 4, 2)
    counts = counts_of({"sizes": [1, 3, 8], "wine": {"name": "deep red wine"}, "none": None}, "records")
    assert [counts[f"{name} .sizes[]"] for name in ("mean", "least", "most", "numbers")] == [4, 1, 8, 3]
    assert counts["words .wine.name deep red"] == 1
    assert counts["text .none=None"] == 1
    assert not any(name.startswith("mean") for name in bag_of({"sizes": [1, 3]}, "records"))


def test_phrases_do_not_leak_labels_and_are_further_flat_examples():
    trees = [
        fb.trees.parse_brackets(f"({i % 2} (1 (0 {a}) (1 {b})) (0 c))")
        for i, (a, b) in enumerate(x.split() for x in TEXTS)
    ]
    assert tokens_of(trees[0], "phrases") == ["a", "k", "c"]
    assert phrases_of(trees[0]) == [(("a",), "0"), (("k",), "1"), (("a", "k"), "1"), (("c",), "0")]
    parts = split(examples_of(trees, None, "made"), 0)
    lesson = lesson_of(parts.train, parts.dev, 0)
    extra = dict(
        zip(
            lesson.flat_structures[len(parts.train) :],
            lesson.flat_answers[len(parts.train) :].tolist(),
            strict=True,
        )
    )
    assert extra["c",] == 0
    assert extra[parts.train.structures[0].words()[:2]] == 1
    assert lesson.flat_answers[: len(parts.train)].tolist() == parts.train.answers.tolist()


def test_intervals_hold_their_share():
    rng = np.random.default_rng(0)
    covered = [wilson(rng.binomial(200, 0.7) / 200, 200) for _ in range(400)]
    assert 0.92 < np.mean([low <= 0.7 <= high for low, high in covered]) < 0.98
    assert wilson(1.0, 20)[0] < 0.9 < wilson(1.0, 20)[1] == 1.0


def test_r2_of_the_mean_is_0_and_its_interval_holds_it():
    answers = np.random.default_rng(0).normal(size=200)
    assert score(answers, np.full(200, answers.mean()), "number") == pytest.approx(0)
    assert score(answers, answers, "number") == 1
    shown = interval(answers, answers * 0.5, "number", 0)
    assert shown.low < shown.figure < shown.high
    assert shown == interval(answers, answers * 0.5, "number", 0)


def test_a_difference_in_pairs_decides_where_intervals_overlap():
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 2, 300)
    second = np.where(rng.random(300) < 0.3, 1 - answers, answers)
    first = second.copy()
    wrong = np.flatnonzero(second != answers)[:20]
    first[wrong] = answers[wrong]
    apart = [interval(answers, x, "class", 0) for x in (first, second)]
    assert apart[0].low < apart[1].high
    gap = difference(answers, first, second, "class", 0)
    assert gap.figure == pytest.approx(20 / 300)
    assert outcome(gap, mcnemar(answers, first, second)) == "wins"
    assert outcome(difference(answers, second, first, "class", 0), mcnemar(answers, second, first)) == "loses"
    assert outcome(difference(answers, first, first, "class", 0), mcnemar(answers, first, first)) == "ties"


def test_numbers_have_no_test_but_the_interval():
    gaps = (
        Interval(0.1, -0.02, 0.2),
        Interval(-0.1, -0.2, 0.02),
        Interval(0.1, 0.02, 0.2),
        Interval(-0.1, -0.2, -0.02),
    )
    assert [outcome(gap, None) for gap in gaps] == ["ties", "ties", "wins", "loses"]


def test_mcnemar_is_the_binomial_test():
    zeros = np.zeros(12)
    second = np.array([1] * 9 + [0] * 3)
    first = np.array([0] * 9 + [1] * 2 + [0])
    expected = 2 * sum(math.comb(11, k) for k in range(3)) / 2**11
    assert mcnemar(zeros, first, second) == pytest.approx(expected)


def test_lines_of_code_leave_out_what_people_read():
    def plain(x):
        return x + 1

    def told(x):
        """Return more.

        In several lines.
        """
        # a comment

        return x + 1

    assert code_lines([plain]) == code_lines([told]) == 2


def test_a_setting_has_the_time_it_needs_and_the_best_counts():
    names = []

    def train(name, figure, in_time, clock):
        names.append((name, clock.seconds))
        return Attempt(name, None, figure, [], in_time)

    def setting(*values):
        return lambda clock: train(*values, clock)

    best, in_time = best_of(
        [setting("a", 0.5, True), setting("b", 0.7, False), setting("c", 0.6, True)], Clock(60)
    )
    assert (best.setting, in_time) == ("b", False)
    assert [name for name, _ in names] == ["a", "b", "c"]
    best, in_time = best_of([setting("a", 0.5, True), setting("b", 0.7, True)], Clock(0))
    assert (best.setting, in_time) == ("a", True)


def figures(title, figure, **changes):
    shown = Figures(
        title,
        "usual",
        Interval(figure, figure - 0.03, figure + 0.03),
        None,
        figure,
        figure,
        3,
        3,
        9,
        9,
        9,
        True,
    )
    return replace(shown, **changes)


FACTS = Facts("trees", "class", 5000, 1000, 0.0, 6.0, 0.5)
GAPS = {
    "wins": Interval(0.1, 0.05, 0.15),
    "ties": Interval(0.0, -0.02, 0.02),
    "loses": Interval(-0.1, -0.15, -0.05),
}


@pytest.mark.parametrize(
    ("kind", "changes", "beginning"),
    [
        (
            "wins",
            {},
            "structure pays here: foldbatch is better than the best baseline, bags (+10.0 points; 95 %: +5.0",
        ),
        ("wins", {"in_time": False}, "structure pays here, in the time there was: foldbatch is better"),
        ("ties", {}, "structure does not pay here: 1,000 test examples show no difference"),
        ("loses", {}, "structure does not pay here: foldbatch is worse than the best baseline, bags (-10.0"),
    ],
)
def test_the_verdict_says_it_plainly(kind, changes, beginning):
    text = verdict(
        figures("foldbatch", 0.8),
        [figures("bags", 0.7), figures("lines", 0.6, **changes)],
        figures("constant", 0.5),
        GAPS[kind],
        kind,
        FACTS,
    )
    assert text.startswith(beginning)
    assert ("cut off and may do better: lines" in text) == bool(changes)


def test_where_none_beats_a_constant_answer_the_verdict_says_so():
    text = verdict(
        figures("foldbatch", 0.52),
        [figures("bags", 0.5)],
        figures("constant", 0.5),
        GAPS["ties"],
        "ties",
        FACTS,
    )
    assert text.startswith("nothing is learnt here")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"peers": [figures("PyTorch BiLSTM", 0.6, in_time=False)]},
            "Cut off while dev still got better: PyTorch BiLSTM.",
        ),
        ({"facts": replace(FACTS, trained=300)}, "There are few examples to learn from, 300, which leaves"),
        (
            {"ours": figures("foldbatch", 0.7, train_score=0.99)},
            "foldbatch learns by heart (99.0 % of training",
        ),
        ({"ours": figures("foldbatch", 0.4), "outcome": "loses"}, "does not even fit"),
        ({"facts": replace(FACTS, unseen=0.3)}, "30% of the words of test are not in training: words.split"),
        ({"facts": replace(FACTS, height=2.0)}, "The structures are flat, 2.0 levels"),
        ({"facts": replace(FACTS, largest=0.9)}, "90% are of one class"),
        ({"peers": [figures("PyTorch Transformer", 0.8)]}, "adds up children whatever their order"),
        ({"outcome": "wins"}, "Go on with foldbatch train"),
        ({}, "Take the best baseline"),
    ],
)
def test_advice_follows_what_was_measured(changes, told):
    usual = Result(figures("foldbatch", 0.7), [figures("bags", 0.7)], GAPS["ties"], "ties", FACTS)
    assert sum(told in sentence for sentence in advice(replace(usual, **changes))) == 1
    assert [sentence for sentence in advice(usual) if told in sentence] == [] or not changes
