"""A plugin of pytest for CI: a later run leaves out the tests that an earlier one passed.

``FOLDBATCH_PASSED=FILE pytest ...`` leaves out the tests that the file names, and adds those that pass. So a run with
more libraries tries what the first one had to skip, and no test runs twice for the same engine.
"""

import os
from pathlib import Path

import pytest

VARIABLE = "FOLDBATCH_PASSED"


class Passed:
    """Names of the tests that passed, in a file; lines that break are written as spaces."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = set(path.read_text().splitlines()) if path.exists() else set[str]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [item for item in items if _line(item.nodeid) in self.before]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if _line(item.nodeid) not in self.before]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a test that passes; with several processes the one that collects their reports does so."""
        if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
            with self.path.open("a") as file:
                file.write(_line(report.nodeid) + "\n")


def _line(name: str) -> str:
    return " ".join(name.splitlines())
