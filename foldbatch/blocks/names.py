"""Names of cells, as reports and errors show them: where the work of a cell belongs, and who does it.

A name is the path of the innermost block that all tensors of the cell come from, and then the functions that
make them: ``tree.case(True).attend``. Where two cells would be called alike, the names of layers are added,
and where that does not help, a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter

from foldbatch.static.graph import INPUT, Node
from foldbatch.static.op import UNBATCHED

SHOWN = 2  # names of functions and layers that a cell's name has at most


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a tensor comes from.

    Attributes:
        path: the path of the block that makes it, segment by segment.
        function: the name of the user's function that makes it; empty of a lambda.
        layer: the name of the layer that makes it, else empty.
    """

    path: tuple[str, ...]
    function: str = ""
    layer: str = ""


@dataclass(frozen=True, slots=True)
class CellName:
    """A name for a cell, and a longer one in case that others would have the first."""

    short: str
    long: str


def name_cell(origins: Iterable[Origin], path: Sequence[str]) -> CellName:
    """Return the name of a cell.

    Args:
        origins: those of its tensors, in the order in which they were made.
        path: where the cell was built; it names a cell without tensors of its own.

    >>> pair = Origin(("tree", ".case(True)"), layer="pair")
    >>> name_cell([pair, Origin(("tree", ".case(True)", ".decode"), "attend")], ["tree"])
    CellName(short='tree.case(True).attend', long='tree.case(True).pair+attend')
    """
    own = [origin for origin in origins if origin.path[:1] == tuple(path[:1])]
    common = _shared([origin.path for origin in own]) if own else path
    functions = [origin.function for origin in own if origin.function]
    layers = [origin.function or origin.layer for origin in own if origin.function or origin.layer]
    return CellName(_joined(common, functions), _joined(common, layers))


def name_draft(
    nodes: Iterable[Node], origins: Mapping[Node, tuple[int, Origin]], path: Sequence[str]
) -> CellName:
    """Return the name of a cell: after what it computes, or else after the data that it reads.

    Args:
        nodes: what it computes and reads.
        origins: those of nodes, numbered in the order of blocks.
        path: where the cell was built.
    """
    own = [node for node in nodes if node in origins and node.axis is not UNBATCHED]
    computed = [node for node in own if node.op is not INPUT]
    ordered = sorted((origins[node] for node in computed or own), key=itemgetter(0))
    return name_cell([origin for _, origin in ordered], path)


def _shared(paths: Sequence[tuple[str, ...]]) -> Sequence[str]:
    """Return the segments that all paths begin with."""
    return [
        first for first, *_ in takewhile(lambda segments: len(set(segments)) == 1, zip(*paths, strict=False))
    ]


def _joined(path: Iterable[str], names: Iterable[str]) -> str:
    different = list(dict.fromkeys(names))
    if len(different) > SHOWN:
        different = [different[0], "...", different[-1]]
    return "".join([*path, "." * bool(different), "+".join(different)])


def tell_apart(names: Sequence[CellName]) -> list[str]:
    """Return a name for each cell, no two alike: short, else long, else with a number.

    >>> tell_apart([CellName("a", "a"), CellName("b", "b.x"), CellName("b", "b.y")])
    ['a', 'b.x', 'b.y']
    >>> tell_apart([CellName("a", "a.x"), CellName("a", "a.x"), CellName("a.x#1", "a.x#1")])
    ['a.x#2', 'a.x#3', 'a.x#1']
    """
    shorts = Counter(name.short for name in names)
    best = [name.short if shorts[name.short] == 1 else name.long for name in names]
    counts = Counter(best)
    taken = {name for name in best if counts[name] == 1}
    return [name if counts[name] == 1 else numbered(name, taken, first=1) for name in best]


def numbered(name: str, taken: set[str], first: int) -> str:
    """Return a name with the least number, from `first` on, that makes it unlike those taken; it is added.

    >>> numbered("tree", {"tree", "tree#2"}, 2)
    'tree#3'
    """
    while f"{name}#{first}" in taken:
        first += 1
    taken.add(f"{name}#{first}")
    return f"{name}#{first}"
