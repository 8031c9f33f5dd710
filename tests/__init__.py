"""Tests, and programs that look for faults: ``python -m tests.mutants``, which need what tests need.

Python keeps what it compiles of the package, which is imported after this, whatever PYTHONDONTWRITEBYTECODE says: tests
start Python a hundred times, in as many processes as there are cores, and each would compile all anew.
"""

import importlib.util
import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

for name in ("pytest", "hypothesis"):
    if name not in sys.modules and not importlib.util.find_spec(name):
        sys.exit(f"tests: expected the package {name}, found none; run pip install -e '.[dev]'")
