"""Random cells and traces for the scheduler's laws: integers that no block stands behind.

Cells form components: single ones, ones that read their own results, and pairs and trios that read
each other's. A trace calls them at random on values made before, so values are shared, calls repeat,
sequences are empty now and then, and some cells are never called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from foldbatch.planning.merge import Merged, merge
from foldbatch.planning.policies import POLICIES, Policy, levels
from foldbatch.scheduler.trace import CellSignature, Operand, Trace


@dataclass(frozen=True, slots=True)
class Cells:
    """Random cells.

    Attributes:
        signatures: what the scheduler sees.
        recursive_operands: per cell, the numbers of the operands that may read results of its component.
        recursive_outputs: per cell, the numbers of the outputs that its component may read.
        feeds: per cell, how many columns of data it reads.
        arenas: how many there are.
    """

    signatures: tuple[CellSignature, ...]
    recursive_operands: tuple[frozenset[int], ...]
    recursive_outputs: tuple[frozenset[int], ...]
    feeds: tuple[int, ...]
    arenas: int


@dataclass(frozen=True, slots=True)
class Setting:
    """Random cells and the traces of a batch, whose levels are by `policy`."""

    cells: Cells
    traces: list[Trace]
    policy: Policy

    def __repr__(self) -> str:
        lines = [f"{self.policy.name}, {self.cells.arenas} arenas", *map(str, self.signatures)]
        for trace in self.traces:
            lines += [
                f"calls {[c.tolist() for c in trace.calls]}, elements {[[e.tolist() for e in p] for p in trace.elements]}"
            ]
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def signatures(self) -> tuple[CellSignature, ...]:
        return self.cells.signatures

    @property
    def merged(self) -> Merged:
        return merge(self.traces, self.signatures)

    def under(self, policy: Policy) -> Setting:
        traces = [leveled(trace, self.signatures, policy) for trace in self.traces]
        return Setting(self.cells, traces, policy)


def leveled(trace: Trace, cells: Sequence[CellSignature], policy: Policy) -> Trace:
    return replace(trace, levels=levels(policy, cells, trace.calls, trace.elements, trace.values))


SIZES = {"single": 1, "self": 1, "pair": 2, "trio": 3}


def random_cells(rng: np.random.Generator, *, pairs: bool = True) -> Cells:
    """Return random cells; without `pairs` no component has several of them."""
    arenas = int(rng.integers(1, 4))
    signatures, operands_of, outputs_of, feeds = [], [], [], []
    component = 0
    kinds = rng.choice(list(SIZES)[: 4 if pairs else 2], int(rng.integers(1, 5)))
    for kind in ["single", *kinds]:  # the first component makes values for the others
        for _ in range(SIZES[str(kind)]):
            number = len(signatures)
            reads = 0 if number == 0 else int(rng.integers(0, 4)) + (kind != "single")
            operands, arguments, sequences = _operands(rng, reads, arenas)
            outputs = tuple(int(a) for a in rng.integers(0, arenas, int(rng.integers(kind != "single", 4))))
            if number == 0:
                outputs = tuple(range(arenas))
            recursive = kind != "single"
            signatures.append(
                CellSignature(
                    f"cell{number}",
                    component,
                    recursive,
                    operands,
                    outputs,
                    arguments,
                    sequences,
                    not operands and bool(outputs) and bool(rng.integers(2)),
                )
            )
            operands_of.append(_some(rng, len(operands)) if recursive else frozenset())
            outputs_of.append(_some(rng, len(outputs)) if recursive else frozenset())
            feeds.append(int(rng.integers(0, 3)))
        component += 1
    return Cells(tuple(signatures), tuple(operands_of), tuple(outputs_of), tuple(feeds), arenas)


def _some(rng: np.random.Generator, n: int) -> frozenset[int]:
    return frozenset(int(i) for i in range(n) if rng.integers(3)) or frozenset(range(min(n, 1)))


def _operands(
    rng: np.random.Generator, reads: int, arenas: int
) -> tuple[tuple[Operand, ...], int, tuple[int, ...]]:
    operands: list[Operand] = []
    arguments, sequences = 0, []
    for _ in range(reads):
        differentiable = bool(rng.integers(4))
        if rng.integers(4) == 0:
            members = int(rng.integers(1, 3))
            for member in range(members):
                arena = int(rng.integers(arenas))
                operands.append(Operand(arena, (), len(sequences), member, differentiable))
            sequences.append(members)
        else:
            width = int(rng.integers(1, 4))
            columns = tuple(int(c) for c in arguments + rng.permutation(width))
            operands.append(Operand(int(rng.integers(arenas)), columns, None, 0, differentiable))
            arguments += width
    return tuple(operands), arguments, tuple(sequences)


class _Pool:
    """Values made so far, by arena, component, and whether the component itself may read them.

    `once` is the share of reads after which a value is read no more: 1 in a tree.
    """

    def __init__(self, rng: np.random.Generator, once: float) -> None:
        self.rng = rng
        self.once = once
        self.values: list[tuple[int, int, int, bool]] = []

    def add(self, value: int, arena: int, component: int, *, recursive: bool) -> None:
        self.values.append((value, arena, component, recursive))

    def take(self, arena: int, component: int, *, recursive: bool) -> int | None:
        """Return a value that may be read, if there is one."""
        fits = [
            v
            for v in self.values
            if v[1] == arena and (v[2] < component or (recursive and v[2] == component and v[3]))
        ]
        if not fits:
            return None
        chosen = fits[-1 - int(self.rng.integers(min(len(fits), 6)))]
        if self.rng.random() < self.once:
            self.values.remove(chosen)
        return chosen[0]


def random_trace(rng: np.random.Generator, cells: Cells, calls: int, *, tree: bool = False) -> Trace:
    """Return a trace of up to `calls` calls; in a tree no value is read twice. All levels are 0."""
    kinds = range(len(cells.signatures))
    rows: list[list[list[int]]] = [[] for _ in kinds]
    elements: list[list[list[list[int]]]] = [[[] for _ in cell.sequences] for cell in cells.signatures]
    pool = _Pool(rng, 1.0 if tree else float(rng.choice([0.0, 0.6, 0.95])))
    used = 0
    for _ in range(calls):
        k = int(rng.integers(len(cells.signatures)))
        cell = cells.signatures[k]
        call = _call(rng, cells, k, pool)
        if call is None:
            continue
        arguments, parts = call
        rows[k].append([used, *arguments, *(len(part) for part in parts)])
        for i, part in enumerate(parts):
            elements[k][i] += part
        for j, arena in enumerate(cell.outputs):
            pool.add(used + j, arena, cell.component, recursive=j in cells.recursive_outputs[k])
        used += max(len(cell.outputs), 1) + int(rng.integers(2))
    return Trace(
        tuple(
            np.array(part, np.int32).reshape(-1, 1 + cell.arguments + len(cell.sequences))
            for part, cell in zip(rows, cells.signatures, strict=True)
        ),
        tuple(
            tuple(
                np.array(p, np.int32).reshape(-1, width)
                for p, width in zip(parts, cell.sequences, strict=True)
            )
            for parts, cell in zip(elements, cells.signatures, strict=True)
        ),
        tuple(np.zeros(len(part), np.int32) for part in rows),
        tuple(
            tuple(
                rng.integers(0, 3, len(rows[k])).astype(np.int64 if i else np.int32)
                for i in range(cells.feeds[k])
            )
            for k in kinds
        ),
        tuple(([f"{k}.{i}" for i in range(len(rows[k]))],) for k in kinds),
        used,
    )


def _call(
    rng: np.random.Generator, cells: Cells, k: int, pool: _Pool
) -> tuple[list[int], list[list[list[int]]]] | None:
    """Return the arguments and sequence elements of a call, or None where values are missing."""
    cell = cells.signatures[k]
    before = list(pool.values)
    arguments = [0] * cell.arguments
    lengths = [int(rng.integers(4)) for _ in cell.sequences]
    parts = [[[0] * width for _ in range(n)] for n, width in zip(lengths, cell.sequences, strict=True)]
    for i, operand in enumerate(cell.operands):
        recursive = i in cells.recursive_operands[k]
        places = operand.columns if operand.sequence is None else range(lengths[operand.sequence])
        for place in places:
            value = pool.take(operand.arena, cell.component, recursive=recursive)
            if value is None:
                pool.values = before
                return None
            if operand.sequence is None:
                arguments[place] = value
            else:
                parts[operand.sequence][place][operand.member] = value
    return arguments, parts


@st.composite
def settings_of(
    draw: Callable[[st.SearchStrategy[int]], int],
    *,
    tree: bool = False,
    pairs: bool = True,
    examples: int = 4,
) -> Setting:
    """Return random cells with the traces of a batch of up to `examples`, under a random policy."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cells = random_cells(rng, pairs=pairs)
    sizes = draw(st.lists(st.integers(0, 24), max_size=examples))  # type: ignore[arg-type]
    policy = draw(st.sampled_from(list(POLICIES.values())))  # type: ignore[arg-type]
    traces = [leveled(random_trace(rng, cells, size, tree=tree), cells.signatures, policy) for size in sizes]  # type: ignore[attr-defined]
    return Setting(cells, traces, policy)  # type: ignore[arg-type]
