"""How many cores a process may use: by affinity, by quota, and by what the user says."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import foldbatch as fb
from foldbatch.engines.threads import in_threads
from foldbatch.errors import BackendError
from foldbatch.system import cores


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of that of control groups, and 64 cores."""
    monkeypatch.setattr(cores, "CONTROL", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.delenv(cores.VARIABLE, raising=False)
    monkeypatch.setattr(cores, "quota", cores.quota.__wrapped__)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000\n"}, 64),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "nonsense"}, 64),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 64),
        ({"cpu/cpu.cfs_quota_us": "800000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
    ],
)
def test_a_quota_bounds_the_cores(control: Path, files: dict[str, str], count: int) -> None:
    for name, text in files.items():
        (control / name).parent.mkdir(exist_ok=True)
        (control / name).write_text(text, encoding="utf-8")
    assert cores.available_cores() == count


def test_the_variable_decides(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cores.VARIABLE, "5")
    assert fb.compile(fb.Scalar(), "numpy").options.threads == 5
    assert fb.compile(fb.Scalar(), "numpy", threads=2).options.threads == 2
    for wrong in ("0", "-1", "many", "1.5", "²"):
        monkeypatch.setenv(cores.VARIABLE, wrong)
        with pytest.raises(BackendError, match="FOLDBATCH_THREADS: expected a number of threads, 1 or more"):
            fb.compile(fb.Scalar(), "numpy")


def test_parts_stay_on_nodes_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(before) < 2:
        pytest.skip("this process may use one core")
    first, *others = sorted(before)
    for node, text in enumerate((f"{first}", ",".join(f"{core}-{core}" for core in others), "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(text + "\n", encoding="utf-8")
    monkeypatch.setattr(cores, "NODES", tmp_path)
    monkeypatch.setattr(cores, "nodes", cores.nodes.__wrapped__)
    with ThreadPoolExecutor(1) as pool:
        found = in_threads(pool, [lambda: os.sched_getaffinity(0)] * 3)
        assert found == [{first}, set(others), {first}]
        with pytest.raises(ZeroDivisionError):
            in_threads(pool, [lambda: 1 // 0] * 2)
        assert os.sched_getaffinity(0) == before == pool.submit(os.sched_getaffinity, 0).result()
