"""Needed: what is left of cells where only some of their losses, metrics and outputs are asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foldbatch.model.drafts import Draft
from foldbatch.model.wires import Flow
from foldbatch.static.graph import Node, reachable


@dataclass(frozen=True, slots=True)
class PrunedDraft:
    """What is left of a cell.

    Attributes:
        draft: the cell that is left, with its new number.
        arguments: which arguments of a call are left: operands first, then one for each sequence.
        outputs: by old number, the new number of each output that is left.
        feeds, sequences: the same for data and sequences.
    """

    draft: Draft
    arguments: tuple[int, ...]
    outputs: dict[int, int]
    feeds: dict[int, int]
    sequences: dict[int, int]


def needed(drafts: Sequence[Draft], results: Iterable[Flow]) -> dict[int, PrunedDraft]:
    """Return what is left of each cell, by its old number; of cells that nobody needs, nothing."""
    read: dict[int, set[Node]] = {draft.number: set() for draft in drafts}
    wanted: list[tuple[Draft, Node]] = []
    for draft in drafts:
        wanted += [(draft, node) for _, node in [*draft.losses, *draft.metrics]]
    writers = {wire: (draft, node) for draft in drafts for node, wire in draft.outputs.items()}
    sources = _sources(drafts)
    wires: set[Flow] = set()
    waiting = list(results)
    while waiting or wanted:
        if waiting:
            wire = waiting.pop()
            if wire not in wires:
                wires.add(wire)
                waiting += sources.get(wire, [])
                wanted += [writers[wire]] if wire in writers else []
        else:
            draft, node = wanted.pop()
            new = _inputs(draft, node) - read[draft.number]
            read[draft.number] |= new
            members = [
                m for _, several in draft.sequences if any(n in new for n, _ in several) for m in several
            ]
            waiting += [wire for n, wire in draft.operands if n in new] + [wire for _, wire in members]
    kept: dict[int, PrunedDraft] = {}
    for draft in drafts:
        outputs = {node: wire for node, wire in draft.outputs.items() if wire in wires}
        if outputs or draft.losses or draft.metrics:
            kept[draft.number] = _kept(draft, len(kept), outputs, read[draft.number])
    return kept


def _sources(drafts: Sequence[Draft]) -> dict[Flow, list[Flow]]:
    """Return, for each wire, the wires that flow to it."""
    sources: dict[Flow, list[Flow]] = {}
    seen: set[Flow] = set()
    stack = [wire for draft in drafts for wire in draft.outputs.values()]
    while stack:
        wire = stack.pop()
        if wire not in seen:
            seen.add(wire)
            for target in wire.flows_to:
                sources.setdefault(target, []).append(wire)
                stack.append(target)
    return sources


def _inputs(draft: Draft, node: Node) -> set[Node]:
    """Return the operands, data and elements of sequences that a node of a cell depends on."""
    ends = {n for n, _ in draft.operands} | {n for n, _ in draft.feeds}
    ends |= {n for _, members in draft.sequences for n, _ in members}
    return ends.intersection(reachable([node], ends))


def _kept(draft: Draft, number: int, outputs: dict[Node, Flow], read: set[Node]) -> PrunedDraft:
    marks = {feed for _, feed in draft.marks}
    operands = [i for i, (node, _) in enumerate(draft.operands) if node in read]
    feeds = [i for i, (node, _) in enumerate(draft.feeds) if node in read or i in marks]
    lists = [i for i, (_, members) in enumerate(draft.sequences) if any(n in read for n, _ in members)]
    new_feed = {old: new for new, old in enumerate(feeds)}
    left = Draft(
        draft.name,
        number,
        operands=[draft.operands[i] for i in operands],
        sequences=[draft.sequences[i] for i in lists],
        feeds=[draft.feeds[i] for i in feeds],
        outputs=outputs,
        losses=draft.losses,
        metrics=draft.metrics,
        labels=draft.labels,
        marks=[(metric, new_feed[feed]) for metric, feed in draft.marks],
        keys=[new_feed[i] for i in draft.keys if i in new_feed],
    )
    old = list(draft.outputs)
    return PrunedDraft(
        left,
        (*operands, *(len(draft.operands) + i for i in lists)),
        {old.index(node): new for new, node in enumerate(outputs)},
        new_feed,
        {old: new for new, old in enumerate(lists)},
    )
