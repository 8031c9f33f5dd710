"""Jobs run in order, each part once, and find arrays where they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.llvm
ADD = """# i8 i8
def loop(n, x, y, s):
    for i in range(n):
        y[i] += x[i] + s[0]
"""


@pytest.fixture
def jobs() -> Any:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.engines.llvm import jobs  # noqa: PLC0415 - it needs llvmlite

    return jobs


def test_the_address_of_an_array_is_that_of_its_first_number(jobs: Any) -> None:
    class Own(np.ndarray):
        pass

    table = np.zeros((4, 5), "float32")
    for array in (table, table[1:], table[2, 3:], table.T, table.view(Own)[1:], np.zeros(()), np.zeros(0)):
        assert jobs.address_of(array) == array.ctypes.data


@pytest.mark.parametrize("helped", [False, True])
def test_each_unit_of_each_job_is_done_once_and_in_order(jobs: Any, monkeypatch: Any, helped: bool) -> None:
    from foldbatch.engines.llvm import team  # noqa: PLC0415 - it needs llvmlite
    from foldbatch.engines.llvm.compiling import native  # noqa: PLC0415 - and this

    monkeypatch.setattr(team, "available_cores", lambda: 2)
    helper = team.Team() if helped else None
    sizes = (0, 1, 3 * jobs.EACH + 5, 2 * jobs.EACH * jobs.MOST + 1)
    for _ in range(3):
        arrays, some = [(np.arange(n), np.zeros(n, np.int64)) for n in sizes], jobs.Jobs()
        for x, y in arrays:
            some.add(native(ADD), len(x), (x, y), (8, 8), len(x), 7)
            some.add(native(ADD), len(x), (x.copy(), y), (8, 8), len(x), 1)
            some.add(native(ADD), len(x), (np.full(1, 5), y[:1]), (0, 0), 0) if len(x) == 1 else None
        some.run(helper)
        for x, y in arrays:
            np.testing.assert_array_equal(y, 2 * x + 8 + 5 * (len(x) == 1))
