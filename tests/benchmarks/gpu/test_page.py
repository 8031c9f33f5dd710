"""The page holds all that was found."""

from __future__ import annotations

from benchmarks.gpu.page import page
from benchmarks.gpu.record import Check, Record, Row


def row(who: str, seconds: float, batch: int = 4) -> Row:
    return Row("SST Tree-LSTM", "train", who, 150, batch, seconds, seconds, seconds, seconds / 2, 3)


def test_times_stand_by_batch_with_the_gain_over_the_best_peer():
    record = Record(
        rows=[
            row("foldbatch", 0.002),
            row("foldbatch", 0.004, 16),
            row("PyTorch by level", 0.006),
            row("PyTorch by level, CUDA graph", 0.003),
            row("PyTorch by level, CUDA graph, tf32", 0.001),
        ]
    )
    text = page(record)
    assert "| training step, ms a batch | batch 4 | batch 16 |" in text
    assert "| foldbatch | 2 (1) | 4 (2) |" in text
    assert "| PyTorch's best over foldbatch | 1.50x |  |" in text
    assert "| examples a second, foldbatch | 2,000 | 4,000 |" in text


def test_checks_rates_steps_and_what_was_left_out_are_told():
    cost = dict.fromkeys(
        (
            "launches",
            "products",
            "copies",
            "fills",
            "copies_in",
            "bytes_in",
            "copies_out",
            "bytes_out",
            "waits",
        ),
        7,
    )
    step = {
        "model": "m",
        "batch": 2,
        "levels": 5,
        "phases": {"merge": 0.001},
        "device": 0.0005,
        "cost": {"forward": cost},
        "floor": {"bytes": 0.002},
        "launch model": {"forward": {"launches": (3.0, 1.5), "copies": (0.0, 0.0)}},
    }
    record = Record(
        facts={"date": "today", "card": {"name": "a card"}},
        rates={"copy": 4e12, "launch": 3e-6},
        checks=[Check("law", "failed", "why | how")],
        steps=[step],
        ways=[
            {"where": "m, batch 2", "way": "straight", "launches": 100.5, "bytes in": 1234.0},
            {"where": "m, batch 2", "way": "captured", "launches": 1.0, "hit rate": 0.97},
        ],
        left_out={"a part": "no time"},
    )
    text = page(record)
    for line in (
        "- date: today",
        "- card name: a card",
        "| copy | 4000 GB/s |",
        "| law | failed | why / how |",
        "### m, batch 2, 5 levels",
        "| m, batch 2 | straight | 100.5 |  |  | 1,234 |  |  |  |  |  |",
        "| m, batch 2 | captured | 1 |  |  |  |  |  | 0.97 |  |  |",
        "| the card, all of a step | 0.500 |",
        "| forward | launches | 3.0 | 1.50 |",
        "| bytes | 2.000 |",
        "| a part | no time |",
    ):
        assert line in text
    assert "| forward | copies |" not in text
    assert not record.passed
