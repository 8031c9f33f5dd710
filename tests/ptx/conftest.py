"""Tests here may compile programs for the backend ``cuda-on-ptx``."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest

from foldbatch.engines.engine import ENGINES
from tests.ptx import register


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with mock.patch.dict(ENGINES):
        register()
        yield
