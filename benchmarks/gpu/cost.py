"""What a step asks of the card, counted: launches, products, copies, operations, bytes; and the least time for it.

A `Counted` driver stands in front of an engine's own and counts what passes. What a kernel reads and writes is
counted where the engine tells it (`foldbatch.engines.cuda.driver.Touched`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Touching = Callable[[], Any] | None


@dataclass(slots=True)
class Cost:
    """What was asked of a card.

    Attributes:
        launches: kernels launched, without products.
        products: matrix products asked for, batched ones counting once.
        copies_in: copies to the card; `bytes_in` their bytes. `copies_out` and `bytes_out` from it.
        copies: from one place of the card to another; `fills` of bytes likewise.
        operations: of products, a multiplication and an addition being two.
        product_bytes: read and written by products, each operand once.
        kernel_bytes: read and written by kernels, as far as they tell.
        waits: how often the host waited for the card.
        by_kernel: launches by kernel.
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
    product_bytes: int = 0
    kernel_bytes: int = 0
    waits: int = 0
    by_kernel: dict[str, int] = field(default_factory=dict)

    @property
    def submitted(self) -> int:
        """All that the card is told to do, one after the other: launches, products, copies on it, and fills."""
        return self.launches + self.products + self.copies + self.fills


class Counted:
    """A driver (`foldbatch.engines.cuda.driver.Driver`) that counts and lets another one do it.

    Args:
        driver: the other.
        cost: what is counted into.
    """

    def __init__(self, driver: Any, cost: Cost) -> None:
        self._driver, self.cost = driver, cost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def recording(self) -> bool:
        """Whether launches are to tell what they touch: yes, since bytes are counted."""
        return True

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        arguments: Sequence[int],
        stream: Any,
        touched: Touching = None,
    ) -> None:
        """Count a launch, and launch."""
        cost = self.cost
        cost.launches += 1
        name = str(getattr(function, "name", "kernel"))
        cost.by_kernel[name] = cost.by_kernel.get(name, 0) + 1
        if touched is not None:
            told = touched()
            cost.kernel_bytes += sum(span.nbytes for span in (*told.reads, *told.writes))
        self._driver.launch(function, blocks, threads, arguments, stream, touched)

    def multiply(self, product: Any, stream: Any) -> None:
        """Count products, and multiply."""
        p, cost = product, self.cost
        cost.products += 1
        cost.operations += 2 * p.count * p.m * p.n * p.k
        elements = p.m * p.k + p.k * p.n + p.m * p.n * (2 if p.adds else 1)
        cost.product_bytes += p.count * elements * np.dtype(p.dtype).itemsize
        self._driver.multiply(product, stream)

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
        self.cost.kernel_bytes += 2 * nbytes
        self._driver.copy(target, source, nbytes, stream)

    def fill(self, pointer: int, byte: int, nbytes: int, stream: Any) -> None:
        """Count a fill, and fill."""
        self.cost.fills += 1
        self.cost.kernel_bytes += nbytes
        self._driver.fill(pointer, byte, nbytes, stream)

    def synchronize(self, event: Any) -> None:
        """Count that the host waits, and wait."""
        self.cost.waits += 1
        self._driver.synchronize(event)


@contextmanager
def counting(device: Any) -> Iterator[Cost]:
    """Count what is asked of a device (`foldbatch.engines.cuda.device.Device`) meanwhile.

    >>> from foldbatch.engines.cuda.device import Device
    >>> from foldbatch.engines.cuda.emulator import Emulator
    >>> device = Device(Emulator())
    >>> with counting(device) as cost:
    ...     array = device.put(np.zeros(3))
    >>> cost.copies_in, cost.bytes_in, cost.waits, cost.submitted
    (1, 24, 1, 0)
    """
    driver, cost = device.driver, Cost()
    device.driver = Counted(driver, cost)
    try:
        yield cost
    finally:
        device.driver = driver


def floor(cost: Cost, rates: Mapping[str, float], precision: str = "fp32") -> dict[str, float]:
    """Return the least seconds for what a step asks, by what takes them, as far as the rates are known.

    Each is a bound of its own: no step is faster than the largest of ``products``, ``bytes`` and ``copies in``. What
    it is told one thing after the other, at least ``launches in a graph``; ``launches`` one by one, as they are now.

    >>> floor(Cost(launches=3, products=1, operations=100), {"launch": 1e-6, "product fp32": 1e9})
    {'products': 1e-07, 'launches': 4e-06}
    """
    found = {}
    if rate := rates.get(f"product {precision}"):
        found["products"] = cost.operations / rate
    if rate := rates.get("copy"):
        found["bytes"] = (cost.product_bytes + cost.kernel_bytes) / rate
    if rate := rates.get("upload"):
        found["copies in"] = cost.bytes_in / rate
    if seconds := rates.get("launch"):
        found["launches"] = cost.submitted * seconds
    if seconds := rates.get("launch in a graph"):
        found["launches in a graph"] = cost.submitted * seconds
    return found
