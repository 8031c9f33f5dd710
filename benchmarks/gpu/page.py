"""The page of a run, in Markdown: the card, its rates, checks, times, a step's costs, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.gpu.record import Record, Row

TASKS = {"train": "training step", "infer": "inference"}
COUNTS = (
    "launches",
    "products",
    "copies",
    "fills",
    "copies_in",
    "bytes_in",
    "copies_out",
    "bytes_out",
    "waits",
)

ASKED = (
    "launches",
    "products apart",
    "copies in",
    "bytes in",
    "copies out",
    "waits",
    "hit rate",
    "graphs",
    "capture ms",
)
OURS = "foldbatch", "foldbatch, different trees"  # who is compared
TIMES_SAY = (
    "Median milliseconds of one batch, until the card had done it; in brackets until the call returned. "
    "The line before the last is the best of PyTorch over ours, with trees that were seen before."
)


def page(record: Record) -> str:
    """Return the page of all that was found."""
    parts = [
        "# The CUDA engine on a card",
        _facts(record.facts),
        "## Rates of the card",
        _rates(record.rates),
        "## Checks",
        _table(("check", "outcome", "found"), [(c.name, c.state, c.found) for c in record.checks]),
        "## Times",
        TIMES_SAY,
        *_times(record.rows),
        "## Ways to launch a training step",
        _ways(record.ways),
        "## Where a step's time goes",
        *_steps(record.steps),
        "## Left out",
        _table(("part", "why"), record.left_out.items()),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _facts(facts: dict[str, Any]) -> str:
    lines = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += [f"- {name} {inner}: {text}" for inner, text in value.items()]
        else:
            lines.append(f"- {name}: {value}")
    return "\n".join(lines)


def _rates(rates: dict[str, float]) -> str:
    return _table(("rate", "measured"), [(name, spelled_rate(name, value)) for name, value in rates.items()])


def spelled_rate(name: str, value: float) -> str:
    """Return a rate with its unit.

    >>> spelled_rate("copy", 4.3e12), spelled_rate("product tf32", 4e14), spelled_rate("launch", 3e-6)
    ('4300 GB/s', '400.0 TFLOP/s', '3.0 us')
    """
    if name.startswith("product"):
        return f"{value / 1e12:.1f} TFLOP/s"
    if name in ("copy", "upload", "download"):
        return f"{value / 1e9:.0f} GB/s"
    return f"{value * 1e6:.1f} us"


def _times(rows: Sequence[Row]) -> list[str]:
    """Return a table for each model, task and size: a line for each contender, a column for each batch."""
    parts = []
    groups = dict.fromkeys((row.model, row.task, row.hidden) for row in rows)
    for model, task, hidden in sorted(groups, key=lambda key: (key[0], key[2], key[1] != "train")):
        own = [row for row in rows if (row.model, row.task, row.hidden) == (model, task, hidden)]
        batches = sorted({row.batch for row in own})
        by = {(row.who, row.batch): row for row in own}
        lines = []
        for who in dict.fromkeys(row.who for row in own):
            cells = [_cell(by.get((who, batch))) for batch in batches]
            lines.append((who, *cells))
        gains = tuple(_gain(own, batch) for batch in batches)
        lines.append(("PyTorch's best over foldbatch", *gains))
        lines.append(("examples a second, foldbatch", *(_rate(own, batch) for batch in batches)))
        parts += [
            f"### {model}, hidden {hidden}: {TASKS.get(task, task)}",
            _table((f"{TASKS.get(task, task)}, ms a batch", *(f"batch {batch}" for batch in batches)), lines),
        ]
    return parts


def _cell(row: Row | None) -> str:
    return "" if row is None else f"{row.seconds * 1e3:.3g} ({row.host * 1e3:.3g})"


def _ours(rows: Iterable[Row], batch: int) -> list[Row]:
    return [row for row in rows if row.batch == batch and row.who in OURS]


def _rate(rows: Iterable[Row], batch: int) -> str:
    return "".join(f"{row.rate:,.0f}" for row in _ours(rows, batch)[:1])


def _gain(rows: Sequence[Row], batch: int) -> str:
    """Return the quickest peer's time over ours, both in fp32 and from trees."""
    others = "tf32", "bf16", "planned before"
    at = [row for row in rows if row.batch == batch and not any(word in row.who for word in others)]
    ours = [row.seconds for row in _ours(at, batch)]
    peers = [row.seconds for row in at if row.who.startswith("PyTorch")]
    return f"{min(peers) / ours[0]:.2f}x" if ours and peers else ""


def _ways(ways: Sequence[dict[str, Any]]) -> str:
    """Return what a training step asks of the card, by the way it is launched."""
    lines = [
        (each["where"], each["way"], *(f"{each[name]:,.6g}" if name in each else "" for name in ASKED))
        for each in ways
    ]
    return _table(("training step", "way", *ASKED), lines)


def _steps(steps: Sequence[dict[str, Any]]) -> list[str]:
    parts = []
    for step in steps:
        parts.append(f"### {step['model']}, batch {step['batch']}, {step['levels']} levels")
        shares = [(name, f"{seconds * 1e3:.3f}") for name, seconds in step["phases"].items()]
        if "device" in step:
            shares.append(("the card, all of a step", f"{step['device'] * 1e3:.3f}"))
        parts.append(_table(("phase", "ms"), shares))
        if "cost" in step:
            rows = [(name, *(f"{cost[count]:,}" for count in COUNTS)) for name, cost in step["cost"].items()]
            parts.append(_table(("asked of the card", *COUNTS), rows))
            floors = [(name, f"{seconds * 1e3:.3f}") for name, seconds in step["floor"].items()]
            parts.append(_table(("floor", "ms"), floors))
        if model := step.get("launch model"):
            rows = [
                (direction, kind, f"{fixed:.1f}", f"{slope:.2f}")
                for direction, kinds in model.items()
                for kind, (fixed, slope) in kinds.items()
                if fixed or slope
            ]
            parts.append(_table(("direction", "asked of the card", "fixed", "per level"), rows))
    return parts


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; nothing without rows.

    >>> print(_table(("a", "b"), [("1", "2|3")]))
    | a | b |
    |---|---|
    | 1 | 2/3 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *lines])
