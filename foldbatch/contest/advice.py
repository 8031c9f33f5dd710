"""The verdict of a contest in a sentence, and rules from what was measured to what to try next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foldbatch.contest.examples import Answer, Form
from foldbatch.contest.measures import Interval
from foldbatch.contest.running import Figures

FEW_TRAINED = 1000
OVERFITTED = 0.15  # of a score, from training to dev
UNSEEN = 0.15  # of the words of test
FLAT_HEIGHT = 3.0
FREQUENT = 0.8  # the share of a class


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a contest that advice is given by.

    Attributes:
        form: of the structures.
        task: of the answers.
        trained: how many examples there were to learn from; ``tested`` how many to test on.
        tested: see above.
        unseen: the share of the words, or texts, of test that training has not.
        height: the mean height of the structures.
        largest: the share of the most frequent class; 0 of numbers.
    """

    form: Form
    task: Answer
    trained: int
    tested: int
    unseen: float
    height: float
    largest: float


def spelled(figure: float, task: Answer, *, sign: bool = False) -> str:
    """Return a score as people read it: an accuracy in per cent, R2 as it is.

    >>> spelled(0.5, "class"), spelled(-0.02, "class", sign=True), spelled(0.5, "number")
    ('50.0 %', '-2.0 points', '0.500')
    """
    if task == "number":
        return f"{figure:+.3f}" if sign else f"{figure:.3f}"
    return f"{100 * figure:+.1f} points" if sign else f"{100 * figure:.1f} %"


def verdict(
    ours: Figures, peers: Sequence[Figures], constant: Figures, gap: Interval, outcome: str, facts: Facts
) -> str:
    """Return a sentence that says whether structure pays on these data.

    Args:
        ours: the figures of foldbatch.
        peers: those of the baselines, the best one first.
        constant: those of the constant answer.
        gap: the score of `ours` less that of the best baseline, in pairs.
        outcome: ``wins``, ``ties`` or ``loses``.
        facts: of the contest.
    """
    best, late = peers[0], [peer.title for peer in peers if not peer.in_time]
    task, peer = facts.task, f"the best baseline, {best.title}"
    low, high = spelled(gap.low, task, sign=True), spelled(gap.high, task, sign=True)
    by = f"{spelled(gap.figure, task, sign=True)}; 95 %: {low} to {high}"
    if max(ours.score.low, best.score.low) <= constant.score.figure:
        return (
            f"nothing is learnt here: neither foldbatch nor {peer}, is surely better than a constant answer "
            f"({constant.setting}); look at the labels, or give more examples."
        )
    if outcome == "wins" and late:
        return (
            f"structure pays here, in the time there was: foldbatch is better than {peer} ({by}); these were "
            f"cut off and may do better: {', '.join(late)}."
        )
    if outcome == "wins":
        return f"structure pays here: foldbatch is better than {peer} ({by})."
    if outcome == "loses":
        return f"structure does not pay here: foldbatch is worse than {peer} ({by})."
    return (
        f"structure does not pay here: {facts.tested:,} test examples show no difference between foldbatch "
        f"and {peer} ({by}), which trains in {best.cpu_seconds:.1f} CPU seconds where foldbatch needs "
        f"{ours.cpu_seconds:.1f}."
    )


@dataclass(frozen=True, slots=True)
class Result:
    """The figures that advice is given by.

    Attributes:
        ours: those of foldbatch.
        peers: those of the baselines.
        gap: the score of `ours` less that of the best baseline; None where none ran.
        outcome: of `ours` against it; empty where none ran.
        facts: of the contest.
    """

    ours: Figures
    peers: Sequence[Figures]
    gap: Interval | None
    outcome: str
    facts: Facts


def advice(result: Result) -> list[str]:
    """Return advice on the next things to try, a sentence each, likeliest to help first."""
    return [sentence for rule in RULES if (sentence := rule(result))]


def _of_time(result: Result) -> str:
    late = [figures.title for figures in (result.ours, *result.peers) if not figures.in_time]
    return f"Cut off while dev still got better: {', '.join(late)}. --minutes 15 gives more." if late else ""


def _of_count(result: Result) -> str:
    """Return advice on few examples, with how uncertain they leave the difference."""
    gap, trained = result.gap, result.facts.trained
    if trained >= FEW_TRAINED:
        return ""
    uncertain = "" if gap is None else spelled(gap.high - gap.low, result.facts.task)
    width = f", which leaves the difference uncertain by {uncertain}" if uncertain else ""
    scarce = f"There are few examples to learn from, {trained:,}{width}."
    return f"{scarce} Label more, or compare by cross-validation with foldbatch.estimators."


def _of_fit(result: Result) -> str:
    """Return advice on a model that learns by heart, or does not learn enough."""
    ours, task = result.ours, result.facts.task
    if ours.train_score - ours.dev_score > OVERFITTED and result.outcome != "wins":
        trained, dev = spelled(ours.train_score, task), spelled(ours.dev_score, task)
        return (
            f"foldbatch learns by heart ({trained} of training, {dev} of dev): hold it back with "
            "task.dropout, optimizer.weight_decay or a smaller model.hidden."
        )
    if result.outcome == "loses" and ours.train_score < max(peer.dev_score for peer in result.peers):
        return (
            "foldbatch does not even fit what it trains on: try a larger model.hidden, more epochs, or "
            "another optimizer.lr."
        )
    return ""


def _of_words(result: Result) -> str:
    """Return advice on words that training has not."""
    remedies = {
        "records": "list few values of a field as categories, or add fields that repeat",
        "trees": "words.split subwords, or words.minimum 2",
    }
    remedy = remedies.get(result.facts.form, "vectors that were trained elsewhere, words.vectors")
    unseen = result.facts.unseen
    return f"{unseen:.0%} of the words of test are not in training: {remedy}." if unseen > UNSEEN else ""


def _of_height(result: Result) -> str:
    facts = result.facts
    if facts.height >= FLAT_HEIGHT or result.outcome == "wins" or facts.form == "sequences":
        return ""
    return f"The structures are flat, {facts.height:.1f} levels on average: counts lose little of them."


def _of_classes(result: Result) -> str:
    share = result.facts.largest
    return f"{share:.0%} are of one class: look at F1, too; try task.balanced." if share > FREQUENT else ""


def _of_order(result: Result) -> str:
    """Return advice on trees whose children have an order that a model of lines sees and ours does not."""
    lines = [peer.score.figure for peer in result.peers if peer.title.startswith("PyTorch")]
    if result.facts.form != "trees" or max(lines, default=-math.inf) <= result.ours.score.figure:
        return ""
    return (
        "A model of lines is ahead, and child_sum adds up children whatever their order. If it matters, "
        "write a cell for it (docs/walks.md), or make the trees binary and train tree_lstm."
    )


def _of_outcome(result: Result) -> str:
    if result.outcome == "wins":
        return "Go on with foldbatch train, whose options include those used here, and foldbatch serve."
    return "Take the best baseline, unless another reason speaks for a model of structure." * bool(
        result.outcome
    )


RULES: tuple[Callable[[Result], str], ...] = (
    *(_of_time, _of_count, _of_fit, _of_words, _of_height, _of_classes, _of_order, _of_outcome),
)
