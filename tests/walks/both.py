"""Random programs of both doors: walks that call blocks, and blocks in which walks stand, inside each other."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import foldbatch as fb
from foldbatch.types import OBJECT, SequenceType, TensorType, TupleType, Type
from tests.programs import ways as ways_of_blocks
from tests.programs.maker import Maker, Way
from tests.programs.recipes import FLOAT, Recipe
from tests.programs.recipes import Given as Types
from tests.walks import exact
from tests.walks.maker import Given, Many, Nest, Part, Walks
from tests.walks.ways import WAYS, walk_of


@dataclass(slots=True)
class Blocks(Maker):
    """Makes recipes of blocks, in which walks may stand."""

    walks: Any = None


def _of_blocks(type_: Any) -> Type | None:
    """Return a walk's type as blocks have it, or None."""
    match type_:
        case TensorType():
            return type_
        case Nest(kind, items) if kind is tuple:
            return TupleType(items)
        case Many(element):
            inner = _of_blocks(element)
            return None if inner is None else SequenceType(inner)
    return None


def _of_walks(type_: Type) -> Any:
    """Return a type of blocks as walks have it, or None."""
    match type_:
        case TensorType() if type_.dtype == FLOAT:
            return type_
        case TupleType(items) if 0 < len(items) < 4 and all(
            isinstance(item, TensorType) and item.dtype == FLOAT for item in items
        ):
            return Nest(tuple, items)
        case SequenceType(element):
            inner = _of_walks(element)
            return None if inner is None or isinstance(inner, Many) else Many(inner)
    return None


@contextmanager
def _apart(maker: Maker, other: Maker) -> Iterator[None]:
    """Let what another maker makes be used again only where it calls nothing that this one is defining."""
    made, collected, other.collected = [*other.made], other.collected, []
    yield
    other.collected = collected
    if maker.declared:
        other.made[:] = made


def blocked(maker: Walks, type_: Any, depth: int, given: Given) -> Part:
    """Call a block, of an object and of all that is given."""
    blocks: Blocks = maker.blocks  # type: ignore[attr-defined]
    types = tuple(map(_of_blocks, given))
    wanted = _of_blocks(type_)
    if wanted is None or None in types:
        return WAYS[type(type_)][0](maker, type_, depth, given)  # type: ignore[no-any-return]
    with _apart(maker, blocks):
        recipe = blocks.read(wanted, depth, types)  # type: ignore[arg-type]
    block = recipe.block
    if any(isinstance(each, SequenceType) for each in types):  # which may be empty
        declaration = fb.ForwardDeclaration(TupleType((OBJECT, *types)), wanted, "given")  # type: ignore[arg-type]
        declaration.resolve_to(block)
        block = declaration()
    called = exact.block(block, types)
    return Part(lambda x, *given: called(x, *given), recipe.data)


def walked(maker: Any, type_: Type, depth: int, given: Types) -> Recipe:
    """Call a plain function, with an object and all that is given."""
    walks: Walks = maker.walks
    with _apart(maker, walks):
        part = walks.part(_of_walks(type_), depth, tuple(map(_of_walks, given)))
    return Recipe(fb.functions.Walk(lambda x, *given: part.run(x, *given), type_), part.data)


def ways(maker: Maker, type_: Type, given: Types) -> list[Way]:
    found = ways_of_blocks(maker, type_, given)
    if _of_walks(type_) is not None and None not in map(_of_walks, given):
        found += [walked] * max(len(found) // 4, 1)
    return found


def program_of(rng: Random, choices: int, size: int, depth: int, *, dropout: bool) -> Part:
    """Return a random program: a walk, or a block in which one stands."""
    own: Any = {kind: [*some, *[blocked] * (len(some) // 4)] for kind, some in WAYS.items()}
    walks = Walks(rng, choices, size, own, dropout)
    blocks = Blocks(rng, choices, size, ways, dropout, walks=walks)
    walks.blocks, walks.layers, walks.parameters = blocks, blocks.layers, blocks.parameters  # type: ignore[attr-defined]
    if walks.number(2):
        return walk_of(walks, depth)
    out = walks.out()
    main, scored = blocked(walks, out, depth, ()), walks.cell([out], fb.types.TensorType((), FLOAT))
    type_ = _of_blocks(out)
    if type_ is None:
        return walk_of(walks, depth)

    def run(x: Any) -> Any:
        y = main.run(x)
        exact.loss(scored(y), "main")
        return y

    whole = fb.Map(fb.functions.Walk(run, type_))
    return Part(whole, lambda source, depth: [main.data(source, depth) for _ in range(source.number(4))])
