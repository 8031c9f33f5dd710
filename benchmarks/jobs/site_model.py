"""The model of a site: a Tree-LSTM over parts, a way down to the operands, a judgement of their order.

Annotations are not postponed here: those of cells are made with the model, of its size.
"""

from collections.abc import Callable, Iterator, Sequence
from types import GenericAlias
from typing import Any

import numpy as np

import foldbatch as fb
from benchmarks.jobs.job import Example
from benchmarks.jobs.site_features import inside, words_of
from benchmarks.jobs.sites import Part, Site
from foldbatch import ops

SIZE = 64


def walk_of(examples: Sequence[Example], size: int = SIZE, dropout: float = 0.4) -> Callable[[Any], Any]:
    """Return the model: operands and neighbours by a Tree-LSTM, and the way down to them step by step.

    One function judges how well two operands stand in their order. The score is its difference for both
    orders, so the answer for swapped operands is the contrary.
    """
    parts = [part for each in examples for part in _parts(each.data)]
    kinds = fb.trees.Vocabulary.count([part.kind for part in parts], minimum=2)
    words = fb.trees.Vocabulary.count([word for part in parts for word in words_of(part)], minimum=2)
    places = fb.trees.Vocabulary.count(
        [step.kind for each in examples for step in each.data.steps], minimum=2
    )

    def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        return rng.normal(0.0, 0.3, shape)

    kind_of = fb.Embedding(len(kinds), size, wide, name="kinds")
    word_of = fb.Embedding(len(words), size, wide, name="words")
    place_of = fb.Embedding(len(places), size, wide, name="places")
    lstm, down = fb.ChildSumTreeLSTM(size, name="lstm"), fb.Linear(size, "tanh", name="down")
    compared, out = fb.Linear(size, "relu", name="compared"), fb.Linear(1, name="out")
    drop, vector = fb.Dropout(dropout), f"float32[{size}]"
    numbers, vectors, states = (GenericAlias(list, each) for each in ("int32", vector, ((vector, vector),)))

    @fb.cell
    def join(kind: Any, named: numbers, below: states) -> Any:  # type: ignore[valid-type]
        return lstm(drop(kind_of(kind) + ops.segment_sum(word_of(named))), below)

    @fb.cell
    def step(place: Any, before: vectors, after: vectors, above: Any) -> Any:  # type: ignore[valid-type]
        beside = [ops.segment_sum(before), ops.segment_sum(after)]
        return down(ops.concat([drop(place_of(place)), *beside, above]))

    @fb.cell
    def judge(above: Any, first: Any, second: Any) -> Any:
        def fits(one: Any, two: Any) -> Any:
            return out(drop(compared(ops.concat([one, two, one * two, above]))))

        score = fits(second, first) - fits(first, second)
        return ops.concat([0 * score, score])

    def visit(part: Part) -> Any:
        named = np.array([words[word] for word in words_of(part)], np.int32)
        return join(kinds[part.kind], named, [visit(below) for _, below in part.below])

    def walk(example: tuple[Site, Any]) -> Any:
        site, label = example
        above = fb.tensor([0.0] * size)
        for each in site.steps:
            before, after = ([visit(part)[0] for part in parts] for parts in (each.before, each.after))
            above = step(places[each.kind], before, after, above)
        scores = judge(above, visit(site.first)[0], visit(site.second)[0])
        fb.loss(ops.cross_entropy(scores, label))
        return scores

    return walk


def _parts(site: Site) -> Iterator[Part]:
    beside = [part for step in site.steps for part in (*step.before, *step.after)]
    for part in (*beside, site.first, site.second):
        yield from inside(part)
