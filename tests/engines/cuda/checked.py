"""Programs of the CUDA engine on a driver that records, guards and delays: no faults, and the same numbers always."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import numpy as np

from foldbatch.engines.cuda import on_cpu
from foldbatch.engines.cuda.drivers.driver import Driver
from foldbatch.engines.cuda.drivers.emulator import Emulator
from foldbatch.engines.cuda.recording.calls import describe
from foldbatch.engines.cuda.recording.faults import faults
from foldbatch.engines.cuda.recording.guarded import Guarded
from foldbatch.engines.cuda.recording.late import Late
from foldbatch.engines.cuda.recording.recorder import Recorder

# How eager the streams are: the one that computes, then the one that copies batches to the device.
ORDERS: dict[str, tuple[float, float]] = {
    "at once": (1, 1),
    "late": (0, 0),
    "copies first": (0, 1),
    "computing first": (1, 0),
    "mixed": (0.2, 0.2),
}


def recorder(order: str = "late", *, hides: bool = False, driver: Driver | None = None) -> Recorder:
    """Return a recorder over a driver that is late, over one that guards its memory, over the emulator."""
    return Recorder(Late(Guarded(driver or Emulator(), hides=hides), ORDERS[order]))


def assert_faultless(recorded: Recorder, allowed: Sequence[str] = ()) -> None:
    """Fail where a record has faults but of the rules that are allowed; see `foldbatch.engines.cuda.recording.faults`."""
    calls = recorded.finish()
    wrong = [fault for fault in faults(calls) if fault.rule not in allowed]
    shown = "\n".join(f"{fault.rule} in call {fault.call}: {fault.text}" for fault in wrong[:20])
    if wrong:
        last = wrong[0].call
        assert not wrong, (
            f"{len(wrong)} faults\n{shown}\nup to the first:\n{describe(calls[: last + 1], last - 20)}"
        )


@contextmanager
def recording(recorded: Recorder | None = None, allowed: Sequence[str] = ()) -> Iterator[Recorder]:
    """Let programs that are compiled for "cuda-on-cpu" use a recorder; fail at the end where there are faults."""
    recorded = recorded or recorder()
    device = cache(on_cpu.device.__wrapped__)  # a new one: the usual one has its driver already
    with mock.patch.multiple(on_cpu, DRIVER=lambda: recorded, device=device):
        yield recorded
    gc.collect()
    assert_faultless(recorded, allowed)


def in_every_order(run: Callable[[], Any], *, hides: bool = False, allowed: Sequence[str] = ()) -> Any:
    """Run a program in every order of the device's work, and return what `run` returns, the same each time.

    Args:
        run: compiles for "cuda-on-cpu", and returns numbers: dicts, lists and arrays of the host.
        hides: see `foldbatch.engines.cuda.recording.guarded.Guarded`.
        allowed: rules that may be broken.
    """
    results = []
    for order in ORDERS:
        with recording(recorder(order, hides=hides), allowed):
            results.append(run())
        np.testing.assert_equal(results[-1], results[0], err_msg=f"the order of work is: {order}")
    return results[0]
