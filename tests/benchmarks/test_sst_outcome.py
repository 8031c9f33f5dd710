"""Figures that follow from what was measured, by hand."""

from __future__ import annotations

import pytest

from benchmarks.floor import Counts
from benchmarks.measure import Timing
from benchmarks.sst_outcome import Found


def _t(seconds: float) -> Timing:
    return Timing(seconds, seconds, seconds, 3)


FOUND = Found(
    hidden=10,
    batch=4,
    batches=2,
    counts=Counts(trees=8, leaves=16, words=6, inner=8),
    timings={
        "ours": {"train": _t(0.5), "infer": _t(0.2)},
        "ours, new examples": {"train": _t(0.8), "infer": _t(0.4)},
        "Peer slow": {"train": _t(2.0), "infer": _t(0.1)},
        "Peer slower": {"train": _t(4.0), "infer": _t(1.0)},
    },
    busy={"ours": {"train": _t(1.0), "infer": _t(0.4)}},
    one={"train": _t(0.25), "infer": _t(0.1)},
    phases={"forward": 0.2, "backward": 0.3},
    trace=_t(0.1),
    rate=1e5,
    report="",
)


def test_rates_ratios_and_shares() -> None:
    assert FOUND.ours == "ours"
    assert FOUND.per_second("ours", "train") == 8
    assert FOUND.speedup("train") == 2
    assert FOUND.best_peer("train") == "Peer slow"
    assert [FOUND.ratio(name, "train") for name in (FOUND.ours, FOUND.new)] == [4, 2.5]
    assert FOUND.ratio(FOUND.ours, "infer") == 0.5
    assert FOUND.kept("ours", "train") == 0.5
    operations = 3 * 2 * (6 * 300 + 8 * 1000 + 24 * 50)
    assert FOUND.floor("train", shared=True) == pytest.approx(operations / 2 / 1e5)
    assert FOUND.of_floor("train", shared=True) == pytest.approx(operations / 1e5)
    assert FOUND.floor("train", shared=False) > FOUND.floor("train", shared=True)
