"""Example programs are no package: a test gets one by the path of its file."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def load() -> Callable[[str], ModuleType]:
    """A function that imports an example program: ``load("trees/calculator")``."""

    def imported(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"example_{Path(name).stem}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return imported
