"""A site as words in order, and as numbers by name: what models without structure read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.jobs.sites import Part, Site
from foldbatch.zoo.words import subwords


def words_of(part: Part) -> list[str]:
    """Return the words of a node: those of an identifier, in lower case."""
    return [word.lower() for word in subwords(part.word)]


def inside(part: Part) -> Iterator[Part]:
    """Yield a part and all below it, from left to right."""
    yield part
    for _, below in part.below:
        yield from inside(below)


def tokens(site: Site) -> list[str]:
    """Return the statement as words in order, with marks before and after each operand."""
    before: list[str] = []
    after: list[str] = []
    for step in site.steps:
        before += [step.kind, *_flat(step.before)]
        after = [*_flat(step.after), *after]
    return [*before, "<first>", *_flat((site.first,)), "<second>", *_flat((site.second,)), "<end>", *after]


def _flat(parts: Sequence[Part]) -> list[str]:
    return [token for part in parts for each in inside(part) for token in (each.kind, *words_of(each))]


def features(site: Site) -> dict[str, float]:
    """Return what occurs in each operand and beside them, and each pair of these.

    Pairs are what a linear model needs to compare: without them it can only say what tends to come first.
    """
    operands = {"1": _bag((site.first,)), "2": _bag((site.second,))}
    callee = {f"beside {each}" for each in _bag((*site.steps[-1].before, *_above(site)))} | {site.kind}
    found = Counter({f"{place} {each}": 1 for place, bag in operands.items() for each in bag})
    found.update(dict.fromkeys(callee, 1))
    found.update(
        {f"{place} {each}, {other}": 1 for place, bag in operands.items() for each in bag for other in callee}
    )
    found.update({f"1 {each}, 2 {other}": 1 for each in operands["1"] for other in operands["2"]})
    found.update({f"{step.kind} above": 1 for step in site.steps})
    return dict(found)


def _above(site: Site) -> tuple[Part, ...]:
    """Return what is called, where the operands stand in a list of arguments of their own."""
    return site.steps[-2].before if site.kind == "arguments" and len(site.steps) > 1 else ()


def _bag(parts: Sequence[Part]) -> set[str]:
    bag = {word for part in parts for each in inside(part) for word in words_of(each)}
    return (
        bag | {f"<{each.kind}>" for part in parts for each in inside(part)} | {f"top {p.kind}" for p in parts}
    )
