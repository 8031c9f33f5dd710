"""What the driver says of a card is read; without one the CPU stands for it."""

from __future__ import annotations

import pytest

from benchmarks.gpu import card
from benchmarks.gpu.rates import QUICK, measure


def test_the_driver_s_words_are_read_by_field(monkeypatch, tmp_path):
    script = tmp_path / "nvidia-smi"
    script.write_text("#!/bin/sh\necho 'NVIDIA H200, 580.1'\n")
    script.chmod(0o755)
    monkeypatch.setattr(card.shutil, "which", lambda name: str(script))
    assert card.told(("name", "driver_version")) == {"name": "NVIDIA H200", "driver_version": "580.1"}
    script.write_text("#!/bin/sh\nexit 9\n")
    assert card.told(("name",)) == {}


def test_without_a_card_the_cpu_is_waited_for_at_once():
    found = card.find_card("cuda-on-cpu")
    assert not found.is_gpu and found.cupy is None
    found.wait()
    found.forget()
    assert card.imported("no_such_module") is None


def test_rates_are_measured_where_there_is_pytorch():
    found = card.find_card("cuda-on-cpu")
    rates, failed = measure(found, QUICK)
    if found.torch is None:
        assert not rates and "PyTorch is not installed" in failed["all rates"]
        pytest.skip("PyTorch is not installed")
    assert not failed and all(value > 0 for value in rates.values())
    assert {"copy", "upload", "download", "product fp32", "launch", "round trip"} <= set(rates)
