"""Cells that always run together: what a report says of loose cells that one cell could replace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from foldbatch.functions.cells import Signature
from foldbatch.functions.learnt import Learnt
from foldbatch.model.wires import components

SHOWN = 8  # names of a group
GROUPS = 3  # that are told of, those with most calls first


def together(learnt: Learnt, calls: Mapping[Signature, int]) -> list[list[Signature]]:
    """Return groups of cells, each with a loose one, that ran equally often on values of each other.

    Each group could be one cell: what lies between two of its cells belongs to it.

    Args:
        learnt: what is known of the walk.
        calls: of each cell in a batch.
    """
    sources: dict[Signature, set[Signature]] = {}
    group = {signature: signature for signature in calls}

    def head(signature: Signature) -> Signature:
        while group[signature] is not signature:
            signature = group[signature]
        return signature

    for (reader, _, at), outputs in learnt.wires.items():
        writers = {writer for writer, _ in outputs}
        sources.setdefault(reader, set()).update(writers)
        if len(writers) == 1 and at == -1 and reader in calls:
            (writer,) = writers
            loose = not (reader.cell.is_decorated and writer.cell.is_decorated)
            if loose and writer is not reader and calls.get(writer) == calls[reader]:
                group[head(writer)] = head(reader)
    members: dict[Signature, list[Signature]] = {}
    for signature in calls:
        members.setdefault(head(signature), []).append(signature)
    edges: dict[object, list[object]] = {h: [] for h in members}
    for reader, writers in sources.items():
        for writer in writers:
            if reader in calls and writer in calls and head(writer) is not head(reader):
                edges[head(writer)].append(head(reader))
    component = components([*members], edges)
    found = list(component.values())
    whole = [m for h, m in members.items() if len(m) > 1 and found.count(component[h]) == 1]
    return sorted(whole, key=lambda each: -calls[each[0]] * len(each))


def remarks(learnt: Learnt, calls: Mapping[Signature, int]) -> Iterator[str]:
    """Yield what a report says of a walk.

    Args:
        learnt: what is known of it.
        calls: of each cell in the batch of the report.
    """
    wires = sum(map(len, learnt.wires.values()))
    times = "once" if learnt.version == 1 else f"{learnt.version} times"
    known = f"{len(learnt.cells)} cells and {wires} wires are known"
    yield f"linked {times}, as batches brought new cells or wires; {known}"
    for group in together(learnt, calls)[:GROUPS]:
        names = _listed([signature.name for signature in group])
        each = f"{calls[group[0]]:,} calls each"
        yield f"{names} always ran together, {each}: they could be one function with @fb.cell"


def _listed(names: Sequence[str]) -> str:
    shown = list(names[:SHOWN])
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else [shown.pop()]
    return f"{', '.join(shown)} and {more[0]}"
