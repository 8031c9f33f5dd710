"""What a driver was asked, as plain data: a record is a list of calls, in the order of the host.

Memory of the device and pinned memory of the host lie in one space of addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from foldbatch.engines.cuda.drivers.driver import Product, Span


class Memory(NamedTuple):
    """Memory of the device is allocated or free again, or memory of the host pinned or free again."""

    kind: Literal["allocate", "free", "pin", "unpin"]
    pointer: int
    nbytes: int


class Order(NamedTuple):
    """An event is recorded on a stream, a stream waits for an event, or the host does (of no stream: -1)."""

    kind: Literal["record", "wait", "synchronize"]
    event: int
    stream: int = -1


class Launch(NamedTuple):
    """A launch but for its memory; see `driver.Driver.launch`.

    Attributes:
        kernel: its name.
        blocks: how many.
        threads: of a block.
        arguments: all of them.
        together: whether all blocks run side by side.
    """

    kernel: str
    blocks: int
    threads: tuple[int, int]
    arguments: tuple[int, ...]
    together: bool = False


class Graph(NamedTuple):
    """A graph that is run, but for its memory.

    Attributes:
        kept: the launches and products that it holds.
        number: of the graph.
    """

    kept: tuple[Launch | Product, ...]
    number: int


class Work(NamedTuple):
    """What is enqueued on a stream.

    Attributes:
        kind: which method of the driver.
        stream: its number.
        reads: memory that it may read.
        writes: memory that it may write.
        detail: what it does.
    """

    kind: Literal[
        "launch",
        "multiply",
        "multiply_at",
        "copy_in",
        "copy_out",
        "copy",
        "fill",
        "replay",
    ]
    stream: int
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    detail: Launch | Product | Graph | None = None

    def __str__(self) -> str:
        what = f"launch of {self.detail.kernel}" if isinstance(self.detail, Launch) else self.kind
        what = f"replay of graph {self.detail.number}" if isinstance(self.detail, Graph) else what
        return f"{what} on stream {self.stream}"


class Kept(NamedTuple):
    """What is enqueued on a stream that is captured: it is done when the graph is replayed, and not now.

    Attributes:
        graph: the number of the graph.
        call: what is enqueued.
    """

    graph: int
    call: Work | Order


class Captured(NamedTuple):
    """All is kept that a graph holds.

    Attributes:
        graph: its number.
        spans: memory that its work said to touch.
    """

    graph: int
    spans: tuple[Span, ...]


class Unsafe(NamedTuple):
    """A thread that captures asks for what it may not.

    Attributes:
        asked: which method of the driver.
        graph: the number of the graph.
    """

    asked: str
    graph: int


class Overwritten(NamedTuple):
    """The host changed pinned memory before it could know that a copy had read it.

    Attributes:
        copy: the number of the call that enqueued the copy.
    """

    copy: int


class Loaded(NamedTuple):
    """Kernels are compiled.

    Attributes:
        source: their text.
    """

    source: str


Call: TypeAlias = Memory | Order | Work | Overwritten | Loaded | Kept | Captured | Unsafe


class Counts(NamedTuple):
    """How often each thing was asked for, and the bytes of copies between host and device.

    What a graph holds is counted apart, each time that it is run.
    """

    launches: int
    products: int
    copies_in: int
    bytes_in: int
    copies_out: int
    bytes_out: int
    copies: int
    fills: int
    allocations: int
    waits: int
    synchronizations: int
    loads: int
    replays: int
    graph_launches: int
    graph_products: int


def count(calls: Iterable[Call]) -> Counts:
    """Count calls.

    >>> counts = count([Work("copy_in", 0, (Span(512, 16),), (Span(0, 16),)), Order("synchronize", 0)])
    >>> counts.copies_in, counts.bytes_in, counts.synchronizations, counts.launches
    (1, 16, 1, 0)
    """
    calls = list(calls)
    of = Counter(call.kind for call in calls if isinstance(call, Work | Order | Memory))
    details = [call.detail for call in calls if isinstance(call, Work)]
    held = [each for detail in details if isinstance(detail, Graph) for each in detail.kept]
    moved = Counter[str]()
    for call in calls:
        if isinstance(call, Work):
            moved[call.kind] += sum(span.nbytes for span in call.writes)
    return Counts(
        launches=of["launch"],
        products=of["multiply"] + of["multiply_at"],
        copies_in=of["copy_in"],
        bytes_in=moved["copy_in"],
        copies_out=of["copy_out"],
        bytes_out=moved["copy_out"],
        copies=of["copy"],
        fills=of["fill"],
        allocations=of["allocate"],
        waits=of["wait"],
        synchronizations=of["synchronize"],
        loads=sum(isinstance(call, Loaded) for call in calls),
        replays=of["replay"],
        graph_launches=sum(isinstance(each, Launch) for each in held),
        graph_products=sum(isinstance(each, Product) for each in held),
    )


def launches(calls: Iterable[Call]) -> Counter[str]:
    """Count launches by the name of the kernel."""
    details = (call.detail for call in calls if isinstance(call, Work))
    return Counter(detail.kernel for detail in details if isinstance(detail, Launch))


def alive(calls: Iterable[Call]) -> list[Memory]:
    """Return the memory that nobody has freed, in the order in which it was allocated."""
    held: dict[tuple[bool, int], Memory] = {}
    for call in calls:
        if isinstance(call, Memory):
            key = (call.kind in {"allocate", "free"}, call.pointer)
            if call.kind in {"allocate", "pin"}:
                held[key] = call
            else:
                held.pop(key, None)
    return list(held.values())


def product_spans(product: Product) -> tuple[tuple[Span, ...], tuple[Span, ...]]:
    """Return what products read and write: a span for each operand, from its first byte to its last."""
    p, size = product, 4 if product.dtype == "float32" else 8
    a = _span(p.a, size, p, p.a_step, (p.k, p.m) if p.a_across else (p.m, p.k), p.a_lead)
    b = _span(p.b, size, p, p.b_step, (p.n, p.k) if p.b_across else (p.k, p.n), p.b_lead)
    c = _span(p.c, size, p, p.c_step, (p.m, p.n), p.c_lead)
    if not c[0].nbytes:
        return (), ()
    return (*a, *b, *(c if p.adds else ())), c


def _span(
    pointer: int, size: int, product: Product, step: int, shape: tuple[int, int], lead: int
) -> tuple[Span, ...]:
    rows, columns = shape
    empty = not product.count * rows * columns
    elements = 0 if empty else (product.count - 1) * step + (rows - 1) * lead + columns
    return (Span(pointer, elements * size),)


def describe(calls: Sequence[Call], first: int = 0) -> str:
    """Return a record as text, a line for each call from the first one on."""
    return "\n".join(f"{number:5d} {call}" for number, call in enumerate(calls) if number >= first)
