"""Recipes of examples/guests as modules; one whose library is not installed skips its tests."""

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "guests"


@pytest.fixture
def recipe(monkeypatch):
    """Return a function from the name of a recipe to its module."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def load(name):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (FOLDER / f"{error.name}.py").exists() or (error.name or "").startswith("foldbatch"):
                raise
            pytest.skip(f"needs {error.name}: pip install -e '.[guests]'")

    yield load
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)
