"""Checks of a record: what no GPU would report and what would go wrong on one, some day.

- *bounds*: work touches bytes that are in no living memory, or a copy's end on the host is not pinned.
- *race*: two pieces of work touch the same bytes, one of them writes, and nothing says which is first.
- *reuse*: new memory may be what was freed before, which earlier work on another stream may still use.
- *pinned*: pinned memory is freed or overwritten while a copy may still use it.
- *event*: an event is waited for that was never recorded.
- *touched*: a launch does not say what it writes, so the rules above do not see it.
- *graph*: a graph holds pinned memory or an event, is replayed after memory that it holds was freed, or the
  thread that captures it allocates, loads or waits.
- *launch*, *product*: what CUDA or cuBLAS refuse, or where they do something undefined.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from foldbatch.engines.cuda.drivers.driver import ARGUMENTS, THREADS, Product, Span
from foldbatch.engines.cuda.drivers.spans import joined
from foldbatch.engines.cuda.recording.calls import (
    Call,
    Captured,
    Graph,
    Kept,
    Launch,
    Memory,
    Order,
    Overwritten,
    Unsafe,
    Work,
)
from foldbatch.engines.cuda.recording.clocks import Clock, Clocks, join

BLOCKS = 2**31 - 1  # of a launch, at most


class Fault(NamedTuple):
    """What is wrong with a call.

    Attributes:
        call: its number in the record.
        rule: which check; see this module.
        text: what is wrong, for people.
    """

    call: int
    rule: str
    text: str


class _Access(NamedTuple):
    """A piece of work that touches bytes."""

    start: int
    end: int
    writes: bool
    stream: int
    time: int
    call: int


class _Block:
    """Living memory, with those accesses that later ones must still be compared to."""

    __slots__ = ("accesses", "end", "host", "last", "ready", "start")

    def __init__(self, start: int, nbytes: int, *, host: bool, ready: Clock) -> None:
        self.start = start
        self.end = start + nbytes
        self.host = host
        self.ready = ready  # what must have happened before it is used
        self.last: Clock = {}  # what has used it
        self.accesses: list[_Access] = []


def faults(calls: Sequence[Call]) -> list[Fault]:
    """Return what is wrong with a record, from its first call on."""
    return list(_Checker(calls).all())


class _Checker:
    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.clocks = Clocks()
        self.blocks: dict[int, _Block] = {}
        self.starts: list[int] = []
        self.freed: Clock = {}  # what has used memory of the device that was freed
        self.graphs: dict[int, list[tuple[Span, _Block | None]]] = {}  # what a graph holds

    def all(self) -> Iterator[Fault]:
        for number, call in enumerate(self.calls):
            if isinstance(call, Memory):
                yield from self.memory(number, call)
            elif isinstance(call, Order):
                if not self.clocks.order(call):
                    yield Fault(number, "event", f"event {call.event} is waited for and was never recorded")
            elif isinstance(call, Overwritten):
                yield Fault(number, "pinned", f"the host changed what call {call.copy} copies, too early")
            elif isinstance(call, Work):
                yield from self.work(number, call)
            elif isinstance(call, Kept):
                yield from self.kept(number, call)
            elif isinstance(call, Captured):
                self.graphs[call.graph] = [(span, self.block(span)) for span in call.spans]
            elif isinstance(call, Unsafe):
                text = f"the thread that captures graph {call.graph} asks for {call.asked}"
                yield Fault(number, "graph", text)

    def kept(self, number: int, kept: Kept) -> Iterator[Fault]:
        """Look at what a graph holds when it is kept; where it reads and writes, when it is replayed."""
        call = kept.call
        if isinstance(call, Order):
            yield Fault(number, "graph", f"graph {kept.graph} holds an event")
            return
        if isinstance(call.detail, Launch):
            yield from _launch_faults(number, call.detail)
        if isinstance(call.detail, Product):
            yield from _product_faults(number, call.detail, call)
        for span in joined([*call.reads, *call.writes]):
            block = self.block(span)
            if block is None:
                yield Fault(number, "bounds", f"{call} touches {_hex(span)}, which is in no living memory")
            elif block.host:
                yield Fault(number, "graph", f"graph {kept.graph} holds pinned memory: {call}")

    def memory(self, number: int, call: Memory) -> Iterator[Fault]:
        if not call.nbytes:
            return
        if call.kind in {"allocate", "pin"}:
            host = call.kind == "pin"
            self.blocks[call.pointer] = _Block(
                *(call.pointer, call.nbytes), host=host, ready={} if host else dict(self.freed)
            )
            insort(self.starts, call.pointer)
            return
        block = self.blocks.pop(call.pointer)
        self.starts.remove(call.pointer)
        if not block.host:
            join(self.freed, block.last)
        elif not _knows(self.clocks.host, block.last):
            yield Fault(number, "pinned", "pinned memory is freed, and copies may still use it")

    def work(self, number: int, call: Work) -> Iterator[Fault]:
        if isinstance(call.detail, Launch):
            yield from _launch_faults(number, call.detail)
        if isinstance(call.detail, Launch | Graph) and not call.writes:
            yield Fault(number, "touched", f"{call} does not say what it writes")
        if isinstance(call.detail, Product):
            yield from _product_faults(number, call.detail, call)
        if isinstance(call.detail, Graph):
            for span, block in self.graphs.get(call.detail.number, ()):
                if block is not None and self.block(span) is not block:
                    yield Fault(
                        number, "graph", f"{call} uses {_hex(span)}, which was freed since it was kept"
                    )
        time = self.clocks.work(call.stream)
        clock = self.clocks.streams[call.stream]
        made = []
        for writes, spans in ((False, call.reads), (True, call.writes)):
            for span in joined(spans):
                block = self.block(span)
                if block is None:
                    yield Fault(
                        number, "bounds", f"{call} touches {_hex(span)}, which is in no living memory"
                    )
                    continue
                access = _Access(span.pointer, sum(span), writes, call.stream, time, number)
                yield from self.access(block, access, clock)
                made.append((block, access))
        for block, access in made:
            block.accesses = [old for old in block.accesses if not self.settles(access, old, clock)]
            block.accesses.append(access)
            block.last[call.stream] = time

    def block(self, span: Span) -> _Block | None:
        """Return the living memory that holds bytes; None where none does."""
        at = bisect_right(self.starts, span.pointer) - 1
        block = self.blocks[self.starts[at]] if at >= 0 else None
        return block if block is not None and sum(span) <= block.end else None

    def access(self, block: _Block, access: _Access, clock: Clock) -> Iterator[Fault]:
        call = self.calls[access.call]
        if not _knows(clock, block.ready):
            block.ready = {}  # said once
            text = f"{call} uses new memory, and what used it before it was freed may not be done"
            yield Fault(access.call, "reuse", text)
        for old in block.accesses:
            apart = old.end <= access.start or access.end <= old.start
            if not apart and (old.writes or access.writes) and clock.get(old.stream, 0) < old.time:
                verbs = [("reads", "writes")[each.writes] for each in (access, old)]
                here = Span(
                    max(old.start, access.start), min(old.end, access.end) - max(old.start, access.start)
                )
                other = f"call {old.call}, {self.calls[old.call]}, {verbs[1]}"
                text = f"{call} {verbs[0]} {_hex(here)}, which {other}"
                yield Fault(access.call, "race", f"{text}, and nothing says which is first")

    def settles(self, new: _Access, old: _Access, clock: Clock) -> bool:
        """Whether later accesses that do not race with `new` cannot race with `old`."""
        if self.clocks.host_knows(old.stream, old.time):
            return True
        covered = new.start <= old.start and old.end <= new.end and (new.writes or not old.writes)
        return covered and clock.get(old.stream, 0) >= old.time


def _knows(clock: Clock, other: Clock) -> bool:
    return all(clock.get(stream, 0) >= time for stream, time in other.items())


def _hex(span: Span) -> str:
    return f"{span.nbytes} bytes at {span.pointer:#x}"


def _launch_faults(number: int, launch: Launch) -> Iterator[Fault]:
    x, y = launch.threads
    wrong = {
        f"{launch.blocks} blocks": not 0 < launch.blocks <= BLOCKS,
        f"{x} times {y} threads": x < 1 or y < 1 or x * y > THREADS,
        f"{len(launch.arguments)} arguments": len(launch.arguments) > ARGUMENTS,
        "an argument that is no whole number of 64 bits": not all(
            -(2**63) <= a < 2**63 for a in launch.arguments
        ),
    }
    for what, is_wrong in wrong.items():
        if is_wrong:
            yield Fault(number, "launch", f"{launch.kernel} is launched with {what}")


def _product_faults(number: int, product: Product, call: Work) -> Iterator[Fault]:
    p, size = product, 4 if product.dtype == "float32" else 8
    if not p.count * p.m * p.n:
        return
    lies = call.kind == "multiply"  # else nobody knows yet where the operands lie
    columns = {"a": p.m if p.a_across else p.k, "b": p.k if p.b_across else p.n, "c": p.n}
    leads = {"a": p.a_lead, "b": p.b_lead, "c": p.c_lead}
    for name, address in (("a", p.a), ("b", p.b), ("c", p.c)):
        if leads[name] < max(1, columns[name]):
            yield Fault(
                number, "product", f"{name}_lead is {leads[name]} for rows of {columns[name]} elements"
            )
        if lies and address % size and p.k:
            yield Fault(number, "product", f"{name} lies at {address:#x}, between elements")
    one_after_another = p.c_step >= (p.m - 1) * p.c_lead + p.n
    side_by_side = p.c_step >= p.n and (p.count - 1) * p.c_step + p.n <= p.c_lead
    if p.count > 1 and not one_after_another and not side_by_side:
        yield Fault(number, "product", f"products write into each other: c_step is {p.c_step}")
    operands = call.reads[:2]
    if lies and any(
        read.pointer < sum(c) and c.pointer < sum(read) for c in call.writes for read in operands
    ):
        yield Fault(number, "product", "the result lies over an operand")
