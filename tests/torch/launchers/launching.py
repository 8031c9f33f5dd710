"""Starting what a launcher starts, as a user does in a shell."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "examples" / "clusters"
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node")


def launched(*arguments, folder=ROOT, limit=240, **environment):
    """Return the finished process of Python with arguments after ``-m``, or a program.

    It sees the checkout, and NumPy computes.
    """
    paths = {"PYTHONPATH": str(ROOT), "FOLDBATCH_BACKEND": "numpy", "OMP_NUM_THREADS": "1"}
    first = [] if isinstance(arguments[0], Path) else ["-m"]
    command = [sys.executable, *first, *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **paths, **environment},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )
