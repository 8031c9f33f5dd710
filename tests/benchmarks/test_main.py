"""``python -m benchmarks`` runs from the root of a checkout, and says what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_wrong_options_are_refused() -> None:
    """Status 2 and the reason; without a case it is sst that is asked."""
    asked = [sys.executable, "-m", "benchmarks", "--batch", "0"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m benchmarks sst")
    assert "argument --batch: expected 1 or more, found 0" in done.stderr


def test_without_rich_one_line_says_what_to_install() -> None:
    """The package itself does without it."""
    code = (
        "import runpy, sys; sys.modules['rich'] = None; runpy.run_module('benchmarks', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode != 0
    assert done.stderr == (
        "error: benchmarks: expected rich to be installed, found none; pip install -e '.[bench]'\n"
    )
