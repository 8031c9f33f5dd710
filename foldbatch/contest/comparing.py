"""Comparing: contenders learn the same split by the same clock, and their answers of test are weighed."""

import math
import random
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.util import find_spec
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.contest.advice import Facts, Result, advice, spelled, verdict
from foldbatch.contest.clock import Clock
from foldbatch.contest.comparison import Comparison, Rivalry
from foldbatch.contest.contender import Contender, Lesson, lesson_of
from foldbatch.contest.examples import Answer, Examples, examples_of
from foldbatch.contest.features import MAX_ATTENDED, MAX_TOKENS, tokens_of
from foldbatch.contest.measures import difference, gains_of, mcnemar, outcome
from foldbatch.contest.page import Mistake
from foldbatch.contest.running import Figures, constant, run
from foldbatch.contest.splitting import affordable, split
from foldbatch.errors import BlockValueError, UnknownNameError, install, with_nearest
from foldbatch.params.parameters import Array
from foldbatch.trees.tree import TreeNode

# the contenders by name: their module, their name there, the library it needs, the weight of their time
MODULES = {
    "linear": ("foldbatch.contest.tables", "LINEAR", "sklearn", 1.0),
    "forest": ("foldbatch.contest.tables", "FOREST", "sklearn", 1.0),
    "boosting": ("foldbatch.contest.tables", "BOOSTING", "sklearn", 2.0),
    "foldbatch": ("foldbatch.contest.ours", "CONTENDER", "", 4.0),
    "bilstm": ("foldbatch.contest.padded", "BILSTM", "torch", 4.0),
    "transformer": ("foldbatch.contest.padded", "TRANSFORMER", "torch", 4.0),
}
LIBRARIES = {"sklearn": "scikit-learn", "torch": "PyTorch"}
OURS = "foldbatch"
TRAINING = (
    0.75  # the share of the time that contenders train in; the remainder is for reading and predictions
)
MAX_SHOWN_TEXT = 300  # characters of an example that the page shows
SHOWN_EXAMPLES = 4  # such examples of each kind
Report = Callable[[str], object]


def compare(
    examples: Iterable[object] | Examples,
    targets: Iterable[object] | None = None,
    *,
    minutes: float = 5.0,
    seed: int = 0,
    task: Answer | None = None,
    contenders: Sequence[str] = tuple(MODULES),
    limit: int | None = None,
    report: Report | None = None,
) -> Comparison:
    """Train a model of structure and usual baselines on the same examples; return figures and a verdict.

    The baselines are a BiLSTM and a Transformer of PyTorch over padded lines of tokens, boosting and a
    random forest on flat features, and a linear model on bags. All have the same split, stop early by the
    same dev part and have shares of the same time; test is answered once. The same seed gives the same
    answers, unless a contender's time is over before it ends, which is told.

    Args:
        examples: trees, objects that `foldbatch.trees.from_` reads, records (dicts), strings, or lists of
            words.
        targets: a class or a number for each; None for trees with a class at their root.
        minutes: that it may take; of more examples than fit into that, some are drawn.
        seed: of the split, of first values and of orders.
        task: ``class`` or ``number``; by default as the targets suggest.
        contenders: the names of those that run, of ``linear``, ``forest``, ``boosting``, ``foldbatch``,
            ``bilstm`` and ``transformer``; those whose library is not installed do not run.
        limit: how many examples are compared at most; by default as many as the time allows.
        report: called with a sentence after each step.

    Raises:
        ReadError: when there are fewer than 20 examples, one class alone, or more classes than half as many.
        UnknownNameError: when there is no such contender.
        BlockValueError: when `minutes` or `limit` is not above 0.

    >>> words = ["not", "very", "good", "bad", "film", "book", "a", "the"]
    >>> texts = [f"{a} {b} {c}" for a in words for b in words for c in words][::7]
    >>> outcome = compare(texts, ["not" in text for text in texts], minutes=0.02, contenders=["foldbatch"])
    >>> outcome.contenders[0].title, outcome.facts.trained
    ('foldbatch', 52)
    """
    clock = Clock(60 * _positive("minutes", minutes))
    limit = limit if limit is None else int(_positive("limit", limit))
    names = _checked_names(contenders)
    say = report or (lambda sentence: None)
    if not isinstance(examples, Examples):
        examples = examples_of(examples, targets, "examples", task=task)
    kept, drawn = affordable(examples, minutes, limit, seed)
    parts = split(kept, seed)
    notes = [*kept.notes, drawn] if drawn else list(kept.notes)
    lesson = lesson_of(parts.train, parts.dev, seed)
    notes += [_phrase_note(lesson)] if lesson.form == "phrases" else []
    notes += _cut_note(lesson)
    for sentence in (f"{kept.source}: {parts}", *notes):
        say(sentence)
    missing = {name for name in names if (library := MODULES[name][2]) and not find_spec(library)}
    running = [name for name in names if name not in missing]
    entries: dict[str, tuple[Figures, NDArray[np.generic]]] = {}
    failed = list[str]()
    for place, name in enumerate(running):
        module, attribute, _, weight = MODULES[name]
        contender: Contender = getattr(import_module(module), attribute)
        share = weight / sum(MODULES[later][3] for later in running[place:])
        try:
            entries[name] = _run(contender, lesson, parts.test, clock.part(share * TRAINING))
        except (ValueError, RuntimeError, MemoryError) as error:
            if name == OURS:
                raise
            failed.append(f"{contender.title} failed, in its library: {error}")  # the others go on
            say(failed[-1])
            continue
        figures = entries[name][0]
        accuracy = spelled(figures.score.figure, lesson.task)
        say(f"{figures.title}: {accuracy} in {figures.cpu_seconds:.1f} CPU seconds ({figures.setting})")
    base = constant(lesson, parts.test)
    facts = _facts(lesson, parts.test)
    return _weighed(
        entries, base, lesson, parts.test, facts, notes, [*_not_run(missing), *failed], str(parts), clock
    )


def _run(contender: Contender, lesson: Lesson, test: Examples, clock: Clock) -> tuple[Figures, Array]:
    """Run a contender without the warnings of its library, which are no mistakes of the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(contender, lesson, test, clock)


def _weighed(
    entries: dict[str, tuple[Figures, NDArray[np.generic]]],
    base: tuple[Figures, NDArray[np.generic]],
    lesson: Lesson,
    test: Examples,
    facts: Facts,
    notes: list[str],
    not_run: list[str],
    parts: str,
    clock: Clock,
) -> Comparison:
    """Return the comparison of contenders: differences in pairs, the verdict and advice."""
    rivals = {name: entry for name, entry in entries.items() if name != OURS}
    ranked = sorted(rivals.values(), key=lambda entry: -entry[0].score.figure)
    ours = entries.get(OURS)
    rivalries: list[Rivalry] = []
    mistakes: list[Mistake] = []
    sentence, tips = "there is none: foldbatch or all baselines did not run.", list[str]()
    if ours is not None:
        rivalries = [_rivalry(ours[1], entry, lesson, test) for entry in [*ranked, base]]
        if ranked:
            best, first = ranked[0], rivalries[0]
            sentence = verdict(ours[0], [x[0] for x in ranked], base[0], first.gap, first.outcome, facts)
            tips = advice(Result(ours[0], [x[0] for x in ranked], first.gap, first.outcome, facts))
            mistakes = _mistakes(test, ours[1], best[1], lesson)
        else:
            tips = advice(Result(ours[0], [], None, "", facts))
    contenders = [entry[0] for entry in ([ours] if ours else []) + [*ranked, base]]
    return Comparison(
        test.source,
        facts,
        parts,
        tuple(contenders),
        tuple(rivalries),
        tuple(not_run),
        sentence,
        tuple(tips),
        tuple(notes),
        tuple(mistakes),
        clock.elapsed(),
    )


def _rivalry(
    ours: NDArray[np.generic], rival: tuple[Figures, NDArray[np.generic]], lesson: Lesson, test: Examples
) -> Rivalry:
    """Return how foldbatch does against one baseline, on the same test examples."""
    figures, predicted = rival
    gap = difference(test.answers, ours, predicted, lesson.task, lesson.seed)
    chance = mcnemar(test.answers, ours, predicted) if lesson.task == "class" else None
    return Rivalry(figures.title, gap, chance, outcome(gap, chance))


def _mistakes(
    test: Examples, ours: NDArray[np.generic], peer: NDArray[np.generic], lesson: Lesson
) -> list[Mistake]:
    """Return some test examples that one of two contenders gets right, or nearer to right, alone."""
    ahead = gains_of(test.answers, ours, lesson.task) - gains_of(test.answers, peer, lesson.task)
    order = list(range(len(test)))
    random.Random(lesson.seed).shuffle(order)  # noqa: S311 - a sample of examples to show
    order.sort(key=lambda place: -ahead[place])
    chosen = [place for place in order[:SHOWN_EXAMPLES] if ahead[place] > 0]
    chosen += [place for place in order[::-1][:SHOWN_EXAMPLES] if ahead[place] < 0]
    return [
        Mistake(
            _shown(test.structures[place], lesson),
            _answer(test.answers[place], lesson),
            _answer(ours[place], lesson),
            _answer(peer[place], lesson),
            bool(ahead[place] > 0),
        )
        for place in chosen
    ]


def _shown(structure: object, lesson: Lesson) -> str:
    text = " ".join(tokens_of(structure, lesson.form))
    return text if len(text) <= MAX_SHOWN_TEXT else f"{text[:MAX_SHOWN_TEXT]} ..."


def _answer(answer: Any, lesson: Lesson) -> str:
    if lesson.task == "number":
        return f"{answer:.4g}"
    return lesson.classes[int(answer)] if answer >= 0 else "no class of a root"


def _facts(lesson: Lesson, test: Examples) -> Facts:
    """Return the facts of the data: how many, how deep, how many words are new, how even the classes are."""
    seen = {token for x in lesson.train.structures for token in tokens_of(x, lesson.form)}
    tokens = [token for x in test.structures for token in tokens_of(x, lesson.form)]
    unseen = fmean(token not in seen for token in tokens) if tokens else 0.0
    largest = 0.0
    if lesson.task == "class":
        largest = float(np.bincount(lesson.train.answers).max() / len(lesson.train))
    height = fmean(_height(x) for x in test.structures)
    return Facts(lesson.form, lesson.task, len(lesson.train), len(test), unseen, height, largest)


def _height(structure: object) -> int:
    """Return the levels of a structure: those of a tree, or of a record's nested values; 1 of a sequence."""
    if isinstance(structure, TreeNode):
        return structure.height + 1
    highest, unread = 1, [(structure, 1)]
    while unread:
        value, level = unread.pop()
        highest = max(highest, level)
        if isinstance(value, dict):
            unread += [(item, level + 1) for item in value.values()]
        elif isinstance(value, list) or (isinstance(value, tuple) and isinstance(structure, dict)):
            unread += [(item, level + 1) for item in value]
    return highest


def _phrase_note(lesson: Lesson) -> str:
    count = len(lesson.flat_structures) - len(lesson.train)
    return (
        f"foldbatch learns from the labels of all nodes, the baselines from the roots and {count:,} labelled "
        "phrases below them; scores are of roots"
    )


def _cut_note(lesson: Lesson) -> list[str]:
    """Return a sentence about lines that are too long for the models of PyTorch, if there are any."""
    lengths = [len(tokens_of(x, lesson.form)) for x in lesson.train.structures]
    cuts = {limit: fmean(length > limit for length in lengths) for limit in (MAX_TOKENS, MAX_ATTENDED)}
    if not cuts[MAX_ATTENDED]:
        return []
    longer = [f"{limit} tokens of a line ({share:.0%} are longer)" for limit, share in cuts.items()]
    return [f"the BiLSTM reads the first {longer[0]}, the Transformer the first {longer[1]}"]


def _not_run(missing: set[str]) -> list[str]:
    """Return a sentence about the contenders whose library is not installed."""
    if not missing:
        return []
    libraries = sorted({LIBRARIES[MODULES[name][2]] for name in missing})
    listed = ", ".join(name for name in MODULES if name in missing)
    return [f"not run, without {' and '.join(libraries)}: {listed}; {install('compare')}"]


def _checked_names(contenders: Sequence[str]) -> list[str]:
    """Return the names of contenders in the order in which they run."""
    for name in contenders:
        if name not in MODULES:
            raise UnknownNameError("contenders", f"one of {', '.join(MODULES)}", with_nearest(name, MODULES))
    return [name for name in MODULES if name in contenders]


def _positive(where: str, value: float) -> float:
    if isinstance(value, bool) or not 0 < value < math.inf:
        raise BlockValueError(where, "a number above 0", repr(value), "leave it out for the usual one")
    return value
