"""``python -m foldbatch.bench`` is the command ``foldbatch bench``."""

from __future__ import annotations

import subprocess
import sys


def test_wrong_options_are_refused() -> None:
    """Status 2 and the reason; without a case it is sst that is asked."""
    asked = [sys.executable, "-m", "foldbatch.bench", "--batch", "0"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m foldbatch.bench sst")
    assert "argument --batch: expected 1 or more, found 0" in done.stderr
