"""What the card can do at most, measured: bytes copied, operations of products, and what a launch costs.

Floors of a step are counted with these, not with a data sheet. The best of several runs counts. Operands are
random: zeros can multiply faster than data does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.gpu.card import Card
from benchmarks.gpu.race import described

RUNS = 10
LAUNCHES = 1000  # in a row


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large operands are.

    Attributes:
        copied: bytes of a copy on the device; `moved` of one to and from it.
        square: rows of a product's matrices.
        launches: in a row.
    """

    copied: int = 2**31
    moved: int = 2**28
    square: int = 8192
    launches: int = LAUNCHES


QUICK = Sizes(2**16, 2**14, 64, 10)


def measure(card: Card, sizes: Sizes) -> tuple[dict[str, float], dict[str, str]]:
    """Return rates by name, and by name why others were not measured.

    ``copy``, ``upload`` and ``download`` are bytes a second, a copy on the device counting bytes read and
    written; ``product fp32``, ``tf32``, ``bf16``, ``fp64`` operations a second; ``launch``, ``launch in a
    graph`` and ``round trip`` (a launch, and waiting for it) seconds.
    """
    rates: dict[str, float] = {}
    failed: dict[str, str] = {}
    if card.torch is None:
        return rates, {"all rates": "PyTorch is not installed, or finds no card"}
    torch, wait = card.torch, card.wait

    def best(task: Callable[[], object], per_run: int = 1) -> float:
        task()
        found = []
        for _ in range(RUNS):
            wait()
            start = time.perf_counter()
            for _ in range(per_run):
                task()
            wait()
            found.append((time.perf_counter() - start) / per_run)
        return min(found)

    def add(name: str, measured: Callable[[], float]) -> None:
        try:
            rates[name] = measured()
        except Exception as error:  # noqa: BLE001 - a card may lack anything; the others are measured
            failed[f"rate: {name}"] = described(error)

    def copied() -> float:
        source = torch.rand(sizes.copied // 4, device=card.device)
        target = torch.empty_like(source)
        return 2 * sizes.copied / best(lambda: target.copy_(source))

    def moved(*, up: bool) -> float:
        host = torch.rand(sizes.moved // 4)
        host = host.pin_memory() if card.is_gpu else host
        device = torch.empty(sizes.moved // 4, device=card.device)
        target, source = (device, host) if up else (host, device)
        return sizes.moved / best(lambda: target.copy_(source, non_blocking=True))

    add("copy", copied)
    add("upload", lambda: moved(up=True))
    add("download", lambda: moved(up=False))
    for precision in ("fp32", "tf32", "bf16", "fp64"):
        add(f"product {precision}", partial(_product_rate, torch, card.device, precision, sizes.square, best))
    one = torch.zeros(32, device=card.device)
    add("launch", lambda: best(lambda: one.add_(1), sizes.launches))
    add("round trip", lambda: best(lambda: one.add_(1)))
    if card.is_gpu:
        add("launch in a graph", lambda: _graph_launch(torch, one, sizes.launches, best))
    card.forget()
    return rates, failed


def _product_rate(torch: Any, device: str, precision: str, n: int, best: Callable[..., float]) -> float:
    kind = {"bf16": torch.bfloat16, "fp64": torch.float64}.get(precision, torch.float32)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        a, b = (torch.randn(n, n, device=device, dtype=kind) for _ in range(2))
        out = torch.empty_like(a)
        seconds = best(lambda: torch.mm(a, b, out=out))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return float(2 * n**3 / seconds)


def _graph_launch(torch: Any, one: Any, count: int, best: Callable[..., float]) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            one.add_(1)
    return best(graph.replay) / count
