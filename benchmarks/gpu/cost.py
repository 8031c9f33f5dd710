"""What a step asks of the card, counted: launches, products, copies, operations; and the least time for it.

A `Counted` driver stands in front of an engine's own and counts what passes. Bytes that a step moves at least
follow from the model's formulas instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.floor import Counts
from benchmarks.workload import CLASSES


@dataclass(slots=True)
class Cost:
    """What was asked of a card.

    Attributes:
        launches: kernels launched, without products, and graphs, each of which is one launch.
        products: matrix products asked for, batched ones counting once.
        copies_in: copies to the card; `bytes_in` their bytes. `copies_out` and `bytes_out` from it.
        copies: from one place of the card to another; `fills` of bytes likewise.
        operations: of these products, a multiplication and an addition being two.
        waits: how often the host waited for the card.
    """

    launches: int = 0
    products: int = 0
    copies_in: int = 0
    bytes_in: int = 0
    copies_out: int = 0
    bytes_out: int = 0
    copies: int = 0
    fills: int = 0
    operations: int = 0
    waits: int = 0

    def __add__(self, other: Cost) -> Cost:
        """Return both together."""
        return Cost(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def submitted(self) -> int:
        """All that the card is told to do one after the other: launches, products, copies on it, fills."""
        return self.launches + self.products + self.copies + self.fills


class Counted:
    """A driver (`foldbatch.engines.cuda.driver.Driver`) that counts and lets another one do it.

    Args:
        driver: the other.
        cost: what is counted into.
        dry: whether launches and products are counted only: memory holds zeros then, and results are void.
    """

    def __init__(self, driver: Any, cost: Cost, *, dry: bool = False) -> None:
        self._driver, self.cost, self._dry = driver, cost, dry
        self._captured: list[Any] = []  # streams: what is enqueued there is done when its graph is replayed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def allocate(self, nbytes: int) -> Any:
        """Return memory, with zeros if nothing is going to be computed."""
        buffer = self._driver.allocate(nbytes)
        if self._dry:
            self._driver.fill(buffer.pointer, 0, nbytes, self._driver.stream())
        return buffer

    def launch(
        self, function: Any, blocks: int, threads: tuple[int, int], arguments: Sequence[int], stream: Any
    ) -> None:
        """Count a launch, and launch."""
        self.cost.launches += stream not in self._captured
        if not self._dry:
            self._driver.launch(function, blocks, threads, arguments, stream)

    def begin_capture(self, stream: Any) -> None:
        """Keep what comes, and count nothing of it."""
        self._captured.append(stream)
        self._driver.begin_capture(stream)

    def end_capture(self, stream: Any) -> Any:
        """Return the graph, and count again."""
        self._captured.remove(stream)
        return self._driver.end_capture(stream)

    def replay(self, graph: Any, stream: Any) -> None:
        """Count a launch, and run a graph."""
        self.cost.launches += 1
        if not self._dry:
            self._driver.replay(graph, stream)

    def multiply(self, product: Any, stream: Any) -> None:
        """Count products, and multiply."""
        self._multiplied(product, stream)
        if not self._dry:
            self._driver.multiply(product, stream)

    def _multiplied(self, p: Any, stream: Any) -> None:
        if stream not in self._captured:
            self.cost.products += 1
            self.cost.operations += 2 * p.count * p.m * p.n * p.k

    def copy_in(self, pointer: int, source: Any, stream: Any) -> None:
        """Count a copy to the card, and copy."""
        self.cost.copies_in += 1
        self.cost.bytes_in += source.nbytes
        self._driver.copy_in(pointer, source, stream)

    def copy_out(self, target: Any, pointer: int, stream: Any) -> None:
        """Count a copy from the card, and copy."""
        self.cost.copies_out += 1
        self.cost.bytes_out += target.nbytes
        self._driver.copy_out(target, pointer, stream)

    def copy(self, target: int, source: int, nbytes: int, stream: Any) -> None:
        """Count a copy on the card, and copy."""
        self.cost.copies += 1
        self._driver.copy(target, source, nbytes, stream)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        """Count a fill, and fill."""
        self.cost.fills += 1
        self._driver.fill(pointer, byte, nbytes, stream)

    def synchronize(self, event: Any) -> None:
        """Count that the host waits, and wait."""
        self.cost.waits += 1
        self._driver.synchronize(event)


@contextmanager
def counting(device: Any, *, dry: bool = False) -> Iterator[Cost]:
    """Count what is asked of a device (`foldbatch.engines.cuda.device.Device`) meanwhile.

    With `dry` nothing is computed, see `Counted`.

    >>> from foldbatch.engines.cuda.device import Device
    >>> from tests.engines.cuda.emulator import Emulator
    >>> import numpy as np
    >>> device = Device(Emulator())
    >>> with counting(device) as cost:
    ...     array = device.put(np.zeros(3))
    >>> cost.copies_in, cost.bytes_in, cost.submitted
    (1, 24, 0)
    """
    driver, cost = device.driver, Cost()
    device.driver = Counted(driver, cost, dry=dry)
    try:
        yield cost
    finally:
        device.driver = driver


def least_bytes(counts: Counts, hidden: int) -> int:
    """Return the bytes that a training step of the SST Tree-LSTM in float32 reads and writes at least.

    Every value of the formulas is written once, and read once by each pass that uses it: products, the cell's
    elementwise pass, the weights' gradients, forward and backward. Weights are read once each way, and Adam
    reads four numbers and writes three for each weight, and for each number in the rows of words that occur.

    - An inner node, in vectors of the hidden size. Forward: 2 + 5 in the product, 5 + 2 + 5 + 2 in the cell.
      Backward: 5 + 3 + 2 + 5 + 2 in the cell, 5 + 4 in the product, 7 in the weight's gradient.
    - Any node: h for the classifier, and its gradient; five logits, and their gradients.
    - A leaf: h and c, and their gradients. A distinct word: 7 forward, 16 backward, 7 for Adam.

    >>> least_bytes(Counts(trees=1, leaves=2, words=2, inner=1), 1)
    1748
    """
    weights = 13 * hidden**2 + (8 + CLASSES) * hidden + CLASSES
    vectors = 54 * counts.inner + 2 * counts.nodes + 30 * counts.words + 4 * counts.leaves
    return 4 * (hidden * vectors + 2 * CLASSES * counts.nodes + 9 * weights)


def floor(
    cost: Cost, rates: Mapping[str, float], operations: int = 0, nbytes: int = 0, precision: str = "fp32"
) -> dict[str, float]:
    """Return the least seconds for what a step asks, by what takes them, as far as the rates are known.

    Each is a bound of its own: no step is faster than the largest of ``products``, ``bytes`` and ``copies
    in``, nor than ``launches in a graph``. ``launches`` is what the host takes to enqueue them one by one.

    Args:
        cost: what was counted.
        rates: see `benchmarks.gpu.rates.measure`.
        operations: of products that the step needs at least, see `benchmarks.floor.Counts.operations`.
        nbytes: that it moves at least, see `least_bytes`.
        precision: of products.

    >>> floor(Cost(launches=3, products=1), {"launch": 1e-6, "product fp32": 1e9}, 100)
    {'products': 1e-07, 'launches': 4e-06}
    """
    found = {}
    if rate := rates.get(f"product {precision}"):
        found["products"] = operations / rate
    if nbytes and (rate := rates.get("copy")):
        found["bytes"] = nbytes / rate
    if rate := rates.get("upload"):
        found["copies in"] = cost.bytes_in / rate
    if seconds := rates.get("launch"):
        found["launches"] = cost.submitted * seconds
    if seconds := rates.get("launch in a graph"):
        found["launches in a graph"] = cost.submitted * seconds
    return found
