"""Lowering: from a block to a model, and a tracer that turns examples into traces for it.

``block --build--> drafts, tracing program --link--> Model``
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from foldbatch.blocks.block import AnyBlock, build
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.columnar.columns import Columns, find
from foldbatch.blocks.drafts import Procedure
from foldbatch.blocks.flow import make_return
from foldbatch.blocks.memo import Kinds, decide_memos
from foldbatch.blocks.names import tell_apart
from foldbatch.blocks.places import place_of
from foldbatch.blocks.plain import to_plain
from foldbatch.blocks.printing import KINDS
from foldbatch.blocks.pruning import pruned
from foldbatch.blocks.purity import is_constant
from foldbatch.blocks.tracer import TracingProgram
from foldbatch.blocks.tracing import InvokeWalk, constants_of, statements_of
from foldbatch.blocks.values import Terminal, new_wires, run_time_terminals, type_of
from foldbatch.blocks.writer import shown
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.model.drafts import ASIDES, Draft
from foldbatch.model.link import link
from foldbatch.model.model import Model, asides_of
from foldbatch.model.needed import needed
from foldbatch.model.tracer import MAX_CALLS, Decide, Look, Written
from foldbatch.model.wires import Flow, components
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.levels import longest_chains
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.trace import Trace
from foldbatch.static.cellgraph import CellGraph
from foldbatch.static.graph import SOURCES, Node, is_view, reachable
from foldbatch.system.processes import no_garbage
from foldbatch.trees import Tree
from foldbatch.trees.records import Records
from foldbatch.types import OBJECT, VOID, Type


@dataclass(frozen=True, slots=True)
class Lowered:
    """A block ready to run: its model, and what turns examples into traces for the model.

    It is a `foldbatch.model.tracer.Tracer`.

    Attributes:
        block: the block.
        model: its model.
        tracer: the tracing program.
        columns: the program applied to many examples by array operations, or what keeps it from that.
        asides: which of ``losses`` and ``metrics`` the model has.
    """

    block: AnyBlock
    model: Model
    tracer: TracingProgram
    columns: Columns | str
    asides: frozenset[str]

    @property
    def origin(self) -> AnyBlock:
        return self.block

    @property
    def name(self) -> str:
        return shown(self.block)

    @property
    def policy(self) -> Policy:
        return self.tracer.policy

    @property
    def max_calls(self) -> int:
        return self.tracer.max_calls

    @property
    def grows(self) -> bool:
        return False

    @property
    def source(self) -> str:
        return self.tracer.source

    @property
    def reached(self) -> Iterable[Any]:
        return self.tracer.globals.values()

    @property
    def way(self) -> str:
        if isinstance(self.columns, str):
            kept = f"What keeps examples from being traced by columns: {self.columns}"
            return f"by the program, visit by visit. {kept}"
        last = self.columns.refusals.last
        if not self.columns.recurs:
            slow = "by the program, visit by visit, which takes no longer than columns where nothing recurs"
            return f"{slow}. Arrow arrays: by columns" + (f"; the last that were not: {last}" if last else "")
        beside = f". The last batch that was traced by the program instead: {last}" if last else ""
        return f"by columns, all visits of a block at once{beside}"

    def remarks(self, calls: Sequence[int]) -> Sequence[str]:
        return ()

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()

    @property
    def decides(self) -> bool:
        return False

    def trace_all(
        self,
        examples: Sequence[Any],
        numbers: Sequence[int],
        look: Look | None = None,
        decide: Decide | None = None,
    ) -> list[Trace]:
        """The one place that chooses how examples are traced: by columns, or else by the program."""
        if isinstance(self.columns, Columns) and (look is None or _are_plain(examples)):
            with no_garbage():  # many traces are many objects
                records = self.columns.records(examples, self.tracer.max_calls)
                if records is not None:
                    return [trace for record in records for trace in self.tracer.traces_of(record)]
        if isinstance(examples, Records):
            examples = examples.objects()
        return self.tracer.trace_all(examples, numbers, look)

    def variant(self, asides: frozenset[str], policy: Policy | None = None) -> Lowered:
        own = self.tracer
        kept = self.model.kept_bytes
        return lower(self.block, policy or own.policy, kept, own.max_calls, asides, own.arithmetic)

    def place_of(self, example: Any, cell: int, call: int) -> str:
        return place_of(self.tracer, example, cell, call)

    def debug(self, example: Any, begin: Callable[[Parameter], None]) -> Any:
        fix = "metrics show values of blocks: AllOf(Identity(), Metric('name')) >> GetItem(0)"
        raise BlockTypeError("Program.debug", "a program of a plain function", "one of blocks", fix)

    def written(self, parameters: Mapping[str, Parameter]) -> Written:
        return to_plain(self.block, parameters)


def _are_plain(examples: Sequence[Any]) -> bool:
    """Return whether examples can hold nothing but numbers and words: no tensors that somebody looks for."""
    if isinstance(examples, Records):
        return True
    parts = (part for x in examples for part in (x if type(x) in (tuple, list) else (x,)))
    return all(type(part) is Tree or is_constant(part) for part in parts)


def lower(
    block: AnyBlock,
    policy: Policy,
    kept_bytes: int | None = None,
    max_calls: int = MAX_CALLS,
    asides: frozenset[str] = ASIDES,
    arithmetic: Arithmetic = NUMPY,
) -> Lowered:
    """Build a block whose input is one example, a Python object.

    Args:
        block: the block.
        policy: what levels are computed for.
        kept_bytes: how much a call may keep for its backward pass.
        max_calls: how many calls an example may make.
        asides: which of ``losses`` and ``metrics`` the model has. Where one is missing, so is all that serves
            nothing else.
        arithmetic: what finds the levels of calls.

    Raises:
        BlockTypeError: when the block is ill typed; the message tells where.
    """
    return linked(block, built(block, asides), policy, kept_bytes, max_calls, arithmetic)


def linked(
    block: AnyBlock,
    made: Built,
    policy: Policy,
    kept_bytes: int | None = None,
    max_calls: int = MAX_CALLS,
    arithmetic: Arithmetic = NUMPY,
) -> Lowered:
    """Return a block that has been built as it is ready to run; arguments are those of `lower`.

    Raises:
        BlockTypeError: when only a run of it tells which cells there are.
    """
    if made.walks:
        fix = "give it to foldbatch.compile, which runs it as a walk"
        raise BlockTypeError(shown(block), "a block whose cells are all known", "one that calls walks", fix)
    model = link(made.drafts, made.type, made.results, made.parameters, kept_bytes)
    tracer = TracingProgram(
        made.functions, model, policy, made.globals, made.collections, made.memos, max_calls, arithmetic
    )
    return Lowered(block, model, tracer, find(made.functions, model), asides_of(model))


@dataclass(frozen=True, slots=True)
class Built:
    """What a block is built to: the tracing program, and drafts of the cells that it calls.

    Attributes:
        functions: of the program, the root's first.
        drafts: of the cells.
        type: what the block yields.
        results: the wires of that.
        parameters: those that the cells read.
        globals, collections, memos: as of `TracingProgram`.
        walks: the functions of the user that note calls of their own.
    """

    functions: Sequence[Procedure]
    drafts: list[Draft]
    type: Type
    results: list[Flow]
    parameters: list[Parameter]
    globals: dict[str, Any]
    collections: tuple[str, ...]
    memos: list[str]
    walks: list[Any]


def built(
    block: AnyBlock, asides: frozenset[str] = ASIDES, given: Type = OBJECT, path: str = "model"
) -> Built:
    """Build a block.

    Args:
        block: the block.
        asides: which of ``losses`` and ``metrics`` are wanted.
        given: what the block reads.
        path: how errors begin.

    Raises:
        BlockTypeError: when the block is ill typed; the message tells where.
    """
    builder = Builder(path, asides=asides)
    root = builder.declare(block, "root", given, VOID)
    with builder.define(root, path) as argument:
        try:
            result = build(block, builder, argument)
        except RecursionError:
            fix = "put parts into ForwardDeclarations; a block must not contain itself in any other way"
            raise BlockValueError(path, "blocks that end", "too many inside each other", fix) from None
        type_ = type_of(result)
        root.results += [Terminal(f"r{i}", t, new_wires(t)) for i, t in enumerate(run_time_terminals(type_))]
        make_return(builder, root, result)
    _refuse_endless(builder.functions)
    for draft, name in zip(builder.drafts, tell_apart(builder.names), strict=True):
        draft.name = name
    results = list(chain.from_iterable(_wires(slot.wires) for slot in root.results))
    drafts, functions = builder.drafts, builder.functions
    if builder.left_out:
        kept = needed(drafts, results)
        functions = pruned(functions, kept)
        drafts = [each.draft for each in kept.values()]
    memos = decide_memos(functions)
    constants = chain.from_iterable(constants_of(function.body) for function in functions)
    return Built(
        functions,
        drafts,
        type_,
        results,
        list(builder.parameters),
        {**{constant.name: constant.value for constant in constants}, KINDS: Kinds()},
        tuple(builder.collecting.values()),
        memos,
        [s.function.value for f in functions for s in statements_of(f.body) if isinstance(s, InvokeWalk)],
    )


def _wires(nested: Any) -> Iterator[Flow]:
    """Yield the wires of a terminal: of a sequence, those of its elements."""
    match nested:
        case Flow():
            yield nested
        case tuple():
            for part in nested:
                yield from _wires(part)


def depth(model: Model, trace: Trace) -> int:
    """Return the longest chain of calls that compute something, in one example.

    A call whose computation goes to losses and metrics alone counts at the end of a chain, and not within
    one.
    """
    cells = [cell.graph for cell in model.cells]
    passing = [_computes(cell.outputs, cell) for cell in cells]
    ending = [_computes(cell.results, cell) for cell in cells]
    chains = longest_chains(model.signatures, trace.calls, trace.elements, trace.values, passing)
    kinds = np.repeat(np.arange(len(cells)), list(map(len, trace.calls)))
    bases = np.concatenate([np.zeros(0, np.int32), *(rows[:, 0] for rows in trace.calls)])
    order = kinds[np.argsort(bases, kind="stable")].tolist()  # the order of `chains`
    return max((n - passing[k] + ending[k] for n, k in zip(chains, order, strict=True)), default=0)


def _computes(results: Sequence[Node], graph: CellGraph) -> bool:
    """Whether results need computation: data as read (or as one-hot vectors), constants and views do not."""
    given = set(graph.inputs)
    return any(
        n.op not in SOURCES and n not in given and not is_view(n) and n.op.name != "one_hot"
        for n in reachable(results, graph.inputs)
    )


def _refuse_endless(functions: Sequence[Procedure]) -> None:
    """Refuse declarations that refer to themselves whatever the example holds."""
    edges = {f.name: f.always for f in functions}
    component = components([f.name for f in functions], edges)
    for function in functions:
        if any(component[other] == component[function.name] for other in function.always):
            found, fix = "one that always refers to itself", "choose with OneOf where to end"
            raise BlockTypeError(function.path, "a definition that ends", found, fix)
