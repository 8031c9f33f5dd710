"""Random typed block programs with data to run them on, for the laws.

Blocks are made from the outside in: to yield a type, read it directly, choose between ways of
reading it, recurse, compute it from something else, or hang losses and metrics beside it. All
floats are float64 (or what FOLDBATCH_FLOAT of the environment names), all functions smooth and
tame, so that programs can be compared to the last digits.
"""

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.types import SequenceType, TensorType, TupleType, Type
from tests.programs import beside, choices, leaves, sequences, tensors
from tests.programs.maker import Maker, Way
from tests.programs.recipes import PAIR, SCALAR, STATE, BlockProgram, Given, Source, has_zero, is_of_floats
from tests.strategies import Draw

__all__ = ["BlockProgram", "drawn", "programs"]

CHOICES = 2000  # more than all programs take, so that few are cut short


def ways(maker: Maker, type_: Type, given: Given) -> list[Way]:
    """Return the ways to make a type, the direct one first, the favoured ones several times."""
    found: list[Way] = [leaves.directly, choices.recursive, choices.chosen, tensors.let, beside.beside]
    found += [leaves.wrapped, beside.composed, sequences.selected]
    if any((d.type, d.given) == (type_, given) for d in maker.declared):
        found += [choices.called] * 2
    if any((t, g) == (type_, given) for t, g, _ in maker.made):
        found.append(tensors.again)
    if has_zero(type_):
        found += [leaves.optionally, sequences.folded]
    if is_of_floats(type_):
        found += [tensors.derived, tensors.derived, choices.recursive, choices.mutual]
        found += [sequences.summarised, sequences.summarised, sequences.run, beside.collecting]
    if isinstance(type_, TensorType) and type_.is_float:
        found += [sequences.extreme] + [tensors.layered] * (4 if type_.shape else 0)
    if type_ in (PAIR, STATE):
        found += [tensors.cell] * 4
    if isinstance(type_, SequenceType | TupleType):
        found.append(tensors.part)
    if isinstance(type_, SequenceType):
        found += [sequences.run, sequences.zipped, sequences.neighbours, sequences.sliced, beside.collecting]
    return found


@st.composite
def programs(
    draw: Draw, *, size: int = 30, depth: int = 6, examples: int = 4, dropout: bool = False
) -> BlockProgram:
    """Return a random program, mostly with a loss of all it yields, and random examples."""
    # Choices drawn one by one would shrink better, but Hypothesis would repeat most of them.
    seed, choices = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, CHOICES))
    return drawn(seed, choices, size=size, depth=depth, examples=examples, dropout=dropout)


def drawn(
    seed: int, choices: int, *, size: int = 30, depth: int = 6, examples: int = 4, dropout: bool = False
) -> BlockProgram:
    """Return the random program of a seed; after so many choices, all others are the simplest."""
    maker = Maker(Random(seed), choices, size, ways, dropout)
    type_ = maker.result()
    recipe = maker.read(type_, depth)
    if is_of_floats(type_) and maker.number(4) < 3:
        recipe = recipe.then(
            fb.AllOf(fb.Identity(), maker.function(type_, SCALAR) >> fb.Loss()), fb.GetItem(0)
        )
    data = []
    for poisoned in (False, True):
        source = Source(np.random.default_rng(seed), poisoned=poisoned)
        data.append([recipe.data(replace(source), 3) for _ in range(1 + source.number(examples))])
    return BlockProgram(recipe.block, data[0], seed, data[1])
