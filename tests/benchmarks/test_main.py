"""``python -m benchmarks`` runs from the root of a checkout, and says what it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


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
