"""Tests, and programs that look for faults: ``python -m tests.mutants``, which need what tests need."""

import importlib.util
import sys

for name in ("pytest", "hypothesis"):
    if name not in sys.modules and not importlib.util.find_spec(name):
        sys.exit(f"tests: expected the package {name}, found none; run pip install -e '.[dev]'")
