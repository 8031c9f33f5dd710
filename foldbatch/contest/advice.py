"""The verdict of a contest in a sentence, and rules from what was measured to what to try next."""

from collections.abc import Sequence
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
    ours: Figures, best: Figures, constant: Figures, gap: Interval, outcome: str, facts: Facts
) -> str:
    """Return a sentence that says whether structure pays on these data.

    Args:
        ours: the figures of foldbatch.
        best: those of the best baseline.
        constant: those of the constant answer.
        gap: the score of `ours` less that of `best`, in pairs.
        outcome: ``wins``, ``ties`` or ``loses``.
        facts: of the contest.
    """
    task = facts.task
    gap_text = spelled(gap.figure, task, sign=True)
    span = f"95 %: {spelled(gap.low, task, sign=True)} to {spelled(gap.high, task, sign=True)}"
    if max(ours.score.low, best.score.low) <= constant.score.figure:
        return (
            f"nothing is learnt here: neither foldbatch nor the best baseline, {best.title}, is surely better "
            f"than a constant answer ({constant.setting}); look at the labels, or give more examples."
        )
    if outcome == "wins":
        return f"structure pays here: foldbatch is better than the best baseline, {best.title} ({gap_text}; {span})."
    if outcome == "loses":
        return (
            f"structure does not pay here: foldbatch is worse than the best baseline, {best.title} "
            f"({gap_text}; {span})."
        )
    return (
        f"structure does not pay here: {facts.tested:,} test examples show no difference between foldbatch "
        f"and the best baseline, {best.title} ({gap_text}; {span}), which trains in {best.cpu_seconds:.1f} CPU "
        f"seconds where foldbatch needs {ours.cpu_seconds:.1f}."
    )


def advice(
    ours: Figures, peers: Sequence[Figures], gap: Interval | None, outcome: str, facts: Facts
) -> list[str]:
    """Return what to try next, a sentence each, likeliest to help first.

    Args:
        ours: the figures of foldbatch.
        peers: those of the baselines.
        gap: the score of `ours` less that of the best baseline; None where none ran.
        outcome: of `ours` against it.
        facts: of the contest.
    """
    sentences = []
    late = [figures.title for figures in (ours, *peers) if not figures.in_time]
    if late:
        sentences.append(
            f"The time was over before {', '.join(late)} stopped getting better: --minutes 15 gives more of it."
        )
    if facts.trained < FEW_TRAINED:
        half = (
            f" The interval of the difference is {spelled(gap.high - gap.low, facts.task)} wide."
            if gap
            else ""
        )
        sentences.append(
            f"There are few examples to learn from, {facts.trained:,}.{half} Label more, or compare by "
            "cross-validation with foldbatch.estimators."
        )
    if ours.train_score - ours.dev_score > OVERFITTED and outcome != "wins":
        trained, dev = spelled(ours.train_score, facts.task), spelled(ours.dev_score, facts.task)
        sentences.append(
            f"foldbatch learns by heart ({trained} of training and {dev} of dev): hold it back with "
            "task.dropout, optimizer.weight_decay or a smaller model.hidden."
        )
    elif outcome == "loses" and ours.train_score < max(figures.dev_score for figures in peers):
        sentences.append(
            "foldbatch does not even fit what it trains on: try a larger model.hidden, more epochs, or a "
            "higher optimizer.lr."
        )
    if facts.unseen > UNSEEN:
        remedy = {
            "records": "list few values of a field as categories, or add fields that repeat",
            "trees": "words.split subwords, or words.minimum 2",
        }.get(facts.form, "vectors that were trained elsewhere, words.vectors")
        sentences.append(f"{facts.unseen:.0%} of the words of test are not in training: try {remedy}.")
    if facts.height < FLAT_HEIGHT and outcome != "wins" and facts.form != "sequences":
        sentences.append(
            f"The structures are flat, {facts.height:.1f} levels on average: counts lose little of them."
        )
    if facts.largest > FREQUENT:
        sentences.append(
            f"One class is {facts.largest:.0%} of the examples: look at F1, too, and train with task.balanced."
        )
    padded = [figures for figures in peers if figures.title.startswith("PyTorch")]
    if facts.form == "trees" and padded and max(x.score.figure for x in padded) > ours.score.figure:
        sentences.append(
            "A model of lines is ahead, and child_sum adds up children whatever their order: if that matters, "
            "write a cell for it (docs/walks.md), or make the trees binary and train tree_lstm."
        )
    if outcome == "wins":
        sentences.append(
            "Go on with foldbatch train, whose options include those used here, and foldbatch serve."
        )
    elif outcome in ("ties", "loses"):
        sentences.append("Take the best baseline unless another reason speaks for a model of structure.")
    return sentences
