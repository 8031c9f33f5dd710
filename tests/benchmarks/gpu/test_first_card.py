"""The first ten minutes on a card run without one, late or not; a fault is a failed part, and the others go on."""

from functools import cache
from unittest import mock

import pytest

from benchmarks.gpu import first_card
from benchmarks.gpu.first_card import first_parts, main
from foldbatch.engines.cuda.device import Device
from tests.engines.cuda import on_cpu
from tests.engines.cuda.emulated import gpu_answers, needs_compiler
from tests.engines.cuda.emulator import Emulator
from tests.engines.cuda.late import Late

TRIED = ["--backend", "cuda-on-cpu", "--quick"]
PARTS = (
    "what is there",
    "memory, copies, two streams, one kernel",
    "cuBLAS",
    "capture beside a busy thread",
    "the engine, straight",
    "the engine, captured",
    "milliseconds of a step, hidden 6, batch 3",
    "milliseconds of a step, hidden 6, batch 1",
    "with and without overlap, straight",
    "with and without overlap, captured",
    "graphs alone, batch 3",
    "graphs alone, batch 1",
    "kernels on trial",
    "memory runs out",
)


def assert_all_parts(printed: str) -> None:
    """Assert that all parts ran, in order of risk, each with what it decides."""
    places = [printed.index(f"s: {part} (") for part in PARTS]
    assert places == sorted(places)
    assert printed.count("         decides: ") == len(PARTS)


@needs_compiler
def test_each_part_runs_and_prints_what_it_decides(capsys):
    assert main(TRIED) == 0
    printed = capsys.readouterr().out
    assert_all_parts(printed)
    assert "failed" not in printed
    assert "a graph holds its own work" in printed
    assert "captured: launches 1, products apart 0, copies in 1," in printed


class Unordered(Late):
    """A card whose streams wait for no events."""

    def wait(self, stream, event):
        """Do nothing."""


@needs_compiler
def test_a_card_with_a_fault_fails(capsys):
    made = cache(lambda: Device(Unordered(Emulator(), (0.5, 0), 3)))
    chosen = mock.patch.object(
        first_card, "first_parts", lambda run: first_parts(run)[:2]
    )  # no model could run
    with mock.patch.object(on_cpu, "device", made), chosen:
        assert main(TRIED) == 1
    said = capsys.readouterr().out
    assert f"failed: {PARTS[1]}: AssertionError: expected that events order the two streams" in said


@pytest.mark.skipif(gpu_answers(), reason="there is a card")
def test_without_a_card_it_says_what_is_missing(capsys):
    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: backend cuda: expected ")
