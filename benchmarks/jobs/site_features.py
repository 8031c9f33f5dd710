"""A site as words in order, and as numbers by name: what models without structure read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

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


def bag(site: Site) -> dict[str, float]:
    """Return what occurs in each operand and beside them, and which tokens follow one another."""
    first, second, beside = _bags(site)
    found = [f"1 {name}" for name in first] + [f"2 {name}" for name in second] + [*beside]
    found += [f"{step.kind} above" for step in site.steps]
    return dict.fromkeys([*found, *map(" ".join, pairwise(tokens(site)))], 1.0)


def features(site: Site) -> dict[str, float]:
    """Return `bag`, and pairs of what occurs in one operand with what occurs in the other one or beside it.

    These pairs are made for this question: a linear model needs them to compare the operands. Without them it
    can only say what tends to come first.
    """
    first, second, beside = _bags(site)
    pairs = [f"1 {one}, 2 {two}" for one in first for two in second]
    pairs += [f"1 {one}, {other}" for one in first for other in beside]
    pairs += [f"2 {two}, {other}" for two in second for other in beside]
    return bag(site) | dict.fromkeys(pairs, 1.0)


def _bags(site: Site) -> tuple[set[str], set[str], set[str]]:
    """Return what occurs in the first operand, in the second one, and beside them."""
    beside = {f"beside {name}" for name in _bag((*site.steps[-1].before, *_above(site)))} | {site.kind}
    return _bag((site.first,)), _bag((site.second,)), beside


def _above(site: Site) -> tuple[Part, ...]:
    """Return what is called, where the operands stand in a list of arguments of their own."""
    return site.steps[-2].before if site.kind == "arguments" and len(site.steps) > 1 else ()


def _bag(parts: Sequence[Part]) -> set[str]:
    bag = {word for part in parts for each in inside(part) for word in words_of(each)}
    return (
        bag | {f"<{each.kind}>" for part in parts for each in inside(part)} | {f"top {p.kind}" for p in parts}
    )
