"""All tests of this folder run twice: on the CPU, and on a card that is emulated there (`tests.torch.card`)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FORMS = "cpu", "card"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of this folder itself in both forms, but for those marked `one_form`."""
    alone = metafunc.definition.get_closest_marker("one_form") is not None
    if Path(metafunc.module.__file__).parent == HERE and find_spec("torch") and not alone:
        metafunc.parametrize("form", FORMS, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The device of modules that a test makes: None for the CPU, or the emulated card."""
    if getattr(request, "param", "cpu") == "cpu":
        yield None
        return
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    from tests.torch.card import on_card  # noqa: PLC0415 - it needs PyTorch

    with on_card() as there:
        yield there
